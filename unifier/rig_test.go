package unifier

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
	"github.com/sluice-storage/sluice/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testUnit   = 4 << 10
	blockBytes = memory.BlockBytes
	slabBytes  = memory.SlabBytes
	policies   = index.Policies
)

var alpha = Key{File: 1, Gen: 1}

// witness is a store that can fail, and that finds sums that do not fit their data.
type witness struct {
	*fault.Engine
	wrong  atomic.Int64
	stamps atomic.Int64 // numbered requests that writes included

	mu      sync.Mutex
	applied map[wire.Stamp]bool // the same
}

// host is the machine that a cache runs on: when it is dead nothing reaches the store any more.
type host struct {
	*witness
	mu   sync.RWMutex // held over a write, so that none is under way when die returns
	dead bool
	left atomic.Int64 // writes until it dies by itself, if it is doomed
	doom atomic.Bool
}

// dieIn has it die before one of the next writes.
func (h *host) dieIn(writes int) {
	h.left.Store(int64(writes))
	h.doom.Store(true)
}

// gone needs mu.
func (h *host) gone() bool { return h.dead || h.doom.Load() && h.left.Load() < 0 }

func (h *host) die() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
}

func (h *host) WriteSums(ctx context.Context, id Key, bufs [][]byte, off int64, sums []uint32,
	stamps []wire.Stamp, d stripe.Durability) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.left.Add(-1); h.gone() {
		return errs.IO
	}
	return h.witness.WriteSums(ctx, id, bufs, off, sums, stamps, d)
}

func (h *host) NewLife() {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if !h.gone() {
		h.witness.NewLife()
	}
}

func (w *witness) WriteSums(ctx context.Context, id Key, bufs [][]byte, off int64, sums []uint32,
	stamps []wire.Stamp, d stripe.Durability) error {
	if sums != nil {
		all := bytes.Join(bufs, nil)
		for i, sum := range sums {
			if crc32c.Sum(all[i*blockBytes:(i+1)*blockBytes]) != sum {
				w.wrong.Add(1)
			}
		}
	}
	err := w.Engine.WriteSums(ctx, id, bufs, off, sums, stamps, d)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, st := range stamps {
		if stripe.Numbered(st) {
			w.stamps.Add(1)
			w.applied[st] = w.applied[st] || err == nil
		}
	}
	return err
}

// rig is a cache on a store in memory.
type rig struct {
	testing.TB
	*Cache
	store *witness
	host  *host
	cfg   Config
	ctx   context.Context
}

// newRig makes a cache of 1 MiB with units of 4 KiB, unless cfg says otherwise.
func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MemoryBytes == 0 {
		cfg.MemoryBytes = 1 << 20
	}
	if cfg.UnitBytes == 0 {
		cfg.UnitBytes = testUnit
	}
	if cfg.ReadaheadBytes == 0 {
		cfg.ReadaheadBytes = -1
	}
	r := &rig{TB: t, cfg: cfg, ctx: context.Background(),
		store: &witness{Engine: fault.New(s), applied: map[wire.Stamp]bool{}}}
	r.open()
	t.Cleanup(func() { r.checkEnd() })
	return r
}

func (r *rig) open() {
	r.host = &host{witness: r.store}
	c, err := New(r.cfg, r.host)
	if err != nil {
		r.Fatal(err)
	}
	r.Cache = c
}

// checkEnd finds what a test has leaked: at the end nothing is lent, drafted, pending or locked,
// and memory never was more than allowed.
func (r *rig) checkEnd() {
	r.Helper()
	c := r.Cache
	defer c.Close() // whatever is found
	if !r.lockIsFree() {
		return
	}
	r.ok(c.Settle(r.ctx, Key{}, 0, 0))
	waitFor(r, func() bool { return c.quiet() })
	c.index.Lock()
	wrong, x, m := c.index.Check(true), c.index.Stats(), c.index.Memory.Stats()
	c.index.Unlock()
	if wrong != nil {
		r.Error(wrong)
	}
	if m.InUse != x.Bytes || m.HeldSlabs != 0 || x.RangeLocks != 0 || x.Busy != 0 {
		r.Errorf("%d bytes in use, %d cached; %d slabs are held, %d ranges locked, %d users",
			m.InUse, x.Bytes, m.HeldSlabs, x.RangeLocks, x.Busy)
	}
	w := c.back.Stats()
	n := w.Drafted + c.takes.Usage().Bytes
	if n != 0 || w.Dirty != 0 || w.Promised != 0 {
		r.Errorf("%d bytes are drafted or taken, %d dirty, %d promised", n, w.Dirty, w.Promised)
	}
	if m.HighWater > c.cfg.MemoryBytes {
		r.Errorf("high water %d", m.HighWater)
	}
	if n := r.store.wrong.Load(); n > 0 {
		r.Errorf("%d blocks came with wrong sums", n)
	}
	if err := c.Close(); err != nil {
		r.Error(err)
	}
}

// lockIsFree tells whether somebody has left the index's lock behind: a panic under it must be
// seen.
func (r *rig) lockIsFree() bool {
	free := make(chan struct{})
	go func() {
		r.index.Lock()
		//lint:ignore SA2001 to see whether it can be had
		r.index.Unlock()
		close(free)
	}()
	select {
	case <-free:
		return true
	case <-time.After(time.Second):
		r.Error("the lock is held")
		return false
	}
}

// quiet tells that no worker is at work.
func (c *Cache) quiet() bool {
	k := &c.workers
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.idle == k.started && len(k.asked) == 0 && k.ahead == 0
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for range 60000 {
		if cond() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("waited in vain")
}

// gathered copies what is lent.
func gathered(sges []fabric.Sge) []byte {
	var p []byte
	for _, s := range sges {
		p = append(p, s.Buf...)
	}
	return p
}

// scatter fills what is drafted.
func scatter(sges []fabric.Sge, p []byte) {
	for _, s := range sges {
		p = p[copy(s.Buf, p):]
	}
	if len(p) > 0 {
		panic("draft is shorter than its pieces")
	}
}

// sumsOf sums a stream the plain way.
func sumsOf(p []byte, chunk int) (sums []uint32) {
	for len(p) > 0 {
		n := min(chunk, len(p))
		sums = append(sums, crc32c.Sum(p[:n]))
		p = p[n:]
	}
	return sums
}

func (r *rig) readAs(id Key, h Hint, off, n int64) []byte {
	r.Helper()
	l, err := r.Read(r.ctx, id, seg.Contig(off, n), h)
	r.ok(err)
	defer l.Release()
	p := gathered(l.Sges())
	if int64(len(p)) != n {
		r.Fatalf("loan of %d bytes covers %d", n, len(p))
	}
	return p
}

func (r *rig) read(id Key, off, n int64) []byte {
	r.Helper()
	return r.readAs(id, Hint{}, off, n)
}

func (r *rig) holds(id Key, off int64, want []byte) {
	r.Helper()
	if !bytes.Equal(r.read(id, off, int64(len(want))), want) {
		r.Fatalf("bytes at %d differ", off)
	}
}

func (r *rig) tryWrite(id Key, p []byte, pieces ...seg.Piece) error {
	r.Helper()
	d, err := r.Draft(r.ctx, id, seg.List(pieces), Hint{})
	r.ok(err)
	scatter(d.Sges(), p)
	return only(d.Publish(r.ctx, wire.Stamp{}, stripe.Volatile))
}

func (r *rig) write(id Key, off int64, p []byte) {
	r.Helper()
	r.ok(r.tryWrite(id, p, seg.Piece{Off: off, Len: int64(len(p))}))
}

// drop takes what is cached of the range out.
func (r *rig) drop(id Key, off, n int64) {
	r.Helper()
	r.ok(r.Change(r.ctx, id, off, n, func() error { return nil }))
}

func (r *rig) cached(id Key, off, n int64) int64 { return r.Query(id, seg.Contig(off, n)) }

func only(_ bool, err error) error { return err }

func fill1(n int, v byte) []byte { return bytes.Repeat([]byte{v}, n) }

func ramp(n int, tag byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i) + byte(i>>8)*3 + tag
	}
	return p
}
