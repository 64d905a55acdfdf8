package msg

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/wait"
)

// silent is a handler of quick calls that do not say that they wait: those of operation 1 wait for
// one of operation 2 by package wait, which does for them.
type silent struct {
	opened chan struct{}
}

func (h *silent) Serve(ctx context.Context, c *Call) {
	switch c.Header().Op {
	case 1:
		if _, ok := wait.For(ctx, h.opened); !ok {
			_ = c.Fail(ctx.Err())
			return
		}
	case 2:
		h.opened <- struct{}{}
	}
	_ = c.Reply(c.Body(), 0)
}

// TestWaitsAreAnnounced: where handlers wait by package wait, one that waits neither holds up those
// of its round nor those that come while it does.
func TestWaitsAreAnnounced(t *testing.T) {
	for _, p := range append(simProviders(), tcpProvider()) {
		t.Run(p.name, func(t *testing.T) {
			h := &silent{opened: make(chan struct{}, 1)}
			r := newRig(t, p, h, nil)
			addr := "announced"
			if p.name == "tcp" {
				addr = p.addr
			}
			srv, err := r.server.Serve(addr, h, ServeOptions{Announces: true,
				QuickAt: func(_ uint16, level Level) bool { return level > 0 }})
			if err != nil {
				t.Fatal(err)
			}
			c, err := r.client.Dial(context.Background(), srv.Addr())
			if err != nil {
				t.Fatal(err)
			}
			for range p.some(500) {
				var wg sync.WaitGroup
				for _, ops := range [][]uint16{{3, 2}, {1}, {3}} {
					wg.Go(func() {
						for _, op := range ops {
							if err := call(c, 20*time.Second, &Request{Op: op, Level: 1}); err != nil {
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

// TestQuickAt: what is quick depends on the level.
func TestQuickAt(t *testing.T) {
	o := ServeOptions{Quick: func(op uint16) bool { return op == 1 },
		QuickAt: func(op uint16, level Level) bool { return op == 2 && level > 0 }}
	s := &serverConn{srv: &Server{opts: o}}
	for _, row := range []struct {
		op    uint16
		level int
		want  bool
	}{{1, 0, true}, {1, 2, true}, {2, 0, false}, {2, 1, true}, {3, 1, false}} {
		c := &Call{s: s, level: row.level}
		c.header.Op = row.op
		if c.isQuick() != row.want {
			t.Errorf("operation %d at level %d: want %v", row.op, row.level, row.want)
		}
	}
}
