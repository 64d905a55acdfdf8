package server

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// Limits bound the requests that a server has under way. Requests beyond them wait, fairly among
// clients; see the package comment.
type Limits struct {
	// Requests is how many requests for data are carried out at once, of each kind: cached reads,
	// other reads, writes. Default 512.
	Requests int

	// DiskRequests is how many of them use the store at once. Default 64.
	DiskRequests int

	// DiskBytes is how many bytes these may move. Default 64 MiB.
	DiskBytes int64

	// QueueRequests is how many requests of one client may wait at one gate; more are refused with
	// errs.Again. Default 1024.
	QueueRequests int

	// FairRequests is how many requests of one client, of 256 KiB each, may always use the store at
	// once while clients with fewer requests are present. More makes better use of a disk, less is
	// fairer to clients with few requests. Default 4.
	FairRequests int

	// AgeMax is how long a request can be overtaken by those of higher levels. Default 50 ms.
	AgeMax time.Duration
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field *int
		value int
	}{
		{&l.Requests, 512}, {&l.DiskRequests, 64}, {&l.QueueRequests, 1024}, {&l.FairRequests, 4},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if l.DiskBytes == 0 {
		l.DiskBytes = 64 << 20
	}
	if l.AgeMax == 0 {
		l.AgeMax = 50 * time.Millisecond
	}
	return l
}

func (l Limits) validate() error {
	if l.Requests < 1 || l.DiskRequests < 1 || l.DiskBytes < 1 || l.QueueRequests < 1 ||
		l.FairRequests < 1 || l.AgeMax < 0 {
		return errs.Newf(errs.Invalid, "iod/server.New", "", "limits %+v: all must be above 0", l)
	}
	return nil
}

// Bound is what one gate of a server lets through at once.
type Bound struct {
	Name  string // of the gate
	Bytes int64
	Count int // requests
}

// Bounds are those of the gates, in the order of the counters: cached reads, other reads, writes,
// direct requests, the disk. Memory is divided as the cache divides it.
func (l Limits) Bounds(s unifier.Shares) [gateCount]Bound {
	l = l.withDefaults()
	return [gateCount]Bound{
		{"cached data", s.Loans / 2, l.Requests},
		{"memory to read into", s.Loans / 2, l.Requests},
		{"memory to write from", max(s.Chunk, iod.TransferMax), l.Requests},
		{"memory past the cache", s.Rooms, l.Requests},
		{"the disk", l.DiskBytes, l.DiskRequests},
	}
}

// gateCount is how many gates there are.
const gateCount = 5

// presence is how long a client counts as present after its last request: about the time in which a
// client that waits for each answer sends the next request.
const presence = 2 * time.Millisecond

// manager is the gates of a server, which are its admission: msg runs every call that has come with
// a credit (msg.ServeOptions.MaxCalls is negative). A request for data passes one of the first four
// gates for its memory and holds it until it is done, so that no kind of request can take the
// memory of another: cached reads are served while others wait for the disk. A request holds the
// last gate only while it uses the store: a client that takes its data slowly holds memory, not the
// disk.
type manager struct {
	hits, misses, writes, direct, disk *gate.Gate

	slots slots
}

// newManager makes the gates.
func newManager(l Limits, s unifier.Shares) *manager {
	share := gate.Share{Queue: l.QueueRequests, Linger: presence}
	bounds := l.Bounds(s)
	open := func(i int, share gate.Share) *gate.Gate {
		b := bounds[i]
		return gate.New(gate.Options{Name: b.Name, Bytes: b.Bytes, Count: b.Count, Age: l.AgeMax,
			Share: &share})
	}
	even := share
	even.Even, even.EvenCount, even.EvenBytes = true, l.FairRequests, int64(l.FairRequests)*256<<10
	return &manager{hits: open(0, share), misses: open(1, share), writes: open(2, share),
		direct: open(3, share), disk: open(4, even)}
}

// gates returns all gates, in the order of gateNames.
func (m *manager) gates() [gateCount]*gate.Gate {
	return [gateCount]*gate.Gate{m.hits, m.misses, m.writes, m.direct, m.disk}
}

// The kinds of numbers that tell clients apart: the session of a request's capability, or the peer
// where it has none.
const (
	bySession uint64 = iota
	byPeer
)

// slots are the numbered requests under way, at most one per slot: a request that was sent again
// because its connection was lost must not run at the same time as its first copy, nor as the next
// one of its slot.
type slots struct {
	mu   sync.Mutex
	busy map[stripe.SessionSlot]struct{}
}

// take marks the stamp's slot as busy; errs.Again when it is busy already.
func (s *slots) take(op string, st wire.Stamp) error {
	if !stripe.Numbered(st) {
		return nil
	}
	key := stripe.SessionSlot{Session: st.Session, Slot: st.Slot}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.busy[key]; busy {
		return errs.Newf(errs.Again, op, "", "a request of session %x, slot %d is still under way",
			st.Session, st.Slot)
	}
	if s.busy == nil {
		s.busy = map[stripe.SessionSlot]struct{}{}
	}
	s.busy[key] = struct{}{}
	return nil
}

func (s *slots) give(st wire.Stamp) {
	if !stripe.Numbered(st) {
		return
	}
	s.mu.Lock()
	delete(s.busy, stripe.SessionSlot{Session: st.Session, Slot: st.Slot})
	s.mu.Unlock()
}

// work is the state of one request, besides its data; it is reused.
type work struct {
	req    iod.Request
	reply  wire.Enc
	sums   []uint32 // of a read's data
	who    gate.Client
	memory gate.Ticket
	disk   gate.Ticket
	time   timeline
	slot   bool // the slot is busy with the request

	read, written int64 // bytes, once they were moved

	mark   iod.Mark // to reply with; zero: that of the reply's moment
	direct direct

	op   iod.Op
	loan *unifier.Loan // of a read
	room *gate.Gate    // that memory is held in
	sent func()        // ends the request when its data has left
}

// asks is the request to a gate.
func (w *work) asks(c *msg.Call, bytes int64) gate.Request {
	return gate.Request{Client: w.who, Level: int(c.Level()), Bytes: bytes}
}

// workPool reuses works, so that a request allocates nothing.
type workPool struct{ p sync.Pool }

// get returns a work of a server's.
func (p *workPool) get(s *Server) *work {
	w, ok := p.p.Get().(*work)
	if !ok {
		w = &work{reply: wire.Enc{B: make([]byte, 0, 64)}}
		w.sent = func() {
			w.time.enter(stateFin)
			s.end(w, nil)
		}
	}
	w.reply.B = w.reply.B[:0]
	w.sums = w.sums[:0]
	w.read, w.written = 0, 0
	return w
}

func (p *workPool) put(w *work) { p.p.Put(w) }
