package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
)

// refusing is a domain that refuses registrations, as a host does where RLIMIT_MEMLOCK is reached.
type refusing struct {
	fabric.Domain
	next atomic.Int64 // so many
}

func (d *refusing) Register(b []byte) (fabric.Region, error) {
	if d.next.Add(-1) >= 0 {
		return nil, errs.Newf(errs.NoMemory, "Register", "", "raise ulimit -l")
	}
	return d.Domain.Register(b)
}

// remoteOnly opens a net of domains that move registered memory only, as devices do.
func remoteOnly() *sim.Net { return sim.New(sim.Options{RegionsOnly: true, RefusalEnds: true}) }

// newRegistered is a cluster that is reached by tcp and by such a domain, which is better.
func newRegistered(t testing.TB, net *sim.Net) *wired {
	t.Helper()
	base, err := tcp.Open(tcp.Options{})
	must(t, err)
	return newWiredOn(t, 2, []fabric.Domain{net.Open(), base}, func(name string) string {
		return "tcp:127.0.0.1:0,sim:" + name
	}, store.Options{})
}

// dialBy is a client that reaches the cluster by d where it can. Nothing is kept, so that no write
// is copied for that.
func (w *wired) dialBy(t testing.TB, d fabric.Domain, opts Options) *FS {
	t.Helper()
	t.Cleanup(func() { must(t, d.Close()) })
	opts.Providers = &peer.Providers{Domains: []fabric.Domain{d, w.domain}}
	return dialRegistered(t, w.addr, opts)
}

func dialRegistered(t testing.TB, addr string, opts Options) *FS {
	t.Helper()
	opts.WaitMax, opts.Cred = 30*time.Second, &meta.Cred{}
	if opts.Retain == 0 {
		opts.Retain = -1
	}
	fs, err := Dial(context.Background(), "sluice://"+addr, opts)
	must(t, err)
	t.Cleanup(func() { must(t, fs.Close()) })
	return fs
}

// TestRegisteredMemory moves a program's own memory by a provider that needs it registered. What
// is tested is in registeredCases, which vmtest/transport runs between two machines with RDMA.
func TestRegisteredMemory(t *testing.T) {
	net := remoteOnly()
	w := newRegistered(t, net)
	for _, c := range registeredCases() {
		t.Run(c.name, func(t *testing.T) {
			fs := w.dialBy(t, net.Open(), Options{Register: c.register})
			c.run(t, fs)
			if by := fs.Stats().Registered; by.Hits+by.Misses+by.Copied == 0 {
				t.Error("nothing went by the provider that needs registered memory")
			}
		})
	}
}

// registeredCase is a test of a client whose provider moves registered memory only.
type registeredCase struct {
	name     string
	register int64 // Options.Register
	run      func(t *testing.T, fs *FS)
}

func registeredCases() []registeredCase {
	return []registeredCase{
		{"reused", 0, testReused},
		{"lists", 0, testLists},
		{"striped", 0, testStriped},
		{"parts", 0, testParts},
		{"overlaps", 0, testOverlaps},
		{"mapped anew", 0, testMappedAnew},
		{"freed", 3 << 20, testFreed},
		{"pressure", 3 << 20, testPressure},
		{"model", 8 << 20, testRegisteredModel},
	}
}

func fileName(t *testing.T) string { return "/" + strings.ReplaceAll(t.Name(), "/", "-") }

// newFile makes a file of n bytes.
func newFile(t *testing.T, fs *FS, n int) (*File, []byte) {
	t.Helper()
	ctx := context.Background()
	f, err := fs.Create(ctx, fileName(t))
	must(t, err)
	t.Cleanup(func() { must(t, f.Close(ctx)) })
	want := make([]byte, n)
	fill(want, rand.New(rand.NewPCG(1, uint64(n))))
	write(t, f, want, 0)
	return f, want
}

func readAll(t *testing.T, f *File, p, want []byte) {
	t.Helper()
	if _, err := f.ReadAt(context.Background(), p, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, want) {
		t.Fatal("other bytes arrived")
	}
}

// moment is what the caches and the copies of callers' memory have done so far.
type moment struct {
	regs   regcache.Stats
	copied uint64
}

func now(fs *FS) moment {
	return moment{fs.Stats().Registered, mem.Copies()[mem.CopyCaller].Bytes}
}

// wantHits wants all requests since then to have found their memory registered, and no byte to have
// been copied.
func (m moment) wantHits(t *testing.T, fs *FS, what string) {
	t.Helper()
	n := now(fs)
	hits, misses := n.regs.Hits-m.regs.Hits, n.regs.Misses-m.regs.Misses
	t.Logf("%s: %d hits, %d misses, %d bytes copied, %d bytes registered", what, hits, misses,
		n.copied-m.copied, n.regs.Bytes)
	if n.regs.Expired != m.regs.Expired {
		t.Log("the machine stood still for so long that what is idle has ended: nothing can be said")
		return
	}
	if hits == 0 || misses != 0 || n.copied != m.copied {
		t.Errorf("%s: want hits only, and no copies", what)
	}
}

// testReused reads and writes one buffer again and again: it is registered once.
func testReused(t *testing.T, fs *FS) {
	f, want := newFile(t, fs, 1<<20)
	p := make([]byte, 1<<20)
	for range 2 {
		readAll(t, f, p, want)
	}
	before := now(fs)
	for i := range 5 {
		readAll(t, f, p, want)
		fill(p, rand.New(rand.NewPCG(2, uint64(i))))
		copy(want, p)
		write(t, f, p, 0)
		clear(p)
	}
	before.wantHits(t, fs, "reads and writes of one buffer")
}

// testLists moves rows of one array, which are registered together.
func testLists(t *testing.T, fs *FS) {
	ctx := context.Background()
	f, want := newFile(t, fs, 1<<20)
	array := make([]byte, 2<<20)
	var rows [][]byte
	for at := 0; at < len(array); at += 64 << 10 {
		rows = append(rows, array[at:at+32<<10])
	}
	all := seg.Contig(0, 1<<20)
	var before moment
	for i := range 6 {
		if i == 2 {
			before = now(fs)
		}
		clear(array)
		if _, err := f.ReadList(ctx, rows, all); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.Join(rows, nil), want) {
			t.Fatal("other bytes arrived")
		}
		if _, err := f.WriteList(ctx, rows, all); err != nil {
			t.Fatal(err)
		}
	}
	before.wantHits(t, fs, "rows of one array")
	if n := fs.Stats().Registered.Count; n > 2 { // of the array for one server, and for the other
		t.Errorf("%d registrations", n)
	}
}

// testStriped: a buffer that goes to several servers at once is registered once.
func testStriped(t *testing.T, fs *FS) {
	f, want := newFile(t, fs, 4<<20+5)
	p := make([]byte, len(want))
	for range 2 {
		readAll(t, f, p, want)
	}
	if n := fs.Stats().Registered.Count; n > 2 { // want, p
		t.Errorf("%d registrations", n)
	}
	before := now(fs)
	readAll(t, f, p, want)
	if hits := fs.Stats().Registered.Hits - before.regs.Hits; hits < 2 {
		t.Errorf("%d requests: want one for each server", hits)
	}
	before.wantHits(t, fs, "a buffer of two servers")
}

// testParts: memory that is too small to be registered is reached as a part of larger memory that
// is.
func testParts(t *testing.T, fs *FS) {
	f, want := newFile(t, fs, 1<<20)
	small := make([]byte, 5<<10)
	readAll(t, f, small, want[:len(small)])
	t.Logf("%d bytes: %+v", len(small), fs.Stats().Registered)
	p := make([]byte, 1<<20)
	for range 2 {
		readAll(t, f, p, want)
	}
	before := now(fs)
	for at := 1; at < len(p)-len(small); at += 100_001 {
		part := p[at : at+len(small)]
		readAll(t, f, part, want[:len(small)])
		part[0]++
		write(t, f, part, 0)
		want[0]++
	}
	before.wantHits(t, fs, "parts of a registered buffer")
}

// testOverlaps writes from memory that overlaps, all at once.
func testOverlaps(t *testing.T, fs *FS) {
	ctx := context.Background()
	f, _ := newFile(t, fs, 1<<20)
	p := make([]byte, 1<<20)
	fill(p, rand.New(rand.NewPCG(3, 3)))
	for range 2 {
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				from := p[i<<17:][:1<<19]
				if _, err := f.WriteAt(ctx, from, int64(i)<<17); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := make([]byte, 1<<20)
		readAll(t, f, got, p[:len(got)])
	}
	if s := fs.Stats().Registered; s.InUse != 0 {
		t.Errorf("%+v", s)
	}
}

// testMappedAnew unmaps memory between two calls and maps other memory at the same address. A
// registration that outlived the call would reach pages that are not there any more.
func testMappedAnew(t *testing.T, fs *FS) {
	f, want := newFile(t, fs, 1<<20)
	m := mapping{size: 1 << 20}
	kept := fs.Stats().Registered.Count
	for i := range 6 {
		p := m.mapAgain(t)
		readAll(t, f, p, want)
		fill(p, rand.New(rand.NewPCG(4, uint64(i))))
		copy(want, p)
		write(t, f, p, 0)
		m.unmap(t)
		c := fs.Stats().Registered.Count
		if c > kept {
			t.Fatalf("%d registrations, %d before", c, kept)
		}
		kept = c // on a slow machine what was idle for long has ended
	}
	readAll(t, f, make([]byte, 1<<20), want)
}

// testFreed lets the garbage collector free buffers, and give their pages back, while their
// registrations are evicted; what is allocated then lies at the same addresses.
func testFreed(t *testing.T, fs *FS) {
	f, want := newFile(t, fs, 1<<20)
	addresses := map[string]bool{}
	for range 12 {
		p := make([]byte, 1<<20)
		addresses[fmt.Sprintf("%p", p)] = true // which keeps nothing
		for range 2 {
			readAll(t, f, p, want)
			clear(p)
		}
		p = nil
		debug.FreeOSMemory()
	}
	t.Logf("12 buffers at %d addresses", len(addresses))
}

// testPressure uses more memory than may be registered, by several at once.
func testPressure(t *testing.T, fs *FS) {
	f, want := newFile(t, fs, 1<<20)
	var wg sync.WaitGroup
	for range 4 {
		bufs := [3][]byte{make([]byte, 1<<20), make([]byte, 1<<20), make([]byte, 1<<20)}
		wg.Go(func() {
			for i := range 6 {
				p := bufs[i%3]
				if _, err := f.ReadAt(context.Background(), p, 0); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(p, want) {
					t.Error("other bytes arrived")
				}
				clear(p)
			}
		})
	}
	wg.Wait()
	s := fs.Stats().Registered
	t.Logf("%+v", s)
	if s.Bytes > 3<<20 || s.InUse != 0 {
		t.Errorf("%+v", s)
	}
}

// testRegisteredModel does random things with memory of all kinds, against a model.
func testRegisteredModel(t *testing.T, fs *FS) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f, _ := newFile(t, fs, 1)
	rng := rand.New(rand.NewPCG(seed, 0))
	model := make([]byte, 6<<20)
	must(t, f.Truncate(context.Background(), 0))
	for i := range 40 {
		if err := shmStep(context.Background(), fs, f, model, rng); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
}

// TestLockedMemoryIsUsedUp: where the host does not allow to lock more memory, what was registered
// of a program's makes way for the client's own, and new memory is copied; the log says so once.
func TestLockedMemoryIsUsedUp(t *testing.T) {
	net := remoteOnly()
	w := newRegistered(t, net)
	var said strings.Builder
	d := &refusing{Domain: net.Open()}
	fs := w.dialBy(t, d, Options{Retain: 8 << 20,
		Logger: slog.New(slog.NewTextHandler(&said, nil))})
	f, err := fs.Create(t.Context(), "/f")
	must(t, err)
	want, p := pattern(1<<20, 1), make([]byte, 1<<20)
	for range 2 {
		_, err = f.WriteAtDurable(t.Context(), want, 0)
		must(t, err)
		readAll(t, f, p, want)
	}
	d.next.Store(1)
	write(t, f, want, 0)
	if s := fs.Stats(); s.KeptWrites == 0 || s.Registered.Evicted == 0 {
		t.Errorf("the memory of kept writes has no priority: %+v", s)
	}
	d.next.Store(1 << 40)
	for range 4 {
		readAll(t, f, p, want)
		readAll(t, f, make([]byte, 1<<20), want)
	}
	if s := fs.Stats().Registered; s.Refused == 0 || s.Copied == 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	if tried := 1<<40 - d.next.Load(); tried > 8 {
		t.Errorf("the host was asked %d times", tried)
	}
	if n := strings.Count(said.String(), "its data is copied"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said.String())
	}
	must(t, f.Close(t.Context()))
}

func TestRegisterOption(t *testing.T) {
	net := remoteOnly()
	w := newRegistered(t, net)
	fs := w.dialBy(t, net.Open(), Options{Register: -1})
	f, want := newFile(t, fs, 1<<20)
	before := now(fs).copied
	for range 3 {
		readAll(t, f, make([]byte, 1<<20), want)
	}
	if s := now(fs); s.regs != (regcache.Stats{}) || s.copied-before != 3<<20 {
		t.Errorf("%+v", s)
	}
	d := net.Open()
	defer d.Close()
	_, err := Dial(t.Context(), "sluice://"+w.addr, Options{Register: 1,
		Providers: &peer.Providers{Domains: []fabric.Domain{d, w.domain}}})
	if errs.KindOf(err) != errs.Invalid {
		t.Errorf("less than a page: %v", err)
	}
}
