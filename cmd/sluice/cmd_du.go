package main

import (
	"context"
	"fmt"
	"path"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// usage is what a tree takes, as `sluice du --json` shows it.
type usage struct {
	Path        string `json:"path"`
	Bytes       int64  `json:"bytes"`    // of space: holes are left out
	Apparent    int64  `json:"apparent"` // the lengths of the files
	Files       int64  `json:"files"`    // and links, fifos, devices
	Directories int64  `json:"directories"`
}

type duOptions struct {
	summary, human, apparent, all, total, bytes, links, asJSON bool
	depth                                                      int
}

func newDu() *cobra.Command {
	var f urlFlag
	var o duOptions
	cmd := &cobra.Command{
		Use:   "du [PATH...]",
		Short: "Show what directory trees take",
		Long: `Adds up the space of files, for every directory with what is below it, in units of 1 KiB
unless -h or -b is given. The space of a file is what its servers hold of it: holes count for
nothing. With --apparent-size the lengths of files count. A file with several names counts once.
Directories, links and devices take no space at the I/O servers and count as nothing.

Every directory below is read: on large trees that takes a while. For one with a quota sluice quota
get knows the answer at once.`,
		Example: "  sluice du -sh /data /home\n  sluice du -h --max-depth 1 /home\n" +
			"  sluice du -ab /results | sort -n | tail",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"/"}
			}
			if o.summary {
				if cmd.Flags().Changed("max-depth") && o.depth != 0 {
					return refuse("-s and --max-depth contradict each other", "Leave one out")
				}
				o.depth = 0
			}
			return runDu(cmd, &f, args, &o)
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&o.summary, "summarize", "s", false, "show the sum of each PATH only")
	fl.IntVarP(&o.depth, "max-depth", "d", -1, "show what is at most `N` levels below each PATH")
	fl.BoolVarP(&o.all, "all", "a", false, "show files, too")
	fl.BoolVarP(&o.total, "total", "c", false, "show the sum of all")
	fl.BoolVar(&o.apparent, "apparent-size", false, "add up lengths, holes included")
	fl.BoolVarP(&o.bytes, "bytes", "b", false, "lengths, in bytes: --apparent-size in units of 1")
	fl.BoolVarP(&o.links, "count-links", "l", false, "count files as often as they have names")
	addHuman(cmd, &o.human)
	addJSON(cmd, &o.asJSON, []usage{})
	return cmd
}

func runDu(cmd *cobra.Command, f *urlFlag, args []string, o *duOptions) error {
	d := du{o: o, cmd: cmd, shown: []usage{}}
	err := f.look(cmd, args, func(fs *client.FS, at string) error {
		if d.fs != fs {
			d.fs, d.seen = fs, map[meta.Ino]bool{} // numbers of another cluster are others
		}
		sum, err := d.tree(cmd.Context(), at)
		d.total.plus(&sum)
		return err
	})
	if o.total {
		d.total.Path = "total"
		d.show(d.total)
	}
	if o.asJSON {
		if perr := printJSON(cmd, d.shown); perr != nil {
			return perr
		}
	}
	if err == nil && d.failed {
		err = &exitError{code: 1}
	}
	return err
}

// du adds up.
type du struct {
	o      *duOptions
	cmd    *cobra.Command
	fs     *client.FS
	seen   map[meta.Ino]bool // files with several names
	shown  []usage           // for --json
	total  usage
	failed bool // some could not be read, which was said
}

func (u *usage) plus(v *usage) {
	u.Bytes += v.Bytes
	u.Apparent += v.Apparent
	u.Files += v.Files
	u.Directories += v.Directories
}

// tree adds up what is below a path; sums[i] is of the directory i levels below that is being read.
func (d *du) tree(ctx context.Context, root string) (usage, error) {
	var sums []usage
	var all usage
	done := func(v *visit, u usage) {
		if v.depth > 0 {
			sums[v.depth-1].plus(&u)
		} else {
			all = u
		}
		isDir := v.attr.Type == meta.Directory
		if (isDir || d.o.all || v.depth == 0) && (d.o.depth < 0 || v.depth <= d.o.depth) {
			d.show(u)
		}
	}
	err := walkTree(ctx, d.fs, root, func(v visit) error {
		switch {
		case v.err != nil:
			d.failed = true
			complain(d.cmd, v.err)
		case v.leave:
			u := sums[v.depth]
			sums = sums[:v.depth]
			done(&v, u)
		case v.attr.Type == meta.Directory:
			sums = append(sums, usage{Path: v.path, Directories: 1})
		default:
			if d.counted(&v.attr) {
				return nil
			}
			u, err := d.file(ctx, &v)
			if err != nil {
				d.failed = true
				complain(d.cmd, err)
			}
			done(&v, u)
		}
		return nil
	})
	return all, err
}

// counted tells whether a file was there before under another name.
func (d *du) counted(a *meta.Attr) bool {
	if a.Nlink < 2 || d.o.links {
		return false
	}
	was := d.seen[a.Ino]
	d.seen[a.Ino] = true
	return was
}

// file is what one takes. Where that is not known with its attributes the servers are asked.
func (d *du) file(ctx context.Context, v *visit) (usage, error) {
	u := usage{Path: v.path, Files: 1}
	if v.attr.Type != meta.Regular {
		return u, nil
	}
	var err error
	if u.Apparent = v.attr.Size; d.o.asJSON || !d.o.apparent && !d.o.bytes {
		u.Bytes, err = spaceOf(ctx, d.fs, &v.attr)
	}
	return u, err
}

// spaceOf is the space that a file takes, as a mount tells it. Only GetAttr asks the servers for
// it; whose file it is does not matter there, nor who asks.
func spaceOf(ctx context.Context, fs *client.FS, a *meta.Attr) (int64, error) {
	if a.Holes && a.Allocated < 0 {
		got, err := fs.GetAttr(ctx, meta.Cred{}, a.Ino)
		if err != nil {
			return 0, err
		}
		a = &got
	}
	if a.Holes && a.Allocated >= 0 {
		return min(a.Allocated, a.Size), nil
	}
	return a.Size, nil
}

func (d *du) show(u usage) {
	if d.o.asJSON {
		d.shown = append(d.shown, u)
		return
	}
	n := u.Bytes
	if d.o.apparent || d.o.bytes {
		n = u.Apparent
	}
	text := strconv.FormatInt((n+1023)/1024, 10)
	switch {
	case d.o.human:
		text = human(n)
	case d.o.bytes:
		text = strconv.FormatInt(n, 10)
	}
	fmt.Fprintf(d.cmd.OutOrStdout(), "%s\t%s\n", text, path.Clean(u.Path))
}
