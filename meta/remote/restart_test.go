package remote_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

func newCluster(t *testing.T, opt remote.Options, servers int) (*host, *remote.Service) {
	t.Helper()
	c := metatest.Config{Objects: metatest.NewObjects(), Clock: time.Now, Tick: 5 * time.Millisecond}
	h, service := newHost(t, c, sim.New(sim.Options{}), opt)
	for id := uint32(1); id <= uint32(servers); id++ {
		srv := meta.Server{ID: id, Addr: "a", StoreID: 1}
		key := capability.Key{}.ServerKey(id)
		if err := h.store.Join(t.Context(), srv, meta.SignJoin(key, &srv)); err != nil {
			t.Fatal(err)
		}
	}
	return h, service
}

// TestRestartsAreADelay restarts the service while clients work. No operation fails, and none is
// done twice although many answers are lost: a create that was repeated as a new one would fail
// with errs.Exists, a removal with errs.NotFound.
func TestRestartsAreADelay(t *testing.T) {
	h, service := newCluster(t, remote.Options{WaitMax: 20 * time.Second,
		Backoff: peer.Backoff{First: time.Millisecond, Max: 10 * time.Millisecond}}, 3)
	info, err := service.NewSession(t.Context(), "load")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var done [4]int
	o := &owner{s: service, session: info.ID, life: info.Life, open: map[uint64]meta.Claimed{}}
	claiming, finish := context.WithCancel(t.Context())
	var claims sync.WaitGroup
	claims.Go(func() { o.claim(claiming) })
	defer claims.Wait()
	defer finish()
	for i := range done {
		wg.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := cycle(t.Context(), o, fmt.Sprint(i, ".", k)); err != nil {
					t.Errorf("worker %d, round %d: %v", i, k, err)
					return
				}
				done[i]++
			}
		})
	}
	for range 6 {
		time.Sleep(60 * time.Millisecond)
		h.stop()
		h.engine = must(h.engine.Reopen())
		h.start()
	}
	time.Sleep(60 * time.Millisecond)
	close(stop)
	wg.Wait()
	for i, n := range done {
		if n == 0 {
			t.Errorf("worker %d got nowhere", i)
		}
	}
	h.verify(t)
}

// owner is what has to be claimed when the service has restarted.
type owner struct {
	s       *remote.Service
	session uint64
	life    uint32
	mu      sync.Mutex
	open    map[uint64]meta.Claimed
}

func (o *owner) note(h *meta.Handle, open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.open, h.ID); open {
		o.open[h.ID] = meta.Claimed{Handle: h.ID, Ino: h.Attr.Ino, Flags: meta.OpenWrite}
	}
}

// claim listens, and claims in every life of the service.
func (o *owner) claim(ctx context.Context) {
	for ctx.Err() == nil {
		h, err := o.s.Listen(ctx, meta.Listening{Session: o.session, WaitMs: 20})
		if err != nil || h.Life == o.life {
			continue
		}
		o.mu.Lock()
		list := slices.Collect(maps.Values(o.open))
		o.mu.Unlock()
		if _, err := o.s.Claim(ctx, o.session, h.Life, list, true); err == nil {
			o.life = h.Life
		}
	}
}

// cycle is one round of a client: each step depends on the one before.
func cycle(ctx context.Context, o *owner, name string) error {
	s, c := o.s, meta.Caller{Session: o.session}
	h, err := s.Create(ctx, c, meta.RootIno, name, meta.NewFile{Mode: 0o600},
		meta.OpenWrite|meta.OpenExclusive)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	o.note(&h, true)
	defer o.note(&h, false)
	if err := s.Close(ctx, c, meta.Closing{Handle: h.ID, Dirty: true,
		Change: meta.Change{Size: 10, Mtime: meta.UnixTime(0, 1)}}); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if _, err := s.Rename(ctx, c, meta.RootIno, name, meta.RootIno, name+"x", 0); err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	if a, err := s.Link(ctx, c, h.Attr.Ino, meta.RootIno, name); err != nil || a.Nlink != 2 {
		return fmt.Errorf("link: %d links, %w", a.Nlink, err)
	}
	for _, n := range []string{name, name + "x"} {
		if err := metatest.Failed(s.Remove(ctx, c, meta.RootIno, n, false)); err != nil {
			return fmt.Errorf("remove: %w", err)
		}
	}
	return nil
}

// TestAnswersLargerThanAMessage: a file on 256 servers has more capabilities than a message
// holds, and the request that finds that out is repeated without being done twice.
func TestAnswersLargerThanAMessage(t *testing.T) {
	h, service := newCluster(t, remote.Options{}, 256)
	info, err := service.NewSession(t.Context(), "wide")
	if err != nil {
		t.Fatal(err)
	}
	c := meta.Caller{Session: info.ID}
	f, err := service.Create(t.Context(), c, meta.RootIno, "wide", meta.NewFile{Width: 256},
		meta.OpenWrite|meta.OpenExclusive)
	if err != nil || len(f.Caps) != 256 || f.Attr.Layout.Width() != 256 {
		t.Fatalf("%v: %d capabilities", err, len(f.Caps))
	}
	var ids []uint64
	for i := range 40 {
		ids = append(ids, f.ID+uint64(i))
	}
	renewed, err := service.Renew(t.Context(), c, append(ids, make([]uint64, meta.RenewMax)...))
	if err != nil || len(renewed) != 40+meta.RenewMax || len(renewed[0].Caps) != 256 {
		t.Fatalf("%v: %d handles", err, len(renewed))
	}
	all, err := service.Servers(t.Context())
	if err != nil || len(all) != 256 {
		t.Fatalf("%v: %d servers", err, len(all))
	}
	for _, count := range h.server.Status() {
		if count.Op == "create" && (count.Calls != 2 || count.Failed != 0) {
			t.Fatalf("%+v: want two calls, one for the size of the answer and one for the answer", count)
		}
	}
}

// TestUnreachableService: the time is bounded and the error names the reason.
func TestUnreachableService(t *testing.T) {
	h, service := newCluster(t, remote.Options{WaitMax: 100 * time.Millisecond}, 1)
	h.stop()
	t.Cleanup(h.start)
	start := time.Now()
	err := service.Sync(t.Context())
	if errs.KindOf(err) != errs.TimedOut || time.Since(start) > 30*time.Second {
		t.Fatalf("after %v: %v", time.Since(start), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := service.Sync(ctx); errs.KindOf(err) != errs.Canceled {
		t.Fatalf("canceled: %v", err)
	}
}

// TestStrangeRequests: a peer that sends nonsense gets an error and harms nobody.
func TestStrangeRequests(t *testing.T) {
	h, service := newCluster(t, remote.Options{}, 1)
	node := must(msg.NewNode(msg.Options{Domain: h.domain}))
	defer node.Close()
	conn := must(node.Dial(t.Context(), addr))
	for _, c := range []struct {
		op   uint16
		body []byte
		want errs.Kind
	}{
		{uint16(meta.OpLookup), nil, errs.Protocol},
		{uint16(meta.OpLookup), []byte{0}, errs.Protocol},
		{uint16(meta.OpLookup), []byte{1}, errs.Protocol},
		{uint16(meta.OpLookup), []byte{7, 7}, errs.Protocol},
		{uint16(meta.OpStatFS), []byte{0, 1}, errs.Protocol},
		{0, []byte{0}, errs.Unsupported},
		{9999, []byte{0}, errs.Unsupported},
	} {
		var rep msg.Reply
		err := conn.Call(t.Context(), &msg.Request{Op: c.op, Body: c.body}, &rep)
		if errs.KindOf(err) != c.want {
			t.Errorf("op %d body %v: %v, want kind %q", c.op, c.body, err, c.want)
		}
	}
	st, err := service.StatFS(t.Context(), meta.RootIno)
	if d := cmp.Diff(meta.FSStat{Files: 1}, st); err != nil || d != "" {
		t.Fatalf("%v: %s", err, d)
	}
	counts := h.server.Status()
	if len(counts) != 2 || counts[0].Op != "lookup" || counts[0].Failed != 4 {
		t.Fatalf("%+v", counts)
	}
}

func BenchmarkRemote(b *testing.B) {
	c := metatest.Config{Objects: metatest.NewObjects(), Clock: time.Now, Tick: time.Second}
	_, service := newHost(b, c, sim.New(sim.Options{}), remote.Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := service.GetAttr(b.Context(), meta.Caller{}, meta.RootIno); err != nil {
			b.Fatal(err)
		}
	}
}
