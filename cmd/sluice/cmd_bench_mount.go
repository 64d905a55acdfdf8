package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	benchmount "github.com/sluice-storage/sluice/bench/mount"
	"github.com/sluice-storage/sluice/errs"
)

// mountBenchFlags are the choices of bench mount.
type mountBenchFlags struct {
	benchFlags
	dir, figures, cold, tree string
	rounds                   int
	systems, only            []string
	long                     bool
	longFiles                int64
	longBytes, longMemory    string
	inner                    string // the temporary folder, in a process with namespaces of its own
	reach                    string // an address of this host that is not 127.0.0.1, or ""
}

func newBenchMount() *cobra.Command {
	var f mountBenchFlags
	cmd := &cobra.Command{
		Use:   "mount",
		Short: "Measure the mount beside memory, the local disk, GlusterFS and MooseFS",
		Long: `Starts a cluster with four I/O servers and its data in a folder of its own, mounts it, and
measures what programs see of it: large files, cp -r, tar, find, rm -r, git, many small files. In
the same run, with the same data and in turns, it measures

  memory     a FUSE file system that serves memory and does nothing else: the ceiling
  local      the disk that all of them use: ext4, in a file if the folder is on something else
  glusterfs  four bricks, distributed, with the translators of a plain volume
  moosefs    a master and four chunk servers, one copy of each chunk

The last two are started if they are installed (packages glusterfs-server, glusterfs-client,
moosefs-master, moosefs-chunkserver, moosefs-client) and the bench is run by root; nothing is
installed by it. Root's bench runs in name spaces of its own for mounts, processes and network, so
that nothing of it is seen outside or stays; their state lies in the temporary folder.

Before each figure all systems are quiet. Cold means that the file system was mounted anew and the
kernel's caches were dropped, where root runs it; with --cold servers its servers were started anew
too. Processor time is that of all processes of the system until it is quiet again, and of the
program, the kernel's work on its behalf included. Memory counts in each process that shares it.

--long adds, on sluice alone, a million opens and closes, a directory of a million files, and a copy
of 100 GB, through a mount whose memory a control group bounds, and prints memory over time.`,
		Example: `  sluice bench mount --quick
  sluice bench mount --dir /srv --figures docs/figures/mount.md
  sluice bench mount --systems sluice,local --only 'cp-r,tar' --rounds 5
  sluice bench mount --long --only 'long-copy' --long-bytes 20G`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.benchMount() },
	}
	f.cmd = cmd
	f.addFlags()
	return cmd
}

func (f *mountBenchFlags) addFlags() {
	flags := f.cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.quick, "quick", false, "little data and one round: does it work?")
	flags.IntVar(&f.rounds, "rounds", 0, "measure each workload so often (default 3; 1 with --quick)")
	flags.StringSliceVar(&f.systems, "systems", nil,
		"only these of "+strings.Join(benchmount.Names(), ",")+" (default all that work here)")
	flags.StringSliceVar(&f.only, "only", nil,
		"only workloads with these `NAMES`, which are regular expressions")
	flags.BoolVar(&f.list, "list", false, "list the workloads")
	addBenchDir(f.cmd, &f.dir)
	flags.StringVar(&f.cold, "cold", "mount", "what is started anew for cold reads: mount or servers")
	flags.StringVar(&f.tree, "tree", "",
		"the `FOLDER` that is copied, archived and removed (default Go's own source, or one like it)")
	flags.StringVar(&f.figures, "figures", "",
		"also write the tables, and what is promised, into this `FILE.md`; text around older ones stays")
	flags.BoolVar(&f.long, "long", false, "also run what takes long, on sluice alone")
	flags.Int64Var(&f.longFiles, "long-files", 1000000, "opens, and files in one directory")
	flags.StringVar(&f.longBytes, "long-bytes", "100G", "how much is copied")
	flags.StringVar(&f.longMemory, "long-memory", "256M", "memory of the mount of long runs")
	addJSONLines(f.cmd, &f.json, bench.Row{})
	flags.StringVar(&f.inner, "inner", "", "")
	_ = flags.MarkHidden("inner") // it is there
}

// check finds what would be a pity to find after minutes of measuring.
func (f *mountBenchFlags) check() (choose func(string) bool, err error) {
	for _, name := range f.systems {
		if !slices.Contains(benchmount.Names(), name) {
			return nil, refuse("bench mount knows no "+name, "Choose from: "+
				strings.Join(benchmount.Names(), ","))
		}
	}
	switch {
	case f.cold != "mount" && f.cold != "servers":
		return nil, refuse("--cold "+f.cold, "Choose from: mount, servers")
	case f.rounds < 0 || f.longFiles < 20:
		return nil, refuse("--rounds or --long-files is too small",
			"Choose at least 1 round and 20 files")
	case !canMount() && !slices.Equal(f.systems, []string{benchmount.Local}):
		return nil, refuse("/dev/fuse cannot be opened, so nothing can be mounted",
			"Load the kernel's module: modprobe fuse   Or be a user who may")
	}
	for _, size := range []string{f.longBytes, f.longMemory} {
		if _, err := parseSize(size); err != nil {
			return nil, err
		}
	}
	f.markdown = f.figures
	if err := f.benchFlags.check(); err != nil {
		return nil, err
	}
	return chooser(f.only)
}

// chooser tells which workloads were asked for.
func chooser(patterns []string) (func(string) bool, error) {
	known := benchmount.List()
	kept, err := bench.Choose(known, patterns)
	if err != nil {
		return nil, hint(err, "See: sluice bench mount --list")
	}
	return func(name string) bool {
		return slices.ContainsFunc(kept, func(c bench.Case) bool { return c.Name == name })
	}, nil
}

func (f *mountBenchFlags) benchMount() (err error) {
	if f.list {
		return bench.WriteCases(f.cmd.OutOrStdout(), benchmount.List())
	}
	choose, err := f.check()
	if err != nil {
		return err
	}
	dir := f.inner
	if dir == "" {
		var remove func()
		where, err := filepath.Abs(f.dir) // its children work elsewhere
		if err != nil {
			return err
		}
		if dir, remove, err = tempIn(where); err != nil {
			return err
		}
		defer remove()
		if ran, err := runApart(f.cmd, dir); ran {
			return err
		}
	} else {
		if f.reach, err = enterApart(); err != nil {
			return err
		}
		defer clearApart(dir)
	}
	rows, failed := f.measureMount(dir, choose)
	if len(rows) == 0 {
		return failed
	}
	return f.tell(rows, failed)
}

// measureMount runs what was asked for.
func (f *mountBenchFlags) measureMount(dir string, choose func(string) bool) ([]bench.Row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	opts := benchmount.Options{Dir: dir, Self: self, Rounds: 3, Sizes: benchmount.Full(),
		Choose: choose, Servers: f.cold == "servers", Note: f.note}
	if f.quick {
		opts.Rounds, opts.Sizes = 1, benchmount.Quick()
	}
	if f.rounds > 0 {
		opts.Rounds = f.rounds
	}
	opts.Sizes.TreeDir = f.tree
	var rows []bench.Row
	if !f.onlyLong(choose) {
		if rows, err = benchmount.Run(f.cmd.Context(), opts, f.starters(self)); err != nil {
			return rows, err
		}
	}
	if !f.long {
		return rows, nil
	}
	long := benchmount.Long{Files: f.longFiles}
	if long.Bytes, err = parseSize(f.longBytes); err != nil {
		return rows, err
	}
	limit, err := parseSize(f.longMemory)
	if err != nil {
		return rows, err
	}
	more, err := benchmount.RunLong(f.cmd.Context(), opts, long, f.startLong(self, limit))
	return append(rows, more...), err
}

// onlyLong tells whether nothing else was asked for by name.
func (f *mountBenchFlags) onlyLong(choose func(string) bool) bool {
	for _, c := range benchmount.List() {
		if choose(c.Name) && !strings.HasPrefix(c.Name, "long-") {
			return false
		}
	}
	return f.long
}

// tell prints and writes what was measured, even if some of it failed.
func (f *mountBenchFlags) tell(rows []bench.Row, failed error) error {
	about := bench.About{Title: "sluice bench mount", Machine: bench.Machine(), Command: f.command(),
		Figures: bench.Judge(benchmount.Promises(), rows)}
	if f.figures != "" {
		failed = errors.Join(failed, f.writeMount(about, rows))
	}
	out := f.cmd.OutOrStdout()
	if f.json {
		return errors.Join(failed, bench.WriteJSON(out, rows))
	}
	if err := benchmount.WriteTable(out, rows); err != nil || f.figures == "" {
		return errors.Join(failed, err)
	}
	fmt.Fprintln(out)
	return errors.Join(failed, bench.WriteFigures(out, about.Figures))
}

func (f *mountBenchFlags) writeMount(about bench.About, rows []bench.Row) error {
	old, err := os.ReadFile(f.figures)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	text, err := bench.MarkdownOf(about, benchmount.Markdown(rows), old)
	if err == nil {
		err = os.WriteFile(f.figures, text, 0o644)
	}
	return errs.Wrap("bench mount", f.figures, err)
}
