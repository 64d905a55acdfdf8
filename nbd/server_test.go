package nbd

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// eventually waits for what another goroutine is about to do.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("never: %s", what)
		}
	}
}

// TestExportsAreShared: one export for all connections, opened with the first and closed with the
// last.
func TestExportsAreShared(t *testing.T) {
	f := newFake(mib)
	s := serve(t, Config{}, f.entry("x"))
	greeted(t, s).mustAck(optList, nil)
	if f.opens.Load() != 0 {
		t.Error("opened before it was chosen")
	}
	a, b := ready(t, s, "x", true), ready(t, s, "x", false)
	a.want(nbdOK, cmdWrite, 0, 0, 5, []byte("hello"))
	if got := b.want(nbdOK, cmdRead, 0, 0, 5, nil); string(got.data) != "hello" {
		t.Errorf("the other connection reads %q", got.data)
	}
	b.want(nbdOK, cmdFlush, 0, 0, 0, nil)
	a.send(cmdDisc, 0, 0, 0, nil)
	a.wantEOF()
	if f.opens.Load() != 1 || f.closes.Load() != 0 {
		t.Errorf("%d opens, %d closes with one connection left", f.opens.Load(), f.closes.Load())
	}
	b.nc.Close()
	eventually(t, "closed with the last connection", func() bool { return f.closes.Load() == 1 })
	ready(t, s, "x", true)
	if f.opens.Load() != 2 {
		t.Errorf("%d opens", f.opens.Load())
	}
}

func TestKeptExportClosesWithTheServer(t *testing.T) {
	f := newFake(mib)
	e := f.entry("x")
	e.Keep = true
	s, err := NewServer(Config{DrainGrace: time.Millisecond}, e)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c := ready(t, s, "x", true)
		c.send(cmdDisc, 0, 0, 0, nil)
		c.wantEOF()
	}
	if f.opens.Load() != 1 || f.closes.Load() != 0 {
		t.Errorf("%d opens, %d closes", f.opens.Load(), f.closes.Load())
	}
	if err := s.Shutdown(t.Context()); err != nil || f.closes.Load() != 1 {
		t.Errorf("shutdown: %v, %d closes", err, f.closes.Load())
	}
}

// TestOpenOnce: connections that arrive together share one Open, and wait for a Close under way.
func TestOpenOnce(t *testing.T) {
	f := newFake(mib)
	var mu sync.Mutex
	busy := 0
	enter := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if busy += n; busy > 1 {
			t.Error("two opens or closes at a time")
		}
	}
	sh := newShared(Entry{Name: "x",
		Open: func(context.Context) (Export, error) {
			enter(1)
			time.Sleep(time.Millisecond)
			enter(-1)
			return closing{f, func() { enter(1); time.Sleep(time.Millisecond); enter(-1) }}, nil
		}}, Config{}.withDefaults())
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				if _, err := sh.acquire(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if err := sh.release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if sh.open != nil || sh.refs != 0 {
		t.Errorf("left open with %d references", sh.refs)
	}
}

type closing struct {
	*fake
	hook func()
}

func (c closing) Close() error { c.hook(); return nil }

// TestManyConnectionsInLittleMemory: fifty connections want far more than there is.
func TestManyConnectionsInLittleMemory(t *testing.T) {
	const conns, limit, each = 50, 1 << 20, 256 << 10
	f := newFake(conns * each)
	s := serve(t, Config{MemoryBytes: limit, MaxPayload: 256 << 10}, f.entry("x"))
	var wg sync.WaitGroup
	for i := range conns {
		c := ready(t, s, "x", i%2 == 0)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			base := uint64(i * each)
			for range 10 {
				n := 1 + rng.IntN(each)
				p := bytes.Repeat([]byte{byte(rng.Uint32())}, n)
				for range 3 {
					c.send(cmdWrite, 0, base, uint32(n), p)
				}
				for range 3 {
					c.receive(cmdWrite, 0, 0)
				}
				if a := c.do(cmdRead, 0, base, uint32(n), nil); !bytes.Equal(a.data, p) {
					t.Errorf("connection %d reads something else", i)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all memory returned", func() bool { return s.Stats().MemoryBytes == 0 })
	st := s.Stats()
	if st.MemoryPeak > limit || st.MemoryWaits == 0 {
		t.Errorf("memory peak %d of %d, %d waits", st.MemoryPeak, limit, st.MemoryWaits)
	}
	if st.Writes != conns*30 || st.Reads != conns*10 || st.Errors != 0 {
		t.Errorf("%+v", st)
	}
}

// TestStalledPeersAreEvicted: who takes no replies must not hold the memory that others wait for.
func TestStalledPeersAreEvicted(t *testing.T) {
	f := newFake(mib)
	s := serve(t, Config{MemoryBytes: mib, ConnMemoryBytes: mib, MaxPayload: 512 << 10,
		StallTimeout: 2 * watchInterval}, f.entry("x"))
	reader := readyOverPipe(t, s, "x")
	reader.send(cmdRead, 0, 0, mib, nil) // and never reads the reply
	eventually(t, "memory taken", func() bool { return s.Stats().MemoryBytes == mib })
	other := ready(t, s, "x", true)
	s.watchOnce(s.clock.Add(10))
	if s.Stats().Evicted != 0 {
		t.Error("evicted although nobody waits")
	}
	other.send(cmdWrite, 0, 0, 4096, make([]byte, 4096))
	eventually(t, "somebody waits", func() bool { return s.Stats().MemoryWaits > 0 })
	s.watchOnce(s.clock.Add(10))
	if a := other.receive(cmdWrite, 0, 0); a.errno != nbdOK {
		t.Errorf("error %d", a.errno)
	}
	if s.Stats().Evicted != 1 {
		t.Errorf("%d evicted", s.Stats().Evicted)
	}

	// The same with half a payload.
	writer := readyOverPipe(t, s, "x")
	writer.send(cmdWrite, 0, 0, mib, make([]byte, 1000))
	eventually(t, "memory taken", func() bool { return s.Stats().MemoryBytes == mib })
	waits := s.Stats().MemoryWaits
	other.send(cmdRead, 0, 0, 4096, nil)
	eventually(t, "somebody waits", func() bool { return s.Stats().MemoryWaits > waits })
	s.watchOnce(s.clock.Add(10))
	other.receive(cmdRead, 0, 4096)
	writer.wantEOF()
}

func TestPanicEndsOnlyItsConnection(t *testing.T) {
	for name, build := range shapes(mib) {
		t.Run(name, func(t *testing.T) {
			exp, f := build()
			f.setHook(func(_ string, off int64) error {
				if off == 4096 {
					panic("bug in the export")
				}
				return nil
			})
			s := serve(t, Config{}, entryOf("x", exp, f))
			other := ready(t, s, "x", true)
			c := ready(t, s, "x", true)
			c.send(cmdWrite, 0, 4096, 512, make([]byte, 512))
			c.wantEOF()
			other.want(nbdOK, cmdRead, 0, 0, 1, nil)
			// A client has its reply a moment before the server has its memory back.
			eventually(t, "connection gone", func() bool {
				st := s.Stats()
				return st.Conns == 1 && st.MemoryBytes == 0
			})
			if st := s.Stats(); st.Panics != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestShutdownDrains: what is under way completes, what is new is refused, then the connection
// ends.
func TestShutdownDrains(t *testing.T) {
	f := newFake(mib)
	gate, entered := make(chan struct{}), make(chan struct{})
	f.setHook(func(op string, _ int64) error {
		if op == "write" {
			close(entered)
			<-gate
		}
		return nil
	})
	s, err := NewServer(Config{DrainGrace: 3 * time.Second}, f.entry("x"))
	if err != nil {
		t.Fatal(err)
	}
	c, idle, early := ready(t, s, "x", true), ready(t, s, "x", true), greeted(t, s)
	old := c.send(cmdWrite, 0, 0, 4, []byte("data"))
	<-entered
	done := make(chan error)
	go func() { done <- s.Shutdown(context.Background()) }()
	eventually(t, "draining", s.draining.Load)
	early.mustRefuse(optGo, infoData("x"), repErrShutdown)
	c.want(nbdSHUTDOWN, cmdWrite, 0, 0, 4, []byte("late"))
	c.want(nbdSHUTDOWN, cmdRead, 0, 0, 4, nil)
	close(gate)
	if a := c.receive(cmdWrite, 0, 0); a.cookie != old || a.errno != nbdOK {
		t.Errorf("outstanding write: %+v", a)
	}
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	c.wantEOF()
	idle.wantEOF()
	early.wantEOF()
	if string(f.data[:4]) != "data" || f.closes.Load() != 1 {
		t.Errorf("data %q, %d closes", f.data[:4], f.closes.Load())
	}
	connect(t, s).wantEOF()
}

// TestShutdownGivesUp: an export that hangs cannot hold Shutdown longer than its context.
func TestShutdownGivesUp(t *testing.T) {
	f := newFake(mib)
	gate := make(chan struct{})
	entered := make(chan struct{})
	f.setHook(func(string, int64) error { close(entered); <-gate; return nil })
	s, err := NewServer(Config{DrainGrace: time.Millisecond}, f.entry("x"))
	if err != nil {
		t.Fatal(err)
	}
	c := ready(t, s, "x", true)
	c.send(cmdRead, 0, 0, 4, nil)
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, errs.TimedOut) {
		t.Errorf("Shutdown: %v", err)
	}
	c.wantEOF()
	close(gate)
	eventually(t, "export closed by its last request", func() bool { return f.closes.Load() == 1 })
	eventually(t, "connection gone", func() bool { return s.Stats().Conns == 0 })
}

func TestServeOnListeners(t *testing.T) {
	f := newFake(mib)
	s := serve(t, Config{}, f.entry("x"))
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 2)
	for _, ln := range []net.Listener{tcp, unix} {
		go func() { served <- s.Serve(ln) }()
		nc, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := &client{tb: t, nc: nc}
		c.greet(flagFixedNewstyle | flagNoZeroes)
		c.mustAck(optGo, infoData("x"))
		c.want(nbdOK, cmdRead, 0, 0, mib, nil)
		defer nc.Close()
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	late, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(late); !errors.Is(err, errs.Shutdown) {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}

// TestExportCallsAreBounded: no more calls at a time than Config.ExportRequests, over all
// connections.
func TestExportCallsAreBounded(t *testing.T) {
	f := newFake(mib)
	var mu sync.Mutex
	now, most := 0, 0
	f.setHook(func(string, int64) error {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		mu.Lock()
		now--
		mu.Unlock()
		return nil
	})
	s := serve(t, Config{ExportRequests: 3}, f.entry("x"))
	var wg sync.WaitGroup
	for range 4 {
		c := ready(t, s, "x", true)
		wg.Go(func() {
			for range 30 {
				c.send(cmdRead, 0, 0, 1, nil)
			}
			for range 30 {
				c.receive(cmdRead, 0, 1)
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if most > 3 || most < 2 {
		t.Errorf("%d calls at a time", most)
	}
}
