package msg

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// ledger counts how often each request was executed, and answers with a running number that a
// second execution would not give again.
type ledger struct {
	mu      sync.Mutex
	done    map[uint64]int
	running uint64
	slow    time.Duration
}

func (l *ledger) Serve(ctx context.Context, c *Call) {
	time.Sleep(l.slow)
	id := binary.BigEndian.Uint64(c.Body())
	l.mu.Lock()
	l.done[id]++
	l.running++
	n := l.running
	l.mu.Unlock()
	c.SetStamp(wire.Stamp{Gen: uint32(n)})
	if c.InLen() > 0 {
		data := bytes.Repeat([]byte{byte(n)}, int(c.InLen()))
		_ = c.Push(ctx, 0, []fabric.Sge{{Buf: data}})
	}
	_ = c.Reply(binary.BigEndian.AppendUint64(nil, n), c.InLen())
}

func (l *ledger) most() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := 0
	for _, n := range l.done {
		most = max(most, n)
	}
	return most
}

// onceRequest is a request of a session as its first attempt or a later one sends it.
func onceRequest(session uint64, slot uint16, seq uint32, id uint64) *Request {
	return &Request{
		Body: binary.BigEndian.AppendUint64(nil, id), once: true,
		Stamp: wire.Stamp{Session: session, Slot: slot, Seq: seq},
	}
}

func openSession(t testing.TB, c *Conn, id uint64) {
	t.Helper()
	req := Request{ask: askSession, Stamp: wire.Stamp{Session: id}}
	if err := c.Call(context.Background(), &req, &Reply{}); err != nil {
		t.Fatal(err)
	}
}

func TestRepeatedRequestIsAnsweredFromTheRecord(t *testing.T) {
	for _, p := range and(simProviders()[1]) {
		t.Run(p.name, func(t *testing.T) {
			l := &ledger{done: map[uint64]int{}}
			r := newRig(t, p, l, nil)
			openSession(t, r.conn, 5)
			in := memory(t, r.cdom, 100)
			ask := func(c *Conn, seq uint32, id uint64) (string, error) {
				req, rep := onceRequest(5, 3, seq, id), Reply{}
				req.In = contig(in)
				clear(in.Buf)
				err := c.Call(context.Background(), req, &rep)
				return fmt.Sprint(rep.Body, rep.Stamp.Gen, rep.InLen, in.Buf), err
			}
			first, err := ask(r.conn, 7, 70)
			if err != nil {
				t.Fatal(err)
			}
			other := r.dial(t) // the same session after a reconnect
			for _, c := range []*Conn{r.conn, other, other} {
				if again, err := ask(c, 7, 70); err != nil || again != first {
					t.Fatalf("repeated: %s, %v; at first %s", again, err, first)
				}
			}
			if next, err := ask(other, 8, 80); err != nil || next == first {
				t.Fatalf("the next one: %s, %v", next, err)
			}
			if _, err := ask(other, 7, 70); errs.KindOf(err) != errs.Stale {
				t.Fatalf("one from before the last: %v", err)
			}
			if l.most() != 1 || r.srv.Stats().Repeated != 3 {
				t.Fatalf("executed up to %d times, %+v", l.most(), r.srv.Stats())
			}
		})
	}
}

func TestRepeatedWhileItRuns(t *testing.T) {
	l := &ledger{done: map[uint64]int{}, slow: 20 * time.Millisecond}
	r := newRig(t, simProviders()[1], l, nil)
	openSession(t, r.conn, 5)
	other := r.dial(t)
	var wg sync.WaitGroup
	var reps [2]Reply
	for i, c := range []*Conn{r.conn, other} {
		wg.Go(func() {
			if err := c.Call(context.Background(), onceRequest(5, 0, 1, 9), &reps[i]); err != nil {
				t.Error(err)
			}
		})
		await(t, func() bool { return r.srv.Stats().Calls >= uint64(2+i) })
	}
	wg.Wait()
	if l.most() != 1 || !bytes.Equal(reps[0].Body, reps[1].Body) {
		t.Fatalf("executed %d times: %v, %v", l.most(), reps[0].Body, reps[1].Body)
	}
	if err := quiet(r); err != nil {
		t.Fatal(err)
	}
}

// checkOnce breaks connections under a session at random moments: every request must be executed
// once, and answered.
func checkOnce(t testing.TB, rounds int) error {
	l := &ledger{done: map[uint64]int{}}
	r := newRig(t, simProviders()[1], l, nil)
	seed := seedOf(t)
	var breaker sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	pool := NewPool(r.client, func(context.Context, uint32) (string, error) {
		return r.srv.Addr(), nil
	})
	defer pool.Close()
	pool.backoff = Backoff{First: 100 * time.Microsecond, Max: time.Millisecond}
	s, err := NewSession(SessionOptions{
		Slots: 3, Backoff: pool.backoff,
		Get: func(ctx context.Context) (*Conn, error) {
			c, err := pool.Get(ctx, 1)
			if err == nil {
				breaker.Lock()
				if rng.IntN(2) == 0 {
					r.net.BreakAfter(c.ep, 1+rng.IntN(60))
				}
				breaker.Unlock()
			}
			return c, err
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	failures := make(chan error, 4)
	for g := range 4 {
		go func() {
			var err error
			for i := 0; i < rounds && err == nil; i++ {
				id := uint64(g)<<32 | uint64(i)
				err = s.Call(ctx, &Request{Body: binary.BigEndian.AppendUint64(nil, id)}, &Reply{})
			}
			failures <- err
		}()
	}
	var all []error
	for range 4 {
		all = append(all, <-failures)
	}
	if n := len(l.done); n != 4*rounds {
		all = append(all, fmt.Errorf("seed %d: %d requests executed of %d", seed, n, 4*rounds))
	}
	if n := l.most(); n > 1 {
		all = append(all, fmt.Errorf("seed %d: a request was executed %d times", seed, n))
	}
	return errors.Join(all...)
}

func TestSessionsExecuteOnceAcrossBreaks(t *testing.T) {
	if err := checkOnce(t, 40); err != nil {
		t.Fatal(err)
	}
}

func TestServerThatWasStartedAgain(t *testing.T) {
	l := &ledger{done: map[uint64]int{}}
	r := newRig(t, simProviders()[0], l, nil)
	current := r.conn
	s, err := NewSession(SessionOptions{
		Get: func(context.Context) (*Conn, error) { return current, current.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	body := binary.BigEndian.AppendUint64(nil, 1)
	if err := s.Call(t.Context(), &Request{Body: body}, &Reply{}); err != nil {
		t.Fatal(err)
	}
	before := s.Verifier()
	second, err := r.server.Serve("second", l, ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if current, err = r.client.Dial(t.Context(), second.Addr()); err != nil {
		t.Fatal(err)
	}
	// A new request may go to the new server; one that the old one may have got may not.
	if err := s.Call(t.Context(), &Request{Body: body}, &Reply{}); err != nil {
		t.Fatal(err)
	}
	if s.Verifier() == before || before == 0 {
		t.Fatal("the verifier did not change")
	}
	a := sessionAttempt{s: s, req: onceRequest(s.ID(), 0, 9, 1), rep: &Reply{}, sent: true,
		verifier: before}
	if over, err := a.try(t.Context()); !over || errs.KindOf(err) != errs.MaybeDone {
		t.Fatalf("over %v, %v", over, err)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	l := &ledger{done: map[uint64]int{}}
	r := newRig(t, simProviders()[0], l, nil)
	srv, err := r.server.Serve("few", l, ServeOptions{Replay: ReplayOptions{
		Sessions: 3, PerConn: 2, Slots: 4, RecordMax: 100, Idle: 20 * time.Millisecond,
	}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(c *Conn, id uint64) error {
		req := Request{ask: askSession, Stamp: wire.Stamp{Session: id}}
		return c.Call(t.Context(), &req, &Reply{})
	}
	dial := func() *Conn {
		c, err := r.client.Dial(t.Context(), srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := dial(), dial()
	for i, err := range []error{open(a, 1), open(a, 2), open(a, 2), open(b, 3)} {
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := open(a, 9); errs.KindOf(err) != errs.Again {
		t.Fatalf("a third session of a connection: %v", err)
	}
	if err := open(b, 4); errs.KindOf(err) != errs.Again {
		t.Fatalf("a fourth session: %v", err)
	}
	if err := call(a, 20*time.Second, onceRequest(1, 4, 1, 1)); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("a fifth slot: %v", err)
	}
	time.Sleep(30 * time.Millisecond)
	if err := call(a, 20*time.Second, onceRequest(2, 0, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := open(b, 4); err != nil {
		t.Fatalf("a fourth session, after the first was idle: %v", err)
	}
	var rep Reply
	err = a.Call(t.Context(), onceRequest(1, 0, 1, 1), &rep)
	if errs.KindOf(err) != errs.Stale || !rep.lost {
		t.Fatalf("the session that was forgotten: %v", err)
	}
	if err := call(a, 20*time.Second, onceRequest(2, 0, 2, 2)); err != nil {
		t.Fatalf("the one that was used: %v", err)
	}
}

func FuzzDecodeSession(f *testing.F) {
	var e wire.Enc
	(&replay{verifier: 5, opts: ReplayOptions{}.withDefaults()}).appendSession(&e)
	f.Add(e.B)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		verifier, slots, err := decodeSession(body)
		if err == nil && (verifier == 0 || slots < 0 || len(body) != 12) {
			t.Fatalf("%x was accepted: %d, %d", body, verifier, slots)
		}
	})
}

// TestCloseEndsRequestsOfSessions: a broken connection does not end them, a server that closes
// does.
func TestCloseEndsRequestsOfSessions(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	r := newRig(t, simProviders()[0], HandlerFunc(func(ctx context.Context, c *Call) {
		close(entered)
		<-ctx.Done()
		close(ended)
		_ = c.Fail(ctx.Err())
	}), nil)
	openSession(t, r.conn, 5)
	done := make(chan error, 1)
	go func() { done <- call(r.conn, 20*time.Second, onceRequest(5, 0, 1, 1)) }()
	<-entered
	r.net.Break(r.conn.ep)
	if err := <-done; errs.KindOf(err) != errs.Disconnected {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Fatal("it ended with its connection")
	case <-time.After(20 * time.Millisecond):
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.srv.Close(now)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
}
