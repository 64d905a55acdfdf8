package unifier

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testUnit = 4 << 10

var alpha = Key{File: 1, Gen: 1}

// witness is a store that can fail, and that finds sums that do not fit their data.
type witness struct {
	*fault.Engine
	wrong  atomic.Int64
	stamps atomic.Int64 // numbered requests that writes included
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
	for _, st := range stamps {
		if stripe.Numbered(st) {
			w.stamps.Add(1)
		}
	}
	return w.Engine.WriteSums(ctx, id, bufs, off, sums, stamps, d)
}

// rig is a cache on a store in memory.
type rig struct {
	testing.TB
	*Cache
	store *witness
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
	r := &rig{TB: t, store: &witness{Engine: fault.New(s)}, cfg: cfg, ctx: context.Background()}
	r.open()
	t.Cleanup(func() { r.checkEnd() })
	return r
}

func (r *rig) open() {
	c, err := New(r.cfg, r.store)
	if err != nil {
		r.Fatal(err)
	}
	r.Cache = c
}

// checkEnd finds what a test has leaked: at the end nothing is lent, drafted, pending or claimed,
// and memory never was more than allowed.
func (r *rig) checkEnd() {
	r.Helper()
	c := r.Cache
	if !c.mu.TryLock() { // a panic under the lock must be seen
		time.Sleep(time.Second)
		if !c.mu.TryLock() {
			r.Error("the lock is held")
			return
		}
	}
	c.mu.Unlock()
	defer c.Close() // whatever is found
	r.ok(c.Settle(r.ctx, Key{}, 0, 0))
	waitFor(r, func() bool { return c.quiet() })
	if n := c.drafts.Usage().Bytes + c.takes.Usage().Bytes; n != 0 {
		r.Errorf("%d bytes are still reserved", n)
	}
	c.mu.Lock()
	var cached int64
	for id, o := range c.objects {
		cached += int64(o.count) << o.shift
		if len(o.claims) > 0 || o.busy > 0 || o.count == 0 || len(o.dirty) > 0 || o.first != nil {
			r.Errorf("object %v: %d claims, %d busy, %d units, %d dirty", id, len(o.claims), o.busy,
				o.count, len(o.dirty))
		}
		for u := o.units; u != nil; u = u.older {
			if u.pins != 0 || u.fill != nil || !u.indexed || u.blk.slab.owners[u.blk.part] != u {
				r.Errorf("unit %d of %v: %d pins, filling %v", u.index, id, u.pins, u.fill != nil)
			}
			if want := crc32c.Sum(u.bytes()[:blockBytes]); u.blk.sums()[0] != want {
				r.Errorf("unit %d of %v: sum %08x, should be %08x", u.index, id, u.blk.sums()[0], want)
			}
		}
	}
	if cached != c.stats.Bytes || c.memory.inUse != cached || c.pinnedSlabs != 0 {
		r.Errorf("%d bytes in use, %d cached, counted %d; %d slabs are held", c.memory.inUse, cached,
			c.stats.Bytes, c.pinnedSlabs)
	}
	if c.memory.high > c.cfg.MemoryBytes || c.out != 0 || c.dirtyBytes != 0 || c.promised != 0 {
		r.Errorf("high water %d, %d out, %d dirty, %d promised", c.memory.high, c.out, c.dirtyBytes,
			c.promised)
	}
	c.mu.Unlock()
	if n := r.store.wrong.Load(); n > 0 {
		r.Errorf("%d blocks came with wrong sums", n)
	}
	if err := c.Close(); err != nil {
		r.Error(err)
	}
}

// quiet tells that no worker is at work.
func (c *Cache) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.jobs.len() + c.calls.len() + c.guesses.len()
	return c.idle == c.workers && waiting == 0 && !c.mapping
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
