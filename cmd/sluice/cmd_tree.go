package main

import (
	"context"
	"fmt"
	"io"
	iofs "io/fs"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// branch is a name with what is below it, as `sluice tree --json` shows it.
type branch struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"`
	Size     int64     `json:"size"`
	Target   string    `json:"target,omitempty"` // of a symbolic link
	Error    string    `json:"error,omitempty"`  // why it could not be read
	Contents []*branch `json:"contents,omitempty"`
}

// forest is all that one call shows.
type forest struct {
	Trees       []*branch `json:"trees"`
	Directories int64     `json:"directories"`
	Files       int64     `json:"files"`
}

type treeOptions struct {
	depth                         int
	dirs, all, sizes, human, full bool
	asJSON                        bool
	match                         string
}

func newTree() *cobra.Command {
	var f urlFlag
	var o treeOptions
	cmd := &cobra.Command{
		Use:   "tree [PATH...]",
		Short: "Draw directory trees",
		Long: `Draws what is below directories, indented, sorted by name, and counts it. Symbolic
links are shown with their targets and not followed. Names that begin with a dot are left out
unless -a is given. Nothing is drawn before a whole tree was read: bound large ones with -L.`,
		Example: "  sluice tree /data\n  sluice tree -L 2 -d /          # two levels of directories\n" +
			"  sluice tree -h -P '*.log' /logs\n  sluice tree --json /data | jq .files",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"/"}
			}
			if o.depth < 1 && cmd.Flags().Changed("level") {
				return refuse(fmt.Sprintf("-L %d", o.depth), "Choose a number from 1 on")
			}
			return runTree(cmd, &f, args, &o)
		},
		ValidArgsFunction: completeDirs(&f),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.IntVarP(&o.depth, "level", "L", 0, "go down at most `N` levels")
	fl.BoolVarP(&o.dirs, "dirs-only", "d", false, "show directories only")
	fl.BoolVarP(&o.all, "all", "a", false, "show names that begin with a dot")
	fl.BoolVarP(&o.sizes, "size", "s", false, "show sizes in bytes")
	fl.BoolVarP(&o.full, "full-path", "f", false, "show whole paths")
	fl.StringVarP(&o.match, "pattern", "P", "", "show files only whose names match this `GLOB`")
	addHuman(cmd, &o.human)
	addJSON(cmd, &o.asJSON, forest{})
	return cmd
}

func runTree(cmd *cobra.Command, f *urlFlag, args []string, o *treeOptions) error {
	g := grower{o: o, cmd: cmd, sum: forest{Trees: []*branch{}}}
	var err error
	if g.match, err = parseGlob(o.match, false); err != nil {
		return err
	}
	err = f.look(cmd, args, func(fs *client.FS, at string) error {
		b, err := g.tree(cmd.Context(), fs, at)
		if err != nil {
			return err
		}
		g.sum.Trees = append(g.sum.Trees, b)
		if !o.asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), g.label(b, at))
			g.draw(cmd.OutOrStdout(), b, at, "")
		}
		return nil
	})
	if o.asJSON {
		if perr := printJSON(cmd, g.sum); perr != nil {
			return perr
		}
	} else if len(g.sum.Trees) > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "\n%s", counted(g.sum.Directories, "directory", "directories"))
		if !o.dirs {
			fmt.Fprintf(cmd.OutOrStdout(), ", %s", counted(g.sum.Files, "file", "files"))
		}
		fmt.Fprintln(cmd.OutOrStdout())
	}
	if err == nil && g.failed {
		err = &exitError{code: 1}
	}
	return err
}

func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// grower reads trees.
type grower struct {
	o      *treeOptions
	cmd    *cobra.Command
	match  *glob
	sum    forest
	failed bool // some could not be read, which was said
}

func (g *grower) tree(ctx context.Context, fs *client.FS, root string) (*branch, error) {
	var open []*branch // from the root to where the walk is
	err := walkTree(ctx, fs, root, func(v visit) error {
		switch {
		case v.err != nil:
			g.failed = true
			open[v.depth].Error = v.err.Error()
			complain(g.cmd, v.err)
			return nil
		case v.leave:
			return nil
		case v.depth > 0 && !g.shows(&v):
			return skip(&v)
		}
		b := &branch{Name: v.name, Type: typeText(v.attr.Type), Size: v.attr.Size}
		if v.attr.Type == meta.Symlink {
			b.Target = linkTarget(ctx, fs, v.path)
		}
		open = append(open[:v.depth], b)
		if v.depth > 0 {
			above := open[v.depth-1]
			above.Contents = append(above.Contents, b)
		}
		if v.attr.Type != meta.Directory {
			g.sum.Files++
			return nil
		}
		g.sum.Directories++
		if g.o.depth > 0 && v.depth >= g.o.depth {
			return skip(&v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	open[0].Name = root
	return open[0], nil
}

// skip leaves out what is below a directory.
func skip(v *visit) error {
	if v.attr.Type == meta.Directory {
		return iofs.SkipDir
	}
	return nil
}

func (g *grower) shows(v *visit) bool {
	isDir := v.attr.Type == meta.Directory
	return (g.o.all || !strings.HasPrefix(v.name, ".")) && (isDir || !g.o.dirs) &&
		(isDir || g.match == nil || g.match.fits(v.name))
}

// draw writes what is below a branch; indent is what stands before it.
func (g *grower) draw(w io.Writer, b *branch, at, indent string) {
	for i, c := range b.Contents {
		mark, next := "├── ", "│   "
		if i == len(b.Contents)-1 {
			mark, next = "└── ", "    "
		}
		to := path.Join(at, c.Name)
		fmt.Fprintln(w, indent+mark+g.label(c, to))
		g.draw(w, c, to, indent+next)
	}
}

func (g *grower) label(b *branch, at string) string {
	text := b.Name
	if g.o.full {
		text = at
	}
	if g.o.human {
		text = fmt.Sprintf("[%5s]  %s", human(b.Size), text)
	} else if g.o.sizes {
		text = fmt.Sprintf("[%11d]  %s", b.Size, text)
	}
	if b.Target != "" {
		text += " -> " + b.Target
	}
	if b.Error != "" {
		text += "  [" + b.Error + "]"
	}
	return text
}
