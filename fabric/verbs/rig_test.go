//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

const (
	patience = 20 * time.Second
	depth    = 128
	arena    = 4 << 20
)

// side is one end: a domain, a queue, and memory from outside the Go heap.
type side struct {
	t   testing.TB
	dom fabric.Domain
	cq  fabric.CQ
	ep  fabric.Endpoint
	reg fabric.Region
	mem []byte
	dst []fabric.Completion
	got []fabric.Completion // polled and not asked for yet
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSide(t testing.TB, opts Options, cq fabric.CQOptions) *side {
	t.Helper()
	s := &side{t: t, dst: make([]fabric.Completion, 4*depth)}
	var err error
	s.dom, err = Open(opts)
	fatal(t, err)
	s.mem, err = syscall.Mmap(-1, 0, arena, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	fatal(t, err)
	cq.Depth = 16 * depth
	s.cq, err = s.dom.NewCQ(cq)
	fatal(t, err)
	s.reg, err = s.dom.Register(s.mem)
	fatal(t, err)
	t.Cleanup(func() {
		fatal(t, s.dom.Close())
		fatal(t, s.cq.Close())
		fatal(t, syscall.Munmap(s.mem))
	})
	return s
}

func (s *side) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{SendCQ: s.cq, RecvCQ: s.cq, SendDepth: depth, RecvDepth: depth}
}

// rig is two sides and a listener of the second.
type rig struct {
	t    testing.TB
	a, b *side
	l    fabric.Listener
}

func newRig(t testing.TB, opts Options) *rig {
	t.Helper()
	return newRigWith(t, opts, fabric.CQOptions{})
}

// newRigWith makes a rig whose queues work as cq says; its depth is filled in.
func newRigWith(t testing.TB, opts Options, cq fabric.CQOptions) *rig {
	t.Helper()
	addr := address(t)
	if _, ok := t.(*testing.T); ok {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() {
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
		})
	}
	r := &rig{t: t, a: newSide(t, opts, cq), b: newSide(t, opts, cq)}
	var err error
	r.l, err = r.b.dom.Connector().Listen(net.JoinHostPort(addr, "0"))
	fatal(t, err)
	r.a.ep, r.b.ep = r.connect()
	return r
}

func (r *rig) connect() (a, b fabric.Endpoint) {
	r.t.Helper()
	return r.connectTo(r.l.Addr().String())
}

func (r *rig) connectTo(addr string) (a, b fabric.Endpoint) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var err error
		b, err = r.l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return r.b.config(), nil
		})
		done <- err
	}()
	a, err := r.a.dom.Connector().Dial(ctx, addr, r.a.config())
	fatal(r.t, err)
	fatal(r.t, <-done)
	return a, b
}

// reconnect replaces a dead connection.
func (r *rig) reconnect() {
	r.t.Helper()
	fatal(r.t, r.a.ep.Close())
	fatal(r.t, r.b.ep.Close())
	for _, s := range []*side{r.a, r.b} {
		s.cq.Poll(s.dst)
		s.got = nil
	}
	r.a.ep, r.b.ep = r.connect()
}

// next waits for a completion that fits and keeps the others.
func (s *side) next(what string, fits func(*fabric.Completion) bool) fabric.Completion {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		for i, c := range s.got {
			if fits(&c) {
				s.got = append(s.got[:i:i], s.got[i+1:]...)
				return c
			}
		}
		n, err := s.cq.Wait(ctx, s.dst)
		if err != nil {
			s.t.Fatalf("waiting for %s: %v; there is %+v", what, err, s.got)
		}
		s.got = append(s.got, s.dst[:n]...)
	}
}

func (s *side) nextSend(context uint64) fabric.Completion {
	s.t.Helper()
	return s.next("a request", func(c *fabric.Completion) bool {
		return c.Op != fabric.OpRecv && c.Context == context
	})
}

// wants fails the test unless a completion has the kind.
func wants(t testing.TB, c fabric.Completion, kind errs.Kind) {
	t.Helper()
	if c.ErrKind() != kind {
		t.Fatalf("completion %+v, want %v", c, kind)
	}
}

func (s *side) grant(off, length int, rights fabric.Rights) fabric.Remote {
	s.t.Helper()
	rem, err := s.reg.Grant(s.ep, off, length, rights)
	fatal(s.t, err)
	return rem
}

// wr is a signalled request on this side's memory at off.
func (s *side) wr(op fabric.Op, context uint64, off int, rem fabric.Remote) fabric.WR {
	return fabric.WR{
		Op: op, Flags: fabric.FlagSignaled, Context: context, Remote: rem,
		Local: []fabric.Sge{{Reg: s.reg, Buf: s.mem[off : off+int(rem.Len)]}},
	}
}
