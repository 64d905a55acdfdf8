package main

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

type mvOptions struct {
	keep, exchange, plain, force bool
	into                         string
}

func newMv() *cobra.Command {
	var f urlFlag
	var a account
	var o mvOptions
	cmd := &cobra.Command{
		Use:   "mv SOURCE... DESTINATION",
		Short: "Rename files and directories",
		Long: `Renames SOURCE to DESTINATION, or moves each SOURCE into DESTINATION if that is a
directory. What has the new name already is replaced, atomically: everybody sees the old one or
the new one. No data is moved, however large the files are. An open file stays open under its new
name.

All names are on one cluster. Between clusters, and to and from this host: sluice cp -a, then rm.`,
		Example: "  sluice mv /results.tmp /results\n  sluice mv /a /b /archive/\n" +
			"  sluice mv -n /upload /final      # leaves an existing /final alone\n" +
			"  sluice mv --exchange /current /next",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.keep && o.exchange {
				return refuse("-n and --exchange contradict each other", "Leave one out")
			}
			return a.move(&f, args, &o)
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&o.keep, "no-clobber", "n", false, "do not move where the new name is taken")
	fl.BoolVarP(&o.force, "force", "f", false, "replace what has the new name, as always")
	fl.BoolVar(&o.exchange, "exchange", false, "swap the two names; both must exist")
	fl.BoolVarP(&o.plain, "no-target-directory", "T", false,
		"DESTINATION is the new name, even if it is a directory")
	fl.StringVarP(&o.into, "target-directory", "t", "", "move all SOURCEs into this `DIRECTORY`")
	a.add(cmd)
	return cmd
}

func (a *account) move(f *urlFlag, args []string, o *mvOptions) error {
	return a.targets(f, args, o.into, o.plain || o.exchange,
		func(fs *client.FS, from, to string) error {
			ctx := a.cmd.Context()
			var err error
			action := "renamed"
			switch {
			case o.exchange:
				action, err = "exchanged", fs.Exchange(ctx, from, to)
			case o.keep:
				err = fs.RenameNoReplace(ctx, from, to)
				if errs.KindOf(err) == errs.Exists {
					a.did(deed{"kept", from, to})
					return nil
				}
			default:
				err = renameOver(ctx, fs, from, to)
			}
			if err != nil {
				return renameAdvice(err, from, to)
			}
			a.did(deed{action, from, to})
			return nil
		})
}

// renameOver is rename(2) with the complaints of mv(1).
func renameOver(ctx context.Context, fs *client.FS, from, to string) error {
	old, err := fs.Lstat(ctx, from)
	if err != nil {
		return err
	}
	if there, err := fs.Lstat(ctx, to); err == nil && there.Ino == old.Ino {
		return refuse(from+" and "+to+" are the same file", "Remove one of the names: sluice rm")
	}
	return fs.Rename(ctx, from, to)
}

func renameAdvice(err error, from, to string) error {
	switch {
	case errs.KindOf(err) == errs.Invalid && strings.HasPrefix(to+"/", from+"/"):
		return hint(err, "A directory cannot be moved into itself")
	case errs.KindOf(err) == errs.NotEmpty:
		return hint(err, "%s is a directory that holds something: remove it first", to)
	}
	return err
}

// targets calls fn with every source and what it becomes: the last argument, or a name in it if it
// is a directory, or in the directory into. All must be on one cluster.
func (a *account) targets(f *urlFlag, args []string, into string, plain bool,
	fn func(fs *client.FS, from, to string) error) error {
	last := into
	if into == "" {
		if len(args) < 2 {
			return refuse("the destination is missing", "See: sluice help "+a.cmd.Name())
		}
		last, args = args[len(args)-1], args[:len(args)-1]
	}
	s := newClusters(f)
	dst, dstPath, err := s.open(a.cmd.Context(), last)
	isDir := false
	if err == nil {
		isDir, err = clusterDir(a.cmd.Context(), dst, dstPath)
	}
	switch {
	case err != nil:
	case !isDir && (len(args) > 1 || into != "" ||
		strings.HasSuffix(last, "/") && !plain && !dirArg(args)):
		err = refuse(last+" is no directory", "Make it first: sluice mkdir")
	case plain && len(args) > 1:
		err = refuse("several sources cannot all become "+last, "Leave -T out, or name one source")
	}
	if err != nil {
		s.forget()
		return err
	}
	for _, arg := range args {
		fs, from, err := s.open(a.cmd.Context(), arg)
		if err == nil && fs != dst {
			err = refuse(arg+" is on another cluster than "+last, "Copy it: sluice cp -a")
		}
		to := dstPath
		if isDir && !plain {
			to = path.Join(dstPath, path.Base(from))
		}
		if err == nil {
			err = fn(fs, from, to)
		}
		if err != nil {
			a.failed(arg, err)
		}
	}
	return a.end(s)
}

// dirArg tells whether the only source is written as a directory: then the new name may be, too.
func dirArg(args []string) bool { return len(args) == 1 && strings.HasSuffix(args[0], "/") }

// clusterDir tells whether a path names a directory. One that names nothing does not.
func clusterDir(ctx context.Context, fs *client.FS, name string) (bool, error) {
	a, err := fs.Stat(ctx, name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && a.Type == meta.Directory, err
}
