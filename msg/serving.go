package msg

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/msg/internal/eager"
	"github.com/sluice-storage/sluice/msg/internal/marks"
	"github.com/sluice-storage/sluice/msg/internal/workers"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// This file is the state of a server: Server, its connections, their calls.

// Handler serves requests. Serve runs on a worker, or on the goroutine that polls the connection
// (see Call.Waits), for at most as many unanswered calls of one connection at once as there are
// credits. It must end the call with exactly one Reply or Fail. c must not be used afterwards. A
// panic in Serve fails the call and closes the connection, but not the process.
type Handler interface {
	Serve(ctx context.Context, c *Call)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, c *Call)

// Serve calls f.
func (f HandlerFunc) Serve(ctx context.Context, c *Call) { f(ctx, c) }

// Service is a range of operations with a handler and a least level of its own.
type Service struct {
	Name     string  // for errors
	From, To uint16  // operations, both inclusive
	Level    Level   // the least level that its requests have, whatever they say
	Handler  Handler // required
}

// ServeOptions of a Server.
type ServeOptions struct {
	// MaxConns is how many connections are served at once; more are refused with errs.Again.
	// Default 1024.
	MaxConns int

	// MaxCalls is how many calls run at once over all connections. More wait, higher levels first and
	// connections in turn, and hold only the receive that they came in. Default 256. Negative: the
	// handlers have an admission of their own, and a call runs as soon as it has come; how many can is
	// bounded by the connections and their credits.
	MaxCalls int

	// IdleWorkers is how many idle goroutines are kept for the next calls. Default 64.
	IdleWorkers int

	// Quick tells which operations of the handler given to Serve are over within microseconds and
	// seldom wait. Those that arrive together are served one after another by the goroutine that
	// polls, and their replies leave together; others of a batch are served side by side. A quick
	// handler that waits says so before (Call.Waits, Call.Park). nil: none.
	Quick func(op uint16) bool

	// QuickAt is Quick for operations that are quick at some levels only: clients send what is small
	// at a higher level than bulk. nil: none.
	QuickAt func(op uint16, level Level) bool

	// Announces says that handlers wait for nothing, but by package wait, without saying so before
	// (Call.Waits). Then nobody has to look all the time whether one keeps others from being read.
	Announces bool

	// Services have handlers and levels of their own; other operations go to the handler given to
	// Serve. Their ranges do not overlap.
	Services []Service
}

func (o ServeOptions) withDefaults() ServeOptions {
	o.MaxConns = or(o.MaxConns, 1024)
	o.MaxCalls = or(o.MaxCalls, 256)
	o.IdleWorkers = or(o.IdleWorkers, 64)
	return o
}

func (o *ServeOptions) validate() error {
	if o.MaxConns < 1 || o.IdleWorkers < 0 {
		return errs.Newf(errs.Invalid, "msg.ServeOptions", "", "a limit is negative")
	}
	for i := range o.Services {
		s := &o.Services[i]
		if s.Handler == nil || s.From > s.To || s.Level >= MaxLevels {
			return errs.Newf(errs.Invalid, "msg.ServeOptions", s.Name,
				"a service without a handler, range or level")
		}
		for _, other := range o.Services[:i] {
			if s.From <= other.To && other.From <= s.To {
				return errs.Newf(errs.Invalid, "msg.ServeOptions", s.Name,
					"its operations overlap those of %s", other.Name)
			}
		}
	}
	return nil
}

// serviceOf finds the service of an operation; nil for the server's own handler. There are few.
func (o *ServeOptions) serviceOf(op uint16) *Service {
	for i := range o.Services {
		if v := &o.Services[i]; v.From <= op && op <= v.To {
			return v
		}
	}
	return nil
}

// Server accepts connections and runs a handler for their requests. Safe for concurrent use.
type Server struct {
	node    *Node
	opts    ServeOptions
	handler Handler
	ports   []port
	counts  counts
	carried map[*rung]*carried // what each provider has carried; of all that the node has

	workers   *workers.Pool[job]
	accepting sync.WaitGroup

	calls    *gate.Gate    // the server's admission; nil where the handlers have one
	here     atomic.Int64  // calls that run or wait
	parked   atomic.Int64  // of these, parked ones
	serial   atomic.Uint64 // of the last connection
	draining atomic.Bool

	drainOnce sync.Once
	drained   chan struct{} // closed when draining and no call is here
	closed    chan struct{} // closed when everything is gone

	mu    sync.Mutex
	conns map[*serverConn]struct{}
}

// port is a place where a server listens.
type port struct {
	rung     *rung
	listener fabric.Listener
}

type counts struct {
	failed, canceled, panics, oneWay, handed atomic.Uint64
}

// Addr is where the server listens, as Dial takes it: of several places that of the node's Domain,
// or the first.
func (s *Server) Addr() string {
	for _, p := range s.ports {
		if p.rung == s.node.base() {
			return p.listener.Addr().String()
		}
	}
	return s.ports[0].listener.Addr().String()
}

func (s *Server) forget(ss *serverConn) {
	s.mu.Lock()
	delete(s.conns, ss)
	s.mu.Unlock()
}

// serverConn is the server's end of a connection. Each request gets one of its calls; a request
// that finds none waits in the receive that it came in. There are twice as many calls as
// credits, because a client may send its next request while the handler of the last one is
// still returning.
type serverConn struct {
	*link
	srv     *Server
	id      uint64      // among the connections of the server
	carried *carried    // of its provider
	places  *gate.Gate  // in the send queue, for one-sided operations
	called  atomic.Bool // a worker was called to poll, and has not run yet

	mu       sync.Mutex
	lent     eager.Lent // slots of the client
	calls    []Call
	free     []*Call // a stack, to keep the memory in use small
	deferred []arrival
	ops      []op
	idleOps  []int32
	busyOps  int
	serial   uint64
	acks     int // control buffer of the next acknowledgement

	// early holds the ids of canceled requests, by the client's slot: two goroutines that poll may
	// handle a request and its cancellation in either order. Ids do not repeat.
	early [64]uint64

	lastMoves uint64    // of the link, at the last sweep
	lastMoved time.Time // when the sweep last saw it change
}

// arrival is a request that waits for a call.
type arrival struct {
	recv         int
	header       wire.Header
	body, inline []byte
	canceled     bool
	waited       time.Time // since when it has waited for a call; zero: it has not
}

// op is a signalled work request, or a chain of Reads, that has not completed.
type op struct {
	serial uint64 // tells it from earlier ops in the same entry of the table
	left   int    // completions to come; 0 for an op that is not in use
	places int    // to return at the last one
	wait   *wait.Count
	call   *Call // whose they are; nil for none
	write  bool  // the call learns of failures
	gen    uint32
	reply  bool // the call's reply: its send buffer is free at the end
	frees  bool // so is what was pushed, see ReplyLater
}

// Call is a request at the server. Pull and Push are safe for concurrent use; Reply or Fail
// ends the call, after all of them have returned.
type Call struct {
	s       *serverConn
	index   int
	ctx     *wait.Context
	ended   atomic.Bool
	pushed  atomic.Bool  // writes were posted: the reply waits for them
	parked  atomic.Bool  // it has no admission: see Park
	refs    atomic.Int32 // references: the handler, and a reply whose send buffer is still in use
	replied *wait.Count
	freed   func() // see ReplyLater
	parcel  parcel
	round   *round // that runs it now; nil: a worker does, or it came alone

	// Set by begin, and not changed while the call is active. active and gen are guarded by
	// serverConn.mu.
	active  bool
	gen     uint32
	marks   marks.Marks
	handler Handler
	level   int
	ticket  gate.Ticket // of the server's admission
	recv    int
	header  wire.Header
	body    []byte
	inline  []byte
	eager   []byte // request data in an eager slot, which the client can still write
	slotRef bool   // the call uses the slot; guarded by serverConn.mu
	bad     error  // why the header's marks were refused
	out, in segment.Description

	mu        sync.Mutex // also held while writes are posted: it keeps a call's chains in order
	high      int64      // inline reply data: the bytes before it are set
	lent      int        // places held by writes posted since the last signalled one
	lentBytes int64      // that they carry
	failure   failure

	unit int // the largest part of a transfer

	mapVersion uint64 // that the reply tells
}

// failure is the first failed write of a request. A failure that another poller reports late may
// find the call serving another request; gen tells them apart.
type failure struct {
	gen uint32 // of the call
	err error
}

// job is what a worker does: serve a call, refuse it, or poll a connection.
type job struct {
	call    *Call
	refused error
	poll    *serverConn
}
