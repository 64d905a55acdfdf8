package server

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Limits bound what a server has under way. Requests beyond them wait, client by client; see
// package comment.
type Limits struct {
	// Requests for data that are carried out at once, of each kind: reads of what is cached, reads of
	// what is not, writes. Default 512.
	Requests int

	// DiskRequests is how many of them use the store at once. Default 64.
	DiskRequests int

	// DiskBytes is how much these may stand for. Default 64 MiB.
	DiskBytes int64

	// QueueRequests is how many requests of one client may wait for the same thing; beyond that they
	// are refused with errs.Again. Default 1024.
	QueueRequests int

	// FairRequests is how many requests of one client, of 256 KiB each, use the store at once in any
	// case while others, who have fewer, are there. More makes better use of a disk, less is fairer to
	// those with few requests. Default 4.
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

// presence is how long a client counts as there after its last request: about as long as it takes
// one that waits for each answer to send the next request.
const presence = 2 * time.Millisecond

// manager is the gates of a server. A request for data passes one of the first four for its
// memory, for as long as it lives, so that no kind of them can hold the memory of another: what is
// cached is served while what is not waits for the disk. Behind it, whoever uses the store passes
// the last while it does that: a client that takes its data slowly holds memory, not the disk.
type manager struct {
	hits, misses, writes, direct, disk *gate.Gate

	slots slots
}

// newManager divides the memory that the cache lends.
func newManager(l Limits, readBytes, writeBytes, directBytes int64, d *Defects) *manager {
	defects := &gate.Defects{Unbounded: d.Unbounded, Unfair: d.Unfair, Starve: d.Starve}
	memory := func(name string, bytes int64) *gate.Gate {
		return gate.New(gate.Options{Name: name, Bytes: bytes, Count: l.Requests, Age: l.AgeMax,
			Share:   &gate.Share{Queue: l.QueueRequests, Linger: presence},
			Defects: defects})
	}
	return &manager{
		hits:   memory("cached data", readBytes/2),
		misses: memory("memory to read into", readBytes/2),
		writes: memory("memory to write from", writeBytes),
		direct: memory("memory past the cache", directBytes),
		disk: gate.New(gate.Options{Name: "the disk", Bytes: l.DiskBytes, Count: l.DiskRequests,
			Age: l.AgeMax,
			Share: &gate.Share{Queue: l.QueueRequests, Linger: presence,
				Even: true, EvenCount: l.FairRequests, EvenBytes: int64(l.FairRequests) * 256 << 10},
			Defects: defects}),
	}
}

// gates are all of them, in the order of gateNames.
func (m *manager) gates() [5]*gate.Gate {
	return [5]*gate.Gate{m.hits, m.misses, m.writes, m.direct, m.disk}
}

// The kinds of numbers that tell clients apart: the session of a request's capability, or the peer
// where it has none.
const (
	bySession uint64 = iota
	byPeer
)

// slots are the numbered requests under way, one a slot: a request that was sent again because its
// connection was lost must not run beside itself, nor beside the next one of its slot.
type slots struct {
	mu   sync.Mutex
	busy map[stripe.SessionSlot]struct{}
}

// take makes the stamp's slot busy; errs.Again when it is.
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

// work is what one request needs besides its data; kept for the next one.
type work struct {
	req    iod.Request
	reply  wire.Enc
	sums   []uint32 // of a read's data
	who    gate.Client
	memory gate.Ticket
	disk   gate.Ticket
	time   timeline
	slot   bool     // is busy with the request
	mark   iod.Mark // to reply with; zero: that of the reply's moment
	direct direct
}

// asks is what the request wants of a gate.
func (w *work) asks(c *msg.Call, bytes int64) gate.Request {
	return gate.Request{Client: w.who, Level: int(c.Level()), Bytes: bytes}
}

// workPool keeps works, so that a request allocates nothing.
type workPool struct{ p sync.Pool }

func (p *workPool) get() *work {
	w, ok := p.p.Get().(*work)
	if !ok {
		w = &work{reply: wire.Enc{B: make([]byte, 0, 64)}}
	}
	w.reply.B = w.reply.B[:0]
	w.sums = w.sums[:0]
	return w
}

func (p *workPool) put(w *work) { p.p.Put(w) }
