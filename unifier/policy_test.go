package unifier

import (
	"testing"

	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// sweep reads n units of another object once.
func (r *rig) sweep(n int64) {
	for off := int64(0); off < n; off += 8 {
		r.readAs(Key{File: 99}, Hint{}, off*testUnit, 8*testUnit)
	}
}

func TestLRU(t *testing.T) {
	r := newRig(t, Config{})
	h := Hint{Policy: LRU}
	r.readAs(alpha, h, 0, 4*testUnit)
	r.readAs(alpha, h, 0, 4*testUnit) // twice, but that does not protect
	r.sweep(400)
	if n := r.cached(alpha, 0, 4*testUnit); n != 0 {
		t.Fatalf("%d bytes stayed", n)
	}
}

func TestKeep(t *testing.T) {
	r := newRig(t, Config{})
	h := Hint{Policy: Keep}
	r.readAs(alpha, h, 0, 10*testUnit)
	d, err := r.Draft(r.ctx, alpha, seg.Contig(10*testUnit, 10*testUnit), h)
	r.ok(err)
	r.ok(only(d.Publish(r.ctx, wire.Stamp{}, stripe.Volatile)))
	r.sweep(800)
	if n := r.cached(alpha, 0, 20*testUnit); n != 20*testUnit {
		t.Fatalf("%d bytes stayed", n)
	}
	for off := int64(0); off < 2<<20; off += 16 << 10 { // more than may be kept
		r.readAs(Key{File: 3}, h, off, 16<<10)
	}
	r.sweep(400)
	r.index.Lock()
	kept := r.index.Stats().Kept
	r.index.Unlock()
	if kept > 512<<10 || kept < 400<<10 {
		t.Fatalf("%d bytes are kept", kept)
	}
}

func TestNoneIsNotCached(t *testing.T) {
	r := newRig(t, Config{})
	h := Hint{Policy: None}
	r.write(alpha, 0, fill1(testUnit, 1))
	l, err := r.Read(r.ctx, alpha, seg.Contig(0, 8*testUnit), h)
	r.ok(err)
	if n := r.cached(alpha, 0, 8*testUnit); n != 8*testUnit {
		t.Fatalf("%d bytes are shared while they are lent", n)
	}
	l.Release()
	d, err := r.Draft(r.ctx, alpha, seg.Contig(8*testUnit, testUnit), h)
	r.ok(err)
	r.ok(only(d.Publish(r.ctx, wire.Stamp{}, stripe.Volatile)))
	if n := r.cached(alpha, 0, 9*testUnit); n != 0 {
		t.Fatalf("%d bytes stayed", n)
	}
}

// What a stream has read to the end is the first to go; what it has not is not.
func TestStreamDropsBehindItself(t *testing.T) {
	r := newRig(t, Config{})
	r.sweep(200)
	h := Hint{Policy: Stream}
	for off := int64(0); off < 400; off++ {
		r.readAs(alpha, h, off*testUnit, testUnit)
	}
	if n := r.cached(Key{File: 99}, 0, 200*testUnit); n < 190*testUnit {
		t.Fatalf("the stream left %d units of others", n/testUnit)
	}
}

// Work that comes back to what was evicted from probation makes room for probation, and work that
// comes back to what had been protected makes room for protection.
func TestProtectionAdapts(t *testing.T) {
	r := newRig(t, Config{})
	most := func() int64 {
		r.index.Lock()
		defer r.index.Unlock()
		return r.index.Stats().ProtectedMax
	}
	for range 2 { // hot things that nobody wants any more
		r.readAs(alpha, Hint{}, 0, 100*testUnit)
		r.readAs(alpha, Hint{}, 0, 100*testUnit)
	}
	before := most()
	for range 6 { // a loop that would fit were it not for them
		r.sweep(200)
	}
	if now := most(); now >= before || r.Stats().GhostHits == 0 {
		t.Fatalf("protection went from %d to %d, %d ghosts", before, now, r.Stats().GhostHits)
	}
	low := most()
	for range 8 { // a protected set that is larger than protection
		for off := int64(0); off < 230; off++ {
			r.readAs(alpha, Hint{}, off*testUnit, testUnit)
			r.readAs(alpha, Hint{}, off*testUnit, testUnit)
		}
		r.sweep(64)
	}
	if now := most(); now <= low {
		t.Fatalf("protection stayed at %d", now)
	}
}
