package msg

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// ordered is a handler that lets one call in at a time and notes in which order they came.
type ordered struct {
	open chan struct{}

	mu   sync.Mutex
	seen []uint32
}

func (h *ordered) Serve(_ context.Context, c *Call) {
	if c.Header().Op == 1 { // the plug: everything else waits behind it
		<-h.open
		_ = c.Reply(nil, 0)
		return
	}
	h.mu.Lock()
	h.seen = append(h.seen, binary.BigEndian.Uint32(c.Body()))
	h.mu.Unlock()
	_ = c.Reply(nil, 0)
}

// queueUp lets calls of the given levels wait at the server, in this order, and returns
// the order in which they were served, as indices.
func queueUp(t testing.TB, conns []*Conn, srv *Server, h *ordered, list []Level) []uint32 {
	t.Helper()
	var wg sync.WaitGroup
	send := func(c *Conn, req *Request) {
		wg.Go(func() {
			if err := call(c, 20*time.Second, req); err != nil {
				t.Error(err)
			}
		})
	}
	send(conns[0], &Request{Op: 1})
	await(t, func() bool { return srv.Stats().Running == 1 })
	for i, l := range list {
		body := binary.BigEndian.AppendUint32(nil, uint32(i))
		send(conns[i%len(conns)], &Request{Op: 2, Level: l, Body: body})
		await(t, func() bool { return srv.Stats().Queued == i+1 })
	}
	close(h.open)
	wg.Wait()
	return h.seen
}

func await(t testing.TB, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(limit) {
			t.Fatal("it did not come to that")
		}
	}
}

func queueRig(t testing.TB, conns int, age time.Duration) ([]*Conn, *Server, *ordered) {
	h := &ordered{open: make(chan struct{})}
	r := newRig(t, simProviders()[0], h, func(client, server *Options) {
		server.Age, server.Queues, client.Queues = age, 4, 4
	})
	srv, err := r.server.Serve("narrow", h, ServeOptions{MaxCalls: 1})
	if err != nil {
		t.Fatal(err)
	}
	var all []*Conn
	for range conns {
		c, err := r.client.Dial(context.Background(), "narrow")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all, srv, h
}

// TestHigherLevelsGoFirstButNotForEver: level 9 counts as 3, the highest here. When all have waited
// for long enough the highest has no precedence any more, and the lowest comes first.
func TestHigherLevelsGoFirstButNotForEver(t *testing.T) {
	list := []Level{0, 0, 2, 2, 2, 2, 2, 2, 9, 1}
	for age, want := range map[time.Duration][]uint32{
		time.Hour: {8, 2, 3, 4, 5, 6, 7, 9, 0, 1},
		1:         {0, 1, 9, 2, 3, 4, 5, 6, 7, 8},
	} {
		conns, srv, h := queueRig(t, 1, age)
		if got := queueUp(t, conns, srv, h, list); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("age %v: levels %v were served in the order %v, want %v", age, list, got, want)
		}
	}
}

func TestConnectionsTakeTurns(t *testing.T) {
	conns, srv, h := queueRig(t, 2, time.Hour)
	// The first connection has queued twenty calls before the second one comes with two.
	plug := append([]*Conn(nil), conns[:1]...)
	for range 19 {
		plug = append(plug, conns[0])
	}
	got := queueUp(t, append(plug, conns[1], conns[1]), srv, h, make([]Level, 22))
	for place, who := range got {
		if who >= 20 && place > 4 {
			t.Fatalf("a call of the second connection was served as number %d: %v", place, got)
		}
	}
}

func TestServicesHaveHandlersAndLevels(t *testing.T) {
	h := &ordered{open: make(chan struct{})}
	r := newRig(t, simProviders()[0], h, nil)
	answer := func(text string) Handler {
		return HandlerFunc(func(_ context.Context, c *Call) {
			_ = c.Reply(fmt.Appendf(nil, "%s at level %d", text, c.Level()), 0)
		})
	}
	_, err := r.server.Serve("services", answer("none"), ServeOptions{Services: []Service{
		{Name: "names", From: 10, To: 19, Level: 1, Handler: answer("names")},
		{Name: "hearts", From: 20, To: 20, Level: 7, Handler: answer("hearts")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := r.client.Dial(context.Background(), "services")
	if err != nil {
		t.Fatal(err)
	}
	for op, want := range map[uint16]string{
		9: "none at level 0", 10: "names at level 1", 19: "names at level 1", 20: "hearts at level 2",
		21: "none at level 0",
	} {
		var rep Reply
		err := conn.Call(t.Context(), &Request{Op: op}, &rep)
		if err != nil || string(rep.Body) != want {
			t.Errorf("operation %d: %q, %v", op, rep.Body, err)
		}
	}
	_, err = r.server.Serve("x", h, ServeOptions{Services: []Service{
		{Name: "a", From: 1, To: 5, Handler: h}, {Name: "b", From: 5, To: 9, Handler: h},
	}})
	if errs.KindOf(err) != errs.Invalid {
		t.Errorf("overlapping services: %v", err)
	}
}

// TestCreditsGoByLevel: of those who wait for a credit the highest level goes first.
func TestCreditsGoByLevel(t *testing.T) {
	h := &ordered{open: make(chan struct{})}
	r := newRig(t, simProviders()[0], h, func(client, _ *Options) {
		client.Credits, client.Age = 1, time.Hour
	})
	var wg sync.WaitGroup
	send := func(req *Request) {
		wg.Go(func() {
			if err := call(r.conn, 20*time.Second, req); err != nil {
				t.Error(err)
			}
		})
	}
	send(&Request{Op: 1})
	await(t, func() bool { return r.srv.Stats().Running == 1 })
	for i, l := range []Level{0, 0, 2, 1, 2} {
		send(&Request{Op: 2, Level: l, Body: binary.BigEndian.AppendUint32(nil, uint32(i))})
		await(t, func() bool { return r.conn.credits.Usage().Waiting == i+1 })
	}
	close(h.open)
	wg.Wait()
	if want := []uint32{2, 4, 3, 0, 1}; fmt.Sprint(h.seen) != fmt.Sprint(want) {
		t.Fatalf("credits went to %v, want %v", h.seen, want)
	}
}
