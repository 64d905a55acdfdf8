package fabrictest

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

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
	cfg    Config
	a, b   *side
	listen fabric.Listener
}

// memBytes is the size of each side's memory; the first half is for messages.
const memBytes = 1 << 20

// newSide makes a side of an open domain, which is closed at the end.
func newSide(t testing.TB, cfg Config, dom fabric.Domain, opts fabric.CQOptions) *side {
	t.Helper()
	s := &side{t: t, cfg: cfg, dom: dom}
	s.mem = memory(t, dom, memBytes)
	t.Cleanup(func() { check(t, dom.Close()) }) // before the memory goes
	var err error
	s.cq, err = dom.NewCQ(opts)
	check(t, err)
	s.reg, err = dom.Register(s.mem)
	check(t, err)
	t.Cleanup(func() {
		check(t, dom.Close())
		check(t, s.cq.Close())
	})
	return s
}

// memory is what the domain can register, until the test ends. Where that is not any memory it
// comes from outside of the Go heap.
func memory(t testing.TB, dom fabric.Domain, size int) []byte {
	t.Helper()
	mem, free, err := allocate(dom, size)
	check(t, err)
	t.Cleanup(func() { check(t, free()) })
	return mem
}

func allocate(dom fabric.Domain, size int) (mem []byte, free func() error, err error) {
	if dom.Caps().AnyMemory {
		return make([]byte, size), func() error { return nil }, nil
	}
	mem, err = syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	return mem, func() error { return syscall.Munmap(mem) }, err
}

// newPair makes two sides that are not connected, and a listener at b.
func newPair(t testing.TB, cfg Config, opts fabric.CQOptions) *rig {
	t.Helper()
	a, _ := cfg.Open(t)
	b, addr := cfg.Open(t)
	return pairOf(t, cfg, opts, a, b, addr())
}

func pairOf(
	t testing.TB, cfg Config, opts fabric.CQOptions, a, b fabric.Domain, addr string,
) *rig {
	t.Helper()
	cfg = cfg.withDefaults()
	r := &rig{t: t, cfg: cfg, a: newSide(t, cfg, a, opts), b: newSide(t, cfg, b, opts)}
	var err error
	r.listen, err = b.Connector().Listen(addr)
	check(t, err)
	return r
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	return newRigWith(t, cfg, fabric.CQOptions{})
}

// newRigWith makes a rig whose queues work as opts say; its depth is filled in.
func newRigWith(t testing.TB, cfg Config, opts fabric.CQOptions) *rig {
	t.Helper()
	opts.Depth = 8 * depth
	r := newPair(t, cfg, opts)
	r.a.ep, r.b.ep = r.connect(r.a.config(), r.b.config())
	return r
}

// reconnect replaces the rig's connection by a fresh one and forgets what is left of the old one.
func (r *rig) reconnect() {
	r.t.Helper()
	check(r.t, r.a.ep.Close())
	check(r.t, r.b.ep.Close())
	for _, s := range []*side{r.a, r.b} {
		var dst [2 * depth]fabric.Completion
		s.cq.Poll(dst[:])
		s.seen = nil
	}
	r.a.ep, r.b.ep = r.connect(r.a.config(), r.b.config())
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
	ctx, cancel := r.cfg.limit()
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		epB, errB = r.listen.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return b, nil
		})
	}()
	epA, errA = r.a.dom.Connector().Dial(ctx, r.listen.Addr().String(), a)
	if errA == nil {
		<-done
		return epA, epB, errA, errB
	}
	select {
	case <-done:
	case <-time.After(min(r.cfg.Patience/10, time.Second)): // the listener may never have heard of it
		cancel()
		<-done
	}
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
		ctx, cancel = s.cfg.limit()
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
	for start := time.Now(); time.Since(start) < s.cfg.Patience; time.Sleep(time.Millisecond) {
		var dst [8]fabric.Completion
		s.seen = append(s.seen, dst[:s.cq.Poll(dst[:])]...)
		if err = s.ep.Post(nil); err != nil {
			break
		}
	}
	wantKind(s.t, err, want)
}
