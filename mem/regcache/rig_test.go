package regcache

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mem"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = pageBytes

// device is a domain that counts registrations, knows at each moment what is registered, and
// refuses more than it allows.
type device struct {
	fabric.Domain

	mu    sync.Mutex
	made  int
	tried int
	open  map[*region]extent
	high  int64 // bytes in whole pages
	allow int64 // 0: any
}

type region struct {
	fabric.Region
	d *device
}

func newDevice(t testing.TB) *device {
	t.Helper()
	d := sim.New(sim.Options{RegionsOnly: true}).Open()
	t.Cleanup(func() { _ = d.Close() })
	return &device{Domain: d, open: map[*region]extent{}}
}

func (d *device) Register(b []byte) (fabric.Region, error) {
	ext := extentOf(b)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tried++
	if d.allow > 0 && d.bytesLocked()+ext.bytes() > d.allow {
		return nil, errs.Newf(errs.NoMemory, "Register", "", "the allowance is used up")
	}
	r, err := d.Domain.Register(b)
	if err != nil {
		return nil, err
	}
	d.made++
	own := &region{r, d}
	d.open[own] = ext
	d.high = max(d.high, d.bytesLocked())
	return own, nil
}

func (d *device) bytesLocked() (n int64) {
	for _, ext := range d.open {
		n += ext.bytes()
	}
	return n
}

func (r *region) Close() error {
	r.d.mu.Lock()
	delete(r.d.open, r)
	r.d.mu.Unlock()
	return r.Region.Close()
}

func (d *device) counts() (made, open int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made, len(d.open)
}

// rig is a cache on a counting device.
type rig struct {
	*Cache
	d    *device
	said strings.Builder // what was logged
}

// reused are costs by which memory is registered that comes for the second time, from 4 pages on;
// atOnce by which 10 pages are enough the first time.
func reused() Costs { return Costs{Each: 10, Page: 1, Copy: 1} }
func atOnce() Costs { return Costs{Each: 10, Page: 1, Copy: 2} }

func newRig(t testing.TB, opts Options) *rig {
	t.Helper()
	r := &rig{d: newDevice(t)}
	opts.Logger = slog.New(slog.NewTextHandler(&r.said, nil))
	if opts.IdleMax == 0 {
		opts.IdleMax = time.Hour
	}
	var err error
	r.Cache, err = New(r.d, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, open := r.d.counts(); open != 0 {
			t.Errorf("%d registrations are open after Close", open)
		}
		if s := r.Stats(); s.Bytes != 0 || s.Count != 0 || s.InUse != 0 {
			t.Errorf("after Close: %+v", s)
		}
	})
	return r
}

// judge is a *testing.T, or a *rapid.T.
type judge interface {
	Helper()
	Fatalf(format string, args ...any)
}

// take asks for pieces and looks whether the regions are right.
func (r *rig) take(t judge, u *Use, memory ...[]byte) bool {
	t.Helper()
	return r.takeFor(t, nil, u, memory...)
}

// takeFor is take for a part of an operation.
func (r *rig) takeFor(t judge, op *mem.Operation, u *Use, memory ...[]byte) bool {
	t.Helper()
	pieces := make([]fabric.Sge, len(memory))
	for i, m := range memory {
		pieces[i].Buf = m
	}
	ok := r.Take(u, pieces, op)
	for i, p := range pieces {
		switch {
		case !ok && p.Reg != nil:
			t.Fatalf("piece %d has a region although it is to be copied", i)
		case ok && len(p.Buf) > 0 && (p.Reg == nil ||
			!extentOf(p.Reg.Bytes()).covers(extentOf(p.Buf))):
			t.Fatalf("the region of piece %d does not cover it", i)
		}
	}
	return ok
}

// once is take and End; it tells whether the memory was registered.
func (r *rig) once(t testing.TB, memory ...[]byte) bool {
	t.Helper()
	var u Use
	ok := r.take(t, &u, memory...)
	u.End()
	return ok
}

// keep registers memory, which stays so.
func (r *rig) keep(t testing.TB, memory []byte) {
	t.Helper()
	r.once(t, memory)
	if !r.once(t, memory) {
		t.Fatal("memory that came again is not registered")
	}
}

func (r *rig) wantMade(t testing.TB, what string, made, open int) {
	t.Helper()
	if m, o := r.d.counts(); m != made || o != open {
		t.Fatalf("%s: %d registrations made, %d open; want %d, %d", what, m, o, made, open)
	}
}

// mapped is memory that Go has not allocated.
func mapped(t testing.TB, pages int) []byte {
	t.Helper()
	a, err := mem.NewArena(pages*page, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a.Bytes()
}
