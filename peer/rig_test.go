package peer

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/fault"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a client and a server on one simulated provider.
type rig struct {
	client, server *msg.Node
	faults         *fault.Domain // that the client's connections go by
	srv            *msg.Server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	net := sim.New(sim.Options{MaxDelay: 20})
	r := &rig{faults: fault.New(net.Open(), fault.Options{})}
	far := net.Open()
	r.client, r.server = newNode(t, r.faults), newNode(t, far)
	var err error
	if r.srv, err = r.server.Serve("server", answerer(), msg.ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = r.client.Close(), r.server.Close()
		_, _ = r.faults.Close(), far.Close()
	})
	return r
}

func newNode(t *testing.T, d fabric.Domain) *msg.Node {
	t.Helper()
	n, err := msg.NewNode(msg.Options{Domain: d})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// answerer answers with the body it got.
func answerer() msg.Handler {
	return msg.HandlerFunc(func(_ context.Context, c *msg.Call) { _ = c.Reply(c.Body(), 0) })
}

// mirror sends the data back that it got, through memory that every provider of the node takes.
func mirror(n *msg.Node) msg.Handler {
	return msg.HandlerFunc(func(ctx context.Context, c *msg.Call) {
		a, err := mem.NewArena(int(max(c.OutLen(), 1)), nil)
		if err == nil {
			err = n.Attach(a)
		}
		if err != nil {
			_ = c.Fail(err)
			return
		}
		defer func() {
			n.Detach(a)
			_ = a.Close()
		}()
		all := []fabric.Sge{{Buf: a.Bytes()[:c.OutLen()]}}
		if err = c.Pull(ctx, 0, all); err == nil {
			err = c.Push(ctx, 0, all)
		}
		if err != nil {
			_ = c.Fail(err)
			return
		}
		_ = c.Reply(nil, c.InLen())
	})
}

func call(c *msg.Conn, timeout time.Duration, req *msg.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.Call(ctx, req, &msg.Reply{})
}

func contig(b []byte) *msg.Memory {
	return &msg.Memory{Windows: []fabric.Sge{{Buf: b}}, Access: seg.Contig(0, int64(len(b)))}
}

func await(t testing.TB, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it does not come")
		}
	}
}
