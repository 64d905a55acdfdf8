// Package remote is the client of I/O servers, over package msg. It implements iod.Data, iod.Space
// and iod.Manager for any server whose id the pool can resolve.
//
// It numbers every change by a slot of its session, so that a request that is sent again, because
// its connection was lost, is carried out once. It sums what it sends and verifies what it
// receives, unless the target says NoSums or the server is on this host (sums.go). It keeps every
// volatile change in memory of its own, from which it is also sent, until a Sync of the object has
// succeeded. When a server's verifier shows that it has lost its volatile state, the kept changes
// of an object are sent again before any other request for it (replayed). So a server's crash
// loses nothing while this process lives, except what the server then refuses, which Options.Lost
// or the next Sync reports. Where changes of several clients overlap and were not synced, a crash
// may change which of them is visible; each of them is applied once, and what others have written
// since the crash stays visible (see iod.Data).
//
// It does not know layouts. It renews capabilities only for kept changes, by Options.Renew;
// otherwise package client does. A session must be used through one Remote only, because its slots
// are numbered here.
//
// Read remote.go first, then keep.go (kept changes), slots.go (numbers), replay.go (after a server
// has lost its state), sync.go (how kept changes become durable), stage.go (memory that is not
// registered), start.go and startwrite.go (several requests of one goroutine).
package remote

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/dirty"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// Options of a Remote.
type Options struct {
	// WaitMax is how long a request waits for a server that cannot be reached or does not answer,
	// before it fails with errs.TimedOut. While a server works on a request for long the request waits
	// on the same connection; msg.Options.KeepAlive detects a dead server. peer.Forever: no limit.
	// Default 60 s.
	WaitMax time.Duration

	// Buffers, if not nil, lends registered memory: callers' data is copied through it where theirs is
	// not registered (see msg.Conn.Direct). It may return nil: there is none. Default nil.
	Buffers func() *mem.User

	// Registrations, if not nil, returns the cache that registers callers' memory with a provider's
	// domain, so that their data need not be copied; nil for a domain that has none. Default nil.
	Registrations func(d fabric.Domain) *regcache.Cache

	// RetainBytes bounds the memory of kept writes. When it becomes full the objects of the oldest
	// ones are synced; a write of more than a quarter of it is made durable at once. It is allocated
	// at the first kept write. At least 64 KiB; negative: nothing is kept, and every change is made
	// durable at once. Default 64 MiB.
	RetainBytes int64

	// Arena makes the memory of kept writes; it must be known to the pool's node (msg.Node.Attach)
	// where a provider needs that. It stays the caller's, to be closed after the Remote. Default:
	// anonymous memory, which Close frees.
	Arena func(bytes int) (*mem.Arena, error)

	// KeepMax is how long a write may be kept before its object is synced in the background.
	// Default 5 s.
	KeepMax time.Duration

	// Renew puts fresh rights to its object into t: the capability with its session, layout version,
	// generation and truncate sequence. It is called when kept changes must be synced or sent again
	// and the rights that they were written with have expired; errs.NotFound says that the file is
	// gone. It must not use the Remote. Default nil: rights are not renewed.
	Renew func(ctx context.Context, t *iod.Target) error

	// Lost is called when a server has lost kept writes and refuses to take them again, because it
	// cannot, or because the file was truncated since, but not so far that the truncation removed
	// them. It must not use the Remote. Default nil: the next Sync of the object fails with the error.
	Lost func(t iod.Target, err error)

	// SumNear has data summed and verified also where it does not leave the host: see sums.go.
	// Default false.
	SumNear bool

	// Logger gets what operators should know. Default: discard.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.WaitMax == 0 {
		o.WaitMax = 60 * time.Second
	}
	if o.RetainBytes == 0 {
		o.RetainBytes = 64 << 20
	}
	if o.RetainBytes > 0 {
		o.RetainBytes = dirty.RoomFor(max(o.RetainBytes, retainMin))
	}
	if o.KeepMax == 0 {
		o.KeepMax = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// retainMin is room for a few small writes.
const retainMin = 64 << 10

// Remote is safe for concurrent use.
type Remote struct {
	pool    *peer.Pool
	opts    Options
	calls   sync.Pool // of *call
	rounds  sync.Pool // of *round
	shapes  mover.Chooser
	counts  counts
	now     func() time.Time
	sweeper func()

	ctx     context.Context // of background work
	stop    context.CancelFunc
	workers sync.WaitGroup

	servers    atomic.Pointer[map[uint32]*server] // replaced under mu
	memoryOnce sync.Once
	lives      atomic.Uint64 // see LifeChanges

	mu        sync.Mutex
	memory    *dirty.Memory
	memoryErr error           // why there is none; set before memoryOnce is over
	own       *mem.Arena      // nil: the caller's
	byAge     list.List[kept] // the oldest first
	spare     []*kept
	rooms     []*Room // for reuse
	idle      []*object
	order     uint64     // acknowledgements so far
	changed   wait.Queue // waiters for room or a slot
	tight     bool       // a write waits, or slots are scarce
	sweeping  bool       // the sweep runs
	swept     []*object  // the sweep's list
	stuck     bool       // the last sweep could not sync
	timer     *time.Timer
	armed     bool
	closed    bool
}

var (
	_ iod.Data     = (*Remote)(nil)
	_ iod.Space    = (*Remote)(nil)
	_ iod.Reserver = (*Remote)(nil)
	_ iod.Manager  = (*Remote)(nil)
	_ iod.Keeper   = (*Remote)(nil)
	_ iod.Starter  = (*Remote)(nil)
)

// New makes a remote on a pool that resolves server ids. The caller closes the pool, after the
// Remote.
func New(pool *peer.Pool, opts Options) *Remote {
	r := &Remote{pool: pool, opts: opts.withDefaults(), now: time.Now}
	r.sweeper = r.sweep
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close ends background work and drops kept changes: call SyncAll first, if they matter. No request
// may be under way or come later.
func (r *Remote) Close() error {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.stop()
	r.workers.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	arena := r.own
	r.own, r.memory = nil, nil
	if arena == nil {
		return nil
	}
	return arena.Close()
}

// Read implements iod.Data.
func (r *Remote) Read(ctx context.Context, t iod.Target, object seg.Access,
	m *msg.Memory) (iod.Mark, error) {
	if err := check(m); err != nil {
		return iod.Mark{}, err
	}
	r.spareSums(&t)
	c := r.take(iod.OpRead, &t, &iod.Args{Access: object})
	defer r.put(c)
	c.req.In, c.req.Level = m, levelOf(iod.OpRead, m.Len())
	for try := 0; ; try++ {
		if err := r.do(ctx, &t, c); err != nil {
			return iod.Mark{}, err
		}
		mark, sums, err := iod.DecodeData(c.rep.Body, object.Len(), &t.How, c.sums[:0])
		if err != nil {
			return mark, err
		}
		c.sums = sums
		r.heard(c.srv, c.conn, mark)
		if t.How.NoSums || c.verify(m, sums) {
			return mark, nil
		}
		r.counts.readSums.Add(1)
		if try > 0 {
			return mark, errs.Newf(errs.Corrupt, "iod.Read", t.Object.String(),
				"data from %s does not match its checksum, twice", serverName(t.Server))
		}
	}
}

// Write implements iod.Data.
func (r *Remote) Write(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory,
	d stripe.Durability) (iod.Mark, error) {
	if err := check(m); err != nil {
		return iod.Mark{}, err
	}
	r.spareSums(&t)
	n := m.Len()
	if d == stripe.Volatile && t.Stamp.Seq == 0 && n > 0 {
		if room := n + bodyMax(object, n); r.keepable(room) {
			k, err := r.enter(ctx, &t, iod.OpWrite, laneOf(&t), onePiece(object), dirty.Room{}, room)
			if err != nil {
				return iod.Mark{}, err
			}
			if k != nil {
				return r.writeKept(ctx, &t, k, object, m)
			}
		}
		d = stripe.Durable
	}
	c := r.take(0, &t, nil)
	defer r.put(c)
	if !t.How.NoSums {
		c.sum(m)
	}
	return r.once(ctx, &t, c, iod.OpWrite, &iod.Args{Access: object, Durability: d,
		Sums: c.summing.Sums()}, m)
}

func laneOf(t *iod.Target) lane {
	if t.How.DirectFor(false) {
		return laneDirect
	}
	return laneCached
}

// writeKept copies the data into memory that is kept, and sends it from there. Memory of a program
// in C may not be there: the copy panics then, and whoever has called recovers. Nobody must wait
// for the write.
func (r *Remote) writeKept(ctx context.Context, t *iod.Target, k *kept, object seg.Access,
	m *msg.Memory) (iod.Mark, error) {
	c := r.take(0, t, nil)
	defer r.put(c)
	copied := false
	defer func() {
		if !copied {
			r.forget(k)
		}
	}()
	k.data = int(m.Len())
	m.Note("", mem.Pack, "kept until it is synced")
	c.keep(k.room.Bytes[:k.data], m, !t.How.NoSums)
	copied = true
	return r.sendKept(ctx, t, c, k, object)
}

// sendKept sends data from where it is kept.
func (r *Remote) sendKept(ctx context.Context, t *iod.Target, c *call, k *kept,
	object seg.Access) (iod.Mark, error) {
	if err := r.describe(t, c, k, object); err != nil {
		r.forget(k)
		return iod.Mark{}, err
	}
	return r.persist(ctx, t, c, k)
}

// describe makes the request of a kept write, and keeps it with the data.
func (r *Remote) describe(t *iod.Target, c *call, k *kept, object seg.Access) error {
	t.Stamp = k.stamp
	c.encode(iod.OpWrite, t, &iod.Args{Access: object, Durability: stripe.Volatile,
		Sums: c.summing.Sums()})
	c.lend(k.payload())
	c.req.Level = levelOf(iod.OpWrite, int64(k.data))
	return k.describe(t, c)
}

// describe keeps the body of a request with the change's data.
func (k *kept) describe(t *iod.Target, c *call) error {
	k.body = copy(k.room.Bytes[k.data:], c.enc.B)
	if k.body < len(c.enc.B) {
		return errs.Newf(errs.TooBig, "iod.Write", t.Object.String(),
			"a description of %d bytes", len(c.enc.B))
	}
	return nil
}

// Punch implements iod.Space.
func (r *Remote) Punch(ctx context.Context, t iod.Target, off, length int64,
	d stripe.Durability) (iod.Mark, error) {
	args := iod.Args{Off: off, Len: length, Durability: d}
	c := r.take(0, &t, nil)
	defer r.put(c)
	if d == stripe.Volatile && t.Stamp.Seq == 0 {
		if room := bodyMax(seg.Access{}, 0); r.keepable(room) {
			span := seg.Piece{Off: off, Len: length}
			k, err := r.enter(ctx, &t, iod.OpPunch, laneDirect, span, dirty.Room{}, room)
			if err != nil {
				return iod.Mark{}, err
			}
			if k != nil {
				t.Stamp = k.stamp
				c.encode(iod.OpPunch, &t, &args)
				if err := k.describe(&t, c); err != nil {
					r.forget(k)
					return iod.Mark{}, err
				}
				return r.persist(ctx, &t, c, k)
			}
		}
		args.Durability = stripe.Durable
	}
	return r.once(ctx, &t, c, iod.OpPunch, &args, nil)
}

// persist carries out a kept change, until it is acknowledged. If it fails the change is dropped;
// its room, too, unless that is still the caller's.
func (r *Remote) persist(ctx context.Context, t *iod.Target, c *call, k *kept) (iod.Mark, error) {
	for {
		err := r.doSummed(ctx, t, c)
		var mark iod.Mark
		if err == nil {
			mark, err = iod.DecodeMark(c.rep.Body)
		}
		if err != nil {
			r.forget(k)
			return iod.Mark{}, err
		}
		if r.acknowledge(k, c.conn, mark) {
			return mark, nil
		}
		if err := ctx.Err(); err != nil {
			r.forget(k)
			return iod.Mark{}, errs.Wrap("iod.Write", t.Object.String(), err)
		}
	}
}

// once carries out a change that is durable when it is acknowledged.
func (r *Remote) once(ctx context.Context, t *iod.Target, c *call, op iod.Op, a *iod.Args,
	m *msg.Memory) (iod.Mark, error) {
	s, err := r.takeSlot(ctx, t)
	if err != nil {
		return iod.Mark{}, err
	}
	defer r.putSlot(s)
	c.encode(op, t, a)
	c.req.Out, c.req.Level = m, levelOf(op, m.Len())
	if err := r.doSummed(ctx, t, c); err != nil {
		return iod.Mark{}, err
	}
	mark, err := iod.DecodeMark(c.rep.Body)
	if err == nil {
		r.heard(c.srv, c.conn, mark)
	}
	return mark, err
}

// marked carries out a request that is neither kept nor numbered.
func (r *Remote) marked(ctx context.Context, op iod.Op, t *iod.Target, a *iod.Args) error {
	c := r.take(op, t, a)
	defer r.put(c)
	if err := r.do(ctx, t, c); err != nil {
		return err
	}
	mark, err := iod.DecodeMark(c.rep.Body)
	if err == nil {
		r.heard(c.srv, c.conn, mark)
	}
	return err
}

// Map implements iod.Space.
func (r *Remote) Map(ctx context.Context, t iod.Target,
	off, length int64) ([]stripe.Extent, error) {
	c := r.take(iod.OpMap, &t, &iod.Args{Off: off, Len: length})
	defer r.put(c)
	if err := r.do(ctx, &t, c); err != nil {
		return nil, err
	}
	return iod.DecodeExtents(c.rep.Body)
}

// Stat implements iod.Space.
func (r *Remote) Stat(ctx context.Context, t iod.Target) (stripe.Info, error) {
	c := r.take(iod.OpStat, &t, &iod.Args{})
	defer r.put(c)
	if err := r.do(ctx, &t, c); err != nil {
		return stripe.Info{}, err
	}
	return iod.DecodeInfo(t.Object, c.rep.Body)
}

// Truncate implements iod.Manager.
func (r *Remote) Truncate(ctx context.Context, t iod.Target, size int64) error {
	return r.marked(ctx, iod.OpTruncate, &t, &iod.Args{Len: size})
}

// Remove implements iod.Manager.
func (r *Remote) Remove(ctx context.Context, t iod.Target) error {
	return r.marked(ctx, iod.OpRemove, &t, &iod.Args{})
}

// Fence implements iod.Manager.
func (r *Remote) Fence(ctx context.Context, t iod.Target) error {
	return r.marked(ctx, iod.OpFence, &t, &iod.Args{})
}

// List implements iod.Lister.
func (r *Remote) List(ctx context.Context, t iod.Target) ([]stripe.ObjectID, error) {
	c := r.take(iod.OpList, &t, &iod.Args{})
	defer r.put(c)
	if err := r.do(ctx, &t, c); err != nil {
		return nil, err
	}
	return iod.DecodeObjects(c.rep.Body)
}

// Status asks a server about itself. It is not retried: a late answer is of no use.
func (r *Remote) Status(ctx context.Context, server uint32) (iod.Status, error) {
	t := iod.Target{Server: server}
	c := r.take(iod.OpStatus, &t, &iod.Args{})
	defer r.put(c)
	if err := r.attempt(ctx, &t, c); err != nil {
		return iod.Status{}, err
	}
	return iod.DecodeStatus(c.rep.Body)
}
