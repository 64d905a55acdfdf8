package unifier

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// registrar counts what it is told.
type registrar struct {
	arenas, most atomic.Int64
	refuse       atomic.Bool
}

func (r *registrar) Attach(*mem.Arena) error {
	if r.refuse.Load() {
		return errs.NoMemory
	}
	r.most.Add(1)
	r.arenas.Add(1)
	return nil
}

func (r *registrar) Detach(*mem.Arena) { r.arenas.Add(-1) }

func TestRawMemoryIsRegisteredWhenItIsNeeded(t *testing.T) {
	var reg registrar
	r := newRig(t, Config{MemoryBytes: 4 << 20, ReadyBytes: 1 << 20, Registrar: &reg})
	r.read(alpha, 0, 600<<10)
	if n := reg.arenas.Load(); n != 1 {
		t.Fatalf("%d arenas, one is ready", n)
	}
	for off := int64(0); off < 8<<20; off += 256 << 10 {
		r.read(alpha, off, 256<<10)
	}
	st := r.Stats()
	if n := reg.arenas.Load(); n < 2 || n > chunksMost+1 || st.Mapped != 4<<20 {
		t.Fatalf("%d arenas, %+v", n, st)
	}
	r.ok(r.Close())
	if n := reg.arenas.Load(); n != 0 {
		t.Fatalf("%d arenas are still registered", n)
	}
}

// Where the host has no more memory the cache lives with what it has.
func TestNoMemoryToMap(t *testing.T) {
	var reg registrar
	r := newRig(t, Config{MemoryBytes: 4 << 20, ReadyBytes: 2 << 20, Registrar: &reg})
	reg.refuse.Store(true)
	for off := int64(0); off < 8<<20; off += 256 << 10 {
		r.read(alpha, off, 256<<10)
	}
	if st := r.Stats(); st.Mapped != 2<<20 || st.MapFailures == 0 {
		t.Fatalf("%+v", st)
	}
}

func TestNeighboursMakeOnePiece(t *testing.T) {
	for _, unit := range []int{4 << 10, 16 << 10, 64 << 10} {
		r := newRig(t, Config{MemoryBytes: 8 << 20, ReadyBytes: 8 << 20, UnitBytes: unit})
		l, err := r.Read(r.ctx, alpha, seg.Contig(0, 1<<20), Hint{})
		r.ok(err)
		if n := len(l.Sges()); n != 1 {
			t.Errorf("a fresh MiB in units of %d has %d pieces", unit, n)
		}
		l.Release()
		d, err := r.Draft(r.ctx, alpha, seg.Contig(1<<20, 1<<20), Hint{})
		r.ok(err)
		if n := len(d.Sges()); n != 1 {
			t.Errorf("a draft of a MiB in units of %d has %d pieces", unit, n)
		}
		d.Abort()
		room, err := r.Take(r.ctx, 1<<20)
		r.ok(err)
		if n := len(room.Sges()); n != 1 || len(room.Bytes()[0]) != 1<<20 {
			t.Errorf("a MiB of room has %d pieces", n)
		}
		room.Return()
	}
}

// Units of all sizes share a memory that is far too small for all of them: everybody is served, and
// the memory never exceeds its bound.
func TestMixedUnitsDoNotDeadlock(t *testing.T) {
	for _, dirty := range []int64{0, 256 << 10} {
		t.Run(fmt.Sprint(dirty), func(t *testing.T) {
			r := newRig(t, Config{MemoryBytes: 1280 << 10, DirtyBytes: dirty,
				DirtyAge: time.Millisecond, ReadaheadBytes: 128 << 10})
			var wg sync.WaitGroup
			for g := range 12 {
				wg.Go(func() { r.mixed(uint64(g), 250) })
			}
			wg.Wait()
			if st := r.Stats(); st.HighWater > 1280<<10 || st.Evictions == 0 {
				t.Fatalf("%+v", st)
			}
		})
	}
}

func (r *rig) mixed(seed uint64, rounds int) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range rounds {
		n := rnd.IntN(5)
		id := Key{File: uint64(n + 1)}
		h := Hint{Unit: blockBytes << n, Policy: Policy(rnd.IntN(int(policies)))}
		a := seg.Contig(rnd.Int64N(2<<20), 1+rnd.Int64N(150<<10))
		var err error
		switch rnd.IntN(4) {
		case 0, 1:
			var l *Loan
			if l, err = r.Read(r.ctx, id, a, h); err == nil {
				l.Release()
			}
		case 2:
			var d *Draft
			if d, err = r.Draft(r.ctx, id, a, h); err == nil {
				_, err = d.Publish(r.ctx, wire.Stamp{}, stripe.Volatile)
			}
		case 3:
			var room *Room
			if room, err = r.Take(r.ctx, 1+rnd.IntN(128<<10)); err == nil {
				room.Return()
			}
		}
		if err != nil {
			r.Error(err)
			return
		}
	}
}

// A unit that the object was hinted to takes effect when nobody is at work on it.
func TestUnitsByHint(t *testing.T) {
	r := newRig(t, Config{MemoryBytes: 2 << 20})
	size := func() int64 {
		r.index.Lock()
		defer r.index.Unlock()
		o := r.index.Open(alpha, Hint{})
		defer r.index.Close(o)
		return o.UnitBytes()
	}
	r.readAs(alpha, Hint{Unit: 16 << 10}, 0, 100)
	if size() != 16<<10 || r.cached(alpha, 0, 1<<20) != 16<<10 {
		t.Fatalf("unit %d, %d cached", size(), r.cached(alpha, 0, 1<<20))
	}
	r.read(alpha, 0, 100) // no hint: as it is
	d, err := r.Draft(r.ctx, alpha, seg.Contig(0, 100), Hint{})
	r.ok(err)
	r.readAs(alpha, Hint{Unit: 64 << 10}, 0, 100) // somebody is at work
	if size() != 16<<10 {
		t.Fatalf("unit %d", size())
	}
	d.Abort()
	r.readAs(alpha, Hint{Unit: 64 << 10}, 0, 100)
	if size() != 64<<10 || r.cached(alpha, 0, 1<<20) != 64<<10 {
		t.Fatalf("unit %d, %d cached", size(), r.cached(alpha, 0, 1<<20))
	}
}

func TestTake(t *testing.T) {
	r := newRig(t, Config{})
	for _, n := range []int{0, -1, int(r.TakeShare()) + 1} {
		if _, err := r.Take(r.ctx, n); !errors.Is(err, errs.TooBig) {
			t.Errorf("%d bytes: %v, want too big", n, err)
		}
	}
	room, err := r.Take(r.ctx, 100_001)
	r.ok(err)
	if n := len(gathered(room.Sges())); n != 100_001 || stripe.BufBytes(room.Bytes()) != 100_001 {
		t.Fatalf("room of %d bytes", n)
	}
	room.Return()
}
