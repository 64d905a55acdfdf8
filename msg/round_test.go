package msg

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pairs is a handler of quick calls. Those of operation 1 wait for one of operation 2, which come
// at the same time; operation 3 waits for nothing.
type pairs struct {
	opened chan struct{}
	most   atomic.Int32 // how many were served at once
	now    atomic.Int32
}

func (h *pairs) Serve(_ context.Context, c *Call) {
	h.most.Store(max(h.most.Load(), h.now.Add(1)))
	defer h.now.Add(-1)
	switch c.Header().Op {
	case 1:
		c.Waits()
		<-h.opened
	case 2:
		h.opened <- struct{}{}
	}
	_ = c.Reply(c.Body(), 0)
}

// roundRig is a server of quick calls and a client.
func roundRig(t *testing.T, p provider, h Handler) *Conn {
	t.Helper()
	r := newRig(t, p, h, nil)
	addr := "quick"
	if p.name == "tcp" {
		addr = "127.0.0.1:0"
	}
	srv, err := r.server.Serve(addr, h, ServeOptions{Quick: func(uint16) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.client.Dial(context.Background(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestQuickCallsThatWaitLetOthersRun: a quick call that waits does not hold up those that came with
// it, nor their replies.
func TestQuickCallsThatWaitLetOthersRun(t *testing.T) {
	for _, p := range append(simProviders(), tcpProvider()) {
		t.Run(p.name, func(t *testing.T) {
			h := &pairs{opened: make(chan struct{}, 1)}
			c := roundRig(t, p, h)
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

// TestQuickCallsAreServedInTurn: those that arrive together are served by one goroutine, and every
// one of them is answered.
func TestQuickCallsAreServedInTurn(t *testing.T) {
	for _, p := range append(simProviders(), tcpProvider()) {
		t.Run(p.name, func(t *testing.T) {
			h := &pairs{}
			c := roundRig(t, p, h)
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
			// Another goroutine may poll while one serves, if that takes long.
			if most := h.most.Load(); most > 4 {
				t.Errorf("%d were served at once", most)
			}
		})
	}
}
