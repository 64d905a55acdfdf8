package remote

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/dirty"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// kept is a volatile change that its server may still lose: the request and its data. It is in its
// object's list from before it is sent until it is synced or has failed.
type kept struct {
	obj        *object
	next, prev *kept // in the object's list, oldest first

	op    iod.Op
	stamp wire.Stamp
	span  seg.Piece  // the range, if it is one piece; else empty
	slot  *slot      // nil: not numbered
	room  dirty.Room // the data, then the body of the request
	lent  bool       // it is the caller's until the change is acknowledged
	data  int        // bytes of it
	body  int
	acked uint64    // its place in the order of acknowledgements; 0: under way
	life  uint64    // of the server, when it was acknowledged last; counted here
	from  uint64    // the life when it was acknowledged first; numbered by the server
	since time.Time // of the first acknowledgement

	byAge list.Link[kept] // of all that have room
}

func (k *kept) payload() []byte { return k.room.Bytes[:k.data:k.data] }
func (k *kept) request() []byte { return k.room.Bytes[k.data : k.data+k.body : k.data+k.body] }

// object is the kept changes of one stripe object at one server. Guarded by Remote.mu, except
// replaying.
type object struct {
	srv         *server
	id          stripe.ObjectID
	first, last *kept
	toReplay    *kept // where the search for changes to replay begins
	count       int   // in the list
	running     int   // of these, under way
	users       int   // other requests that use it
	slots       []*slot
	target      iod.Target // of the latest kept change: the rights to send them again
	stale       bool       // some changes were acknowledged in an earlier life of the server
	mixed       bool       // and some after these in the present one
	lost        error      // that Sync has to report
	picked      bool       // by the sweep that is under way
	replaying   chan struct{}
}

// server is the state of one I/O server.
type server struct {
	id       uint32
	conn     atomic.Pointer[msg.Conn] // the one whose life is known
	verifier atomic.Uint64            // of that life
	stale    atomic.Int64             // objects that wait to be replayed
	probing  chan struct{}            // holds a token while no goroutine asks for its verifier

	// Guarded by Remote.mu.
	known   bool      // verifier is
	life    uint64    // incremented when it may have lost something
	watched *msg.Conn // whose end is waited for
	past    [4]uint64 // verifiers before this one
	acked   int       // kept writes that were acknowledged
	objects map[stripe.ObjectID]*object
	tables  map[uint64]*slots // by session
}

// server finds or makes the state of a server.
func (r *Remote) server(id uint32) *server {
	if all := r.servers.Load(); all != nil {
		if s := (*all)[id]; s != nil {
			return s
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[uint32]*server)
	if all := r.servers.Load(); all != nil {
		for k, v := range *all {
			next[k] = v
		}
	}
	s := next[id]
	if s == nil {
		s = &server{id: id, probing: make(chan struct{}, 1), life: 1,
			objects: make(map[stripe.ObjectID]*object), tables: make(map[uint64]*slots)}
		next[id] = s
		r.servers.Store(&next)
	}
	return s
}

// table returns the slots of a session. They are never freed, because their numbers must not be
// used again.
func (s *server) table(session uint64) *slots {
	t := s.tables[session]
	if t == nil {
		t = &slots{session: session}
		s.tables[session] = t
	}
	return t
}

// openMemory allocates the memory for kept writes at the first one.
func (r *Remote) openMemory() {
	made := r.opts.Arena
	if made == nil {
		made = func(bytes int) (*mem.Arena, error) { return mem.NewArena(bytes, nil) }
	}
	var memory *dirty.Memory
	arena, err := made(int(r.opts.RetainBytes))
	if err == nil {
		memory, err = dirty.New(arena.Bytes()[:r.opts.RetainBytes])
	}
	if err != nil {
		r.memoryErr = err
		r.opts.Logger.Warn("no memory to keep writes in: all are made durable at once", "err", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opts.Arena == nil {
		r.own = arena
	}
	r.memory = memory
}

// keepable tells whether a volatile change of n bytes, including its request, can be kept. If not
// it is made durable at once.
func (r *Remote) keepable(n int64) bool {
	if r.opts.RetainBytes < 0 || n > r.opts.RetainBytes/4 {
		return false
	}
	r.memoryOnce.Do(r.openMemory)
	return r.memoryErr == nil
}

// enter allocates a slot, and room of n bytes unless it is given some, for a change of t's object
// that will be kept, and appends it to the object's list. It waits while the oldest ones are
// synced. It returns nil without an error when no room will become free: a server is away.
//
// Two changes that overlap are not under way at the same time: their order here must be that in
// which the server has applied them.
func (r *Remote) enter(ctx context.Context, t *iod.Target, op iod.Op, l lane, span seg.Piece,
	room dirty.Room, n int64) (*kept, error) {
	srv := r.server(t.Server)
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.closed {
			return nil, errs.New(errs.Closed, "iod.Write", "", nil)
		}
		overlaps := srv.objects[t.Object].overlapsRunning(span)
		if !overlaps {
			if k := r.tryEnterLocked(srv, t, op, l, room, n); k != nil {
				k.span = span
				return k, nil
			}
			r.tight = true
			r.sweepLocked()
		}
		r.counts.waits.Add(1)
		if r.stuck && !overlaps {
			return nil, nil
		}
		if err := r.changed.Wait(ctx, &r.mu); err != nil {
			return nil, errs.Wrap("iod.Write", "waiting for memory", err)
		}
	}
}

func (r *Remote) tryEnterLocked(srv *server, t *iod.Target, op iod.Op, l lane, room dirty.Room,
	n int64) *kept {
	o := srv.objects[t.Object]
	if o == nil {
		o = r.newObject(srv, t.Object)
	}
	k := r.newKept()
	*k = kept{obj: o, op: op, stamp: t.Stamp, room: room, lent: !room.None()}
	if t.Stamp.Session != 0 {
		k.slot = o.slotFor(srv.table(t.Stamp.Session), l)
	}
	fits := t.Stamp.Session == 0 || k.slot != nil
	if fits && room.None() {
		k.room = r.memory.Take(n)
		fits = !k.room.None()
	}
	if !fits {
		if k.slot != nil {
			o.release(k.slot)
		}
		*k = kept{}
		r.spare = append(r.spare, k)
		r.dropIfEmptyLocked(o)
		return nil
	}
	if k.slot != nil {
		k.slot.number(&k.stamp)
		r.tight = r.tight || k.slot.home.held > slotsKeptMax*3/4
	}
	k.prev = o.last
	if o.last == nil {
		o.first = k
	} else {
		o.last.next = k
	}
	o.last = k
	o.count++
	o.running++
	o.target = *t
	r.byAge.PushLast(&k.byAge, k)
	r.armLocked()
	if r.tight || r.memory.Used() > r.opts.RetainBytes/2 {
		r.sweepLocked()
	}
	return k
}

// overlapsRunning tells whether a change under way overlaps span. Lists of pieces are not compared:
// where they overlap either may win.
func (o *object) overlapsRunning(span seg.Piece) bool {
	if o == nil || span.Len == 0 {
		return false
	}
	left := o.running
	for k := o.last; k != nil && left > 0; k = k.prev {
		if k.acked != 0 {
			continue
		}
		if k.span.Off < span.End() && span.Off < k.span.End() {
			return true
		}
		left--
	}
	return false
}

// onePiece is the span of an access of one piece; empty for others.
func onePiece(a seg.Access) seg.Piece {
	if a.Pieces() != 1 {
		return seg.Piece{}
	}
	return a.Span()
}

func (r *Remote) newKept() *kept {
	if n := len(r.spare); n > 0 {
		k := r.spare[n-1]
		r.spare = r.spare[:n-1]
		return k
	}
	return &kept{}
}

func (r *Remote) newObject(srv *server, id stripe.ObjectID) *object {
	var o *object
	if n := len(r.idle); n > 0 {
		o, r.idle = r.idle[n-1], r.idle[:n-1]
	} else {
		o = &object{replaying: make(chan struct{}, 1)}
	}
	*o = object{srv: srv, id: id, slots: o.slots[:0], replaying: o.replaying}
	srv.objects[id] = o
	return o
}

// dropIfEmptyLocked drops an object that has no kept changes and no users.
func (r *Remote) dropIfEmptyLocked(o *object) {
	if o.count > 0 || o.users > 0 || o.lost != nil {
		return
	}
	r.freshLocked(o)
	if o.srv.objects[o.id] == o {
		delete(o.srv.objects, o.id)
		r.idle = append(r.idle, o)
	}
}

// freshLocked notes that an object has nothing any more to be sent again.
func (r *Remote) freshLocked(o *object) {
	if o.stale {
		o.stale = false
		o.srv.stale.Add(-1)
		r.lives.Add(1)
	}
}

// release ends the use of an object.
func (r *Remote) release(o *object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.users--
	r.dropIfEmptyLocked(o)
}

// acknowledge records that the server has a kept change. It returns false when the answer is from
// an earlier life of the server: the change has to be sent again.
func (r *Remote) acknowledge(k *kept, conn *msg.Conn, m iod.Mark) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	srv := k.obj.srv
	if !r.heardLocked(srv, conn, m) {
		return false
	}
	r.order++
	k.acked, k.life, k.from, k.since = r.order, srv.life, m.Life, r.now()
	srv.acked++
	r.watchLocked(srv, conn)
	k.obj.running--
	k.obj.mixed = k.obj.mixed || k.obj.stale
	if k.slot != nil {
		k.slot.busy = false
		k.slot.kept++
	}
	r.changed.WakeAll()
	return true
}

// forgetLocked drops a kept change: it is durable, or superseded, or has failed.
func (r *Remote) forgetLocked(k *kept) {
	o := k.obj
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		o.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	} else {
		o.last = k.prev
	}
	if o.toReplay == k {
		o.toReplay = k.next
	}
	k.next, k.prev = nil, nil
	o.count--
	if k.acked != 0 {
		o.srv.acked--
	} else {
		o.running--
	}
	if s := k.slot; s != nil {
		if k.acked != 0 {
			s.kept--
		} else {
			s.busy = false
		}
		o.release(s)
	}
	if k.acked != 0 || !k.lent {
		r.memory.Give(k.room)
	}
	r.byAge.Remove(&k.byAge)
	*k = kept{}
	r.spare = append(r.spare, k)
	r.dropIfEmptyLocked(o)
	r.changed.WakeAll()
}

func (r *Remote) forget(k *kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetLocked(k)
}

// takeSlot takes a slot for a change that is durable when it is acknowledged. It returns nil for a
// request without a session, which is not numbered.
func (r *Remote) takeSlot(ctx context.Context, t *iod.Target) (*slot, error) {
	if t.Stamp.Session == 0 || t.Stamp.Seq != 0 {
		return nil, nil
	}
	srv := r.server(t.Server)
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if s := srv.table(t.Stamp.Session).take(laneDurable); s != nil {
			s.number(&t.Stamp)
			return s, nil
		}
		if err := r.changed.Wait(ctx, &r.mu); err != nil {
			return nil, errs.Wrap("iod.Write", "waiting for a slot", err)
		}
	}
}

// putSlot gives the slot back.
func (r *Remote) putSlot(s *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s != nil {
		s.busy = false
		s.home.put(s)
	}
	r.changed.WakeAll()
}
