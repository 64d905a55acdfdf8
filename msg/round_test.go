package msg

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

// pairs is a handler of quick calls. Those of operation 1 wait for one of operation 2, which come
// at the same time; operation 3 waits for nothing.
type pairs struct {
	opened chan struct{}
}

func (h *pairs) Serve(_ context.Context, c *Call) {
	switch c.Header().Op {
	case 1:
		c.Waits()
		<-h.opened
	case 2:
		h.opened <- struct{}{}
	}
	_ = c.Reply(c.Body(), 0)
}

// roundRig is a server of quick calls, of which it lets most in at once (0: the default), and
// connections to it.
func roundRig(t *testing.T, p provider, h Handler, most, conns int) (list []*Conn) {
	t.Helper()
	r := newRig(t, p, h, nil)
	addr := "quick"
	if p.name == "tcp" {
		addr = p.addr
	}
	srv, err := r.server.Serve(addr, h, ServeOptions{MaxCalls: most,
		Quick: func(uint16) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	for range conns {
		c, err := r.client.Dial(context.Background(), srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

// TestQuickCallsThatWaitLetOthersRun: a quick call that waits does not hold up those that came with
// it, nor their replies.
func TestQuickCallsThatWaitLetOthersRun(t *testing.T) {
	for _, p := range append(simProviders(), tcpProvider()) {
		t.Run(p.name, func(t *testing.T) {
			h := &pairs{opened: make(chan struct{}, 1)}
			c := roundRig(t, p, h, 0, 1)[0]
			for range p.some(1000) {
				var wg sync.WaitGroup
				for _, ops := range [][]uint16{{3, 2}, {1}, {3}} {
					wg.Go(func() {
						for _, op := range ops {
							if err := call(c, 20*time.Second, &Request{Op: op}); err != nil {
								t.Error(op, err)
							}
						}
					})
				}
				if wg.Wait(); t.Failed() {
					return
				}
			}
		})
	}
}

// TestQuickCallsAreAnswered: all of them, however many arrive together.
func TestQuickCallsAreAnswered(t *testing.T) {
	for _, p := range append(simProviders(), tcpProvider()) {
		t.Run(p.name, func(t *testing.T) {
			h := &pairs{}
			c := roundRig(t, p, h, 0, 1)[0]
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for range p.some(500) {
						if err := call(c, 20*time.Second, &Request{Op: 3}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestQuickCallsThatWaitForTheirTurn: quick calls of several connections that may not all run at
// once are served once each, and answered, also those that wait inside.
func TestQuickCallsThatWaitForTheirTurn(t *testing.T) {
	for _, p := range append(simProviders(), tcpProvider()) {
		t.Run(p.name, func(t *testing.T) {
			h := HandlerFunc(func(_ context.Context, c *Call) {
				if c.Header().Op == 1 {
					c.Waits()
					runtime.Gosched()
				}
				_ = c.Reply(c.Body(), 0)
			})
			var wg sync.WaitGroup
			for _, c := range roundRig(t, p, h, 2, 3) {
				for w := range 8 {
					wg.Go(func() {
						for i := range p.some(300) {
							req := &Request{Op: uint16(1 + (i+w)%3)}
							if err := call(c, 20*time.Second, req); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
		})
	}
}
