package provider

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// queue is a completion queue as small as one can be.
type queue struct {
	Completions
}

func (q *queue) Poll(dst []fabric.Completion) int {
	n := q.Take(dst)
	for i := range dst[:n] {
		dst[i].EP.(*end).Polled(dst[i].Op)
	}
	return n
}

func (q *queue) Wake() {}

func (q *queue) Wait(context.Context, []fabric.Completion) (int, error) { return 0, nil }

func (q *queue) Close() error {
	q.Shut()
	return nil
}

// end is an endpoint that moves nothing.
type end struct {
	Endpoint
	q     *queue
	reqs  SendQueue[int]
	recvs RecvQueue
}

func (e *end) Post(wrs []fabric.WR) error {
	if err := CheckPost[*Region[*end]](&e.Endpoint, wrs); err != nil {
		return err
	}
	if err := e.MaySend(len(wrs)); err != nil {
		return err
	}
	e.HoldSends(len(wrs))
	for i := range wrs {
		e.reqs.Posted.Push(e.reqs.New(&wrs[i]))
	}
	return nil
}

func (e *end) PostRecv(recvs []fabric.Recv) error {
	if err := CheckRecv[*Region[*end]](&e.Endpoint, recvs); err != nil {
		return err
	}
	_, err := e.recvs.Post(&e.Endpoint, recvs)
	return err
}

func (e *end) complete(w *Request[int]) {
	if c, told := e.reqs.Complete(&e.Endpoint, w); told {
		c.EP = e
		e.q.Push(&c, false)
	}
}

func (e *end) failRecv(r *fabric.Recv) {
	e.q.Push(&fabric.Completion{
		Op: fabric.OpRecv, Context: r.Context, EP: e, Err: e.Cause(),
	}, false)
}

func (e *end) Die(kind errs.Kind, why string) {
	if !e.End(kind, why) {
		return
	}
	e.recvs.Die()
	e.reqs.Flush(e.Cause(), e.complete)
	e.recvs.Flush(e.failRecv)
	e.Finished()
}

func (e *end) Close() error {
	e.Die(errs.Closed, "closed by this side")
	e.AwaitEnd()
	return nil
}

const testDepth = 4

// rig is a domain with a queue.
type rig struct {
	Domain
	t      *testing.T
	q      *queue
	grants Grants[*end]
}

func newRig(t *testing.T, depth int) *rig {
	t.Helper()
	r := &rig{t: t, q: &queue{}}
	r.Domain.Open(fabric.Caps{
		Provider: "test", AnyMemory: true, MaxSge: 4, MaxMessage: 1 << 10, MaxTransfer: 1 << 20,
		MaxInline: 64, QueueDepth: 64, ReadDepth: ReadDepth,
	})
	r.q.Open(&r.Domain, fabric.CQOptions{Depth: depth})
	r.grants.Open()
	t.Cleanup(func() { _ = r.Domain.Close() })
	return r
}

func (r *rig) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{
		SendCQ: r.q, RecvCQ: r.q, SendDepth: testDepth, RecvDepth: testDepth,
	}
}

// end makes an endpoint whose places are reserved.
func (r *rig) end() *end {
	r.t.Helper()
	cfg := r.config()
	fatal(r.t, r.Reserve(&cfg))
	return r.made(cfg)
}

func (r *rig) made(cfg fabric.EndpointConfig) *end {
	r.t.Helper()
	e := &end{q: r.q}
	e.Open(&r.Domain, "test end", cfg, fabric.Peer{Hello: fabric.Hello{MaxMessage: 1 << 10}})
	e.reqs.Open(cfg.SendDepth)
	e.recvs.Open(cfg.RecvDepth)
	fatal(r.t, r.Adopt(&e.Endpoint, e, 0))
	return e
}

func (r *rig) region(mem []byte) *Region[*end] {
	reg := &Region[*end]{}
	r.grants.Register(reg, &r.Domain, mem)
	return reg
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants checks the kind of an error.
func wants(t testing.TB, err error, kind errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != kind {
		t.Fatalf("got %v, want %v", err, kind)
	}
}

// soon waits until it is so.
func soon(t testing.TB, so func() bool) {
	t.Helper()
	for start := time.Now(); !so(); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatal("it never happened")
		}
	}
}
