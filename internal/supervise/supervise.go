// Package supervise keeps child processes alive: it starts them, restarts those that die, writes
// down why each of them died, and stops them in order. Children never outlive the process that
// supervises them, however that one ends.
//
// It does not know what the processes do, and it does not judge whether they are healthy: a process
// is well as long as it runs.
//
// Read supervise.go first (the group), then process.go (one child's life), state.go (what is
// written down) and lock.go (one supervisor per folder).
package supervise

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Spec is one process to be kept alive.
type Spec struct {
	Name string   // unique in the group, for people
	Path string   // the program
	Args []string // without the program's name
	Env  []string // added to this process' own

	// Log is the file that the process' output is appended to. Empty: discarded. Above LogMax it
	// is put aside as Log.1 when the process starts.
	Log string

	// Stage decides the order of stopping: highest first, equal ones at once.
	Stage int

	// StopMax is how long the process may take after SIGTERM before SIGKILL. Default 10 s.
	StopMax time.Duration

	// MayEnd: exit code 0 is an end that was wished for; the process is not started again.
	MayEnd bool

	// DeathSignal is what the kernel sends to the process when the supervisor dies. Default SIGKILL.
	DeathSignal syscall.Signal
}

// LogMax is how large, in bytes, a log may be when its process starts again.
const LogMax = 64 << 20

func (s Spec) withDefaults() Spec {
	if s.StopMax == 0 {
		s.StopMax = 10 * time.Second
	}
	if s.DeathSignal == 0 {
		s.DeathSignal = syscall.SIGKILL
	}
	return s
}

// Options configure a Group.
type Options struct {
	StateFile string // written anew, atomically, at every change; required

	// Write runs what writes the state file, so that it can make room and try again. Default: it is
	// just run.
	Write func(write func() error) error

	BackoffMin  time.Duration // wait before the first restart, doubled each time; default 100 ms
	BackoffMax  time.Duration // the longest wait; default 5 s
	StableAfter time.Duration // a process that ran this long starts at BackoffMin again; default 1 s

	Logger *slog.Logger // starts and ends; default: discarded
}

func (o Options) withDefaults() Options {
	if o.BackoffMin == 0 {
		o.BackoffMin = 100 * time.Millisecond
	}
	if o.BackoffMax == 0 {
		o.BackoffMax = 5 * time.Second
	}
	if o.StableAfter == 0 {
		o.StableAfter = time.Second
	}
	if o.Write == nil {
		o.Write = func(write func() error) error { return write() }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	if o.StateFile == "" {
		return errs.Newf(errs.Invalid, "supervise.New", "StateFile", "must be given")
	}
	if o.BackoffMin < 0 || o.BackoffMax < o.BackoffMin || o.StableAfter < 0 {
		return errs.Newf(errs.Invalid, "supervise.New", "backoff",
			"%v to %v, stable after %v", o.BackoffMin, o.BackoffMax, o.StableAfter)
	}
	return nil
}

// Group is a set of supervised processes. All methods are safe for concurrent use.
type Group struct {
	opts    Options
	began   time.Time
	starter chan func() // functions that run on the one thread that forks

	mu        sync.Mutex
	processes []*process
	stopping  bool

	fileMu sync.Mutex // held while the state file is written; taken before mu
}

// New makes an empty group and writes its state file.
func New(opts Options) (*Group, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	g := &Group{opts: opts, began: time.Now(), starter: make(chan func())}
	if err := g.save(); err != nil {
		return nil, err
	}
	go g.fork()
	return g, nil
}

// fork runs what starts processes, all of it on one thread that lives as long as the group: the
// kernel sends a child's death signal when the thread that forked it ends, not when the process
// does.
func (g *Group) fork() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for f := range g.starter {
		f()
	}
}

// Start starts a process and keeps it alive until Stop. It fails if the very first start fails, or
// if the group is stopping or has a process of that name.
func (g *Group) Start(spec Spec) error {
	p := &process{group: g, spec: spec.withDefaults(), stop: make(chan struct{}),
		done: make(chan struct{}), note: Process{Name: spec.Name}}
	g.mu.Lock()
	err := g.admitLocked(p)
	g.mu.Unlock()
	if err != nil {
		return err
	}
	cmd, err := p.start()
	if err != nil {
		g.drop(p)
		close(p.done)
		return err
	}
	go p.run(cmd)
	return nil
}

func (g *Group) admitLocked(p *process) error {
	if g.stopping {
		return errs.Newf(errs.Closed, "supervise.Start", p.spec.Name, "the group is being stopped")
	}
	for _, other := range g.processes {
		if other.spec.Name == p.spec.Name {
			return errs.Newf(errs.Exists, "supervise.Start", p.spec.Name, "runs already")
		}
	}
	g.processes = append(g.processes, p)
	return nil
}

func (g *Group) drop(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.processes {
		if other == p {
			g.processes = append(g.processes[:i], g.processes[i+1:]...)
			return
		}
	}
}

// Stop ends all processes, stage by stage, and returns when the last one is gone. When ctx ends
// first, those that are left are killed. It is called once; the group is of no use afterwards.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	if g.stopping {
		g.mu.Unlock()
		return errs.New(errs.Closed, "supervise.Stop", "", nil)
	}
	g.stopping = true
	left := append([]*process(nil), g.processes...)
	g.mu.Unlock()

	endByStage(ctx, left)
	close(g.starter)
	return g.save()
}

// Remove ends some processes, stage by stage, and forgets them; the others go on. Names that there
// are not are passed over. When ctx ends first, those that are left are killed.
func (g *Group) Remove(ctx context.Context, names ...string) error {
	g.mu.Lock()
	var left []*process
	for _, p := range g.processes {
		if slices.Contains(names, p.spec.Name) {
			left = append(left, p)
		}
	}
	g.mu.Unlock()
	endByStage(ctx, left)
	for _, p := range left {
		g.drop(p)
	}
	return g.save()
}

// endByStage ends processes, those of the highest stage first.
func endByStage(ctx context.Context, left []*process) {
	sort.SliceStable(left, func(i, j int) bool { return left[i].spec.Stage > left[j].spec.Stage })
	for len(left) > 0 {
		n := 1
		for n < len(left) && left[n].spec.Stage == left[0].spec.Stage {
			n++
		}
		for _, p := range left[:n] {
			p.asked.Do(func() { close(p.stop) })
			go p.terminate(ctx)
		}
		for _, p := range left[:n] {
			<-p.done
		}
		left = left[n:]
	}
}

// State is what the state file says.
func (g *Group) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{PID: os.Getpid(), Started: g.began}
	for _, p := range g.processes {
		note := p.note
		note.Exits = append([]Exit(nil), note.Exits...)
		s.Processes = append(s.Processes, note)
	}
	return s
}

func (g *Group) save() error {
	g.fileMu.Lock()
	defer g.fileMu.Unlock()
	return g.opts.Write(func() error { return g.State().write(g.opts.StateFile) })
}

// change edits a process' note and writes the file. That the file could not be written is logged:
// the processes matter more.
func (g *Group) change(edit func()) {
	g.mu.Lock()
	edit()
	g.mu.Unlock()
	if err := g.save(); err != nil {
		g.opts.Logger.Error("state file", "err", err)
	}
}
