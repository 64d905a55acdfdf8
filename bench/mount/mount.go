// Package mount is bench mount: what programs see of a mounted sluice, beside a FUSE file system
// that serves memory (the ceiling), the local disk, and GlusterFS and MooseFS with four servers on
// the same host, with the same data, in turns in the same run.
//
// Workloads are programs that users run (cp, tar, find, rm, git) and children of the bench that
// do one system call after the other (job.go). Beside each figure stand the processor time of all
// processes of the system under test, that of the program, and the most memory that the system
// took.
//
// It starts the peers, whose state lies below a folder of the bench's, and no process of sluice's:
// package main does. It installs nothing.
//
// Read mount.go first (how a run goes), then workload.go (what is measured), scene_*.go (each of
// them), system.go and gluster.go, moose.go, local.go (on what), usage.go (what it costs), rows.go
// and table.go (what comes out), figures.go (what is promised) and long.go (a million files).
package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

const (
	// stepMax is how long one workload may take on one system. The slowest takes half a minute on
	// an idle machine with two cores; who needs longer hangs.
	stepMax = 5 * time.Minute

	startMax = time.Minute // for a system to start, or to mount anew
)

// Options say what is measured, and how large it is.
type Options struct {
	Dir     string // on the disk that all systems use; must exist
	Self    string // this program, which is also the driver of jobs, see Job
	Rounds  int
	Sizes   Sizes
	Choose  func(workload string) bool // nil: all
	Servers bool                       // cold is with servers started anew too
	Note    func(string)               // is called with what happens
}

// Bench is a run.
type Bench struct {
	opts    Options
	data    *data
	running []*contender
	steps   []*step
	values  map[string]map[string]*series // by step and system
	failed  []error
}

// contender is a system that has started.
type contender struct {
	System
	peer bool
	gone bool // it failed: the rest is left out
}

// Run starts the systems, measures, ends them, and returns the rows. What could not be measured is
// noted; an error of sluice itself is returned beside the rows of all others.
func Run(ctx context.Context, opts Options, starters []Starter) (rows []bench.Row, err error) {
	b := &Bench{opts: opts, values: map[string]map[string]*series{}}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.steps, err = chosen(opts); err != nil {
		return nil, err
	}
	b.note("making the data")
	if b.data, err = makeData(ctx, &b.opts, b.steps); err != nil {
		return nil, err
	}
	b.note("the tree: " + b.data.tree.about)
	if os.Geteuid() != 0 {
		b.note("only root drops the kernel's caches: cold is what was mounted anew")
	}
	for i := range starters {
		if err := b.start(ctx, &starters[i]); err != nil {
			return nil, err
		}
	}
	for round := range opts.Rounds {
		if err := b.round(ctx, round); err != nil {
			return nil, err
		}
	}
	return b.rows(), errors.Join(b.failed...)
}

// start starts a system. Peers that cannot start are left out.
func (b *Bench) start(ctx context.Context, s *Starter) error {
	if why := s.missing(); why != "" {
		b.note(s.Name + " is left out: " + why)
		return nil
	}
	b.note("starting " + s.Name)
	limited, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	dir, err := subFolder(b.opts.Dir, s.Name)
	if err != nil {
		return err
	}
	sys, err := s.Start(limited, dir)
	if err != nil && s.Peer && ctx.Err() == nil {
		b.note(fmt.Sprintf("%s is left out: it does not start: %v", s.Name, err))
		return nil
	}
	if err != nil {
		return errs.Wrap("bench mount", s.Name, err)
	}
	b.running = append(b.running, &contender{System: sys, peer: s.Peer})
	return nil
}

// round does every step on every system, in turns; each round another system begins.
func (b *Bench) round(ctx context.Context, round int) error {
	n := len(b.running)
	for i, s := range b.steps {
		for k := range n {
			c := b.running[(k+round)%n]
			if c.gone {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			one, err := b.measure(ctx, c, s)
			if err != nil {
				b.leaveOut(ctx, c, s, err)
				continue
			}
			text := "done"
			if !s.hidden {
				b.seriesOf(s, c).add(one)
				text = one.text(s)
			}
			b.note(fmt.Sprintf("round %d of %d, %d of %d: %s, %s: %s", round+1, b.opts.Rounds, i+1,
				len(b.steps), s.name, c.Name(), text))
		}
	}
	return ctx.Err()
}

// leaveOut is for a system on which something failed: what state it is in nobody knows.
func (b *Bench) leaveOut(ctx context.Context, c *contender, s *step, err error) {
	if ctx.Err() != nil {
		return // the user has interrupted it
	}
	c.gone = true
	err = errs.Wrap("bench mount", s.name+" by "+c.Name(), err)
	b.note(fmt.Sprintf("%v: %s is left out from here", err, c.Name()))
	if !c.peer {
		b.failed = append(b.failed, err)
	}
	if err := c.Close(); err != nil {
		b.note(fmt.Sprintf("%s does not end: %v", c.Name(), err))
	}
}

func (b *Bench) note(text string) {
	if b.opts.Note != nil {
		b.opts.Note(text)
	}
}

func (b *Bench) close() error {
	var failed []error
	for _, c := range b.running {
		if !c.gone {
			failed = append(failed, c.Close())
		}
	}
	return errors.Join(failed...)
}
