package mount

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/process"
	"github.com/sluice-storage/sluice/errs"
)

// Sizes say how much each workload does.
type Sizes struct {
	FileBytes   int64         // of the file that one job writes and reads
	JobBytes    int64         // of the file of each of several jobs
	Jobs        int           // that write and read at once, and that make names at once
	RandomJobs  int           // that read at random at once
	RandomFor   time.Duration // how long they do
	TreeDir     string        // what is copied, archived, listed and removed; "": Go's own source
	TreeFiles   int           // of a tree that is made instead; 0: only where there is no Go
	Files       int           // small files of one process
	Names       int           // empty files of each of several processes
	RepoFiles   int           // of the repository that is cloned
	RepoCommits int
}

// Full is what figures are made with: 512 MiB of data, Go's own source.
func Full() Sizes {
	return Sizes{FileBytes: 512 << 20, JobBytes: 192 << 20, Jobs: 4, RandomJobs: 16,
		RandomFor: 2 * time.Second, Files: 4000, Names: 1000, RepoFiles: 2500, RepoCommits: 150}
}

// Quick says whether something is broken.
func Quick() Sizes {
	return Sizes{FileBytes: 32 << 20, JobBytes: 8 << 20, Jobs: 4, RandomJobs: 16,
		RandomFor: 200 * time.Millisecond, TreeFiles: 300, Files: 200, Names: 50, RepoFiles: 100,
		RepoCommits: 10}
}

// step is a workload on its way through a scene: a few of them that work on the same files, one
// after the other, in one folder of the system.
type step struct {
	name, about string
	scene       string
	tool        string // the program that it needs; "": the bench's own
	metric      string // Bandwidth, Rate or Elapsed
	size        int64
	depth       int
	cold        bool
	makes       bool // later ones need what it leaves
	first, last bool // of its scene, among those that are run
	hidden      bool // only later ones need it: it is not shown
	run         func(ctx context.Context, e *env) (outcome, error)
}

// env is what a workload works with.
type env struct {
	self, home string
	dir        string // its folder in the system
	sizes      *Sizes
	data       *data
}

func (e *env) path(name ...string) string {
	return filepath.Join(append([]string{e.dir}, name...)...)
}

// steps are all workloads, in order.
func steps(s *Sizes) []*step {
	var all []*step
	for _, scene := range []struct {
		name  string
		steps []*step
	}{{"data", dataSteps(s)}, {"jobs", jobSteps(s)}, {"tree", treeSteps()}, {"files", fileSteps()},
		{"git", gitSteps()}, {"names", nameSteps(s)}} {
		for _, one := range scene.steps {
			one.scene, one.depth = scene.name, max(one.depth, 1)
			all = append(all, one)
		}
	}
	return all
}

// chosen are the steps of a run: those that were asked for, and what has to go before them.
func chosen(opts Options) ([]*step, error) {
	all := steps(&opts.Sizes)
	for i, s := range all {
		if opts.Choose != nil && !opts.Choose(s.name) {
			s.hidden = true
		}
		if s.tool == "" {
			continue
		}
		if _, err := exec.LookPath(s.tool); err != nil {
			if !s.hidden && opts.Note != nil {
				opts.Note(s.name + " is left out: there is no " + s.tool + " here")
			}
			all[i] = nil
		}
	}
	all = slices.DeleteFunc(all, func(s *step) bool { return s == nil })
	var kept []*step
	for i, s := range all {
		needed := func(later *step) bool { return later.scene == s.scene && !later.hidden }
		if s.hidden && !(s.makes && slices.ContainsFunc(all[i:], needed)) {
			continue
		}
		s.first = len(kept) == 0 || kept[len(kept)-1].scene != s.scene
		if s.first && len(kept) > 0 {
			kept[len(kept)-1].last = true
		}
		kept = append(kept, s)
	}
	if len(kept) == 0 {
		return nil, errs.Newf(errs.NotFound, "bench mount", "", "no workload has such a name")
	}
	kept[len(kept)-1].last = true
	return kept, nil
}

// measure does one step on one system.
func (b *Bench) measure(ctx context.Context, c *contender, s *step) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	e := &env{self: b.opts.Self, home: b.opts.Dir, dir: filepath.Join(c.Dir(), "bench-"+s.scene),
		sizes: &b.opts.Sizes, data: b.data}
	if s.first {
		if err := e.empty(ctx, true); err != nil {
			return m, err
		}
	}
	if s.cold {
		if err := b.cool(ctx, c); err != nil {
			return m, err
		}
	}
	if err := b.ready(ctx, e, s); err != nil {
		return m, err
	}
	before, peak := process.UsageOf(c.Pids()), process.Sample(c.Pids())
	m.outcome, err = s.run(ctx, e)
	m.memory = peak()
	m.system = process.Settle(c.Pids()).CPU - before.CPU
	if err == nil && s.last {
		err = e.empty(ctx, false)
	}
	return m, err
}

// ready has everybody finish what was put off, so that it is in nobody's way, and has the program
// that is run next in memory.
func (b *Bench) ready(ctx context.Context, e *env, s *step) error {
	if s.tool != "" {
		if _, err := e.program(ctx, nil, s.tool, "--version"); err != nil {
			return err
		}
	}
	if s.name == treeCopy {
		if err := b.data.tree.warm(); err != nil {
			return err
		}
	}
	var all []int
	for _, c := range b.running {
		if !c.gone {
			all = append(all, c.Pids()...)
		}
	}
	process.Settle(all)
	return syncDisk(b.opts.Dir)
}

// cool has the system and the kernel forget what they know.
func (b *Bench) cool(ctx context.Context, c *contender) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	process.Settle(c.Pids())
	if err := c.Cold(ctx, b.opts.Servers); err != nil {
		return err
	}
	if err := syncDisk(b.opts.Dir); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil // jobs still ask the kernel to forget the pages of the files that they read
	}
	err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
	if os.IsPermission(err) {
		return nil // a container's root
	}
	return err
}

// syncDisk writes what the disk's file system has put off.
func syncDisk(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return closeWith(fd, unix.Syncfs(fd))
}

// empty removes the scene's folder, and makes it again.
func (e *env) empty(ctx context.Context, again bool) error {
	if _, err := e.program(ctx, nil, "rm", "-rf", e.dir); err != nil {
		return err
	}
	if !again {
		return nil
	}
	_, err := e.program(ctx, nil, "mkdir", e.dir)
	return err
}

// List is the names of all workloads and what they do.
func List() []bench.Case {
	var all []bench.Case
	s := Full()
	for _, one := range steps(&s) {
		all = append(all, bench.Case{Bench: "mount", Name: one.name, Metric: one.metric,
			About: one.about})
	}
	for _, l := range longs() {
		all = append(all, bench.Case{Bench: "mount", Name: l.name, Metric: l.metric,
			About: l.about + " (with --long)"})
	}
	return all
}

// measured is one measurement.
type measured struct {
	outcome
	system time.Duration // processor time of the system's processes
	memory int64         // the most that they had at once
}

// text is for those who watch.
func (m *measured) text(s *step) string {
	return fmt.Sprintf("%s %s, processor %.2f s + %.2f s", bench.ValueText(m.value(s.metric)),
		unitOf(s.metric), m.system.Seconds(), m.reader.Seconds())
}

func (m *measured) value(metric string) float64 {
	switch metric {
	case bench.Bandwidth:
		return float64(m.bytes) / m.took.Seconds() / 1e6
	case bench.Rate:
		return float64(m.ops) / m.took.Seconds()
	}
	return m.took.Seconds()
}

func unitOf(metric string) string {
	switch metric {
	case bench.Bandwidth:
		return "MB/s"
	case bench.Rate:
		return "op/s"
	}
	return "s"
}
