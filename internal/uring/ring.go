// Package uring moves blocks between files and memory through io_uring, and through plain calls
// where the kernel has no io_uring or forbids it. Callers submit batches of operations and get them
// back finished; the two ways differ in speed only.
//
// A ring has one thread that alone uses it: it takes what callers have queued, submits all of it in
// one call and finishes what has completed. Files are registered when the ring is opened, and so
// can memory be. Transfers that the kernel cuts short are continued; the caller sees whole ones, or
// an error.
//
// It knows regular files, block devices and pipes by their descriptors and nothing of what is in
// them. It does not order the operations of a batch: what must come later is a later batch.
//
// Ownership: an Op and its buffers belong to the ring from Do until Do returns, or from Begin until
// Wait returns. The caller closes the files, after the ring. Memory that is registered must be
// mapped memory, not Go heap.
//
// Read ring.go first, then thread.go (life of an operation) and kernel_unsafe.go (what is shared
// with the kernel, drawn).
package uring

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
)

// Kind is what an operation does.
type Kind uint8

// The kinds.
const (
	Read  Kind = iota // fills the buffers; the end of the file before that is io.ErrUnexpectedEOF
	Write             // writes the buffers
	Sync              // fdatasync: everything that completed before is stable
)

// Op is one operation. The zero values of the private fields are right; an Op can be used again
// when Do has returned, and then allocates nothing.
type Op struct {
	Kind   Kind
	File   int      // index into Options.Files
	Off    int64    // in bytes; -1 for files without a position, like pipes
	Bufs   [][]byte // Read and Write; may hold empty ones
	Stable bool     // Write: stable on return (O_DSYNC for this one operation)
	Here   bool     // of a single one: a plain call on the caller's thread in any event

	N   int   // bytes moved, also when Err is set
	Err error // nil, io.ErrUnexpectedEOF, an errno, or errs.Closed

	want  int    // bytes to move in all
	group *group // who waits
	alone *group // of an operation that was begun: the same, kept for Wait
	io    vector // what the kernel is told
}

// Options of a ring.
type Options struct {
	// Files are the descriptors that operations may name. At least one.
	Files []int

	// Memory is registered with the kernel: transfers of one buffer that lies in it are cheaper.
	// It must be mapped, not heap, and stay until Close. Where the kernel refuses (a limit on
	// locked memory), the ring works without; Stats tell.
	Memory [][]byte

	// Depth is how many operations the kernel has at once; more wait in the ring. A power of
	// two from 2 to 4096. Default 128.
	Depth int

	// Plain asks for plain calls even where there is io_uring.
	Plain bool

	// Workers is how many threads make plain calls, when plain calls are made. Default 16.
	Workers int
}

func (o Options) withDefaults() Options {
	if o.Depth == 0 {
		o.Depth = 128
	}
	if o.Workers == 0 {
		o.Workers = 16
	}
	return o
}

func (o Options) validate() error {
	switch {
	case len(o.Files) == 0:
		return errs.Newf(errs.Invalid, "uring.Open", "", "no files")
	case o.Depth < 2 || o.Depth > 4096 || o.Depth&(o.Depth-1) != 0:
		return errs.Newf(errs.Invalid, "uring.Open", "", "Depth is %d", o.Depth)
	case o.Workers < 1:
		return errs.Newf(errs.Invalid, "uring.Open", "", "Workers is %d", o.Workers)
	}
	return nil
}

// Stats tell how a ring works.
type Stats struct {
	Plain      string // why plain calls are made; empty with io_uring
	Registered bool   // the memory is registered
	Ops        uint64 // finished
	Direct     uint64 // of them plain calls of the caller's
	Enters     uint64 // calls into the kernel
	Continued  uint64 // transfers that the kernel had cut short
}

// engine carries out operations: the thread of a ring, or workers.
type engine interface {
	// push queues operations; each is finished later through Op.finish.
	push(ops []*Op)
	// stop lets what the kernel has come to its end, finishes the rest with errs.Closed, and waits.
	stop()
}

// Ring is a queue to the kernel. Safe for concurrent use.
type Ring struct {
	opt    Options
	engine engine
	stats  counters
	busy   atomic.Int64 // operations under way

	life   sync.RWMutex // shared by Do until its operations are queued or carried out
	closed bool
}

type counters struct {
	plain             string
	registered        bool
	ops, direct       atomic.Uint64
	enters, continued atomic.Uint64
}

// Open makes a ring over the files. It fails only for invalid options: without io_uring it makes
// plain calls, and Stats say why.
func Open(o Options) (*Ring, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Ring{opt: o}
	why := "asked for"
	if !o.Plain {
		t, err := startThread(r, featNoIowait)
		if err == nil {
			r.engine = t
			return r, nil
		}
		why = err.Error()
	}
	r.stats.plain = why
	r.engine = startWorkers(r)
	return r, nil
}

// group is one caller of Do that waits for its operations.
type group struct {
	left atomic.Int32
	done chan struct{}
}

var groups = sync.Pool{New: func() any { return &group{done: make(chan struct{}, 1)} }}

// Do carries out the operations, in any order and at the same time, and returns when all are
// finished. Each has its own N and Err. It does not fail itself: after Close, each Err is
// errs.Closed.
//
// A single operation that finds the ring idle is a plain call on the caller's own thread: there is
// nothing to batch it with, and two thread switches are saved. So is a single Sync in any event:
// for it the kernel would wake a worker thread besides.
func (r *Ring) Do(ops []*Op) {
	if len(ops) == 0 {
		return
	}
	g := groups.Get().(*group)
	g.left.Store(int32(len(ops)))
	for _, op := range ops {
		op.begin(g)
	}
	r.life.RLock()
	busy := r.busy.Add(int64(len(ops)))
	switch {
	case r.closed:
		for _, op := range ops {
			op.finish(r, errs.Closed)
		}
	case len(ops) == 1 && ops[0].Off >= 0 && (busy == 1 || ops[0].here()):
		r.stats.direct.Add(1)
		ops[0].finish(r, r.carry(ops[0]))
	default:
		r.engine.push(ops)
	}
	r.life.RUnlock()
	<-g.done
	r.busy.Add(-int64(len(ops)))
	groups.Put(g)
}

// Begin starts the operations, in any order and at the same time, for a caller that has something
// else to do meanwhile. Each must be waited for with Wait; it is finished then as by Do.
func (r *Ring) Begin(ops []*Op) {
	if len(ops) == 0 {
		return
	}
	for _, op := range ops {
		g := groups.Get().(*group)
		g.left.Store(1)
		op.begin(g)
		op.alone = g
	}
	r.life.RLock()
	r.busy.Add(int64(len(ops)))
	if r.closed {
		for _, op := range ops {
			op.finish(r, errs.Closed)
		}
	} else {
		r.engine.push(ops)
	}
	r.life.RUnlock()
}

// Wait returns when an operation that was begun is finished.
func (r *Ring) Wait(op *Op) {
	g := op.alone
	<-g.done
	op.alone = nil
	r.busy.Add(-1)
	groups.Put(g)
}

// here tells whether an operation is carried out by its caller even when the ring is busy.
func (op *Op) here() bool { return op.Here || op.Kind == Sync }

// begin readies an operation.
func (op *Op) begin(g *group) {
	op.N, op.Err, op.group, op.want = 0, nil, g, 0
	if op.Kind != Sync {
		for _, b := range op.Bufs {
			op.want += len(b)
		}
	}
}

// finish returns the operation to its owner, which alone touches it afterwards.
func (op *Op) finish(r *Ring, err error) {
	r.stats.ops.Add(1)
	op.Err = err
	g := op.group
	op.group = nil
	if g.left.Add(-1) == 0 {
		g.done <- struct{}{}
	}
}

// Stats returns the ring's counters.
func (r *Ring) Stats() Stats {
	return Stats{
		Plain: r.stats.plain, Registered: r.stats.registered, Ops: r.stats.ops.Load(),
		Direct: r.stats.direct.Load(), Enters: r.stats.enters.Load(), Continued: r.stats.continued.Load(),
	}
}

// String says in a few words how the ring works.
func (s Stats) String() string {
	if s.Plain != "" {
		return "plain calls: " + s.Plain
	}
	if s.Registered {
		return "io_uring, memory registered"
	}
	return "io_uring"
}

// Close finishes what is queued with errs.Closed, cancels what the kernel can still give up, and
// waits for the rest. Closing twice is allowed.
func (r *Ring) Close() error {
	r.life.Lock()
	was := r.closed
	r.closed = true
	r.life.Unlock()
	if !was {
		r.engine.stop()
	}
	return nil
}

func (r *Ring) fd(op *Op) (int, error) {
	if op.File < 0 || op.File >= len(r.opt.Files) {
		return 0, errs.Newf(errs.Invalid, "uring.Do", fmt.Sprint("file ", op.File), "not registered")
	}
	return r.opt.Files[op.File], nil
}
