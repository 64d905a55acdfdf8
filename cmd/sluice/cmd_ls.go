package main

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// listed is one entry as `sluice ls` shows it.
type listed struct {
	Name   string    `json:"name"`
	Path   string    `json:"path"`
	Type   string    `json:"type"`
	Mode   string    `json:"mode"`
	Perm   string    `json:"perm"`
	Size   int64     `json:"size"`
	Mtime  meta.Time `json:"mtime"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Ino    uint64    `json:"ino"`
	Links  uint32    `json:"links"`
	Target string    `json:"target,omitempty"` // of a symbolic link
	Device string    `json:"device,omitempty"` // its major and minor number

	kind meta.Type
}

type lsOptions struct {
	long, recursive, all, almost, human, reverse bool
	byTime, bySize, unsorted, inodes, numeric    bool
	self, classify, asJSON                       bool
	sort                                         string
}

func newLs() *cobra.Command {
	var f urlFlag
	var o lsOptions
	cmd := &cobra.Command{
		Use:   "ls [PATH...]",
		Short: "List directories",
		Long: `Lists what directories hold, one name a line, sorted by name; a file lists itself. Without
PATH the root is listed. Names that begin with a dot are left out unless -a or -A is given. Symbolic
links named on the command line are followed, unless -l or -d is given.`,
		Example: "  sluice ls /\n  sluice ls -l sluice://127.0.0.1:9400/data\n" +
			"  sluice ls -lhS /data          # the largest first\n  sluice ls -R --json /data",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"/"}
			}
			if err := o.settle(); err != nil {
				return err
			}
			return runLs(cmd, &f, args, &o)
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&o.long, "long", "l", false, "show rights, links, owner, size and time")
	fl.BoolVarP(&o.recursive, "recursive", "R", false, "list what is below directories, too")
	fl.BoolVarP(&o.all, "all", "a", false, "show names that begin with a dot, . and .. too")
	fl.BoolVarP(&o.almost, "almost-all", "A", false, "show names that begin with a dot")
	fl.BoolVarP(&o.self, "directory", "d", false, "show directories themselves, not what they hold")
	fl.BoolVarP(&o.reverse, "reverse", "r", false, "sort in the other order")
	fl.BoolVarP(&o.byTime, "time", "t", false, "sort by time of change, newest first")
	fl.BoolVarP(&o.bySize, "size", "S", false, "sort by size, largest first")
	fl.BoolVarP(&o.unsorted, "unsorted", "U", false, "do not sort")
	fl.StringVar(&o.sort, "sort", "", "sort by `WORD`: name, time, size or none")
	fl.BoolVarP(&o.inodes, "inode", "i", false, "show inode numbers")
	fl.BoolVarP(&o.classify, "classify", "F", false, "mark directories /, links @, fifos |, sockets =")
	fl.BoolVarP(&o.numeric, "numeric-uid-gid", "n", false, "with -l: numbers for users and groups")
	fl.BoolP("one", "1", true, "one name a line, as always")
	addHuman(cmd, &o.human)
	addJSON(cmd, &o.asJSON, []listed{})
	completeWords(cmd, "sort", "name", "time", "size", "none")
	return cmd
}

// settle makes one sorting of the several ways to ask for one.
func (o *lsOptions) settle() error {
	switch {
	case o.sort != "":
	case o.bySize:
		o.sort = "size"
	case o.byTime:
		o.sort = "time"
	case o.unsorted:
		o.sort = "none"
	default:
		o.sort = "name"
	}
	if !slices.Contains([]string{"name", "time", "size", "none"}, o.sort) {
		return refuse("ls cannot sort by "+o.sort, "Choose of name, time, size, none")
	}
	o.long = o.long || o.numeric
	return nil
}

// group is a directory with what it holds, or the files of the command line, without a title.
type group struct {
	title   string
	entries []listed
}

func runLs(cmd *cobra.Command, f *urlFlag, args []string, o *lsOptions) error {
	files, dirs := group{}, []group{}
	l := lister{cmd: cmd, o: o}
	err := f.look(cmd, args, func(fs *client.FS, at string) error {
		a, err := fs.Lstat(cmd.Context(), at)
		if err == nil && a.Type == meta.Symlink && !o.long && !o.self {
			if to, serr := fs.Stat(cmd.Context(), at); serr == nil && to.Type == meta.Directory {
				a = to
			}
		}
		if err != nil {
			return err
		}
		if a.Type != meta.Directory || o.self {
			files.entries = append(files.entries, l.listing(fs, at, at, &a))
			return nil
		}
		return l.directory(fs, at, &a, &dirs)
	})
	groups := dirs
	if len(files.entries) > 0 {
		o.arrange(files.entries)
		groups = append([]group{files}, dirs...)
	}
	if l.failed && err == nil {
		err = &exitError{code: 1}
	}
	if o.asJSON {
		all := []listed{}
		for _, g := range groups {
			all = append(all, g.entries...)
		}
		if perr := printJSON(cmd, all); perr != nil {
			return perr
		}
		return err
	}
	if perr := o.print(cmd, groups, len(args) > 1 || o.recursive); perr != nil {
		return perr
	}
	return err
}

// lister reads directories.
type lister struct {
	cmd    *cobra.Command
	o      *lsOptions
	failed bool // some could not be read, which was said
}

// directory lists one, and with -R those below it.
func (l *lister) directory(fs *client.FS, at string, a *meta.Attr, out *[]group) error {
	ctx := l.cmd.Context()
	g := group{title: at, entries: []listed{}}
	var below []meta.Entry
	if l.o.all {
		up := *a
		if got, err := fs.Stat(ctx, path.Dir(at)); err == nil {
			up = got
		}
		g.entries = append(g.entries, l.listing(fs, at, ".", a), l.listing(fs, path.Dir(at), "..", &up))
	}
	err := fs.ReadDir(ctx, at, func(e meta.Entry) error {
		if strings.HasPrefix(e.Name, ".") && !l.o.all && !l.o.almost {
			return nil
		}
		if e.Attr == nil {
			e.Attr = &meta.Attr{Ino: e.Ino, Type: e.Type}
		}
		g.entries = append(g.entries, l.listing(fs, path.Join(at, e.Name), e.Name, e.Attr))
		if e.Type == meta.Directory && l.o.recursive {
			below = append(below, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.o.arrange(g.entries)
	*out = append(*out, g)
	slices.SortFunc(below, func(x, y meta.Entry) int { return cmp.Compare(x.Name, y.Name) })
	for _, e := range below {
		if err := l.directory(fs, path.Join(at, e.Name), e.Attr, out); err != nil {
			if ctx.Err() != nil {
				return err
			}
			complain(l.cmd, err)
			l.failed = true
		}
	}
	return nil
}

// listing is an entry; the target of a link is asked for where it is shown.
func (l *lister) listing(fs *client.FS, at, name string, a *meta.Attr) listed {
	e := listing(at, name, a)
	if a.Type == meta.Symlink && (l.o.long || l.o.asJSON) {
		e.Target = linkTarget(l.cmd.Context(), fs, at)
	}
	return e
}

// linkTarget is the target of a link that may be gone by now.
func linkTarget(ctx context.Context, fs *client.FS, at string) string {
	target, err := fs.Readlink(ctx, at)
	if err != nil {
		return "?"
	}
	return target
}

func listing(at, name string, a *meta.Attr) listed {
	e := listed{Name: name, Path: at, Type: typeText(a.Type), Mode: lsMode(a), Perm: permText(a),
		Size: a.Size, Mtime: a.Mtime, UID: a.UID, GID: a.GID, Ino: uint64(a.Ino),
		Links: a.Nlink, kind: a.Type}
	if a.Type == meta.CharDevice || a.Type == meta.BlockDevice {
		e.Device = fmt.Sprintf("%d,%d", unix.Major(uint64(a.Rdev)), unix.Minor(uint64(a.Rdev)))
	}
	return e
}

// arrange sorts; what is equal is sorted by name.
func (o *lsOptions) arrange(entries []listed) {
	if o.sort != "none" {
		slices.SortFunc(entries, func(a, b listed) int {
			order := 0
			switch o.sort {
			case "time":
				order = b.Mtime.Compare(a.Mtime)
			case "size":
				order = cmp.Compare(b.Size, a.Size)
			}
			return cmp.Or(order, cmp.Compare(a.Name, b.Name))
		})
	}
	if o.reverse {
		slices.Reverse(entries)
	}
}

func (o *lsOptions) print(cmd *cobra.Command, groups []group, titles bool) error {
	own := newOwners(o.numeric)
	for i, g := range groups {
		if i > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		if titles && g.title != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "%s:\n", g.title)
		}
		t := newTable(cmd)
		for _, e := range g.entries {
			fmt.Fprintln(t, o.line(&e, own))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// line is an entry, with tabs between the columns.
func (o *lsOptions) line(e *listed, own *owners) string {
	name := e.Name
	if o.classify {
		name += typeMark(e)
	}
	if o.long && e.Target != "" {
		name += " -> " + e.Target
	}
	if o.long {
		name = fmt.Sprintf("%s\t%d\t%s\t%s\t%s\t%s\t%s", e.Mode, e.Links, own.user(e.UID),
			own.group(e.GID), o.size(e), dateTime(e.Mtime), name)
	}
	if o.inodes {
		name = fmt.Sprintf("%d\t%s", e.Ino, name)
	}
	return name
}

func (o *lsOptions) size(e *listed) string {
	switch {
	case e.Device != "":
		return e.Device
	case o.human:
		return human(e.Size)
	}
	return strconv.FormatInt(e.Size, 10)
}

// typeMark is what -F puts behind a name.
func typeMark(e *listed) string {
	switch e.kind {
	case meta.Directory:
		return "/"
	case meta.Symlink:
		return "@"
	case meta.Fifo:
		return "|"
	case meta.Socket:
		return "="
	}
	if strings.Contains(e.Mode, "x") || strings.Contains(e.Mode, "s") {
		return "*"
	}
	return ""
}

// dateTime is a time to the second, in the local zone.
func dateTime(t meta.Time) string {
	if text := t.String(); text[0] == '@' { // a year that has no other form
		return text
	}
	return t.Time().Format(time.DateTime)
}

func typeText(t meta.Type) string {
	switch t {
	case meta.Regular:
		return "file"
	case meta.Directory:
		return "directory"
	case meta.Symlink:
		return "symlink"
	case meta.Fifo:
		return "fifo"
	case meta.Socket:
		return "socket"
	case meta.CharDevice:
		return "character device"
	case meta.BlockDevice:
		return "block device"
	}
	return "unknown"
}
