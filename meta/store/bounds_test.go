package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestVolumesCostTheSame: to list a page of volumes, and to open a volume once more, is the same
// work however many volumes there are and however often the client has this one open.
func TestVolumesCostTheSame(t *testing.T) {
	costs := func(n int) (page, open int64) {
		b := newBusy(t, 10)
		for i := range n {
			_, err := b.s.CreateVolume(t.Context(), b.c, fmt.Sprint("v", i), 1, meta.NewFile{})
			b.must(err)
		}
		opening := func() error {
			_, _, err := b.s.OpenVolume(t.Context(), b.c, "v1", meta.OpenWrite, 0)
			return err
		}
		for range n {
			b.must(opening())
		}
		page = b.cost(func() error {
			_, err := b.s.ListVolumes(t.Context(), b.c, "v", 20)
			return err
		})
		return page, b.cost(opening)
	}
	pageOfFew, openFew := costs(50)
	pageOfMany, openMany := costs(2000)
	t.Logf("a page %d and %d keys, an open %d and %d", pageOfFew, pageOfMany, openFew, openMany)
	if pageOfMany > pageOfFew+3 || openMany > openFew+3 {
		t.Errorf("a page takes %d keys of 50 and %d of 2000 volumes, an open %d and %d", pageOfFew,
			pageOfMany, openFew, openMany)
	}
}

// ward is I/O servers of which one can hang; it counts what each is asked.
type ward struct {
	*metatest.Objects
	mu    sync.Mutex
	hangs uint32 // the server that does not answer
	woken chan struct{}
	asked map[uint32]int
}

func newWard() *ward {
	return &ward{Objects: metatest.NewObjects(), asked: map[uint32]int{},
		woken: make(chan struct{})}
}

func (w *ward) ask(ctx context.Context, servers ...uint32) error {
	w.mu.Lock()
	hangs := false
	for _, id := range servers {
		w.asked[id]++
		hangs = hangs || id == w.hangs
	}
	woken := w.woken
	w.mu.Unlock()
	if !hangs {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-woken:
		return errs.Disconnected
	}
}

func (w *ward) hang(id uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangs = id
	close(w.woken)
	w.woken = make(chan struct{})
}

func (w *ward) count(id uint32) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[id]
}

func (w *ward) Remove(ctx context.Context, f meta.FileRef, stripe int) error {
	if err := w.ask(ctx, f.Layout.Servers[stripe]); err != nil {
		return err
	}
	return w.Objects.Remove(ctx, f, stripe)
}

func (w *ward) Truncate(ctx context.Context, f meta.FileRef, size int64) error {
	if err := w.ask(ctx, f.Layout.Servers...); err != nil {
		return err
	}
	return w.Objects.Truncate(ctx, f, size)
}

// hospital is a service with two servers, and a clock that stands still unless it is set.
type hospital struct {
	*busy
	ward   *ward
	passed atomic.Int64
	opt    store.Options
}

func newHospital(t *testing.T) *hospital {
	h := &hospital{busy: &busy{t: t, m: &metered{Store: memkv.New(memkv.Options{})}},
		ward: newWard()}
	h.opt = store.Options{Objects: h.ward, Tick: 2 * time.Millisecond, Lease: time.Hour,
		Clock: func() time.Time { return time.Unix(1_800_000_000, h.passed.Load()) }}
	h.start()
	t.Cleanup(func() {
		h.s.Stop()
		_ = h.m.Close()
	})
	h.join(1)
	h.join(2)
	h.c = h.session()
	return h
}

func (h *hospital) start() {
	var err error
	h.s, err = store.New(context.Background(), h.m, h.opt)
	h.must(err)
}

func (h *hospital) join(id uint32) {
	h.t.Helper()
	srv := meta.Server{ID: id, Addr: "a", StoreID: uint64(id)}
	h.must(h.s.Join(h.t.Context(), srv, meta.SignJoin(capability.Key{}.ServerKey(id), &srv)))
}

// away lets server 2 be silent for longer than one that is up.
func (h *hospital) away() {
	h.passed.Add(int64(2 * meta.HeartbeatMax))
	h.join(1)
}

// files makes files with an object each, of a given number of servers.
func (h *hospital) files(n, width int, prefix string) (all []meta.Attr) {
	for i := range n {
		c, err := h.s.Create(h.t.Context(), h.c, meta.RootIno, fmt.Sprint(prefix, i),
			meta.NewFile{Mode: 0o600, Width: width}, meta.OpenWrite)
		h.must(err)
		h.must(h.s.Close(h.t.Context(), h.c, wrote(c.ID, 5, 0, 1)))
		all = append(all, c.Attr)
	}
	return all
}

func (h *hospital) remove(n int, prefix string) {
	for i := range n {
		_, err := h.s.Remove(h.t.Context(), h.c, meta.RootIno, fmt.Sprint(prefix, i), false)
		h.must(err)
	}
}

func (h *hospital) eventually(what string, cond func() bool) {
	h.t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("it never came true that %s", what)
		}
	}
}

func (h *hospital) queued() int {
	st, err := h.s.Status()
	h.must(err)
	return st.Queued
}

// TestAnAbsentServerDelaysNoRemoval: what is to be removed at a server that is away waits for it
// without being read or asked again, while all else is removed; when it is back its share goes too.
func TestAnAbsentServerDelaysNoRemoval(t *testing.T) {
	h := newHospital(t)
	const n = 600
	h.files(n, 2, "both")
	h.away()
	h.ward.hang(2)
	h.remove(n, "both")
	h.eventually("server 1 has removed its part of all", func() bool { return h.ward.count(1) == n })
	h.eventually("only server 2's part is left", func() bool { return h.queued() == n })
	if asked := h.ward.count(2); asked > 0 {
		t.Errorf("the server that is away was asked %d times", asked)
	}
	before := h.m.keys.Load()
	h.files(1, 1, "one")
	h.remove(1, "one")
	h.eventually("one more is removed", func() bool { return h.ward.count(1) == n+1 })
	if read := h.m.keys.Load() - before; read > 200 {
		t.Errorf("one more removal read %d keys beside %d that wait", read, n)
	}
	h.s.Stop()
	h.start()
	h.join(1)
	h.ward.hang(0)
	h.join(2)
	h.eventually("all is removed", func() bool { return h.queued() == 0 })
	if asked := h.ward.count(2); asked != n {
		t.Errorf("the server that came back was asked %d times for %d objects", asked, n)
	}
	verify(t, h.s)
}

// TestAHangingServerDelaysNoRemoval: a server that is up and does not answer is asked a few times,
// not once for each object.
func TestAHangingServerDelaysNoRemoval(t *testing.T) {
	h := newHospital(t)
	const n = 300
	h.files(n, 2, "both")
	h.ward.hang(2)
	h.remove(n, "both")
	h.eventually("server 1 has removed its part of all", func() bool { return h.ward.count(1) == n })
	if asked := h.ward.count(2); asked > 40 {
		t.Errorf("the server that hangs was asked %d times", asked)
	}
	h.ward.hang(0)
	h.eventually("all is removed", func() bool { return h.queued() == 0 })
}

// TestTruncationsBehindOthers: truncations that wait for a server that is away do not hide the ones
// behind them.
func TestTruncationsBehindOthers(t *testing.T) {
	h := newHospital(t)
	const n = 700 // more than the loop looks at in one go
	first, last := h.files(n, 2, "both"), h.files(4, 1, "one")
	h.ward.Fail(errs.Disconnected)
	for _, a := range append(first, last...) { // written down, and not carried out
		_, err := h.s.SetAttr(t.Context(), h.c, a.Ino, meta.SetSize, meta.Attr{Size: 3})
		if errs.KindOf(err) != errs.Disconnected {
			t.Fatal(err)
		}
	}
	before := h.s.MapVersion()
	h.away()
	h.eventually("it is noted down that a server is away", func() bool {
		return h.s.MapVersion() > before
	})
	h.s.Stop()
	h.ward.Fail(nil)
	h.ward.hang(2)
	h.ward.mu.Lock()
	clear(h.ward.asked)
	h.ward.mu.Unlock()
	h.start()
	h.join(1)
	for _, a := range last {
		if a.Layout.Servers[0] == 1 {
			h.eventually("what needs no absent server is cut", func() bool {
				seq, _ := h.ward.Told(a.Ino)
				return seq == 1
			})
		}
	}
	if asked := h.ward.count(2); asked > 0 {
		t.Errorf("the server that is away was asked %d times", asked)
	}
	h.ward.hang(0)
	h.join(2)
	h.eventually("all are cut", func() bool {
		for _, a := range append(first, last...) {
			if seq, _ := h.ward.Told(a.Ino); seq != 1 {
				return false
			}
		}
		return true
	})
}

// TestLateTruncation: whoever sets out to carry out a truncation, and comes so late that the next
// one is there already, has no trouble with it.
func TestLateTruncation(t *testing.T) {
	h := newHospital(t)
	ino := h.files(1, 1, "f")[0].Ino
	late := &lateTruncate{Objects: h.ward, begun: make(chan struct{}), free: make(chan struct{})}
	h.s.Stop()
	h.opt.Objects = late
	h.start()
	h.join(1)
	h.join(2)
	h.c = h.session()
	done := make(chan error)
	go func() {
		_, err := h.s.SetAttr(h.t.Context(), h.c, ino, meta.SetSize, meta.Attr{Size: 3})
		done <- err
	}()
	<-late.begun
	// Somebody else, who finds it pending, carries it out, and then the next one.
	_, err := h.s.SetAttr(h.t.Context(), h.c, ino, meta.SetSize, meta.Attr{Size: 1})
	h.must(err)
	close(late.free)
	h.must(<-done)
	if seq, _ := h.ward.Told(ino); seq != 2 {
		t.Errorf("%d truncations, want 2", seq)
	}
}

// lateTruncate delays the first truncation on its way to the servers.
type lateTruncate struct {
	meta.Objects
	calls       atomic.Int32
	begun, free chan struct{}
}

func (l *lateTruncate) Truncate(ctx context.Context, f meta.FileRef, size int64) error {
	if l.calls.Add(1) == 1 {
		close(l.begun)
		<-l.free
	}
	return l.Objects.Truncate(ctx, f, size)
}

// TestHandlesHaveABound: of one session and of all together; what is closed makes room.
func TestHandlesHaveABound(t *testing.T) {
	h := newHospital(t)
	h.s.Stop()
	h.opt.HandlesMax, h.opt.HandlesAllMax = 5000, 6000
	h.start()
	h.join(1)
	h.join(2)
	ino := h.files(1, 1, "f")[0].Ino
	var last uint64
	fill := func(c meta.Caller, want int) {
		for n := 0; ; n++ {
			o, err := h.s.Open(t.Context(), c, ino, meta.OpenRead)
			if err != nil {
				if errs.KindOf(err) != errs.TooManyOpen || errs.Errno(err) != syscall.ENFILE || n != want {
					t.Fatalf("%d opens, want %d: %v", n, want, err)
				}
				return
			}
			last = o.ID
		}
	}
	other := h.session()
	fill(h.c, 5000)
	fill(other, 1000)
	h.must(h.s.Close(t.Context(), other, meta.Closing{Handle: last}))
	fill(other, 1)
}

// TestNobodyEndsALivingClient: not by saying that it is dead; and the search costs the same however
// many sessions there are.
func TestNobodyEndsALivingClient(t *testing.T) {
	h := newHospital(t)
	h.s.Stop()
	h.opt.Dead = func(client string) (dead, known bool) { return client == "dead", client != "far" }
	h.start()
	h.c = h.session()
	named := func(client string) uint64 {
		info, err := h.s.NewSession(t.Context(), client)
		h.must(err)
		return info.ID
	}
	end := func(client string, want errs.Kind) {
		t.Helper()
		if err := h.s.EndClient(t.Context(), client); errs.KindOf(err) != want {
			t.Fatalf("%s: %v, want %v", client, err, want)
		}
	}
	near, far, dead := named("near"), named("far"), named("dead")
	end("near", errs.Perm)
	end("far", errs.Again)
	end("", errs.Invalid)
	end("dead", errs.OK)
	h.passed.Add(int64(h.opt.Lease/2 + time.Second))
	h.must(h.s.KeepAlive(t.Context(), near))
	end("near", errs.Perm)
	h.must(h.s.KeepAlive(t.Context(), near))
	end("far", errs.OK)
	for _, id := range []uint64{far, dead} {
		if err := h.s.KeepAlive(t.Context(), id); errs.KindOf(err) != errs.Stale {
			t.Errorf("a session of a dead client: %v", err)
		}
	}
	ending := func() int64 {
		return h.cost(func() error {
			named("dead")
			end("dead", errs.OK)
			return nil
		})
	}
	few := ending()
	for i := range 3000 {
		named(fmt.Sprint("another", i))
	}
	if many := ending(); many > few+3 {
		t.Errorf("the end of a client reads %d keys beside few sessions, %d beside 3000", few, many)
	}
	for n := 0; ; n++ {
		if _, err := h.s.NewSession(t.Context(), "greedy"); err != nil {
			if errs.KindOf(err) != errs.Again || n != 256 {
				t.Fatalf("session %d of one client: %v", n, err)
			}
			break
		}
	}
}
