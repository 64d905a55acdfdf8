package unifier

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/wire"
)

// stress is a crowd on one object. Every half of every unit is written by one writer only, with
// rising versions, each of its 8-byte words being the version. acked is the last version whose
// write has returned: a read that starts later must show that one or a newer one, all through.
type stress struct {
	*rig
	acked [stressUnits * 2]atomic.Uint64
	stop  atomic.Bool
	loans atomic.Int64
}

const (
	stressUnits = 400 // the cache holds fewer
	half        = testUnit / 2
)

func word(v uint64, n int) []byte {
	p := make([]byte, n)
	for i := 0; i < n; i += 8 {
		binary.BigEndian.PutUint64(p[i:], v)
	}
	return p
}

// stressConfigs are the ways to run a cache that crowds are let loose on.
var stressConfigs = map[string]Config{
	"through": {MemoryBytes: 1 << 20},
	"back": {MemoryBytes: 1 << 20, DirtyBytes: 256 << 10, DirtyAge: 3 * time.Millisecond,
		ReadaheadBytes: 128 << 10},
	"large units": {MemoryBytes: 1280 << 10, UnitBytes: 64 << 10, DirtyBytes: 256 << 10,
		DirtyAge: time.Millisecond},
	"raw": {MemoryBytes: 1 << 20, UnitBytes: 16 << 10, ReadyBytes: -1},
}

func TestStress(t *testing.T) {
	for name, cfg := range stressConfigs {
		t.Run(name, func(t *testing.T) { stressRun(t, cfg) })
	}
}

func stressRun(t testing.TB, cfg Config) {
	s := &stress{rig: newRig(t, cfg)}
	// A slow backing makes fills and publications meet.
	s.store.Inject(fault.Rule{Ops: fault.Read | fault.Write, Delay: 20 * time.Microsecond})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() { s.writer(w) })
	}
	for g := range 6 {
		wg.Go(func() { s.reader(uint64(g)) })
	}
	wg.Go(s.disturber)
	time.Sleep(time.Duration(envInt("UNIFIER_STRESS_MS", 400)) * time.Millisecond)
	waitFor(t, s.didEverything)
	s.stop.Store(true)
	wg.Wait()
	s.agree()
	t.Logf("%d loans, %+v", s.loans.Load(), s.Stats())
}

// didEverything tells whether the crowd has met all that there is to meet.
func (s *stress) didEverything() bool {
	st := s.Stats()
	return st.Hits > 0 && st.Fills > 0 && st.Evictions > 0 && st.Merged > 0 &&
		(st.Exchanged > 0 || s.UnitBytes() != testUnit)
}

// writer owns the units whose number is w modulo 4.
func (s *stress) writer(w int) {
	rnd := rand.New(rand.NewPCG(uint64(w), 7))
	for v := uint64(1); !s.stop.Load(); v++ {
		u := int64(w + 4*rnd.IntN(stressUnits/4))
		off, n, first, last := u*testUnit, int64(testUnit), 2*u, 2*u+1
		switch rnd.IntN(4) {
		case 0:
			n, last = half, first
		case 1:
			off, n, first = off+half, half, last
		}
		var err error
		if rnd.IntN(10) == 0 { // behind the cache, as a punch or a truncate would be
			err = s.Change(s.ctx, alpha, off, n, func() error {
				return s.store.WriteAt(s.ctx, alpha, [][]byte{word(v, int(n))}, off, wire.Stamp{}, 0)
			})
		} else {
			err = s.publish(off, n, v)
		}
		if err != nil {
			s.Error(err)
			return
		}
		for h := first; h <= last; h++ {
			s.acked[h].Store(v)
		}
	}
}

func (s *stress) publish(off, n int64, v uint64) error {
	d, err := s.Cache.Draft(s.ctx, alpha, seg.Contig(off, n), Hint{})
	if err != nil {
		return err
	}
	scatter(d.Sges(), word(v, int(n)))
	dur := stripe.Volatile
	if v%16 == 0 {
		dur = stripe.Durable
	}
	return only(d.Publish(s.ctx, wire.Stamp{}, dur))
}

func (s *stress) reader(g uint64) {
	rnd := rand.New(rand.NewPCG(g, 9))
	for !s.stop.Load() {
		u := rnd.Int64N(stressUnits - 3)
		n := 1 + rnd.Int64N(3)
		var least [6]uint64
		for i := range 2 * n {
			least[i] = s.acked[2*u+i].Load()
		}
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(rnd.IntN(3000))*time.Microsecond)
		l, err := s.readEither(ctx, rnd, seg.Contig(u*testUnit, n*testUnit))
		cancel()
		if err != nil {
			if k := errs.KindOf(err); k != errs.TimedOut {
				s.Error(err)
			}
			continue
		}
		s.check(l, u, least[:2*n])
		l.Release()
		s.loans.Add(1)
	}
}

// readEither reads, or takes what is there.
func (s *stress) readEither(ctx context.Context, rnd *rand.Rand, a seg.Access) (*Loan, error) {
	h := Hint{Policy: Policy(rnd.IntN(int(policies)))}
	if rnd.IntN(2) == 0 {
		if l := s.Lend(alpha, a, h); l != nil {
			return l, nil
		}
	}
	return s.Read(ctx, alpha, a, h)
}

// check looks at a loan twice: every half is one version, new enough, and does not change.
func (s *stress) check(l *Loan, u int64, least []uint64) {
	p := gathered(l.Sges())
	sum := crc32.ChecksumIEEE(p)
	for i, atLeast := range least {
		h := p[i*half : (i+1)*half]
		v := binary.BigEndian.Uint64(h)
		for j := 8; j < half; j += 8 {
			if binary.BigEndian.Uint64(h[j:]) != v {
				s.Errorf("unit %d is torn: versions %d and %d", u+int64(i/2), v,
					binary.BigEndian.Uint64(h[j:]))
				return
			}
		}
		if v < atLeast {
			s.Errorf("half %d of unit %d has version %d, acknowledged was %d", i%2,
				u+int64(i/2), v, atLeast)
		}
	}
	runtime.Gosched()
	if crc32.ChecksumIEEE(gathered(l.Sges())) != sum {
		s.Error("a loan changed while it was out")
	}
}

// disturber aborts drafts, invalidates and fills the cache with other things.
func (s *stress) disturber() {
	rnd := rand.New(rand.NewPCG(1, 2))
	for !s.stop.Load() {
		d, err := s.Draft(s.ctx, alpha, seg.Contig(rnd.Int64N(1000), 2*testUnit), Hint{})
		if err != nil {
			s.Error(err)
			return
		}
		scatter(d.Sges(), word(1<<60, 2*testUnit))
		d.Abort()
		if r, err := s.Take(s.ctx, 1+rnd.IntN(100<<10)); err == nil {
			scatter(r.Sges(), r.Bytes()[0])
			r.Return()
		}
		s.drop(alpha, rnd.Int64N(stressUnits)*testUnit, 3*testUnit)
		h := Hint{Unit: blockBytes << rnd.IntN(5)}
		s.readAs(Key{File: 77}, h, rnd.Int64N(500)*testUnit, 4*testUnit)
	}
}

// agree compares cache and backing when all is quiet.
func (s *stress) agree() {
	s.ok(s.Settle(s.ctx, alpha, 0, stressUnits*testUnit))
	for u := range int64(stressUnits) {
		want := make([]byte, testUnit)
		s.ok(s.store.ReadAt(s.ctx, alpha, [][]byte{want}, u*testUnit))
		s.holds(alpha, u*testUnit, want)
	}
}

// Writers of the same units, whole and in part, leave cache and backing with the same bytes.
func TestConcurrentPublicationsAgree(t *testing.T) {
	for round := range 20 {
		cfg := Config{MemoryBytes: 2 << 20, DirtyBytes: int64(round%2) * (512 << 10)}
		s := &stress{rig: newRig(t, cfg)}
		s.read(alpha, 0, 64*testUnit)
		var wg sync.WaitGroup
		for w := range 6 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(round), uint64(w)))
				for k := range 30 {
					off := rnd.Int64N(8 * testUnit)
					if err := s.publish(off&^7, (1+rnd.Int64N(2*testUnit))&^7, uint64(k)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		s.agree()
	}
}

func TestBackingErrors(t *testing.T) {
	r := newRig(t, Config{})
	r.write(alpha, 0, fill1(4*testUnit, 1))
	r.store.Inject(fault.Rule{Ops: fault.Write, Err: errs.Stale, Count: 1})
	err := r.tryWrite(alpha, fill1(2*testUnit, 2), seg.Piece{Off: 100, Len: 2 * testUnit})
	if errs.KindOf(err) != errs.Stale {
		t.Fatalf("got %v, want stale", err)
	}
	r.holds(alpha, 0, fill1(4*testUnit, 1))
	// The backing took the write and reported a failure: its bytes count.
	r.store.Inject(fault.Rule{Ops: fault.Write, Err: errs.IO, Late: true, Count: 1})
	err = r.tryWrite(alpha, fill1(10, 2), seg.Piece{Off: 100, Len: 10})
	if errs.KindOf(err) != errs.IO {
		t.Fatalf("got %v, want i/o error", err)
	}
	r.holds(alpha, 98, []byte{1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1})
	r.drop(alpha, 0, 4*testUnit)
	r.store.Inject(fault.Rule{Ops: fault.Read, Err: errs.Corrupt, Count: 1})
	_, err = r.Read(r.ctx, alpha, seg.Contig(0, testUnit), Hint{})
	if errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("got %v, want corrupt", err)
	}
	r.holds(alpha, 100, fill1(10, 2))
}
