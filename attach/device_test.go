package attach

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/attach/netlink"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// disc is an export that can be held up, grow, and be given to somebody else.
type disc struct {
	mu      sync.Mutex
	data    []byte
	size    atomic.Int64
	held    chan struct{} // closed: nothing is held up
	holding atomic.Int32  // writes that are
	ended   atomic.Bool
	closed  atomic.Bool
}

func newDisc(size int) *disc {
	d := &disc{data: make([]byte, 1<<20), held: make(chan struct{})}
	close(d.held)
	d.size.Store(int64(size))
	return d
}

func (d *disc) hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := make(chan struct{})
	d.held = held
	return func() { close(held) }
}

func (d *disc) pass() {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	d.holding.Add(1)
	<-held
	d.holding.Add(-1)
}

func (d *disc) Size() int64 { return d.size.Load() }

func (d *disc) ReadAt(_ context.Context, p []byte, off int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(p, d.data[off:])
	return nil
}

func (d *disc) WriteAt(_ context.Context, p []byte, off int64, _ bool) error {
	d.pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(d.data[off:], p)
	return nil
}

func (d *disc) Flush(context.Context) error { return nil }

func (d *disc) Trim(_ context.Context, off, length int64, _ bool) error {
	d.pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.data[off : off+length])
	return nil
}

func (d *disc) Ended() bool  { return d.ended.Load() }
func (d *disc) Close() error { d.closed.Store(true); return nil }

// serving is a device that somebody serves.
type serving struct {
	*Device
	stop  context.CancelFunc
	ended chan error
}

func options(k *kernel, src Source) Options {
	return Options{Kernel: k, System: k.system, Source: src, Name: "v", Backend: "test#v",
		Index: netlink.Any, Resend: time.Second, Grow: 5 * time.Millisecond}
}

func serve(t rapid.TB, o Options) *serving {
	t.Helper()
	d, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &serving{Device: d, stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- d.Run(ctx) }()
	return s
}

// kill ends the process that serves, as far as the kernel can see: its sockets close.
func (s *serving) kill() {
	s.stop()
	<-s.ended
	s.closeLinks()
}

func (s *serving) detach(t rapid.TB) {
	t.Helper()
	s.stop()
	<-s.ended
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
}

func await(t rapid.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come: %s", what)
		}
	}
}

func TestAttachAndDetach(t *testing.T) {
	k, exp := newKernel(t), newDisc(64<<10)
	o := options(k, NewLocal(exp, nbd.Config{}, false))
	o.Queue = Queue{RequestBytes: 1 << 20, ReadAheadBytes: 2 << 20, Scheduler: "none"}
	s := serve(t, o)
	d := k.disk(s.Index())
	if d.alive() != 4 || d.dev.Size != 64<<10 || d.dev.BlockSize != 512 ||
		d.dev.Flags&flagMultiConn == 0 {
		t.Errorf("%d sockets, %+v", d.alive(), d.dev)
	}
	to, err := os.Readlink(k.system.Link("v"))
	if err != nil || to != k.system.Node(0) {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	for name, want := range map[string]string{"max_sectors_kb": "1024", "read_ahead_kb": "2048",
		"scheduler": "none"} {
		got, err := os.ReadFile(k.system.sys("block", "nbd0", "queue", name))
		if string(got) != want || err != nil {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if err := d.write(512, bytes.Repeat([]byte{7}, 8192)); err != nil {
		t.Fatal(err)
	}
	if got, err := d.read(1024, 16); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{7}, 16)) {
		t.Errorf("%v, %v", got, err)
	}
	if err := d.trim(512, 4096); err != nil {
		t.Error(err)
	}
	if err := d.flush(); err != nil {
		t.Error(err)
	}
	s.detach(t)
	if on, _ := k.Connected(0); on || !exp.closed.Load() {
		t.Error("something is left of it")
	}
	if left, _ := filepath.Glob(filepath.Join(k.system.Dev, "*")); len(left) > 0 {
		t.Errorf("links are left: %v", left)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	k := newKernel(t)
	for name, change := range map[string]func(*Options){
		"no name":         func(o *Options) { o.Name = "" },
		"connections":     func(o *Options) { o.Connections = 65 },
		"block size":      func(o *Options) { o.BlockSize = 513 },
		"a short resend":  func(o *Options) { o.Resend = time.Millisecond },
		"no kernel":       func(o *Options) { o.Kernel = nil },
		"a short give-up": func(o *Options) { o.GiveUp = 1 },
	} {
		o := options(k, NewLocal(newDisc(512), nbd.Config{}, false))
		change(&o)
		if _, err := Open(t.Context(), o); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSocketsAreReplaced: whatever ends sockets, the device has all of them again soon.
func TestSocketsAreReplaced(t *testing.T) {
	k := newKernel(t)
	s := serve(t, options(k, NewLocal(newDisc(64<<10), nbd.Config{}, false)))
	defer s.detach(t)
	d := k.disk(s.Index())
	for round := range 5 {
		for i := range 4 {
			d.cut(i)
		}
		if err := d.write(0, []byte{byte(round), 1}); err != nil {
			t.Fatal(err)
		}
		await(t, "four sockets", func() bool { return d.alive() == 4 })
	}
	if st := s.Status(); st.Replaced < 20 || st.Connections != 4 {
		t.Errorf("%+v", st)
	}
}

// TestAnOldWriteDoesNotOvertake: a write that is held up is sent again, many times, and does not
// land on what was written behind it.
func TestAnOldWriteDoesNotOvertake(t *testing.T) {
	k, exp := newKernel(t), newDisc(64<<10)
	src := NewLocal(exp, nbd.Config{}, false)
	s := serve(t, options(k, src))
	defer s.detach(t)
	d := k.disk(s.Index())
	release := exp.hold()
	first := make(chan error, 1)
	go func() { first <- d.write(1024, []byte("old")) }()
	await(t, "the write to be sent again", func() bool { return s.Status().Replaced >= 3 })
	if n := exp.holding.Load(); n != 1 || src.Underway() != 1 {
		t.Errorf("%d copies of one write are under way, %d", n, src.Underway())
	}
	// Other places are not held up by it.
	if _, err := d.read(0, 512); err != nil {
		t.Fatal(err)
	}
	release()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := d.write(1024, []byte("new")); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of all copies", func() bool { return src.Underway() == 0 })
	if got, err := d.read(1024, 3); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCopiesAreBounded: however long servers are away, what has begun stays bounded.
func TestCopiesAreBounded(t *testing.T) {
	k, exp := newKernel(t), newDisc(1<<20)
	src := NewLocal(exp, nbd.Config{}, false)
	s := serve(t, options(k, src))
	defer s.detach(t)
	d := k.disk(s.Index())
	release := exp.hold()
	const writers = 300
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			if err := d.write(int64(i)*1024, []byte{byte(i), 1}); err != nil {
				t.Error(err)
			}
		})
	}
	await(t, "many resends", func() bool { return s.Status().Replaced >= 20 })
	if n := src.Underway(); n > changesMax {
		t.Errorf("%d have begun, at most %d may", n, changesMax)
	}
	release()
	all.Wait()
	for i := range writers {
		if got, err := d.read(int64(i)*1024, 2); err != nil || got[0] != byte(i) || got[1] != 1 {
			t.Fatalf("%d: %v, %v", i, got, err)
		}
	}
}

// TestSuccession: a process dies with requests under way, and another one goes on.
func TestSuccession(t *testing.T) {
	k, exp := newKernel(t), newDisc(64<<10)
	o := options(k, NewLocal(exp, nbd.Config{}, false))
	s := serve(t, o)
	d := k.disk(s.Index())
	release := exp.hold()
	done := make(chan error, 1)
	go func() { done <- d.write(0, []byte("kept")) }()
	await(t, "the write to be under way", func() bool { return exp.holding.Load() == 1 })
	s.kill()
	release()
	exp.size.Store(128 << 10) // and it grows meanwhile
	o.Source, o.Index, o.Resume = NewLocal(exp, nbd.Config{}, false), s.Index(), true
	s = serve(t, o)
	defer s.detach(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, err := d.read(0, 4); err != nil || string(got) != "kept" {
		t.Errorf("%q, %v", got, err)
	}
	await(t, "the size", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.dev.Size == 128<<10
	})
	o.Backend = "another"
	if _, err := Open(t.Context(), o); errs.KindOf(err) != errs.Busy {
		t.Errorf("somebody else's device: %v", err)
	}
}

func TestGrowing(t *testing.T) {
	k, exp := newKernel(t), newDisc(64<<10)
	s := serve(t, options(k, NewLocal(exp, nbd.Config{}, false)))
	defer s.detach(t)
	d := k.disk(s.Index())
	if err := d.write(64<<10, []byte{1}); err == nil {
		t.Error("wrote behind the end")
	}
	exp.size.Store(128 << 10)
	await(t, "the size", func() bool { return s.Status().Size == 128<<10 })
	for range 8 { // through each of the sockets
		if err := d.write(64<<10, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLost: what was given to somebody else has errors, also for a successor.
func TestLost(t *testing.T) {
	k, exp := newKernel(t), newDisc(64<<10)
	o := options(k, NewLocal(exp, nbd.Config{}, false))
	s := serve(t, o)
	exp.ended.Store(true)
	if s.Status().Lost == nil {
		t.Error("it is not lost")
	}
	s.kill()
	o.Source, o.Index, o.Resume = NewLocal(Nothing("lost"), nbd.Config{}, false), s.Index(), true
	s = serve(t, o)
	defer s.detach(t)
	d := k.disk(s.Index())
	if _, err := d.read(0, 512); err == nil {
		t.Error("read what is lost")
	}
	if err := d.write(0, []byte{1}); err == nil {
		t.Error("wrote what is lost")
	}
}

// TestDisconnectedByOthers: who serves a device that is gone is told.
func TestDisconnectedByOthers(t *testing.T) {
	k := newKernel(t)
	s := serve(t, options(k, NewLocal(newDisc(64<<10), nbd.Config{}, false)))
	if err := k.Disconnect(s.Index()); err != nil {
		t.Fatal(err)
	}
	if err := <-s.ended; errs.KindOf(err) != errs.Closed {
		t.Errorf("%v", err)
	}
	s.stop()
	if err := s.Detach(); err != nil {
		t.Error(err)
	}
}

// TestRandomLives: random writes, deaths, cuts, holds and detachments, against a model.
func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const blocks = 16
		k, exp := newKernel(t), newDisc(blocks*512)
		o := options(k, NewLocal(exp, nbd.Config{}, false))
		s := serve(rt, o)
		var model [blocks]byte
		release := func() {}
		held := false
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			d := k.disk(s.Index())
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1, 2:
				if held {
					release()
					held = false
				}
				at, v := rapid.IntRange(0, blocks-1).Draw(rt, "block"), rapid.Byte().Draw(rt, "value")
				if err := d.write(int64(at)*512, bytes.Repeat([]byte{v}, 512)); err != nil {
					rt.Fatal(err)
				}
				model[at] = v
			case 3:
				d.cut(rapid.IntRange(0, 3).Draw(rt, "socket"))
			case 4:
				s.kill()
				o.Source, o.Index, o.Resume = NewLocal(exp, nbd.Config{}, false), s.Index(), true
				s = serve(rt, o)
			case 5:
				if held {
					release()
				}
				release, held = exp.hold(), true
			case 6:
				if held {
					release()
					held = false
				}
				s.detach(rt)
				o.Source, o.Index, o.Resume = NewLocal(exp, nbd.Config{}, false), netlink.Any, false
				s = serve(rt, o)
			}
		}
		if held {
			release()
		}
		d := k.disk(s.Index())
		for at, v := range model {
			if got, err := d.read(int64(at)*512, 512); err != nil || got[0] != v || got[511] != v {
				rt.Fatalf("block %d: %d, want %d, %v", at, got[0], v, err)
			}
		}
		s.detach(rt)
		if len(k.devices) > 0 {
			rt.Fatal("a device is left")
		}
	})
}
