package mem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/internal/invariant"
	"pgregory.net/rapid"
)

// heapSource stands in for a device: ordinary memory, with its life recorded.
type heapSource struct {
	mapped, unmapped int
	fail             error
}

func (s *heapSource) Name() string { return "heap" }

func (s *heapSource) Map(n int) ([]byte, func() error, error) {
	if s.fail != nil {
		return nil, nil, s.fail
	}
	s.mapped += n
	return make([]byte, n), func() error {
		s.unmapped += n
		return nil
	}, nil
}

// recordDomain is a domain that only registers.
type recordDomain struct {
	fabric.Domain
	open int
}

type recordRegion struct {
	fabric.Region
	d   *recordDomain
	mem []byte
}

func (d *recordDomain) Caps() fabric.Caps { return fabric.Caps{Provider: "record"} }

func (d *recordDomain) Register(mem []byte) (fabric.Region, error) {
	d.open++
	return &recordRegion{d: d, mem: mem}, nil
}

func (r *recordRegion) Bytes() []byte { return r.mem }

func (r *recordRegion) Close() error {
	r.d.open--
	return nil
}

func newPool(t testing.TB, bufBytes, count int) *Pool {
	t.Helper()
	a, err := NewArena(PoolBytes(bufBytes, count), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := NewPool(a, bufBytes, count)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustPanic(t *testing.T, what string, fn func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	fn()
}

func TestArenaTakesItsMemoryFromTheSource(t *testing.T) {
	src := &heapSource{}
	a, err := NewArena(5000, src)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Bytes()) != 8192 || src.mapped != 8192 {
		t.Fatalf("5000 bytes became %d, mapped %d", len(a.Bytes()), src.mapped)
	}
	d := &recordDomain{}
	if err := a.Attach(d); err != nil {
		t.Fatal(err)
	}
	if err := a.Attach(d); !errors.Is(err, errs.Busy) {
		t.Fatalf("second Attach: %v", err)
	}
	for range 2 {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if src.unmapped != 8192 || d.open != 0 {
		t.Fatalf("after Close: %d bytes unmapped, %d regions open", src.unmapped, d.open)
	}
	if _, err := NewArena(1, &heapSource{fail: errs.IO}); !errors.Is(err, errs.NoMemory) {
		t.Fatalf("failing source: %v", err)
	}
	if _, err := NewArena(0, nil); !errors.Is(err, errs.Invalid) {
		t.Fatalf("empty arena: %v", err)
	}
}

func TestCutStopsAtTheEnd(t *testing.T) {
	a, err := NewArena(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	first, err := a.Cut(100, 64)
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.Cut(4096-128, 64)
	if err != nil {
		t.Fatal(err)
	}
	if &first[0] != &a.Bytes()[0] || &second[0] != &a.Bytes()[128] {
		t.Fatal("cuts are not where they belong")
	}
	if _, err := a.Cut(1, 1); !errors.Is(err, errs.NoMemory) {
		t.Fatalf("cut beyond the end: %v", err)
	}
	if _, err := a.Cut(1, 3); !errors.Is(err, errs.Invalid) {
		t.Fatalf("odd alignment: %v", err)
	}
	if _, err := NewPool(a, 4096, 1); !errors.Is(err, errs.NoMemory) {
		t.Fatalf("pool in a full arena: %v", err)
	}
}

func TestSgeCarriesTheRegionOnceAttached(t *testing.T) {
	p := newPool(t, 4096, 2)
	b := p.TryTake()
	if s := b.Sge(10, 20); s.Reg != nil || len(s.Buf) != 20 || cap(s.Buf) != 20 {
		t.Fatalf("unattached: %v, %d bytes", s.Reg, len(s.Buf))
	}
	if err := b.arena.Attach(&recordDomain{}); err != nil {
		t.Fatal(err)
	}
	if s := b.Sge(0, b.Len()); s.Reg == nil || &s.Buf[0] != &b.Bytes()[0] {
		t.Fatal("attached: no region, or other bytes")
	}
	mustPanic(t, "a piece beyond the buffer", func() { b.Sge(4000, 200) })
	b.Return()
}

func TestMisusePanics(t *testing.T) {
	p := newPool(t, 64, 1)
	b := p.TryTake()
	b.Lend().Return()
	b.Return()
	mustPanic(t, "Bytes after Return", func() { b.Bytes() })
	mustPanic(t, "Sge after Return", func() { b.Sge(0, 1) })
	mustPanic(t, "Return twice", func() { b.Return() })
	p = newPool(t, 64, 1)
	b = p.TryTake()
	b.Return()
	mustPanic(t, "Lend after Return", func() { b.Lend() })
	b.refs.Store(0) // the program would have ended
}

func TestWriteAfterReturnIsFound(t *testing.T) {
	if !invariant.Enabled {
		p := newPool(t, 64, 1)
		b := p.TryTake()
		b.Bytes()[3] = 7
		b.Return()
		b = p.TryTake()
		if b.Bytes()[3] != 7 {
			t.Fatal("without the tag, returned buffers must not cost a fill")
		}
		b.Return()
		return
	}
	p := newPool(t, 64, 1)
	b := p.TryTake()
	stale := b.Bytes()
	b.Return()
	stale[3] = 7
	mustPanic(t, "Take of a buffer that was written after its return", func() { p.TryTake() })
}

func TestTakeServesInOrder(t *testing.T) {
	p := newPool(t, 64, 1)
	b := p.TryTake()
	const callers = 8
	order := make(chan int, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got, err := p.Take(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			got.Return()
		}()
		for p.Stats().Waiting != i+1 {
			time.Sleep(time.Millisecond)
		}
	}
	if p.TryTake() != nil {
		t.Fatal("TryTake overtook the queue")
	}
	b.Return()
	wg.Wait()
	for want := range callers {
		if got := <-order; got != want {
			t.Fatalf("caller %d came before caller %d", got, want)
		}
	}
}

func TestTakeEndsWithItsContext(t *testing.T) {
	p := newPool(t, 64, 1)
	b := p.TryTake()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := p.Take(ctx); !errors.Is(err, errs.TimedOut) {
		t.Fatalf("got %v, want timed out", err)
	}
	b.Return()
	s := p.Stats()
	if s.InUse != 0 || s.Waiting != 0 || s.HighWater != 1 {
		t.Fatalf("after all: %+v", s)
	}
}

// TestBuffersAreNeverLostOrShared runs takers that give up at random moments.
func TestBuffersAreNeverLostOrShared(t *testing.T) {
	const count = 3
	p := newPool(t, 64, count)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 400 {
				ctx, cancel := context.WithTimeout(context.Background(),
					time.Duration((g*37+i*11)%50)*time.Microsecond)
				b, err := p.Take(ctx)
				cancel()
				if err != nil {
					continue
				}
				mark := fmt.Sprintf("%d.%d", g, i)
				n := copy(b.Bytes(), mark)
				if i%7 == 0 {
					time.Sleep(20 * time.Microsecond)
				}
				if string(b.Bytes()[:n]) != mark {
					t.Errorf("buffer of %s was given to somebody else too", mark)
				}
				b.Return()
			}
		}()
	}
	wg.Wait()
	s := p.Stats()
	if s.InUse != 0 || s.Waiting != 0 || s.HighWater > count {
		t.Fatalf("after all: %+v", s)
	}
}

func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		count := rapid.IntRange(1, 5).Draw(rt, "count")
		a, err := NewArena(PoolBytes(100, count), nil)
		if err != nil {
			rt.Fatal(err)
		}
		defer a.Close()
		p, err := NewPool(a, 100, count)
		if err != nil {
			rt.Fatal(err)
		}
		refs, high := map[*Buf]int{}, 0
		for range rapid.IntRange(0, 50).Draw(rt, "steps") {
			pick := rapid.IntRange(0, 99).Draw(rt, "op")
			if pick < 40 || len(refs) == 0 {
				b := p.TryTake()
				if (b == nil) != (len(refs) == count) {
					rt.Fatalf("TryTake = %v with %d of %d out", b, len(refs), count)
				}
				if b != nil {
					refs[b]++
				}
				high = max(high, len(refs))
				continue
			}
			for b := range refs {
				if pick < 60 {
					b.Lend()
					refs[b]++
				} else if b.Return(); refs[b] == 1 {
					delete(refs, b)
				} else {
					refs[b]--
				}
				break
			}
		}
		if s := p.Stats(); s.InUse != len(refs) || s.HighWater != high {
			rt.Fatalf("%+v, model has %d out, %d at most", s, len(refs), high)
		}
		for b, n := range refs {
			for range n {
				b.Return()
			}
		}
	})
}

func TestCopyCounts(t *testing.T) {
	before := Copied()
	if n := Copy(make([]byte, 3), []byte("abcdef")); n != 3 {
		t.Fatalf("copied %d", n)
	}
	if got := Copied() - before; got != 3 {
		t.Fatalf("counted %d", got)
	}
	was := Copies()
	CopyFor(CopyPack, make([]byte, 9), []byte("12345"))
	CopyFor(CopyPack, make([]byte, 1), []byte("12345"))
	CopyFor(CopyMerge, make([]byte, 2), []byte("12"))
	s := Copies().Since(was)
	if s[CopyPack] != (CopyCount{6, 2}) || s[CopyMerge] != (CopyCount{2, 1}) ||
		s.Total() != (CopyCount{8, 3}) {
		t.Fatalf("%v", s)
	}
	names := map[string]bool{}
	for why := range s {
		names[CopyReason(why).String()] = true
	}
	if len(names) != len(s) || names["unknown"] {
		t.Fatalf("reasons without a name of their own: %v", names)
	}
}

func TestNoAllocationPerTake(t *testing.T) {
	p := newPool(t, 4096, 2)
	ctx := context.Background()
	if n := alloctest.PerRun(0, 100, func() {
		b, _ := p.Take(ctx)
		b.Lend()
		b.Sge(0, 10)
		b.Return()
		b.Return()
	}); n != 0 {
		t.Fatalf("%v allocations per Take and Return", n)
	}
}

// TestCopyLong: what is copied in parts is all there, and nothing behind it changes.
func TestCopyLong(t *testing.T) {
	for _, n := range []int{copyPart - 1, copyPart, copyPart + 1, 3*copyPart + 5} {
		src, dst := make([]byte, n+9), make([]byte, n)
		for i := range src {
			src[i] = byte(i*7 + i>>8)
		}
		if got := Copy(dst, src); got != n || !bytes.Equal(dst, src[:n]) {
			t.Errorf("%d bytes: %d were copied", n, got)
		}
		clear(src)
		if got := Copy(src, dst); got != n || !bytes.Equal(dst, src[:n]) || src[n] != 0 {
			t.Errorf("%d bytes into more: %d were copied", n, got)
		}
	}
}

// BenchmarkCopy copies 4 MiB by Copy and by the built-in copy, between memory that is in the caches
// ("near") and from and to memory that is not.
func BenchmarkCopy(b *testing.B) {
	const size, much = 4 << 20, 256 << 20
	src, dst := make([]byte, much), make([]byte, much)
	for i := range src {
		src[i], dst[i] = 1, 1
	}
	for _, place := range []struct {
		name string
		of   int
	}{{"near", size}, {"far", much}} {
		for name, copies := range map[string]func(dst, src []byte) int{
			"Copy": Copy, "builtin": func(dst, src []byte) int { return copy(dst, src) },
		} {
			b.Run(place.name+"/"+name, func(b *testing.B) {
				b.SetBytes(size)
				at := 0
				for b.Loop() {
					copies(dst[at:at+size], src[at:at+size])
					at = (at + size) % place.of
				}
			})
		}
	}
}

func BenchmarkTakeReturn(b *testing.B) {
	p := newPool(b, 4096, 2)
	for b.Loop() {
		p.TryTake().Return()
	}
}
