package msg

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// parking is a handler in which calls of operation 1 wait, parked, for one of operation 2.
type parking struct{ open chan struct{} }

func (h *parking) Serve(ctx context.Context, c *Call) {
	if c.Header().Op == 2 {
		close(h.open)
		_ = c.Reply(nil, 0)
		return
	}
	c.Park()
	select {
	case <-h.open:
	case <-ctx.Done():
		_ = c.Fail(errs.Shutdown)
		return
	}
	if err := c.Unpark(ctx); err != nil {
		_ = c.Fail(err)
		return
	}
	_ = c.Reply(nil, 0)
}

// parkedServer has two calls parked at a server that lets one in at a time.
func parkedServer(t *testing.T) (*Conn, *Server, chan error) {
	h := &parking{open: make(chan struct{})}
	r := newRig(t, simProviders()[0], h, nil)
	srv, err := r.server.Serve("narrow", h, ServeOptions{MaxCalls: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.client.Dial(context.Background(), "narrow")
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, 2)
	for range cap(answers) {
		go func() { answers <- call(c, 20*time.Second, &Request{Op: 1}) }()
	}
	await(t, func() bool { return srv.Stats().Parked == 2 })
	return c, srv, answers
}

// TestParkedCallsLetOthersIn: calls that wait for another one do not keep it out.
func TestParkedCallsLetOthersIn(t *testing.T) {
	c, srv, answers := parkedServer(t)
	if err := call(c, 20*time.Second, &Request{Op: 2}); err != nil {
		t.Fatal(err)
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	await(t, func() bool { return srv.Stats().Parked == 0 && srv.calls.Usage().Count == 0 })
}

// TestParkedCallsEndWithTheServer: a server that drains does not wait for them.
func TestParkedCallsEndWithTheServer(t *testing.T) {
	_, srv, answers := parkedServer(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := srv.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for range cap(answers) {
		if err := <-answers; errs.KindOf(err) != errs.Shutdown {
			t.Fatalf("answered with %v", err)
		}
	}
}

// waiting is a handler in which patient calls of operation 1 are parked until it is opened, and all
// others are answered at once.
type waiting struct{ open chan struct{} }

func (h *waiting) Serve(ctx context.Context, c *Call) {
	if c.Header().Op == 1 {
		c.Park()
		select {
		case <-h.open:
		case <-ctx.Done():
		}
		_ = c.Unpark(ctx)
	}
	_ = c.Reply(nil, 0)
}

// TestPatientCallsPollForNobody: a caller that is alone but for a patient call polls for its own
// answers: it is woken seldom, and the patient one hears of its answer though nobody else calls.
func TestPatientCallsPollForNobody(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			h := &waiting{open: make(chan struct{})}
			r := newRig(t, p, h, nil)
			answer := make(chan error, 1)
			go func() { answer <- call(r.conn, time.Minute, &Request{Op: 1, Patient: true}) }()
			await(t, func() bool { return r.srv.Stats().Parked == 1 })
			calls := uint64(p.some(2000))
			before := r.client.Stats().Woken
			for range calls {
				if err := call(r.conn, time.Minute, &Request{Op: 2}); err != nil {
					t.Fatal(err)
				}
			}
			// After a pause, which on a busy machine may come any time, the standby polls once.
			if woken := r.client.Stats().Woken - before; woken > calls*9/10 {
				t.Errorf("of %d calls %d were woken", calls, woken)
			}
			close(h.open)
			if err := <-answer; err != nil {
				t.Error(err)
			}
		})
	}
}
