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
	"github.com/sluice-storage/sluice/fabric"
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
	stressUnits = 40 // the cache holds fewer
	half        = testUnit / 2
)

func word(v uint64, n int) []byte {
	p := make([]byte, n)
	for i := 0; i < n; i += 8 {
		binary.BigEndian.PutUint64(p[i:], v)
	}
	return p
}

func TestStress(t *testing.T) {
	s := &stress{rig: newRig(t, 32)}
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
	time.Sleep(time.Duration(envInt("UNIFIER_STRESS_MS", 1500)) * time.Millisecond)
	s.stop.Store(true)
	wg.Wait()
	st := s.Stats()
	if st.Hits == 0 || st.Fills == 0 || st.Evictions == 0 || st.Merged == 0 || st.Exchanged == 0 {
		t.Fatalf("the crowd did not do everything: %+v", st)
	}
	if st.HighWater > 32*testUnit {
		t.Fatalf("memory went to %d", st.HighWater)
	}
	s.agree()
	t.Logf("%d loans, %+v", s.loans.Load(), st)
}

// writer owns the units whose number is w modulo 4.
func (s *stress) writer(w int) {
	rnd := rand.New(rand.NewPCG(uint64(w), 7))
	for v := uint64(1); !s.stop.Load(); v++ {
		u := int64(w + 4*rnd.IntN(stressUnits/4))
		off, n, first, last := u*testUnit, int64(testUnit), 2*u, 2*u+1
		switch rnd.IntN(3) {
		case 0:
			n, last = half, first
		case 1:
			off, n, first = off+half, half, last
		}
		var err error
		if rnd.IntN(10) == 0 { // behind the cache, as a punch or a truncate would be
			err = s.store.WriteAt(s.ctx, alpha, [][]byte{word(v, int(n))}, off, wire.Stamp{}, 0)
			s.Invalidate(alpha, off, n)
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
	return only(d.Publish(s.ctx, wire.Stamp{}, stripe.Volatile))
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
		l, err := s.Read(ctx, alpha, seg.Contig(u*testUnit, n*testUnit), Hint{})
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

// check looks at a loan twice: every half is one version, new enough, and does not change.
func (s *stress) check(l *Loan, u int64, least []uint64) {
	p := gather(l.Sges())
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
	if crc32.ChecksumIEEE(gather(l.Sges())) != sum {
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
		s.Invalidate(alpha, rnd.Int64N(stressUnits)*testUnit, 3*testUnit)
		s.read(Key{File: 77}, rnd.Int64N(50)*testUnit, 4*testUnit)
	}
}

// agree compares cache and backing when all is quiet.
func (s *stress) agree() {
	for u := range int64(stressUnits) {
		want := make([]byte, testUnit)
		s.ok(s.store.ReadAt(s.ctx, alpha, [][]byte{want}, u*testUnit))
		s.holds(alpha, u*testUnit, want)
	}
}

// Writers of the same units, whole and in part, leave cache and backing with the same bytes.
func TestConcurrentPublicationsAgree(t *testing.T) {
	for round := range 20 {
		s := &stress{rig: newRig(t, 64)}
		s.read(alpha, 0, stressUnits*testUnit/2)
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

// The order in which claims are granted: fills share, a publication excludes, nobody overtakes.
func TestClaims(t *testing.T) {
	r := newRig(t, 16)
	o := &object{id: alpha, units: map[int64]*unit{}}
	mk := func(shared bool, first, last int64) *claim {
		return &claim{shared: shared, spans: []span{{first, last}}}
	}
	grab := func(cl *claim) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := r.claim(r.ctx, o, cl)
			done <- err
		}()
		waitFor(t, func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, have := range o.claims {
				if have == cl {
					return true
				}
			}
			return false
		})
		return done
	}
	granted := func(cl *claim) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return cl.granted
	}
	end := func(cl *claim) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unclaimLocked(o, cl)
	}
	a, b, x, c, d := mk(true, 0, 5), mk(true, 3, 9), mk(false, 5, 5), mk(true, 5, 7), mk(false, 6, 9)
	all := []*claim{a, b, x, c, d}
	var waits []chan error
	for _, cl := range all {
		waits = append(waits, grab(cl))
	}
	expect := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			if granted(all[i]) != w {
				t.Fatalf("claim %d: granted %v, want %v", i, !w, w)
			}
		}
	}
	expect(true, true, false, false, false)
	end(a)
	expect(true, true, false, false, false)
	end(b)
	expect(true, true, true, false, false)
	end(x)
	expect(true, true, true, true, false)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := r.claim(ctx, o, mk(false, 0, 9)); errs.KindOf(err) != errs.Canceled {
		t.Fatalf("got %v, want canceled", err)
	}
	end(c)
	expect(true, true, true, true, true)
	end(d)
	for _, w := range waits {
		r.ok(<-w)
	}
	if len(o.claims) != 0 {
		t.Fatalf("%d claims are left", len(o.claims))
	}
}

// An Invalidate that comes while bytes are on their way keeps them out of the cache.
func TestInvalidateBarsWhatIsUnderWay(t *testing.T) {
	r := newRig(t, 64)
	r.write(alpha, 0, fill1(4*testUnit, 1))
	r.Invalidate(alpha, 0, 4*testUnit)
	for _, ops := range []fault.Op{fault.Read, fault.Write} {
		gate := make(chan struct{})
		remove := r.store.Inject(fault.Rule{Ops: ops, Gate: gate, Count: 1})
		before := r.store.Calls(ops)
		done := make(chan error, 1)
		go func() {
			if ops == fault.Write {
				done <- r.tryWrite(alpha, fill1(testUnit, 2), seg.Piece{Off: 0, Len: testUnit})
				return
			}
			l, err := r.Read(r.ctx, alpha, seg.Contig(0, testUnit), Hint{})
			if err == nil {
				l.Release()
			}
			done <- err
		}()
		waitFor(t, func() bool { return r.store.Calls(ops) > before })
		r.Invalidate(alpha, 0, stripe.MaxObjectBytes)
		close(gate)
		r.ok(<-done)
		remove()
		if n := r.Query(alpha, seg.Contig(0, testUnit)); n != 0 {
			t.Fatalf("operation %d: %d bytes entered the cache after Invalidate", ops, n)
		}
	}
}

func TestBackingErrors(t *testing.T) {
	r := newRig(t, 64)
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
	r.Invalidate(alpha, 0, 4*testUnit)
	r.store.Inject(fault.Rule{Ops: fault.Read, Err: errs.Corrupt, Count: 1})
	_, err = r.Read(r.ctx, alpha, seg.Contig(0, testUnit), Hint{})
	if errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("got %v, want corrupt", err)
	}
	r.holds(alpha, 100, fill1(10, 2))
}

func BenchmarkCachedRead1M(b *testing.B) { benchRead(b, 1<<20) }
func BenchmarkCachedRead4K(b *testing.B) { benchRead(b, 4<<10) }

func benchCache(b *testing.B) *Cache {
	c, err := New(Config{MemoryBytes: 64 << 20}, newRig(b, 16).store)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// benchRead measures what a cached read costs beside the network: no byte is touched.
func benchRead(b *testing.B, n int64) {
	c := benchCache(b)
	ctx := context.Background()
	b.SetBytes(n)
	b.ReportAllocs()
	var sges []fabric.Sge
	for i := int64(0); b.Loop(); i++ {
		l, err := c.Read(ctx, alpha, seg.Contig(i*n%(16<<20), n), Hint{})
		if err != nil {
			b.Fatal(err)
		}
		sges = l.Sges()
		l.Release()
	}
	_ = sges
}

func BenchmarkPublish1M(b *testing.B) { benchPublish(b, 1<<20) }
func BenchmarkPublish4K(b *testing.B) { benchPublish(b, 4<<10) }

func benchPublish(b *testing.B, n int64) {
	c := benchCache(b)
	ctx := context.Background()
	b.SetBytes(n)
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		d, err := c.Draft(ctx, alpha, seg.Contig(i*n%(16<<20), n), Hint{})
		if err == nil {
			_, err = d.Publish(ctx, wire.Stamp{}, stripe.Volatile)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
