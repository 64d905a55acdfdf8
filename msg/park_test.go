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
