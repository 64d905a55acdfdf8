package unifier

import (
	"bytes"
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
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

// rig is a cache on a store in memory that can fail.
type rig struct {
	testing.TB
	*Cache
	store *fault.Engine
	ctx   context.Context
}

func newRig(t testing.TB, units int) *rig {
	t.Helper()
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, store: fault.New(s), ctx: context.Background()}
	r.Cache, err = New(Config{MemoryBytes: int64(units) * testUnit, UnitBytes: testUnit}, r.store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.checkEnd() })
	return r
}

// checkEnd finds what a test has leaked: at the end nothing is lent, drafted or claimed, and memory
// never was more than allowed.
func (r *rig) checkEnd() {
	r.Helper()
	c := r.Cache
	if n := c.reads.Usage().Used + c.drafts.Usage().Used; n != 0 {
		r.Errorf("%d units are still reserved", n)
	}
	c.mu.Lock()
	for id, o := range c.objects {
		if len(o.claims) > 0 || o.busy > 0 || len(o.units) == 0 {
			r.Errorf("object %v: %d claims, %d busy, %d units", id, len(o.claims), o.busy, len(o.units))
		}
		for _, u := range o.units {
			if u.pins != 0 || u.fill != nil || !u.indexed {
				r.Errorf("unit %d of %v: %d pins, filling %v", u.index, id, u.pins, u.fill != nil)
			}
		}
	}
	cached := c.stats.Bytes / c.unit
	c.mu.Unlock()
	if st := c.pool.Stats(); int64(st.InUse) != cached || st.HighWater > st.Count {
		r.Errorf("%d buffers in use, %d units cached", st.InUse, cached)
	}
	if err := c.Close(); err != nil {
		r.Error(err)
	}
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// gather copies what is lent.
func gather(sges []fabric.Sge) []byte {
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

func (r *rig) read(id Key, off, n int64) []byte {
	r.Helper()
	l, err := r.Read(r.ctx, id, seg.Contig(off, n), Hint{})
	r.ok(err)
	defer l.Release()
	p := gather(l.Sges())
	if int64(len(p)) != n {
		r.Fatalf("loan of %d bytes covers %d", n, len(p))
	}
	return p
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

func fill1(n int, v byte) []byte { return bytes.Repeat([]byte{v}, n) }

func ramp(n int, tag byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i) + byte(i>>8)*3 + tag
	}
	return p
}

func only(_ bool, err error) error { return err }
