package msg

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// What the code of this package costs: a provider that answers at once, so that nobody waits for
// anybody. What is left is the caller's or the server's own work for a small request.

// nullDomain is a provider whose peers are part of it.
type nullDomain struct {
	accepted chan<- *nullCQ // a listener's end; nil: nobody wants to know
}

func (d nullDomain) Caps() fabric.Caps {
	return fabric.Caps{
		Provider: "null", AnyMemory: true, MaxSge: 16, MaxMessage: 1 << 20, MaxTransfer: 1 << 20,
		MaxInline: 256, QueueDepth: 4096, ReadDepth: 16,
	}
}
func (d nullDomain) Register(mem []byte) (fabric.Region, error) { return nullRegion(mem), nil }
func (d nullDomain) Connector() fabric.Connector                { return nullConnector{d} }
func (d nullDomain) Close() error                               { return nil }
func (d nullDomain) NewCQ(fabric.CQOptions) (fabric.CQ, error) {
	return &nullCQ{closed: make(chan struct{})}, nil
}

type nullRegion []byte

func (r nullRegion) Bytes() []byte        { return r }
func (r nullRegion) Revoke(fabric.Remote) {}
func (r nullRegion) Close() error         { return nil }
func (r nullRegion) Grant(fabric.Endpoint, int, int, fabric.Rights) (fabric.Remote, error) {
	return fabric.Remote{}, nil
}

type nullConnector struct{ d nullDomain }

func (c nullConnector) Devices() ([]fabric.Device, error) { return nil, nil }
func (c nullConnector) Dial(_ context.Context, _ string, cfg fabric.EndpointConfig) (
	fabric.Endpoint, error,
) {
	return newNullEP(cfg, false), nil
}
func (c nullConnector) Listen(string) (fabric.Listener, error) {
	return &nullListener{d: c.d, closed: make(chan struct{})}, nil
}

// nullListener accepts one connection.
type nullListener struct {
	d      nullDomain
	once   sync.Once
	closed chan struct{}
	had    bool
}

func (l *nullListener) Addr() net.Addr { return &net.UnixAddr{Name: "null", Net: "null"} }
func (l *nullListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *nullListener) Accept(_ context.Context, cfg func(fabric.Peer) (
	fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	if l.had {
		<-l.closed
		return nil, errs.New(errs.Closed, "null", "", nil)
	}
	l.had = true
	c, err := cfg(nullPeer)
	if err != nil {
		return nil, err
	}
	e := newNullEP(c, true)
	l.d.accepted <- e.q
	return e, nil
}

var nullPeer = fabric.Peer{Hello: fabric.Hello{
	Version: fabric.HelloVersion, MaxMessage: 16 << 10, RecvDepth: 512,
}}

// nullEP answers each request that is posted, or, at a server, asks another one for each answer.
type nullEP struct {
	q      *nullCQ
	server bool
	id     atomic.Uint64 // of the request to answer, or asked last
	msg    []byte

	mu    sync.Mutex
	recvs []fabric.Recv
	taken int
}

// nullCQ hands out what its one endpoint has.
type nullCQ struct {
	ep     *nullEP
	sent   atomic.Uint64 // context of a send to complete
	left   atomic.Int64  // requests that a server's end still asks
	once   sync.Once
	closed chan struct{}
}

func newNullEP(cfg fabric.EndpointConfig, server bool) *nullEP {
	e := &nullEP{q: cfg.RecvCQ.(*nullCQ), server: server}
	h := wire.Header{Kind: wire.KindReply, Credits: 1, BodyLen: 16}
	if server {
		h = wire.Header{Kind: wire.KindRequest, Op: 7, DeadlineMs: 1000, BodyLen: 8}
	}
	e.msg = append(h.Append(nil), make([]byte, h.BodyLen)...)
	e.q.ep = e
	return e
}

func (e *nullEP) Peer() fabric.Peer { return nullPeer }
func (e *nullEP) Name() string      { return "null" }
func (e *nullEP) Close() error      { return nil }
func (e *nullEP) PostRecv(recvs []fabric.Recv) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken > len(e.recvs)/2 && len(e.recvs) > 256 {
		e.recvs = e.recvs[:copy(e.recvs, e.recvs[e.taken:])]
		e.taken = 0
	}
	e.recvs = append(e.recvs, recvs...)
	return nil
}

// Post keeps the id of a request for its answer.
func (e *nullEP) Post(wrs []fabric.WR) error {
	if wrs[0].Flags&fabric.FlagSignaled != 0 && e.server {
		e.q.sent.Store(wrs[0].Context) // one at a time: the last goodbye
	}
	if !e.server && wrs[0].Op == fabric.OpSend {
		e.id.Store(binary.BigEndian.Uint64(wrs[0].Local[0].Buf[8:]))
	}
	return nil
}

func (q *nullCQ) Poll([]fabric.Completion) int { return 0 }
func (*nullCQ) Wake()                          {}

func (q *nullCQ) Close() error { q.once.Do(func() { close(q.closed) }); return nil }

// next is the id of the next message; false when there is none.
func (q *nullCQ) next() (uint64, bool) {
	if !q.ep.server {
		id := q.ep.id.Swap(0)
		return id, id != 0
	}
	if q.left.Load() <= 0 {
		return 0, false
	}
	q.left.Add(-1)
	return q.ep.id.Add(1 << 16), true
}

func (q *nullCQ) Wait(_ context.Context, dst []fabric.Completion) (int, error) {
	e := q.ep
	if c := q.sent.Swap(0); c != 0 {
		dst[0] = fabric.Completion{Op: fabric.OpSend, Context: c, EP: e}
		return 1, nil
	}
	id, ok := q.next()
	for ; !ok; id, ok = q.next() {
		select {
		case <-q.closed:
			return 0, errs.New(errs.Closed, "null", "", nil)
		case <-time.After(time.Millisecond):
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.recvs[e.taken]
	e.taken++
	n := copy(r.Buf, e.msg)
	binary.BigEndian.PutUint64(r.Buf[8:], id)
	dst[0] = fabric.Completion{Op: fabric.OpRecv, Context: r.Context, EP: e, Len: n}
	return 1, nil
}

// BenchmarkClientPath is what a caller does for a small request.
func BenchmarkClientPath(b *testing.B) {
	n, err := NewNode(Options{Domain: nullDomain{}, Progress: ProgressPoll})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	c, err := n.Dial(b.Context(), "null")
	if err != nil {
		b.Fatal(err)
	}
	req, rep := Request{Op: 7, Body: make([]byte, 8)}, Reply{}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Call(context.Background(), &req, &rep); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkServerPath is what a server does for a small request.
func BenchmarkServerPath(b *testing.B) {
	served, all := atomic.Int64{}, make(chan struct{})
	body := make([]byte, 8)
	conns := make(chan *nullCQ, 1)
	domain := nullDomain{accepted: conns}
	n, err := NewNode(Options{Domain: domain, Progress: ProgressPoll})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	_, err = n.Serve("null", HandlerFunc(func(_ context.Context, c *Call) {
		_ = c.Reply(body, 0)
		if served.Add(1) == int64(b.N) {
			close(all)
		}
	}), ServeOptions{})
	if err != nil {
		b.Fatal(err)
	}
	q := <-conns
	b.ReportAllocs()
	b.ResetTimer()
	q.left.Store(int64(b.N))
	<-all
	b.StopTimer()
}
