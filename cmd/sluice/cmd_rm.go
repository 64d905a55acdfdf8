package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

type rmOptions struct {
	recursive, force, dirs bool
}

func newRm() *cobra.Command {
	var f urlFlag
	var a account
	var o rmOptions
	cmd := &cobra.Command{
		Use:   "rm PATH...",
		Short: "Remove files and directories",
		Long: `Removes names. A directory is removed with -d if it is empty, with -r together with
all that it holds: its name is gone when the command returns, what was below it is removed by the
metadata service in the background, and nothing is if the caller may not remove all of it. A file
that somebody has open lives on until it is closed. There is no way back.`,
		Example: "  sluice rm /old.log /older.log\n  sluice rm -r /scratch/run17\n" +
			"  sluice rm -rf /cache             # fine if it is not there",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !o.force {
				return cobra.MinimumNArgs(1)(cmd, args)
			}
			return a.run(&f, args, func(fs *client.FS, path string) error {
				err := removePath(cmd.Context(), fs, path, &o)
				if o.force && errs.KindOf(err) == errs.NotFound {
					return nil
				}
				if err == nil {
					a.did(deed{Action: "removed", Path: path})
				}
				return err
			})
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&o.recursive, "recursive", "r", false, "remove directories with all they hold")
	addAlso(cmd, &o.recursive, "R")
	fl.BoolVarP(&o.force, "force", "f", false, "what is not there is fine")
	fl.BoolVarP(&o.dirs, "dir", "d", false, "remove empty directories")
	a.add(cmd)
	return cmd
}

func removePath(ctx context.Context, fs *client.FS, path string, o *rmOptions) error {
	if path == "/" {
		return refuse("refusing to remove /", "Name what is in it, see: sluice ls /")
	}
	st, err := fs.Lstat(ctx, path)
	if err != nil {
		return err
	}
	switch {
	case st.Type == meta.Directory && o.recursive:
		return fs.RemoveAll(ctx, path)
	case st.Type == meta.Directory && !o.dirs:
		return refuse(path+" is a directory",
			"Add -r to remove it with all that it holds, -d if it is empty")
	}
	return fs.Remove(ctx, path)
}
