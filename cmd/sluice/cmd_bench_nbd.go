package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	benchnbd "github.com/sluice-storage/sluice/bench/nbd"
	"github.com/sluice-storage/sluice/errs"
)

// nbdBenchFlags are the choices of bench nbd.
type nbdBenchFlags struct {
	benchFlags
	dir, figures  string
	rounds        int
	time          time.Duration
	only, servers []string
	all           bool
}

func newBenchNBD() *cobra.Command {
	var f nbdBenchFlags
	cmd := &cobra.Command{
		Use:   "nbd",
		Short: "Measure block devices beside qemu-nbd, nbdkit and nbd-server",
		Long: `Serves block devices in all ways that sluice has, and measures them with fio's nbd engine.
In the same run, by the same client, with devices of the same size and in turns, it measures

  qemu-nbd, nbdkit, nbd-server   where they are installed (packages qemu-utils, nbdkit, nbd-server)
  null                           a server that answers reads out of one buffer: the ceiling

There are five scenes, each with servers of its own:

  tmpfs     a file in memory
  disk      a file below --dir, in each mode; also what a memory-bound loop loses beside a server
  memory    exports in memory
  volume    volumes over 1, 2 and 4 I/O servers of this host, beside a local file in mode cached
  streams   direct reads of throttled members, with and without synchronized sends

A case is a scene and what fio does: disk-randread-4k-d16-c4 is random reads of 4 KiB, 16 under way
on each of 4 connections. Those that are measured by themselves are marked in --list; --only
chooses others, too. Every server is a process (or several) of its own; processor time is that of
all of them, and of fio, for each GiB. Nothing is installed, and nothing stays.`,
		Example: `  sluice bench nbd --quick
  sluice bench nbd --dir /srv --figures docs/figures/nbd.md
  sluice bench nbd --only 'disk-.*' --servers sluice,nbdkit,null --rounds 5
  sluice bench nbd --only 'tmpfs-randread-(4k|64k)-d(1|32)' --time 3s --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.benchNBD() },
	}
	f.cmd = cmd
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.quick, "quick", false,
		"little data, few cases and one short round: does it work?")
	flags.IntVar(&f.rounds, "rounds", 0, "measure each case so often (default 3; 1 with --quick)")
	flags.DurationVar(&f.time, "time", 0,
		"how long one measurement takes (default 1s; 200ms with --quick)")
	flags.StringSliceVar(&f.only, "only", nil,
		"only cases with these `NAMES`, which are regular expressions")
	flags.BoolVar(&f.all, "all", false, "all cases of the list, not only those that are marked")
	flags.StringSliceVar(&f.servers, "servers", nil, "only servers with these `NAMES`")
	flags.BoolVar(&f.list, "list", false, "list the cases")
	addBenchDir(cmd, &f.dir)
	flags.StringVar(&f.figures, "figures", "",
		"also write the tables, and what is promised, into this `FILE.md`; text around older ones stays")
	addJSONLines(cmd, &f.json, bench.Row{})
	return cmd
}

// check finds what would be a pity to find after minutes of measuring.
func (f *nbdBenchFlags) check(scenes []*benchnbd.Scene) error {
	if f.rounds < 0 || f.time < 0 {
		return refuse("--rounds or --time is negative", "Choose 3 and 1s, for example")
	}
	var known []string
	for _, s := range scenes {
		for _, one := range s.Starters {
			if !slices.Contains(known, one.Name) {
				known = append(known, one.Name)
			}
		}
	}
	for _, name := range f.servers {
		if !slices.Contains(known, name) {
			return refuse("bench nbd knows no server "+name, "Choose from: "+strings.Join(known, ","))
		}
	}
	if _, err := exec.LookPath("fio"); err != nil {
		return hint(err, "Install fio (Debian: apt-get install fio), or run: make deps")
	}
	f.markdown = f.figures
	return f.benchFlags.check()
}

// chooser tells which cases were asked for. A pattern chooses among those that are marked; one that
// fits none of them, or any with --all, chooses among all.
func (f *nbdBenchFlags) chooser(scenes []*benchnbd.Scene) (func(*bench.Case) bool, error) {
	all := benchnbd.List(scenes)
	usual := slices.DeleteFunc(slices.Clone(all), func(c bench.Case) bool { return !c.First })
	if f.all {
		usual = all
	}
	patterns := f.only
	if len(patterns) == 0 && f.quick {
		patterns = benchnbd.QuickCases()
	}
	if len(patterns) == 0 {
		patterns = []string{".*"}
	}
	chosen := map[string]bool{}
	for _, p := range patterns {
		some, err := bench.Choose(usual, []string{p})
		if errs.KindOf(err) == errs.NotFound {
			some, err = bench.Choose(all, []string{p})
		}
		if err != nil {
			return nil, hint(err, "See: sluice bench nbd --list")
		}
		for i := range some {
			chosen[some[i].Name] = true
		}
	}
	return func(c *bench.Case) bool { return chosen[c.Name] }, nil
}

func (f *nbdBenchFlags) benchNBD() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	site := &nbdSite{self: self, note: f.note}
	scenes := benchnbd.Scenes(self, site.starters())
	if f.list {
		return f.listNBD(scenes)
	}
	if err := f.check(scenes); err != nil {
		return err
	}
	choose, err := f.chooser(scenes)
	if err != nil {
		return err
	}
	where, err := filepath.Abs(f.dir) // its children work elsewhere
	if err != nil {
		return err
	}
	dir, remove, err := tempIn(where)
	if err != nil {
		return err
	}
	defer remove()
	opts := benchnbd.Options{Dir: dir, Self: self, Bytes: 256 << 20, Rounds: 3, Time: time.Second,
		Choose: choose, Note: f.note}
	if f.quick {
		opts.Bytes, opts.Rounds, opts.Time = 32<<20, 1, 200*time.Millisecond
	}
	if f.within > 0 {
		opts.Bytes = 64 << 20
		opts.Rounds, opts.Time = f.pace(scenes, choose)
	}
	if f.rounds > 0 {
		opts.Rounds = f.rounds
	}
	if f.time > 0 {
		opts.Time = f.time
	}
	if len(f.servers) > 0 {
		opts.Who = func(name string) bool { return slices.Contains(f.servers, name) }
	}
	memory, free, err := tempInMemory()
	if err != nil {
		return err
	}
	defer free()
	opts.Memory = memory
	rows, failed := benchnbd.Run(f.cmd.Context(), opts, scenes)
	if len(rows) == 0 {
		return failed
	}
	return f.tell(rows, failed)
}

// pace is how many rounds of which length fit into the time, with the start of the client and of
// servers.
func (f *nbdBenchFlags) pace(scenes []*benchnbd.Scene, choose func(*bench.Case) bool) (rounds int,
	each time.Duration) {
	const startClient, startServer, most = 400 * time.Millisecond, time.Second, time.Second
	cases := 0
	for _, c := range benchnbd.List(scenes) {
		if choose(&c) {
			cases++
		}
	}
	servers := time.Duration(max(len(f.servers), 1))
	left := max(f.within-servers*startServer, 0) / (time.Duration(max(cases, 1)) * servers)
	for rounds = 3; rounds > 1 && left/time.Duration(rounds) < startClient+200*time.Millisecond; {
		rounds--
	}
	return rounds, min(max(left/time.Duration(rounds)-startClient, 100*time.Millisecond), most)
}

// listNBD marks what is measured by itself.
func (f *nbdBenchFlags) listNBD(scenes []*benchnbd.Scene) error {
	all := benchnbd.List(scenes)
	for i := range all {
		if all[i].First {
			all[i].About = "* " + all[i].About
		}
	}
	return bench.WriteCases(f.cmd.OutOrStdout(), all)
}

// tempInMemory makes a folder in a file system in memory; "" where there is none.
func tempInMemory() (dir string, remove func(), err error) {
	for _, where := range []string{"/dev/shm", os.TempDir()} {
		var st unix.Statfs_t
		if unix.Statfs(where, &st) == nil && st.Type == unix.TMPFS_MAGIC {
			return tempIn(where)
		}
	}
	return "", func() {}, nil
}

// tell prints and writes what was measured, even if some of it failed.
func (f *nbdBenchFlags) tell(rows []bench.Row, failed error) error {
	about := bench.About{Title: "sluice bench nbd", Machine: bench.Machine(), Command: f.command(),
		Figures: bench.Judge(benchnbd.Promises(), rows)}
	if f.figures != "" {
		failed = errors.Join(failed, f.writeNBD(about, rows))
	}
	out := f.cmd.OutOrStdout()
	if f.keep != nil {
		f.keep(rows)
		return failed
	}
	if f.json {
		return errors.Join(failed, bench.WriteJSON(out, rows))
	}
	if err := benchnbd.WriteTable(out, rows); err != nil || len(about.Figures) == 0 {
		return errors.Join(failed, err)
	}
	fmt.Fprintln(out)
	return errors.Join(failed, bench.WriteFigures(out, about.Figures))
}

func (f *nbdBenchFlags) writeNBD(about bench.About, rows []bench.Row) error {
	old, err := os.ReadFile(f.figures)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	text, err := bench.MarkdownOf(about, benchnbd.Markdown(rows), old)
	if err == nil {
		err = os.WriteFile(f.figures, text, 0o644)
	}
	return errs.Wrap("bench nbd", f.figures, err)
}
