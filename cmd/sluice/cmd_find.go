package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// errEnough ends a walk early.
var errEnough = errors.New("enough")

// found is one thing that find has found, as --json shows it.
type found struct {
	listed
	Deleted bool `json:"deleted,omitempty"`
}

type findOptions struct {
	tests              findFlags
	min, max           int
	print0, long, json bool
	remove, yes, quit  bool
}

func newFind() *cobra.Command {
	var f urlFlag
	var o findOptions
	cmd := &cobra.Command{
		Use:   "find [PATH...] [TEST...]",
		Short: "Find files by name, type, size, age and rights",
		Long: `Walks through directory trees, in the order of names, and prints what meets all
tests. Tests are written as with find(1), with one dash or two: -name '*.log' -size +1G -mtime
+30. There is no -o and no -exec: give --name several times for one of several names, and pass
-print0 to xargs -0. Symbolic links are not followed. Without PATH the walk begins at the root.

--size rounds up to whole units, 512 bytes where none is named, and --mtime counts whole days, as
find(1) does: -mtime +7 means eight days ago or earlier.

--delete removes what was found, what a directory holds before itself. It is guarded: there must be
a test, and without --yes it only prints what would be removed, and fails. A directory that still
holds something is not removed, and never the root.`,
		Example: "  sluice find /data -name '*.tmp' -mtime +7\n" +
			"  sluice find / -type f -size +10G -ls\n" +
			"  sluice find /data -type d -empty --delete --yes\n" +
			"  sluice find /logs --newer /logs/marker -print0 | xargs -0 sluice cat",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"/"}
			}
			return runFind(cmd, &f, args, &o)
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	o.addTests(cmd.Flags())
	fl := cmd.Flags()
	fl.IntVar(&o.max, "maxdepth", -1, "go down at most `N` levels below each PATH")
	fl.IntVar(&o.min, "mindepth", 0, "leave out what is less than `N` levels below each PATH")
	fl.BoolVar(&o.print0, "print0", false, "end names with a zero byte, for xargs -0")
	fl.Bool("print", true, "print names, as always")
	fl.BoolVarP(&o.long, "ls", "l", false, "print as sluice ls -l does")
	fl.BoolVar(&o.quit, "quit", false, "end with the first that is found")
	fl.BoolVar(&o.remove, "delete", false, "remove what is found: see above")
	fl.BoolVar(&o.yes, "yes", false, "with --delete: do it")
	addJSON(cmd, &o.json, []found{})
	completeWords(cmd, "type", "f", "d", "l", "p", "s", "c", "b")
	return cmd
}

func (o *findOptions) addTests(fl *pflag.FlagSet) {
	t := &o.tests
	fl.StringArrayVar(&t.names, "name", nil,
		"names that match `GLOB`, in quotes: '*.log'; given again, either")
	fl.StringArrayVar(&t.inames, "iname", nil, "the same, upper and lower case alike: `GLOB`")
	fl.StringArrayVar(&t.notNames, "not-name", nil, "names that do not match `GLOB`")
	fl.StringArrayVar(&t.paths, "path", nil, "whole paths that match `GLOB`; * matches slashes")
	fl.StringArrayVar(&t.notPaths, "not-path", nil, "whole paths that do not match `GLOB`")
	fl.StringVar(&t.types, "type", "", "`TYPES` f, d, l, p, s, c, b, several with commas: f,l")
	fl.StringVar(&t.size, "size", "", "`[+-]N[ckMGTP]`: more, less or as many units")
	fl.StringVar(&t.mtime, "mtime", "", "changed `[+-]N` whole days ago")
	fl.StringVar(&t.mmin, "mmin", "", "changed `[+-]N` whole minutes ago")
	fl.StringVar(&t.newer, "newer", "", "changed after this `PATH` was")
	fl.StringVar(&t.newermt, "newermt", "", "changed after this `DATE`: see sluice touch --help")
	fl.StringVar(&t.user, "user", "", "owned by this `USER`, a name or number")
	fl.StringVar(&t.group, "group", "", "of this `GROUP`, a name or number")
	fl.StringVar(&t.perm, "perm", "", "rights `MODE` exactly, -MODE all of these, /MODE any of these")
	fl.BoolVar(&t.empty, "empty", false, "empty files and directories")
}

// singleDash lets the tests of find be written with one dash. It is done before flags are read.
func singleDash(root *cobra.Command, args []string) []string {
	at := 0
	for at < len(args) && strings.HasPrefix(args[at], "__complete") {
		at++
	}
	if at >= len(args) || args[at] != "find" {
		return args
	}
	cmd, _, err := root.Find([]string{"find"})
	if err != nil {
		return args
	}
	out := append([]string{}, args...)
	for i, arg := range out[at+1:] {
		if arg == "--" {
			break
		}
		word, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && len(word) > 1 && cmd.Flags().Lookup(word) != nil {
			out[at+1+i] = "-" + arg
		}
	}
	return out
}

func runFind(cmd *cobra.Command, f *urlFlag, args []string, o *findOptions) error {
	s := newClusters(f)
	tests, err := o.tests.tests(time.Now(), func(path string) (time.Time, error) {
		c, at, err := s.open(cmd.Context(), path)
		if err != nil {
			return time.Time{}, err
		}
		st, err := c.Stat(cmd.Context(), at)
		return st.Mtime.Time(), err
	})
	if err == nil && o.remove && len(tests) == 0 {
		err = refuse("--delete without a test would remove everything",
			"Add a test, like -name or -mtime; or remove a whole tree: sluice rm -r")
	}
	if err != nil {
		s.forget()
		return err
	}
	w := finder{cmd: cmd, o: o, tests: tests, all: []found{}, own: newOwners(false)}
	err = eachPath(cmd, s, args, func(c *client.FS, at string) error {
		if w.ended {
			return nil
		}
		w.fs = c
		return w.tree(cmd.Context(), at)
	})
	if cerr := s.close(); err == nil && o.remove && o.yes {
		err = cerr
	}
	return w.end(err)
}

// finder walks and tests.
type finder struct {
	cmd    *cobra.Command
	o      *findOptions
	fs     *client.FS
	tests  []findTest
	own    *owners
	all    []found // for --json
	count  int
	ended  bool // by --quit
	failed bool // something could not be read or removed, which was said
}

func (w *finder) tree(ctx context.Context, root string) error {
	err := walkTree(ctx, w.fs, root, func(v visit) error {
		isDir := v.attr.Type == meta.Directory
		switch {
		case v.err != nil:
			w.fail(v.err)
			return nil
		// What is removed is tested after what it holds was, which may have been all.
		case isDir && v.leave != w.o.remove:
			return w.below(&v)
		case v.depth < w.o.min:
			return w.below(&v)
		}
		met, err := w.meets(ctx, &v)
		if err != nil {
			w.fail(err)
		}
		if met && err == nil {
			if err := w.show(ctx, &v); err != nil {
				return err
			}
		}
		return w.below(&v)
	})
	if errors.Is(err, errEnough) {
		w.ended = true
		err = nil
	}
	return err
}

// below keeps the walk above --maxdepth.
func (w *finder) below(v *visit) error {
	deep := w.o.max >= 0 && v.depth >= w.o.max && v.attr.Type == meta.Directory && !v.leave
	if !deep {
		return nil
	}
	if w.o.remove { // there is no second visit then
		last := *v
		last.leave = true
		if met, err := w.meets(w.cmd.Context(), &last); met && err == nil && v.depth >= w.o.min {
			if err := w.show(w.cmd.Context(), &last); err != nil {
				return err
			}
		}
	}
	return fs.SkipDir
}

func (w *finder) fail(err error) {
	w.failed = true
	complain(w.cmd, err)
}

func (w *finder) meets(ctx context.Context, v *visit) (bool, error) {
	for _, t := range w.tests {
		if ok, err := t(ctx, w.fs, v); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// show prints what was found, and removes it if it is to be.
func (w *finder) show(ctx context.Context, v *visit) error {
	removed := false
	if w.o.remove && v.path != "/" && w.o.yes {
		if err := w.fs.Remove(ctx, v.path); err != nil {
			w.fail(err)
			return nil
		}
		removed = true
	}
	if w.o.remove && v.path == "/" {
		return nil
	}
	w.count++
	e := listing(v.path, v.name, &v.attr)
	if v.attr.Type == meta.Symlink && (w.o.long || w.o.json) && !removed {
		e.Target = linkTarget(ctx, w.fs, v.path)
	}
	out := w.cmd.OutOrStdout()
	switch {
	case w.o.json:
		w.all = append(w.all, found{e, removed})
	case w.o.print0:
		fmt.Fprintf(out, "%s\x00", v.path)
	case w.o.long:
		e.Name = e.Path
		o := lsOptions{long: true}
		fmt.Fprintln(out, strings.ReplaceAll(o.line(&e, w.own), "\t", " "))
	default:
		fmt.Fprintln(out, v.path)
	}
	if w.o.quit {
		return errEnough
	}
	return nil
}

func (w *finder) end(err error) error {
	if w.o.json {
		if perr := printJSON(w.cmd, w.all); perr != nil {
			return perr
		}
	}
	switch {
	case err != nil:
		return err
	case w.o.remove && !w.o.yes && w.count > 0:
		return refuse(fmt.Sprintf("nothing was removed: %d would be", w.count),
			"Look at what was printed, then add --yes")
	case w.failed:
		return &exitError{code: 1}
	}
	return nil
}
