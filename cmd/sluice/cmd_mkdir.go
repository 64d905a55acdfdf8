package main

import (
	"context"
	"io/fs"
	"path"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func newMkdir() *cobra.Command {
	var f urlFlag
	var a account
	var parents bool
	var mode string
	cmd := &cobra.Command{
		Use:   "mkdir PATH...",
		Short: "Make directories",
		Long: `Makes directories. Their rights are those that the umask leaves of rwxrwxrwx, or what -m
says. With -p missing directories above are made too, with the usual rights and w and x for the
owner whatever the umask is, and what is there already is fine.`,
		Example: "  sluice mkdir /data\n  sluice mkdir -p /data/2026/11\n" +
			"  sluice mkdir -m 1777 /shared      # everybody may write, and remove own files only",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			perm := 0o777 &^ umask()
			if mode != "" {
				m, err := parseModeChange(mode)
				if err != nil {
					return err
				}
				perm = m.apply(0o777&^umask(), true)
			}
			return a.run(&f, args, func(fs *client.FS, path string) error {
				if parents {
					return a.makeAll(cmd.Context(), fs, path, perm, mode != "")
				}
				return a.makeDir(cmd.Context(), fs, path, perm, mode != "")
			})
		},
		ValidArgsFunction: completeDirs(&f),
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&parents, "parents", "p", false,
		"make missing directories above it too; an existing one is fine")
	cmd.Flags().StringVarP(&mode, "mode", "m", "", "the rights, as `MODE` of chmod: 750, u=rwx,go=rx")
	a.add(cmd)
	return cmd
}

func (a *account) makeDir(ctx context.Context, c *client.FS, at string, perm fs.FileMode,
	exact bool) error {
	err := c.Mkdir(ctx, at, perm)
	if err == nil && exact {
		err = c.Chmod(ctx, at, perm) // the directory above may have added its own bits
	}
	if err != nil {
		return hintMissingParent(err)
	}
	a.did(deed{Action: "made", Path: at})
	return nil
}

// makeAll is mkdir -p.
func (a *account) makeAll(ctx context.Context, c *client.FS, at string, perm fs.FileMode,
	exact bool) error {
	if st, err := c.Stat(ctx, at); err == nil {
		if st.Type == meta.Directory {
			return nil
		}
		return errs.New(errs.NotDir, "mkdir", at, nil)
	}
	if up := path.Dir(at); up != at {
		if err := a.makeAll(ctx, c, up, 0o777&^umask()|0o300, false); err != nil {
			return err
		}
	}
	err := a.makeDir(ctx, c, at, perm, exact)
	if errs.KindOf(err) == errs.Exists { // somebody else was faster
		if st, serr := c.Stat(ctx, at); serr == nil && st.Type == meta.Directory {
			return nil
		}
	}
	return err
}
