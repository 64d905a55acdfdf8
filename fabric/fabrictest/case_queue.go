package fabrictest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func queueCases() []testCase {
	return []testCase{
		{"poll does not block", testPoll},
		{"wait ends with its context", testWaitContext},
		{"wait wakes", testWaitWakes},
		{"wake calls a waiter back", testWake},
		{"queue close wakes waiters", testQueueClose},
		{"each completion once", testOnce},
		{"sum of depths", testSumOfDepths},
		{"send queue full", testSendFull},
		{"receive queue full", testRecvFull},
		{"chains are all or none", testAllOrNone},
	}
}

func testPoll(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	var dst [4]fabric.Completion
	if n := r.a.cq.Poll(dst[:]); n != 0 {
		t.Fatalf("%d completions out of nothing", n)
	}
	for i := range uint64(6) {
		r.b.recv(i, 8)
	}
	for i := range uint64(6) {
		r.a.post(r.a.send(i, "x"))
	}
	var all []fabric.Completion
	for start := time.Now(); len(all) < 6 && time.Since(start) < cfg.Patience; {
		n := r.a.cq.Poll(dst[:])
		all = append(all, dst[:n]...)
	}
	if len(all) != 6 {
		t.Fatalf("polled %d of 6 completions", len(all))
	}
	for i, c := range all {
		if c.Context != uint64(i) {
			t.Fatalf("completion %d is of request %d", i, c.Context)
		}
	}
}

func testWaitContext(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	var dst [4]fabric.Completion
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if n, err := r.a.cq.Wait(ctx, dst[:]); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%d completions, error %v", n, err)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.a.cq.Wait(canceled, dst[:]); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	// What is there is handed out even then, or kept: it is not lost.
	r.b.recv(1, 8)
	r.a.post(r.a.send(1, "x"))
	r.b.got(1, 1)
	if n, _ := r.a.cq.Wait(canceled, dst[:]); n == 0 {
		r.a.done(1, errs.OK)
	}
}

func testWaitWakes(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for i := range uint64(20) {
		r.b.recv(i, 8)
		woken := make(chan fabric.Completion, 1)
		go func() { woken <- r.b.waitRecv() }()
		if i%4 == 0 {
			time.Sleep(2 * time.Millisecond) // let it fall asleep
		}
		r.a.post(r.a.send(i, "up"))
		if c := <-woken; c.Context != i {
			t.Fatalf("completion %+v", c)
		}
		r.a.done(i, errs.OK)
	}
}

// testWake calls back a waiter that sleeps without a context, then one that is still to come, and
// shows that the queue works afterwards.
func testWake(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	var dst [4]fabric.Completion
	back := make(chan error, 1)
	go func() {
		n, err := r.a.cq.Wait(context.Background(), dst[:])
		if err == nil && n != 0 {
			err = errs.Newf(errs.IO, "Wait", "", "%d completions out of nothing", n)
		}
		back <- err
	}()
	time.Sleep(10 * time.Millisecond)
	r.a.cq.Wake()
	select {
	case err := <-back:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(cfg.Patience):
		t.Fatal("Wake did not call the waiter back")
	}
	r.a.cq.Wake()
	if n, err := r.a.cq.Wait(context.Background(), dst[:]); n != 0 || err != nil {
		t.Fatalf("called before it waited: %d completions, %v", n, err)
	}
	r.b.recv(1, 8)
	r.a.post(r.a.send(7, "x"))
	if n, err := r.a.cq.Wait(context.Background(), dst[:]); n != 1 || err != nil {
		t.Fatalf("after Wake: %d completions, %v", n, err)
	}
}

func testQueueClose(t *testing.T, cfg Config) {
	dom, _ := cfg.Open(t)
	s := newSide(t, cfg, dom, fabric.CQOptions{Depth: 16})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var dst [1]fabric.Completion
			_, err := s.cq.Wait(context.Background(), dst[:])
			if errs.KindOf(err) != errs.Closed {
				t.Errorf("a waiter got %v", err)
			}
		})
	}
	time.Sleep(2 * time.Millisecond)
	check(t, s.cq.Close())
	wg.Wait()
	var dst [1]fabric.Completion
	_, err := s.cq.Wait(context.Background(), dst[:])
	wantKind(t, err, errs.Closed)
}

func testOnce(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const count = 200
	ctx, cancel := cfg.limit()
	defer cancel()
	var mu sync.Mutex
	times := map[uint64]int{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dst := make([]fabric.Completion, 3)
			for {
				n, err := r.b.cq.Wait(ctx, dst)
				mu.Lock()
				for _, c := range dst[:n] {
					times[c.Context]++
				}
				full := len(times) >= count
				mu.Unlock()
				if full {
					cancel()
				}
				if err != nil {
					return
				}
			}
		})
	}
	for i := range uint64(count) {
		post := func() error {
			buf := r.b.piece(int(i)*64, 8)
			return r.b.ep.PostRecv([]fabric.Recv{{Context: i, Reg: r.b.reg, Buf: buf}})
		}
		for errs.KindOf(post()) == errs.Again {
			time.Sleep(100 * time.Microsecond)
		}
		r.a.post(r.a.send(i, "once"))
		r.a.done(i, errs.OK)
	}
	wg.Wait()
	for i := range uint64(count) {
		if times[i] != 1 {
			t.Errorf("completion %d was handed out %d times", i, times[i])
		}
	}
}

func testSumOfDepths(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	q, err := r.a.dom.NewCQ(fabric.CQOptions{Depth: 20})
	check(t, err)
	defer q.Close()
	small := fabric.EndpointConfig{SendCQ: q, RecvCQ: q, SendDepth: 8, RecvDepth: 4}
	ep, _ := r.connect(small, r.b.config())
	ctx, cancel := cfg.limit()
	defer cancel()
	_, err = r.a.dom.Connector().Dial(ctx, r.listen.Addr().String(), small)
	wantKind(t, err, errs.Invalid)
	small.SendDepth = 4
	second, _ := r.connect(small, r.b.config())
	check(t, second.Close())
	// A closed endpoint gives its places back, once its last completion has been polled.
	check(t, ep.PostRecv([]fabric.Recv{{Context: 1, Reg: r.a.reg, Buf: r.a.piece(0, 8)}}))
	check(t, ep.Close())
	small.SendDepth, small.RecvDepth = 10, 10
	_, err = r.a.dom.Connector().Dial(ctx, r.listen.Addr().String(), small)
	wantKind(t, err, errs.Invalid)
	var dst [4]fabric.Completion
	if n := q.Poll(dst[:]); n != 1 || dst[0].ErrKind() != errs.Closed {
		t.Fatalf("%d completions, %+v", n, dst[0])
	}
	third, _ := r.connect(small, r.b.config())
	check(t, third.Close())
}

func testSendFull(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for i := range uint64(depth) {
		r.b.recv(i, 8)
	}
	for i := range uint64(depth) {
		r.a.post(r.a.send(i, "x"))
	}
	for i := range uint64(depth) {
		r.b.got(i, 1)
	}
	one := []fabric.WR{r.a.send(77, "y")}
	wantKind(t, r.a.ep.Post(one), errs.Again) // nothing was polled at a
	r.a.done(0, errs.OK)
	r.b.recv(0, 8)
	check(t, r.a.ep.Post(one))
	for i := range uint64(depth - 1) {
		r.a.done(i+1, errs.OK)
	}
	r.a.done(77, errs.OK)
	r.b.got(0, 1)
}

func testRecvFull(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for i := range uint64(depth) {
		r.b.recv(i, 8)
	}
	one := []fabric.Recv{{Context: 99, Reg: r.b.reg, Buf: r.b.piece(0, 8)}}
	wantKind(t, r.b.ep.PostRecv(one), errs.Again)
	r.a.post(r.a.send(1, "x"))
	r.b.got(0, 1)
	check(t, r.b.ep.PostRecv(one))
	wantKind(t, r.b.ep.PostRecv(one), errs.Again)
}

func testAllOrNone(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for i := range uint64(8) {
		r.b.recv(i, 8)
	}
	good := r.a.send(1, "x")
	bad := good
	bad.Op = fabric.OpRead + 1
	wantKind(t, r.a.ep.Post([]fabric.WR{good, good, bad}), errs.Invalid)
	long := make([]fabric.WR, depth+1)
	for i := range long {
		long[i] = good
	}
	wantKind(t, r.a.ep.Post(long), errs.Again)
	recvs := make([]fabric.Recv, depth) // eight are posted already
	wantKind(t, r.b.ep.PostRecv(recvs), errs.Again)
	r.a.post(r.a.send(2, "only"))
	r.b.got(0, 4)
	r.a.done(2, errs.OK)
	r.a.nothing()
	r.b.nothing()
}
