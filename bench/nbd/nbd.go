// Package nbd is bench nbd: block devices of sluice beside those of qemu-nbd, nbdkit and
// nbd-server, with fio as the client of all, in turns in the same run. The ceiling is a server that
// answers every read out of one buffer (null.go).
//
// Servers are programs, each a process of its own: beside each figure stand the processor time of
// all processes of the server, and that of the client. The peers are started here, on files and
// sockets below a folder of the bench's; servers of sluice are package main's. It installs nothing.
//
// Read nbd.go first (how a run goes), then scene.go (who is measured, on what), workload.go (doing
// what), fio.go (by whom), peers.go and null.go (the others), loop.go (what a server takes from a
// program beside it), rows.go, table.go (what comes out) and figures.go (what is promised).
package nbd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/process"
	"github.com/sluice-storage/sluice/errs"
)

const (
	startMax = 2 * time.Minute // for a server to start
	extraMax = time.Minute     // that a measurement may take longer than it should
)

// Options say what is measured, and how long.
type Options struct {
	Dir    string // on the disk that is measured; must exist
	Memory string // a folder in memory (tmpfs); "": there is none
	Self   string // this program, whose verbs AideCommand are the null server and the loop
	Bytes  int64  // of each device
	Rounds int
	Time   time.Duration               // of one measurement
	Choose func(c *bench.Case) bool    // nil: the columns of each scene
	Who    func(contender string) bool // nil: all
	Note   func(string)                // is called with what happens
}

// Bench is a run.
type Bench struct {
	opts   Options
	rows   []bench.Row
	failed []error
}

// Run measures scene after scene and returns the rows. What could not be measured is noted; an
// error of sluice itself is returned beside the rows of all others.
func Run(ctx context.Context, opts Options, scenes []*Scene) ([]bench.Row, error) {
	b := &Bench{opts: opts}
	for _, s := range scenes {
		if err := b.scene(ctx, s); err != nil {
			return b.rows, errors.Join(append(b.failed, err)...)
		}
	}
	return b.rows, errors.Join(b.failed...)
}

// play is a scene on its way: the servers that run, and what was measured of them.
type play struct {
	*Bench
	scene   *Scene
	columns []workload
	running []*contender
	values  map[string][]measured // by column and contender
	dirty   bool                  // something was written that the disk may not have
}

// contender is a server that has started.
type contender struct {
	*Server
	name string
	kind Kind
	gone bool // it failed: the rest is left out
}

// counts tells whether it is there, and not only to be held against.
func (c *contender) counts() bool { return c.kind != Ceiling && !c.gone }

func (b *Bench) scene(ctx context.Context, s *Scene) (err error) {
	p := &play{Bench: b, scene: s, values: map[string][]measured{}}
	p.columns = slices.DeleteFunc(s.columns(), func(w workload) bool {
		c := s.caseOf(&w)
		if b.opts.Choose != nil {
			return !b.opts.Choose(&c)
		}
		return !w.usual
	})
	if len(p.columns) == 0 {
		return nil
	}
	if s.Place == InMemory && b.opts.Memory == "" {
		b.note(s.Name + " is left out: there is no file system in memory here")
		return nil
	}
	dir, err := os.MkdirTemp(p.folder(), "scene-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(), os.RemoveAll(dir)) }()
	for i := range s.Starters {
		if err := p.start(ctx, &s.Starters[i], dir); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(p.running, (*contender).counts) {
		b.note(s.Name + " is left out: nobody is there to be measured")
		return nil
	}
	for round := range b.opts.Rounds {
		if err := p.round(ctx, round); err != nil {
			return err
		}
	}
	b.rows = append(b.rows, p.rows()...)
	return nil
}

// folder is where the scene's data lies.
func (p *play) folder() string {
	if p.scene.Place == InMemory {
		return p.opts.Memory
	}
	return p.opts.Dir
}

// start starts a server and has it hold data. Who is not installed, and peers that cannot start,
// are left out; so are modes that this build of sluice does not know.
func (p *play) start(ctx context.Context, s *Starter, dir string) error {
	if p.opts.Who != nil && !p.opts.Who(s.Name) {
		return nil
	}
	if why := s.missing(); why != "" {
		p.note(fmt.Sprintf("%s: %s is left out: %s", p.scene.Name, s.Name, why))
		return nil
	}
	p.note(p.scene.Name + ": starting " + s.Name)
	limited, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	at, err := makePlace(dir, s, p.opts.Bytes)
	if err != nil {
		return err
	}
	srv, err := s.Start(limited, at)
	if err == nil {
		c := &contender{Server: srv, name: s.Name, kind: s.Kind}
		p.running = append(p.running, c)
		p.dirty = true
		if err = fill(limited, srv.URI, p.opts.Bytes); err != nil {
			c.gone = true
			err = errors.Join(err, srv.Close())
		}
	}
	if err != nil && (s.Kind == Peer || errs.KindOf(err) == errs.Unsupported) && ctx.Err() == nil {
		p.note(fmt.Sprintf("%s: %s is left out: %v", p.scene.Name, s.Name, err))
		return nil
	}
	return errs.Wrap("bench nbd", s.Name, err)
}

// makePlace makes a folder, and a file of zeroes where the server wants one.
func makePlace(dir string, s *Starter, bytes int64) (Place, error) {
	at := Place{Dir: filepath.Join(dir, s.Name), Bytes: bytes}
	if err := os.Mkdir(at.Dir, 0o700); err != nil || !s.File {
		return at, err
	}
	at.File = filepath.Join(at.Dir, "disk")
	f, err := os.OpenFile(at.File, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, bytes), f.Close())
	}
	return at, err
}

// round does every column on every server, in turns; each round another one begins.
func (p *play) round(ctx context.Context, round int) error {
	n := len(p.running)
	for i := range p.columns {
		w := &p.columns[i]
		for k := range n {
			c := p.running[(k+round)%n]
			if c.gone || !w.fits(c.kind) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			m, err := p.measure(ctx, c, w)
			if err != nil {
				p.leaveOut(ctx, c, w, err)
				continue
			}
			key := valueKey(w, c.name)
			p.values[key] = append(p.values[key], m)
			p.note(fmt.Sprintf("round %d of %d, %d of %d: %s, %s: %s", round+1, p.opts.Rounds, i+1,
				len(p.columns), p.scene.caseName(w), c.name, m.text(w)))
		}
	}
	return ctx.Err()
}

// measured is one measurement.
type measured struct {
	load
	server time.Duration      // processor time of the server's processes
	memory int64              // the most that they had at once
	slowed float64            // how many times longer a program beside it takes; 0: there was none
	states map[string]float64 // microseconds of a request in each, as far as the server tells
}

// measure does one column on one server, when all of them are quiet.
func (p *play) measure(ctx context.Context, c *contender, w *workload) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*p.opts.Time+extraMax)
	defer cancel()
	if err := p.quiet(); err != nil {
		return m, err
	}
	alone := 0.0
	if w.beside {
		if alone, err = runLoop(ctx, p.opts.Self, p.opts.Time); err != nil {
			return m, err
		}
	}
	p.dirty = p.dirty || w.write
	told, err := c.watch(w)
	if err != nil {
		return m, err
	}
	before, peak := process.UsageOf(c.Pids), process.Sample(c.Pids)
	if w.beside {
		m.load, m.slowed, err = p.besides(ctx, c, w, alone)
	} else {
		m.load, err = w.run(ctx, c.URI, p.opts.Bytes, p.opts.Time)
	}
	m.memory = peak()
	m.server = process.Settle(c.Pids).CPU - before.CPU
	if err == nil {
		m.states, err = told()
	}
	return m, err
}

// watch reads where the time of requests goes from now on, for those servers who tell.
func (c *contender) watch(w *workload) (told func() (map[string]float64, error), err error) {
	if c.States == nil {
		return func() (map[string]float64, error) { return nil, nil }, nil
	}
	before, n, err := c.States(w.write)
	return func() (map[string]float64, error) {
		after, m, err := c.States(w.write)
		if err != nil || m == n {
			return nil, err
		}
		each := map[string]float64{}
		for state, sum := range after {
			each[state] = (sum - before[state]) / (m - n) * 1e6
		}
		return each, nil
	}, err
}

// quiet has everybody finish what was put off, so that it is in nobody's way.
func (p *play) quiet() error {
	var all []int
	for _, c := range p.running {
		if !c.gone {
			all = append(all, c.Pids...)
		}
	}
	process.Settle(all)
	if !p.dirty || p.scene.Place == InMemory {
		return nil
	}
	p.dirty = false
	fd, err := unix.Open(p.folder(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(fd), unix.Close(fd))
}

// leaveOut is for a server on which something failed: what state it is in nobody knows.
func (p *play) leaveOut(ctx context.Context, c *contender, w *workload, err error) {
	if ctx.Err() != nil {
		return // the user has interrupted it
	}
	c.gone = true
	err = errs.Wrap("bench nbd", p.scene.caseName(w)+" by "+c.name, err)
	p.note(fmt.Sprintf("%v: %s is left out from here", err, c.name))
	if c.kind != Peer {
		p.failed = append(p.failed, err)
	}
	if err := c.Close(); err != nil {
		p.note(fmt.Sprintf("%s does not end: %v", c.name, err))
	}
}

func (b *Bench) note(text string) {
	if b.opts.Note != nil {
		b.opts.Note(text)
	}
}

func (p *play) close() error {
	var failed []error
	for _, c := range slices.Backward(p.running) {
		if !c.gone {
			failed = append(failed, c.Close())
		}
	}
	return errors.Join(failed...)
}
