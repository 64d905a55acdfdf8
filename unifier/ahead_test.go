package unifier

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/wire"
)

// newAhead reads ahead in a cache of 8 MiB on top of an object of 4 MiB.
func newAhead(t testing.TB) *rig {
	r := newRig(t, Config{MemoryBytes: 8 << 20, ReadaheadBytes: 512 << 10})
	r.ok(r.store.WriteAt(r.ctx, alpha, [][]byte{ramp(4<<20, 1)}, 0, wire.Stamp{}, stripe.Volatile))
	return r
}

const aheadLeast = 128 << 10 // the first window

func (r *rig) settled() { waitFor(r, r.quiet) }

func TestStreamsAreReadAhead(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		reads  int64 // until something is read ahead
	}{{Scan, 2}, {LRU, 2}, {Keep, 2}, {Stream, 1}} {
		r := newAhead(t)
		h := Hint{Policy: c.policy}
		for i := range c.reads {
			if r.Stats().Ahead != 0 {
				t.Errorf("policy %d: read ahead after %d reads", c.policy, i)
			}
			r.readAs(alpha, h, i*8*testUnit, 8*testUnit)
			r.settled()
		}
		if n := r.Stats().Ahead; n != aheadLeast/testUnit {
			t.Errorf("policy %d: %d units were read ahead", c.policy, n)
		}
		want := ramp(4<<20, 1)
		for off := c.reads * 8 * testUnit; off < 4<<20; off += 8 * testUnit {
			if string(r.readAs(alpha, h, off, 8*testUnit)) != string(want[off:off+8*testUnit]) {
				t.Fatalf("bytes at %d differ", off)
			}
			r.settled()
		}
		st := r.Stats()
		if n := r.store.Calls(fault.Read); n > 30 || st.AheadUsed < st.Ahead*9/10 {
			t.Errorf("policy %d: %d reads of the store, %+v", c.policy, n, st)
		}
		if st.Misses > 3*8*3 {
			t.Errorf("policy %d: the stream had to wait for %d units", c.policy, st.Misses)
		}
	}
}

func TestNothingIsReadAheadOfRandomReadsOrNone(t *testing.T) {
	r := newAhead(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		r.read(alpha, rnd.Int64N(1<<40)/testUnit*testUnit, testUnit)
	}
	for off := int64(0); off < 4<<20; off += 64 << 10 {
		r.readAs(alpha, Hint{Policy: None}, off, 64<<10)
	}
	r.settled()
	if n := r.Stats().Ahead; n != 0 {
		t.Fatalf("%d units were read ahead", n)
	}
}

// The end of the object is not read past.
func TestReadaheadEndsWithTheObject(t *testing.T) {
	r := newAhead(t)
	for off := int64(4<<20 - 64<<10); off < 4<<20; off += testUnit {
		r.read(alpha, off, testUnit)
		r.settled()
	}
	if n := r.cached(alpha, 4<<20, 1<<30); n != 0 {
		t.Fatalf("%d bytes behind the end are cached", n)
	}
}

// Several readers of one object are told apart, and one that has several requests under way.
func TestManyStreams(t *testing.T) {
	r := newAhead(t)
	for i := range int64(16) {
		for s := range int64(4) {
			at := s<<20 + (i^1)*4*testUnit // pairs of requests have changed places
			r.read(alpha, at, 4*testUnit)
		}
		r.settled()
	}
	if st := r.Stats(); st.AheadUsed < 4*30 {
		t.Fatalf("%+v", st)
	}
}

// Where streams end as soon as they were recognised, windows shrink; they grow again.
func TestReadaheadAdapts(t *testing.T) {
	r := newAhead(t)
	rnd := rand.New(rand.NewPCG(2, 2))
	r.ok(r.store.WriteAt(r.ctx, alpha, [][]byte{{1}}, 1<<40, wire.Stamp{}, stripe.Volatile))
	for i := range int64(3000) {
		if r.Stats().AheadWindow == aheadLeast {
			break
		}
		at := rnd.Int64N(1<<30) / testUnit * testUnit * 16
		for k := range int64(3) {
			r.read(alpha, at+k*testUnit, testUnit)
		}
		if i%16 == 0 {
			r.settled()
		}
	}
	st := r.Stats()
	if st.AheadWindow != aheadLeast || st.AheadWasted == 0 {
		t.Fatalf("%+v", st)
	}
	for off := int64(0); off < 32<<20; off += 8 * testUnit {
		r.readAs(Key{File: 1, Gen: 1}, Hint{}, 1<<41/4+off, 8*testUnit)
		r.settled()
	}
	if now := r.Stats().AheadWindow; now <= aheadLeast {
		t.Fatalf("the window stayed at %d", now)
	}
}

// What is read ahead does not push out what has proved to be useful, and stays within its share.
func TestReadaheadIsModest(t *testing.T) {
	r := newAhead(t)
	beta := Key{File: 2}
	r.ok(r.store.WriteAt(r.ctx, alpha, [][]byte{{1}}, 1<<30, wire.Stamp{}, stripe.Volatile))
	for off := int64(0); off < 4<<20; off += 64 << 10 {
		r.readAs(beta, Hint{Policy: Keep}, off, 64<<10)
	}
	for s := range int64(200) {
		for k := range int64(3) {
			r.read(alpha, s<<22+k*testUnit, testUnit)
		}
		r.index.Lock()
		ahead := r.index.Stats().AheadBytes
		r.index.Unlock()
		if ahead > 1<<20 {
			t.Fatalf("%d bytes are read ahead", ahead)
		}
	}
	if n := r.cached(beta, 0, 4<<20); n != 4<<20 {
		t.Fatalf("%d bytes stayed", n)
	}
}

// Windows of objects with different units, which have memory mapped for them, do not mix.
func TestReadaheadOfDifferentUnits(t *testing.T) {
	r := newRig(t, Config{MemoryBytes: 8 << 20, ReadyBytes: -1, ReadaheadBytes: 512 << 10,
		Registrar: slowRegistrar{}})
	var wg sync.WaitGroup
	for i := range 4 {
		id := Key{File: uint64(i + 1)}
		want := ramp(2<<20, byte(i))
		r.ok(r.store.WriteAt(r.ctx, id, [][]byte{want}, 0, wire.Stamp{}, stripe.Volatile))
		wg.Go(func() {
			h := Hint{Policy: Stream, Unit: blockBytes << i}
			for round := range int64(64) {
				off := round * (32 << 10) % (2 << 20)
				if string(r.readAs(id, h, off, 32<<10)) != string(want[off:off+32<<10]) {
					t.Errorf("object %v: bytes at %d differ", id, off)
				}
			}
		})
	}
	wg.Wait()
	r.settled()
}

// slowRegistrar takes its time, in which others go on.
type slowRegistrar struct{}

func (slowRegistrar) Attach(*mem.Arena) error {
	time.Sleep(300 * time.Microsecond)
	return nil
}

func (slowRegistrar) Detach(*mem.Arena) {}
