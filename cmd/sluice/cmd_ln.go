package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

type lnOptions struct {
	symbolic, force, plain, relative, itself bool
	into                                     string
}

func newLn() *cobra.Command {
	var f urlFlag
	var a account
	var o lnOptions
	cmd := &cobra.Command{
		Use:   "ln [-s] TARGET... LINK",
		Short: "Make hard and symbolic links",
		Long: `Gives a file a second name, or with -s makes a symbolic link. If LINK is a directory, the
links are made in it under the names of their targets.

The target of a symbolic link is a text that is stored as it is: a path on the cluster, from its
root, or relative to the folder of the link. It need not exist. With -r an absolute target is
turned into a relative one, which is right on a mount, too, wherever that is. With -f what has the
name already is replaced, atomically; directories are not.`,
		Example: "  sluice ln /data/big /big               # a second name\n" +
			"  sluice ln -s ../data/run17 /runs/latest\n" +
			"  sluice ln -sfr /data/run18 /runs/latest  # replaces the link",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.relative && !o.symbolic {
				return refuse("-r without -s", "Only symbolic links have a target that can be relative")
			}
			if !o.symbolic {
				return a.targets(&f, args, o.into, o.plain, o.linker(&a))
			}
			return a.symlinks(&f, args, &o)
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&o.symbolic, "symbolic", "s", false, "make symbolic links")
	fl.BoolVarP(&o.force, "force", "f", false, "replace what has the name already")
	fl.BoolVarP(&o.relative, "relative", "r", false, "with -s: make targets relative to the link")
	fl.BoolVarP(&o.plain, "no-target-directory", "T", false,
		"LINK is the name to make, even if it is a directory")
	fl.BoolVarP(&o.itself, "no-dereference", "n", false,
		"as -T where LINK is a symbolic link to a directory")
	fl.StringVarP(&o.into, "target-directory", "t", "", "make all links in this `DIRECTORY`")
	a.add(cmd)
	return cmd
}

// linker makes hard links.
func (o *lnOptions) linker(a *account) func(fs *client.FS, from, to string) error {
	return func(fs *client.FS, from, to string) error {
		ctx := a.cmd.Context()
		err := fs.Link(ctx, from, to)
		if errs.KindOf(err) == errs.Exists && o.force {
			err = replace(a, fs, to, func(temporary string) error {
				return fs.Link(ctx, from, temporary)
			})
		}
		if k := errs.KindOf(err); k == errs.Perm || k == errs.IsDir {
			if st, serr := fs.Lstat(ctx, from); serr == nil && st.Type == meta.Directory {
				return refuse(from+" is a directory: it can have no second name",
					"Make a symbolic link: sluice ln -s")
			}
		}
		if err == nil {
			a.did(deed{"linked", to, from})
		}
		return err
	}
}

// symlinks makes symbolic links. The last argument is the only one that must be a path on a
// cluster.
func (a *account) symlinks(f *urlFlag, args []string, o *lnOptions) error {
	last := o.into
	if last == "" {
		if len(args) < 2 {
			return refuse("the name of the link is missing", "See: sluice help ln")
		}
		last, args = args[len(args)-1], args[:len(args)-1]
	}
	return a.run(f, []string{last}, func(fs *client.FS, at string) error {
		look := fs.Stat
		if o.itself {
			look = fs.Lstat
		}
		st, err := look(a.cmd.Context(), at)
		isDir := err == nil && st.Type == meta.Directory
		if !isDir && (len(args) > 1 || o.into != "") {
			return refuse(last+" is no directory", "Make it first: sluice mkdir")
		}
		for _, target := range args {
			to := at
			if isDir && !o.plain {
				to = path.Join(at, path.Base(target))
			}
			if err := a.symlink(fs, target, to, o); err != nil {
				a.failed(to, err)
			}
		}
		return nil
	})
}

func (a *account) symlink(fs *client.FS, target, to string, o *lnOptions) error {
	if strings.HasPrefix(target, scheme) {
		return refuse(target+" is no target of a link", "Write the path alone, without "+scheme)
	}
	if o.relative {
		if !strings.HasPrefix(target, "/") {
			return refuse(target+" is relative already", "Leave -r out, or begin it with a slash")
		}
		near, err := filepath.Rel(path.Dir(to), path.Clean(target))
		if err != nil {
			return err
		}
		target = near
	}
	ctx := a.cmd.Context()
	err := fs.Symlink(ctx, target, to)
	if errs.KindOf(err) == errs.Exists && o.force {
		err = replace(a, fs, to, func(temporary string) error {
			return fs.Symlink(ctx, target, temporary)
		})
	}
	if err == nil {
		a.did(deed{"linked", to, target})
	}
	return hintMissingParent(err)
}

// replace makes something under another name and renames it over what is there.
func replace(a *account, fs *client.FS, to string, make func(temporary string) error) error {
	ctx := a.cmd.Context()
	if st, err := fs.Lstat(ctx, to); err == nil && st.Type == meta.Directory {
		return refuse(to+" is a directory: it is not replaced", "Remove it first: sluice rm -r")
	}
	dir, name := path.Split(to)
	temporary := path.Join(dir, fmt.Sprintf(".%.200s.%d", name, os.Getpid()))
	if err := make(temporary); err != nil {
		return err
	}
	err := fs.Rename(ctx, temporary, to)
	// Two names of one file stay as they are when one is renamed over the other; and what could not
	// be renamed is not to stay either.
	if rerr := fs.Remove(ctx, temporary); err == nil && errs.KindOf(rerr) != errs.NotFound {
		err = rerr
	}
	return err
}
