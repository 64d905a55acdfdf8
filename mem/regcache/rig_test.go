package regcache

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = pageBytes

// meter is a domain that counts registrations and knows at each moment what is registered.
type meter struct {
	fabric.Domain

	mu       sync.Mutex
	made     int
	open     map[*metered]extent
	high     int64 // bytes in whole pages
	refuse   func(ext extent) error
	gate     chan struct{} // Register waits for it, if it is set
	entered  chan struct{} // told when it does
	perEach  time.Duration
	perPages time.Duration
}

type metered struct {
	fabric.Region
	m *meter
}

func newMeter(t testing.TB) *meter {
	t.Helper()
	d := sim.New(sim.Options{}).Open()
	t.Cleanup(func() { _ = d.Close() })
	return &meter{Domain: d, open: map[*metered]extent{}}
}

func (m *meter) Register(b []byte) (fabric.Region, error) {
	if m.gate != nil {
		m.entered <- struct{}{}
		<-m.gate
	}
	ext := extentOf(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		if err := m.refuse(ext); err != nil {
			return nil, err
		}
	}
	spin(m.perEach + time.Duration(ext.pages())*m.perPages)
	r, err := m.Domain.Register(b)
	if err != nil {
		return nil, err
	}
	m.made++
	mr := &metered{r, m}
	m.open[mr] = ext
	m.high = max(m.high, m.bytesLocked())
	return mr, nil
}

func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

func (m *meter) bytesLocked() int64 {
	var n int64
	for _, ext := range m.open {
		n += int64(ext.pages()) * page
	}
	return n
}

func (r *metered) Close() error {
	r.m.mu.Lock()
	delete(r.m.open, r)
	r.m.mu.Unlock()
	return r.Region.Close()
}

// on counts what is registered and touches ext.
func (m *meter) on(ext extent) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, o := range m.open {
		if o.overlaps(ext) {
			n++
		}
	}
	return n
}

func (m *meter) counts() (made, open int, high int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made, len(m.open), m.high
}

// rig is a cache over a counting domain and memory to register.
type rig struct {
	*Cache
	m   *meter
	mem []byte
}

func newRig(t testing.TB, opts Options, bytes int) *rig {
	t.Helper()
	a, err := mem.NewArena(bytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	m := newMeter(t)
	c, err := New(m, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Cache: c, m: m, mem: a.Bytes()}
}

// at is count pages from page first on, without the pages behind them.
func (r *rig) at(first, count int) []byte {
	return r.mem[first*page : (first+count)*page : (first+count)*page]
}

func (r *rig) get(t testing.TB, memory []byte) Ref {
	t.Helper()
	ref, err := r.Get(context.Background(), memory)
	if err != nil {
		t.Fatal(err)
	}
	if ref.Region() == nil || !extentOf(ref.Region().Bytes()).covers(extentOf(memory)) {
		t.Fatal("the region does not cover the memory")
	}
	return ref
}

func (r *rig) wantMade(t testing.TB, what string, made, open int) {
	t.Helper()
	if m, o, _ := r.m.counts(); m != made || o != open {
		t.Fatalf("%s: %d registrations made, %d open; want %d, %d", what, m, o, made, open)
	}
}

func (r *rig) close(t testing.TB) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, open, _ := r.m.counts(); open != 0 {
		t.Fatalf("%d registrations are open after Close", open)
	}
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

func wantKind(t testing.TB, what string, err error, kind errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != kind {
		t.Fatalf("%s: %v, want %v", what, err, kind)
	}
}

func enabled() bool { return invariant.Enabled }
