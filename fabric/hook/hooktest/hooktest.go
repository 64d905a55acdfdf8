// Package hooktest is what the tests of the hooks share: a provider's configuration for package
// fabrictest with a hook around it, and two connected ends over any two domains. What a hook must
// keep of the contract is tested by package fabrictest; the ends are for what a hook changes.
//
// Read this file first; there is no other.
package hooktest

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// Wrap is a hook as the tests open it.
type Wrap func(t testing.TB, inner fabric.Domain) fabric.Domain

// Over gives a provider's configuration with a hook around every domain.
func Over(
	wrap Wrap, addr string, open func(t testing.TB, tokens *fabric.Tokens) fabric.Domain,
) fabrictest.Config {
	next := func() string { return addr }
	return fabrictest.Config{
		Open: func(t testing.TB) (fabric.Domain, func() string) {
			return wrap(t, open(t, nil)), next
		},
		OpenTokens: func(t testing.TB, tokens *fabric.Tokens) (fabric.Domain, func() string) {
			return wrap(t, open(t, tokens)), next
		},
	}
}

// Patience bounds every wait.
const Patience = time.Minute

// Depth is the send and receive depth of every endpoint, MemBytes the memory of an End.
const (
	Depth    = 64
	MemBytes = 1 << 20
)

// End is one end of a connection with a queue and registered memory of its own.
type End struct {
	t   testing.TB
	Dom fabric.Domain
	CQ  fabric.CQ
	EP  fabric.Endpoint
	Reg fabric.Region
	Mem []byte
}

// Config is that of an End's endpoint.
func (e *End) Config() fabric.EndpointConfig {
	return fabric.EndpointConfig{SendCQ: e.CQ, RecvCQ: e.CQ, SendDepth: Depth, RecvDepth: Depth}
}

// NewEnd makes an end without a connection. Its domain is closed with the test.
func NewEnd(t testing.TB, dom fabric.Domain, opts fabric.CQOptions) *End {
	t.Helper()
	if opts.Depth == 0 {
		opts.Depth = 8 * Depth
	}
	e := &End{t: t, Dom: dom, Mem: make([]byte, MemBytes)}
	var err error
	e.CQ, err = dom.NewCQ(opts)
	Check(t, err)
	e.Reg, err = dom.Register(e.Mem)
	Check(t, err)
	t.Cleanup(func() {
		Check(t, dom.Close())
		Check(t, e.CQ.Close())
	})
	return e
}

// Pair connects two domains: the first dials, the second listens at addr.
func Pair(t testing.TB, a, b fabric.Domain, addr string) (*End, *End) {
	t.Helper()
	x, y := NewEnd(t, a, fabric.CQOptions{}), NewEnd(t, b, fabric.CQOptions{})
	l, err := b.Connector().Listen(addr)
	Check(t, err)
	Connect(t, x, y, l)
	Check(t, l.Close())
	return x, y
}

// Connect gives two ends a connection through a listener of the second one's domain.
func Connect(t testing.TB, a, b *End, l fabric.Listener) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var err error
		b.EP, err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return b.Config(), nil
		})
		done <- err
	}()
	var err error
	a.EP, err = a.Dom.Connector().Dial(ctx, l.Addr().String(), a.Config())
	Check(t, err)
	Check(t, <-done)
}

// Check fails the test on an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Piece is a gather list of size bytes of the end's memory at off.
func (e *End) Piece(off, size int) []fabric.Sge {
	return []fabric.Sge{{Reg: e.Reg, Buf: e.Mem[off : off+size]}}
}

// Send is a signalled Send of size bytes.
func (e *End) Send(context uint64, size int) fabric.WR {
	return fabric.WR{
		Op: fabric.OpSend, Flags: fabric.FlagSignaled, Context: context, Local: e.Piece(0, size),
	}
}

// Move is a signalled Write or Read of the whole remote memory.
func (e *End) Move(op fabric.Op, context uint64, rem fabric.Remote) fabric.WR {
	return fabric.WR{
		Op: op, Flags: fabric.FlagSignaled, Context: context, Remote: rem,
		Local: e.Piece(0, int(rem.Len)),
	}
}

// Post posts a chain, which must be taken.
func (e *End) Post(wrs ...fabric.WR) {
	e.t.Helper()
	Check(e.t, e.EP.Post(wrs))
}

// Recv posts a receive of size bytes in the second half of the memory.
func (e *End) Recv(context uint64, size int) {
	e.t.Helper()
	buf := e.Mem[MemBytes/2 : MemBytes/2+size]
	Check(e.t, e.EP.PostRecv([]fabric.Recv{{Context: context, Reg: e.Reg, Buf: buf}}))
}

// Grant opens memory to the peer for everything.
func (e *End) Grant(off, size int) fabric.Remote {
	e.t.Helper()
	rem, err := e.Reg.Grant(e.EP, off, size, fabric.RemoteRead|fabric.RemoteWrite)
	Check(e.t, err)
	return rem
}

// Next waits for that many completions.
func (e *End) Next(count int) []fabric.Completion {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	all := make([]fabric.Completion, count)
	for got := 0; got < count; {
		n, err := e.CQ.Wait(ctx, all[got:])
		if err != nil {
			e.t.Fatalf("%d of %d completions, then: %v", got, count, err)
		}
		got += n
	}
	return all
}

// Empty fails the test if there is one more completion.
func (e *End) Empty() {
	e.t.Helper()
	var dst [1]fabric.Completion
	if e.CQ.Poll(dst[:]) != 0 {
		e.t.Fatalf("nobody waits for %+v", dst[0])
	}
}
