package msg

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a client and a server with a connection between them.
type rig struct {
	net            *sim.Net // nil on other providers
	cdom, sdom     fabric.Domain
	client, server *Node
	srv            *Server
	conn           *Conn
}

// provider opens two domains that can reach each other.
type provider struct {
	name string
	open func(t testing.TB, seed uint64) (net *sim.Net, client, server fabric.Domain)
	addr string
}

// emulated tells whether the provider's device is, or may be, one of an emulated machine.
func (p *provider) emulated() bool { return strings.HasPrefix(p.name, "verbs") }

// some is how many of n requests a test makes: emulated devices are slow.
func (p *provider) some(n int) int {
	if p.emulated() {
		return max(n/5, 1)
	}
	return n
}

func simProvider(name string, opts sim.Options) provider {
	return provider{name: name, addr: "server", open: func(_ testing.TB, seed uint64) (
		*sim.Net, fabric.Domain, fabric.Domain,
	) {
		opts.Seed = seed
		net := sim.New(opts)
		return net, net.Open(), net.Open()
	}}
}

func simProviders() []provider {
	return []provider{
		simProvider("sim", sim.Options{}),
		simProvider("sim-delays", sim.Options{MaxDelay: 20}),
		simProvider("sim-narrow", sim.Options{MaxDelay: 5, RegionsOnly: true, Limits: fabric.Caps{
			MaxSge: 2, MaxTransfer: 1000, MaxInline: 80, ReadDepth: 2,
		}}),
	}
}

func tcpProvider() provider {
	return provider{name: "tcp", addr: "127.0.0.1:0", open: func(t testing.TB, _ uint64) (
		*sim.Net, fabric.Domain, fabric.Domain,
	) {
		var doms [2]fabric.Domain
		for i := range doms {
			d, err := tcp.Open(tcp.Options{Linger: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			doms[i] = d
		}
		return nil, doms[0], doms[1]
	}}
}

func providers() []provider { return and(simProviders()...) }

func seedOf(t testing.TB) uint64 {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return seed
}

// newRig connects a client to a server that answers with h.
func newRig(t testing.TB, p provider, h Handler, tweak func(client, server *Options)) *rig {
	t.Helper()
	return newRigFor(t, p, func(fabric.Domain) Handler { return h }, tweak)
}

// newRigFor is newRig for a handler that needs the server's domain.
func newRigFor(t testing.TB, p provider, h func(fabric.Domain) Handler,
	tweak func(client, server *Options),
) *rig {
	t.Helper()
	r := &rig{}
	r.net, r.cdom, r.sdom = p.open(t, seedOf(t))
	copts, sopts := Options{Domain: r.cdom, Identity: 7}, Options{Domain: r.sdom}
	if p.emulated() {
		copts.CancelGrace = 20 * time.Second // else a slow server loses the connection
	}
	if testing.Verbose() {
		sopts.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	if tweak != nil {
		tweak(&copts, &sopts)
	}
	var err error
	if r.client, err = NewNode(copts); err != nil {
		t.Fatal(err)
	}
	if r.server, err = NewNode(sopts); err != nil {
		t.Fatal(err)
	}
	if r.srv, err = r.server.Serve(p.addr, h(r.sdom), ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	r.conn = r.dial(t)
	return r
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

func (r *rig) dial(t testing.TB) *Conn {
	t.Helper()
	c, err := r.client.Dial(context.Background(), r.srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *rig) close() {
	_ = r.client.Close()
	_ = r.server.Close()
	_ = r.cdom.Close()
	_ = r.sdom.Close()
}

// memory is registered memory for a test, which ends with it.
func memory(t testing.TB, d fabric.Domain, n int) fabric.Sge {
	t.Helper()
	a, err := mem.NewArena(max(n, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Attach(d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return fabric.Sge{Reg: a.Region(), Buf: a.Bytes()[:n:n]}
}

func contig(s fabric.Sge) *Memory {
	return &Memory{Windows: []fabric.Sge{s}, Access: seg.Contig(0, int64(len(s.Buf)))}
}

// pattern fills b with bytes that tell where they belong.
func pattern(b []byte, salt uint64) {
	rng := rand.New(rand.NewPCG(salt, 1))
	for len(b) > 0 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		b = b[copy(b, word[:]):]
	}
}

// answerer answers with the body it got.
func answerer() Handler {
	return HandlerFunc(func(_ context.Context, c *Call) { _ = c.Reply(c.Body(), 0) })
}

// echo answers with the body it got, and sends Out's data back as In.
func echo(d fabric.Domain) Handler {
	return HandlerFunc(func(ctx context.Context, c *Call) {
		n := min(c.OutLen(), c.InLen())
		a, err := mem.NewArena(int(max(n, 1)), nil)
		if err != nil {
			_ = c.Fail(err)
			return
		}
		defer a.Close()
		if err := a.Attach(d); err != nil {
			_ = c.Fail(err)
			return
		}
		whole := fabric.Sge{Reg: a.Region(), Buf: a.Bytes()[:n]}
		if err := c.Pull(ctx, 0, []fabric.Sge{whole}); err != nil {
			_ = c.Fail(err)
			return
		}
		if err := c.Push(ctx, 0, []fabric.Sge{whole}); err != nil {
			_ = c.Fail(err)
			return
		}
		_ = c.Reply(c.Body(), n)
	})
}

func TestEcho(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			r := newRigFor(t, p, echo, nil)
			for _, n := range []int{0, 1, 8, 4095, 4096, 4097, 70000, 1 << 20} {
				out, in := memory(t, r.cdom, n), memory(t, r.cdom, n)
				pattern(out.Buf, uint64(n))
				var rep Reply
				body := []byte(fmt.Sprintf("body of %d", n))
				err := r.conn.Call(context.Background(),
					&Request{Op: 3, Body: body, Out: contig(out), In: contig(in)}, &rep)
				if err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				if !bytes.Equal(out.Buf, in.Buf) || rep.InLen != int64(n) ||
					!bytes.Equal(rep.Body, body) {
					t.Fatalf("%d bytes: other data came back (%d, %q)", n, rep.InLen, rep.Body)
				}
			}
		})
	}
}

func TestServerErrorsKeepKindAndText(t *testing.T) {
	r := newRig(t, simProviders()[0], HandlerFunc(func(_ context.Context, c *Call) {
		_ = c.Fail(errs.New(errs.NotFound, "meta.Lookup", "/a", nil))
	}), nil)
	var rep Reply
	err := r.conn.Call(context.Background(), &Request{}, &rep)
	if errs.KindOf(err) != errs.NotFound || rep.Status != "meta.Lookup /a: not found" {
		t.Fatalf("%v, status %q", err, rep.Status)
	}
}
