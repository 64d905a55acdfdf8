package msg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg/segment"
)

func call(c *Conn, timeout time.Duration, req *Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.Call(ctx, req, &Reply{})
}

func TestCallsWaitForCredits(t *testing.T) {
	for _, p := range and(simProviders()[1]) {
		t.Run(p.name, func(t *testing.T) {
			open := make(chan struct{})
			var inside, most atomic.Int32
			r := newRig(t, p, HandlerFunc(func(_ context.Context, c *Call) {
				now := inside.Add(1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); {
					old = most.Load()
				}
				<-open
				inside.Add(-1)
				_ = c.Reply(nil, 0)
			}), func(client, _ *Options) { client.Credits = 3 })
			done := make(chan error, 20)
			for range 20 {
				go func() { done <- call(r.conn, 20*time.Second, &Request{}) }()
			}
			for inside.Load() < 3 {
				time.Sleep(time.Millisecond)
			}
			if err := call(r.conn, 5*time.Millisecond, &Request{}); !errors.Is(err, errs.TimedOut) {
				t.Errorf("without a credit: %v", err)
			}
			close(open)
			for range 20 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if most.Load() != 3 {
				t.Errorf("%d calls at once with 3 credits", most.Load())
			}
			if err := quiet(r); err != nil {
				t.Error(err)
			}
		})
	}
}

// restless pulls and pushes until its context ends, and counts those that it has seen end.
type restless struct {
	domain fabric.Domain
	ended  atomic.Int32
}

func (h *restless) Serve(ctx context.Context, c *Call) {
	n := c.InLen()
	buf := make([]byte, 2*n) // zeros to push, and room to pull into
	reg, err := h.domain.Register(buf)
	if err != nil {
		_ = c.Fail(err)
		return
	}
	defer reg.Close()
	for err == nil {
		if err = c.Pull(ctx, 0, []fabric.Sge{{Reg: reg, Buf: buf[n:]}}); err == nil {
			err = c.Push(ctx, 0, []fabric.Sge{{Reg: reg, Buf: buf[:n]}})
		}
	}
	if ctx.Err() != nil {
		h.ended.Add(1)
	}
	_ = c.Fail(err)
}

// cancelAtRandom gives calls up at random moments and looks at their memory afterwards.
func cancelAtRandom(t testing.TB, r *rig, rounds int) error {
	seed := seedOf(t)
	var wg sync.WaitGroup
	failures := make(chan error, 4)
	for g := range 4 {
		out, in := memory(t, r.cdom, 30000), memory(t, r.cdom, 30000)
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for range rounds {
				after := time.Duration(rng.IntN(2000)) * time.Microsecond
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(after, cancel)
				err := r.conn.Call(ctx, &Request{Out: contig(out), In: contig(in)}, &Reply{})
				cancel()
				if !errors.Is(err, errs.Canceled) {
					err = fmt.Errorf("canceled call ended with %w", err)
				} else {
					err = untouched(in.Buf)
				}
				if err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	wg.Wait()
	close(failures)
	return <-failures
}

func TestCancellationAtRandomMoments(t *testing.T) {
	for _, p := range providers()[1:] {
		t.Run(p.name, func(t *testing.T) {
			h := &restless{}
			r := newRigFor(t, p, func(d fabric.Domain) Handler {
				h.domain = d
				return h
			}, nil)
			if err := cancelAtRandom(t, r, 20); err != nil {
				t.Fatal(err)
			}
			if err := quiet(r); err != nil {
				t.Fatal(err)
			}
			if h.ended.Load() == 0 || r.srv.Stats().Canceled == 0 {
				t.Fatal("no handler noticed that its call was canceled")
			}
		})
	}
}

func TestTimeLimits(t *testing.T) {
	for _, p := range and(simProviders()[0]) {
		t.Run(p.name, func(t *testing.T) {
			var handled atomic.Int32
			ended := make(chan error, 100)
			r := newRig(t, p, HandlerFunc(func(ctx context.Context, c *Call) {
				handled.Add(1)
				<-ctx.Done()
				ended <- ctx.Err()
				_ = c.Fail(ctx.Err())
			}), func(client, _ *Options) { client.CallTimeout = 30 * time.Millisecond })
			// On a busy machine a short time is over before a handler sees the request.
			for handled.Load() == 0 {
				start := time.Now()
				err := r.conn.Call(context.Background(), &Request{}, &Reply{})
				if !errors.Is(err, errs.TimedOut) || time.Since(start) > 20*time.Second {
					t.Fatalf("without a deadline: %v after %v", err, time.Since(start))
				}
			}
			<-ended // the server's context ends too
			seen := handled.Load()
			for limit := 20 * time.Millisecond; handled.Load() == seen; limit *= 2 {
				if err := call(r.conn, limit, &Request{}); !errors.Is(err, errs.TimedOut) {
					t.Fatalf("with a deadline: %v", err)
				}
			}
			<-ended
			if err := quiet(r); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPanicEndsOneConnectionOnly(t *testing.T) {
	for _, p := range and(simProviders()[1]) {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, p, HandlerFunc(func(_ context.Context, c *Call) {
				if c.Header().Op == 13 {
					panic("planted")
				}
				_ = c.Reply(nil, 0)
			}), nil)
			other := r.dial(t)
			err := call(r.conn, 20*time.Second, &Request{Op: 13})
			if k := errs.KindOf(err); k != errs.IO && k != errs.Disconnected {
				t.Fatalf("the call that panicked: %v", err)
			}
			select {
			case <-r.conn.Done():
			case <-time.After(time.Minute):
				t.Fatal("the connection lives on")
			}
			if err := call(other, 20*time.Second, &Request{}); err != nil {
				t.Fatalf("another connection: %v", err)
			}
			if n := r.srv.Stats().Panics; n != 1 {
				t.Fatalf("%d panics counted", n)
			}
		})
	}
}

func TestHandlerWithoutAnswer(t *testing.T) {
	r := newRig(t, simProviders()[0], HandlerFunc(func(context.Context, *Call) {}), nil)
	if err := call(r.conn, 20*time.Second, &Request{}); errs.KindOf(err) != errs.IO {
		t.Fatalf("got %v", err)
	}
	if err := quiet(r); err != nil {
		t.Fatal(err)
	}
}

func TestDrain(t *testing.T) {
	for _, p := range and(simProviders()[1]) {
		t.Run(p.name, func(t *testing.T) {
			entered, open := make(chan struct{}), make(chan struct{})
			r := newRig(t, p, HandlerFunc(func(_ context.Context, c *Call) {
				close(entered)
				<-open
				_ = c.Reply(nil, 0)
			}), nil)
			running, closed := make(chan error, 1), make(chan error, 1)
			go func() { running <- call(r.conn, 20*time.Second, &Request{}) }()
			<-entered
			go func() { closed <- r.srv.Close(context.Background()) }()
			for r.conn.Err() == nil { // until goodbye has come
				time.Sleep(time.Millisecond)
			}
			if err := call(r.conn, 20*time.Second, &Request{}); !errors.Is(err, errs.Shutdown) {
				t.Errorf("a new call while draining: %v", err)
			}
			close(open)
			if err := <-running; err != nil {
				t.Errorf("the running call: %v", err)
			}
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
			<-r.conn.Done()
			if _, err := r.client.Dial(context.Background(), r.srv.Addr()); err == nil {
				t.Error("a closed server was reached")
			}
		})
	}
}

func TestDrainGivesUpWithItsContext(t *testing.T) {
	entered := make(chan struct{})
	r := newRig(t, simProviders()[0], HandlerFunc(func(ctx context.Context, c *Call) {
		close(entered)
		<-ctx.Done()
		_ = c.Fail(ctx.Err())
	}), nil)
	done := make(chan error, 1)
	go func() { done <- call(r.conn, 20*time.Second, &Request{}) }()
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := r.srv.Close(ctx); !errors.Is(err, errs.TimedOut) {
		t.Fatalf("Close: %v", err)
	}
	if err := <-done; err == nil {
		t.Fatal("the call of a handler that never answered succeeded")
	}
}

// TestMaxCalls lets requests wait in order when too many run.
func TestMaxCalls(t *testing.T) {
	var inside, most atomic.Int32
	h := HandlerFunc(func(_ context.Context, c *Call) {
		if now := inside.Add(1); now > most.Load() {
			most.Store(now)
		}
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		_ = c.Reply(nil, 0)
	})
	r := newRig(t, simProviders()[0], h, nil)
	srv, err := r.server.Serve("narrow", h, ServeOptions{MaxCalls: 2, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := r.client.Dial(context.Background(), "narrow")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Dial(context.Background(), "narrow"); err == nil {
		t.Error("a connection beyond MaxConns")
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := call(conn, 20*time.Second, &Request{}); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if most.Load() > 2 {
		t.Errorf("%d calls ran at once, at most 2", most.Load())
	}
	if s := srv.Stats(); s.Calls != 20 || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, d, _ := simProviders()[0].open(t, 1)
	for name, o := range map[string]Options{
		"no domain":        {},
		"too many credits": {Domain: d, Credits: maxCredits + 1},
		"tiny bodies":      {Domain: d, BodyMax: 10},
		"huge receives":    {Domain: d, InlineMax: 2 << 20},
		"negative time":    {Domain: d, CallTimeout: -1},
	} {
		if _, err := NewNode(o); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTooBigDescriptions(t *testing.T) {
	r := newRig(t, simProviders()[0], HandlerFunc(func(_ context.Context, c *Call) {
		_ = c.Reply(nil, 0)
	}), nil)
	big := contig(memory(t, r.cdom, 1<<20))
	for len(big.Windows) < segment.MaxWindows {
		big.Windows = append(big.Windows, big.Windows[0])
	}
	if n := big.DescriptionBytes(); n <= r.conn.MaxDescription() {
		t.Fatalf("%d bytes fit", n)
	}
	if err := call(r.conn, 20*time.Second, &Request{Out: big}); !errors.Is(err, errs.TooBig) {
		t.Fatalf("description: %v", err)
	}
	body := make([]byte, r.conn.MaxDescription()+1)
	if err := call(r.conn, 20*time.Second, &Request{Body: body}); !errors.Is(err, errs.TooBig) {
		t.Fatalf("body: %v", err)
	}
	if err := call(r.conn, 20*time.Second, &Request{Body: body[1:]}); err != nil {
		t.Fatalf("the largest body: %v", err)
	}
	big.Windows = append(big.Windows, big.Windows[0])
	if err := call(r.conn, 20*time.Second, &Request{Out: big}); !errors.Is(err, errs.TooBig) {
		t.Fatalf("windows: %v", err)
	}
	if err := quiet(r); err != nil {
		t.Fatal(err)
	}
}

// TestStuckPeer: a peer that never posts a receive cannot be sent a reply. The server waits
// for it only so long, and lets it go.
func TestStuckPeer(t *testing.T) {
	freed := make(chan error, 1)
	var dom fabric.Domain
	r := newRig(t, simProviders()[1], HandlerFunc(func(ctx context.Context, c *Call) {
		buf := make([]byte, c.InLen())
		reg, err := dom.Register(buf)
		if err != nil {
			_ = c.Fail(err)
			return
		}
		defer reg.Close()
		_ = c.Push(ctx, 0, []fabric.Sge{{Reg: reg, Buf: buf}})
		freed <- c.Reply(nil, c.InLen())
	}), func(_, server *Options) {
		server.PeerTimeout = 40 * time.Millisecond
		dom = server.Domain
	})
	raw := newRaw(t, r, false)
	in := memory(t, r.cdom, 100000)
	remote, err := in.Reg.Grant(raw.ep, 0, len(in.Buf), fabric.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	raw.send(rawRequest(1, 1, describeOne(segment.In, remote, contig(in).Access), nil))
	select {
	case err := <-freed:
		if errs.KindOf(err) != errs.Disconnected {
			t.Fatalf("Reply to a stuck peer: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Reply waits for a stuck peer for ever")
	}
}

// deaf is a Conn that was told of its death before the call was there.
type deaf struct{ *Conn }

func (deaf) died(error) {}

// TestCallThatMeetsTheEnd: the connection dies after a call has entered it and before its request
// is one of those that learn of the end. It must not wait for an answer that nobody will bring.
func TestCallThatMeetsTheEnd(t *testing.T) {
	r := newRig(t, simProviders()[0], HandlerFunc(func(ctx context.Context, c *Call) {
		<-ctx.Done()
		_ = c.Reply(nil, 0)
	}), nil)
	c := r.dial(t)
	c.role = deaf{c}
	users := c.users.Load()
	c.mu.Lock()
	done := make(chan error, 1)
	go func() { done <- call(c, time.Minute, &Request{}) }()
	for begin := time.Now(); c.users.Load() == users && time.Since(begin) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	c.fail(errs.New(errs.Disconnected, "test", "", nil))
	c.mu.Unlock()
	if err := <-done; !errors.Is(err, errs.Disconnected) {
		t.Fatalf("the call ended with %v", err)
	}
	<-c.gone
}

// TestNodeClosesWhileAPeerIsAccepted: a connection that its server knows already is given up, since
// the node is closing, while the server says goodbye on it. Its memory must wait for that.
func TestNodeClosesWhileAPeerIsAccepted(t *testing.T) {
	r := newRig(t, simProviders()[0], HandlerFunc(func(_ context.Context, c *Call) {
		_ = c.Reply(nil, 0)
	}), nil)
	r.server.mu.Lock() // the next connection waits to be adopted
	ctx, cancel := context.WithCancel(t.Context())
	dialed := make(chan struct{})
	go func() {
		defer close(dialed)
		if c, err := r.client.Dial(ctx, r.srv.Addr()); err == nil {
			c.Close()
		}
	}()
	var found *serverConn
	for found == nil {
		r.srv.mu.Lock()
		for ss := range r.srv.conns {
			if !ss.started() {
				found = ss
			}
		}
		r.srv.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	if err := found.enter(); err != nil {
		t.Fatal(err)
	}
	r.server.closed = true
	r.server.mu.Unlock()

	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; {
		found.bufs.Send(0)[0]++ // faults if the memory is not there any more
		time.Sleep(time.Millisecond)
	}
	found.leave()
	<-found.gone
	cancel()
	<-dialed
	r.server.mu.Lock()
	r.server.closed = false // so that the rig can close it
	r.server.mu.Unlock()
}

// started tells whether the node has adopted the connection; the node's lock is the caller's.
func (s *serverConn) started() bool { _, ok := s.node.links[s]; return ok }
