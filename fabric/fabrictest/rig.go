package fabrictest

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// patience bounds every wait of the suite.
const patience = 10 * time.Second

// depth is the send and receive depth of a rig's endpoints.
const depth = 64

// side is one end of a rig: a domain with a queue, an endpoint and some registered memory.
type side struct {
	t    testing.TB
	cfg  Config
	dom  fabric.Domain
	cq   fabric.CQ
	ep   fabric.Endpoint
	mem  []byte
	reg  fabric.Region
	seen []fabric.Completion // polled while waiting for something else
}

// rig is two connected sides; a dialled b.
type rig struct {
	t      testing.TB
	a, b   *side
	listen fabric.Listener
}

// memBytes is the size of each side's memory; the first half is for messages.
const memBytes = 1 << 20

func newSide(t testing.TB, cfg Config, cqDepth int) (*side, func() string) {
	t.Helper()
	dom, addr := cfg.Open(t)
	s := &side{t: t, cfg: cfg, dom: dom, mem: make([]byte, memBytes)}
	var err error
	s.cq, err = dom.NewCQ(fabric.CQOptions{Depth: cqDepth})
	check(t, err)
	s.reg, err = dom.Register(s.mem)
	check(t, err)
	t.Cleanup(func() {
		check(t, dom.Close())
		check(t, s.cq.Close())
	})
	return s, addr
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t}
	var addr func() string
	r.a, _ = newSide(t, cfg, 8*depth)
	r.b, addr = newSide(t, cfg, 8*depth)
	var err error
	r.listen, err = r.b.dom.Connector().Listen(addr())
	check(t, err)
	r.a.ep, r.b.ep = r.connect(r.a.config(), r.b.config())
	return r
}

func (s *side) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{SendCQ: s.cq, RecvCQ: s.cq, SendDepth: depth, RecvDepth: depth}
}

// connect makes one more connection between the sides.
func (r *rig) connect(a, b fabric.EndpointConfig) (fabric.Endpoint, fabric.Endpoint) {
	r.t.Helper()
	epA, epB, errA, errB := r.tryConnect(a, b)
	check(r.t, errA)
	check(r.t, errB)
	return epA, epB
}

func (r *rig) tryConnect(a, b fabric.EndpointConfig) (
	epA, epB fabric.Endpoint, errA, errB error,
) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		epB, errB = r.listen.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return b, nil
		})
	}()
	epA, errA = r.a.dom.Connector().Dial(ctx, r.listen.Addr().String(), a)
	if errA != nil {
		cancel() // the listener may never have heard of it
	}
	<-done
	return epA, epB, errA, errB
}

// check fails the test on an error that must not be.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantKind fails the test unless err has the kind.
func wantKind(t testing.TB, err error, want errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != want {
		t.Fatalf("got error %v (%v), want %v", err, errs.KindOf(err), want)
	}
}

func (s *side) post(wrs ...fabric.WR) {
	s.t.Helper()
	check(s.t, s.ep.Post(wrs))
}

// recv posts a receive of size bytes and returns its memory.
func (s *side) recv(context uint64, size int) []byte {
	s.t.Helper()
	buf := s.piece(int(context)*4096%(memBytes/2), size)
	check(s.t, s.ep.PostRecv([]fabric.Recv{{Context: context, Reg: s.reg, Buf: buf}}))
	return buf
}

// piece is a part of the side's registered memory.
func (s *side) piece(off, size int) []byte { return s.mem[off : off+size : off+size] }

// sge is a gather list of one piece of registered memory that holds data.
func (s *side) sge(off int, data string) []fabric.Sge {
	return []fabric.Sge{{Reg: s.reg, Buf: append(s.piece(off, len(data))[:0], data...)}}
}

// send is a signalled Send of data, out of registered memory at off in the second half.
func (s *side) send(context uint64, data string) fabric.WR {
	off := memBytes/2 + int(context)*1024%(memBytes/2)
	return fabric.WR{
		Op: fabric.OpSend, Flags: fabric.FlagSignaled, Context: context, Local: s.sge(off, data),
	}
}

// grant opens length bytes at off to the peer.
func (s *side) grant(off, length int, rights fabric.Rights) fabric.Remote {
	s.t.Helper()
	rem, err := s.reg.Grant(s.ep, off, length, rights)
	check(s.t, err)
	return rem
}

// waitFor waits for the first completion that fits and keeps the others for later calls.
func (s *side) waitFor(what string, fits func(fabric.Completion) bool) fabric.Completion {
	s.t.Helper()
	for i, c := range s.seen {
		if fits(c) {
			s.seen = append(s.seen[:i:i], s.seen[i+1:]...)
			return c
		}
	}
	ctx := context.Background()
	if !s.cfg.Endless {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	for {
		var dst [1]fabric.Completion
		_, err := s.cq.Wait(ctx, dst[:])
		if err != nil {
			s.t.Fatalf("waiting for %s: %v; seen %v", what, err, s.seen)
		}
		if fits(dst[0]) {
			return dst[0]
		}
		s.seen = append(s.seen, dst[0])
	}
}

// waitSend waits for the next completion of a posted request.
func (s *side) waitSend() fabric.Completion {
	s.t.Helper()
	return s.waitFor("a request", func(c fabric.Completion) bool { return c.Op != fabric.OpRecv })
}

// waitRecv waits for the next completion of a receive.
func (s *side) waitRecv() fabric.Completion {
	s.t.Helper()
	return s.waitFor("a receive", func(c fabric.Completion) bool { return c.Op == fabric.OpRecv })
}

// done waits for a request's completion and checks context and kind.
func (s *side) done(context uint64, want errs.Kind) fabric.Completion {
	s.t.Helper()
	c := s.waitSend()
	if c.Context != context || c.ErrKind() != want {
		s.t.Fatalf("completion of request %d: %v, want %d: %v", c.Context, c.Err, context, want)
	}
	return c
}

// got waits for a message and checks context and length.
func (s *side) got(context uint64, size int) fabric.Completion {
	s.t.Helper()
	c := s.waitRecv()
	if c.Err != nil || c.Context != context || c.Len != size {
		s.t.Fatalf("received %+v, want context %d and %d bytes", c, context, size)
	}
	return c
}

// barrier proves that everything which a posted before has been carried out and reported.
func (r *rig) barrier() {
	r.t.Helper()
	const mark = 1 << 20
	buf := r.b.piece(memBytes-16, 16) // cases leave these alone at both sides
	check(r.t, r.b.ep.PostRecv([]fabric.Recv{{Context: mark, Reg: r.b.reg, Buf: buf}}))
	r.a.post(fabric.WR{
		Op: fabric.OpSend, Flags: fabric.FlagSignaled, Context: mark,
		Local: r.a.sge(memBytes-16, "mark"),
	})
	isMark := func(c fabric.Completion) bool { return c.Context == mark }
	for _, s := range []*side{r.a, r.b} {
		if c := s.waitFor("the barrier", isMark); c.Err != nil {
			r.t.Fatalf("barrier: %v", c.Err)
		}
	}
}

// nothing fails the test if the side saw completions that nobody waited for.
func (s *side) nothing() {
	s.t.Helper()
	var dst [8]fabric.Completion
	s.seen = append(s.seen, dst[:s.cq.Poll(dst[:])]...)
	if len(s.seen) > 0 {
		s.t.Fatalf("unexpected completions: %+v", s.seen)
	}
}

// dies waits until posting fails, and checks how.
func (s *side) dies(want errs.Kind) {
	s.t.Helper()
	var err error
	for start := time.Now(); time.Since(start) < patience; time.Sleep(time.Millisecond) {
		var dst [8]fabric.Completion
		s.seen = append(s.seen, dst[:s.cq.Poll(dst[:])]...)
		if err = s.ep.Post(nil); err != nil {
			break
		}
	}
	wantKind(s.t, err, want)
}
