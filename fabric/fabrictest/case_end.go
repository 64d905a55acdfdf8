package fabrictest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// endCases are about what completes when a connection dies with everything in flight.
func endCases() []testCase {
	return []testCase{
		{"death completes everything exactly once", testDeathOnce},
		{"death with completions not polled yet", testDeathHalfFull},
		{"death while somebody waits", testDeathWaited},
		{"domain close with waiters", testDomainCloseWaiters},
		{"close of both ends at once", testCloseBoth},
	}
}

// tally is what one side posted in one connection, and what came of it.
type tally struct {
	s     *side
	must  map[uint64]bool // posted: whether it completes in any case
	ended map[uint64]int  // completed: how often
	last  map[bool]uint64 // newest context that completed: of receives, of Sends and Writes
}

const (
	recvContexts = 1000 // contexts of receives start here
	trafficCount = 40   // requests of one side
	trafficBytes = 100000
)

// newTally posts receives for everything that the peer's traffic can send.
func newTally(s *side) *tally {
	s.t.Helper()
	y := &tally{s, map[uint64]bool{}, map[uint64]int{}, map[bool]uint64{}}
	var recvs []fabric.Recv
	for i := range uint64(trafficCount) {
		buf := s.piece(int(i)*16, 16)
		recvs = append(recvs, fabric.Recv{Context: recvContexts + i, Reg: s.reg, Buf: buf})
		y.must[recvContexts+i] = true
	}
	check(s.t, s.ep.PostRecv(recvs))
	return y
}

// traffic posts a bit of everything. The peer's memory is read in its first half and written in
// its second one.
func (y *tally) traffic(to fabric.Remote, rng *rand.Rand) {
	const into, from = memBytes / 4, memBytes/2 + 64<<10 // messages are sent from below that
	large := memBytes / 8                                // where the one large Read of this side goes
	s := y.s
	for i := range uint64(trafficCount) {
		size := []uint64{5000, trafficBytes}[rng.IntN(2)]
		wr := s.send(i, "traffic")
		switch rng.IntN(4) {
		case 0:
			if size == trafficBytes && large != 0 {
				wr = s.read(i, large, to.Slice(0, size))
				large = 0
				break
			}
			wr = s.read(i, into+int(i)*5120, to.Slice(0, 5000))
		case 1:
			wr = s.read(i, from, to.Slice(trafficBytes, size))
			wr.Op = fabric.OpWrite
		case 2:
			wr = s.read(i, from, to.Slice(trafficBytes, size))
			wr.Op = fabric.OpWriteImm
		}
		if rng.IntN(3) == 0 {
			wr.Flags &^= fabric.FlagSignaled
		}
		if s.ep.Post([]fabric.WR{wr}) == nil { // the other end may be through already
			y.must[i] = wr.Flags&fabric.FlagSignaled != 0
		}
	}
}

// add counts a completion and checks it: it was posted, comes once, in order, and may end so.
func (y *tally) add(c fabric.Completion) {
	t := y.s.t
	t.Helper()
	must, posted := y.must[c.Context]
	y.ended[c.Context]++
	isRecv := c.Op == fabric.OpRecv
	switch kind := c.ErrKind(); {
	case !posted || c.EP != y.s.ep || isRecv != (c.Context >= recvContexts):
		t.Fatalf("nobody posted %+v", c)
	case y.ended[c.Context] > 1:
		t.Fatalf("completed %d times: %+v", y.ended[c.Context], c)
	case kind != errs.OK && kind != errs.Closed && kind != errs.Disconnected:
		t.Fatalf("ended with %+v", c)
	case kind == errs.OK && !must:
		t.Fatalf("nobody asked for %+v", c)
	}
	if c.Op == fabric.OpRead {
		return
	}
	if last, ok := y.last[isRecv]; ok && c.Context < last {
		t.Fatalf("%+v came after %d", c, last)
	}
	y.last[isRecv] = c.Context
}

// settle waits for everything that must complete, closes the end, and looks for more.
func (y *tally) settle() {
	y.s.t.Helper()
	left := func() bool {
		for context, must := range y.must {
			if must && y.ended[context] == 0 {
				return true
			}
		}
		return false
	}
	for left() {
		y.add(y.s.waitFor("the end", func(fabric.Completion) bool { return true }))
	}
	check(y.s.t, y.s.ep.Close())
	var dst [2 * depth]fabric.Completion
	for _, c := range dst[:y.s.cq.Poll(dst[:])] {
		y.add(c)
	}
}

// rounds connects again and again, posts traffic at both ends, and lets end do its worst.
func (r *rig) rounds(count int, end func(round int)) {
	r.t.Helper()
	seed := rand.Uint64()
	r.t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	const both = fabric.RemoteRead | fabric.RemoteWrite
	for round := range count {
		a := r.a.grant(3*memBytes/4, 2*trafficBytes, both)
		b := r.b.grant(3*memBytes/4, 2*trafficBytes, both)
		first, second := newTally(r.a), newTally(r.b)
		first.traffic(b, rng)
		second.traffic(a, rng)
		if round%3 == 0 {
			time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
		}
		end(round)
		first.settle()
		second.settle()
		r.a.nothing()
		r.b.nothing()
		r.a.ep, r.b.ep = r.connect(r.a.config(), r.b.config())
	}
	r.barrier()
}

func testDeathOnce(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	r.rounds(20, func(round int) { check(t, []*side{r.a, r.b}[round%2].ep.Close()) })
}

func testCloseBoth(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	r.rounds(10, func(int) {
		var wg sync.WaitGroup
		for _, ep := range []fabric.Endpoint{r.a.ep, r.b.ep, r.a.ep} {
			wg.Go(func() {
				if err := ep.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		wg.Wait()
	})
}

// testDeathWaited has a goroutine at each end that does nothing but wait while the connection dies.
func testDeathWaited(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for round := range uint64(6) {
		const count = 8
		var all [2]<-chan []fabric.Completion
		for i, s := range []*side{r.a, r.b} {
			for j := range uint64(count) {
				s.recv(j, 8)
			}
			all[i] = s.waiter(count, 3)
		}
		time.Sleep(time.Duration(round) * 300 * time.Microsecond)
		check(t, []*side{r.a, r.b}[round%2].ep.Close())
		for i, want := range []errs.Kind{errs.Closed, errs.Disconnected} {
			got := <-all[(int(round)+i)%2]
			if len(got) != count {
				t.Fatalf("%d of %d completions", len(got), count)
			}
			for j, c := range got {
				if c.Context != uint64(j) || c.ErrKind() != want {
					t.Fatalf("completion %d is %+v, want %v", j, c, want)
				}
			}
		}
		r.reconnect()
	}
}

// testDeathHalfFull ends a connection when a queue holds completions that nobody polled: they stay,
// in order, and what failed comes behind them.
func testDeathHalfFull(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const sent, pending = 10, 5
	for i := range uint64(sent) {
		r.b.recv(i, 8)
	}
	for i := range uint64(sent) {
		r.a.post(r.a.send(i, "x"))
	}
	for i := range uint64(sent) {
		r.b.got(i, 1)
	}
	for i := range uint64(pending) {
		r.a.recv(100+i, 8)
	}
	check(t, r.b.ep.Close())
	var recvs, sends []uint64
	failed := false
	for range sent + pending {
		c := r.a.waitFor("the end", func(fabric.Completion) bool { return true })
		switch {
		case c.Err != nil && c.ErrKind() != errs.Disconnected:
			t.Fatalf("completion %+v", c)
		case c.Op == fabric.OpRecv:
			recvs = append(recvs, c.Context)
		case c.Err == nil && failed:
			t.Fatalf("success behind a failure: %+v", c)
		default:
			failed = c.Err != nil
			sends = append(sends, c.Context)
		}
	}
	if len(sends) != sent || !slices.IsSorted(sends) || !slices.IsSorted(recvs) {
		t.Fatalf("requests %v, receives %v", sends, recvs)
	}
	check(t, r.a.ep.Close())
	r.a.nothing()
}

// testDomainCloseWaiters has several goroutines in Wait without a context. They get what the
// domain's end completes, each once, and sleep on until the queue is closed itself.
func testDomainCloseWaiters(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const count, waiters = 12, 3
	for i := range uint64(count) {
		r.a.recv(i, 8)
	}
	var mu sync.Mutex
	var seen []uint64
	full := make(chan struct{})
	ends := make(chan error, waiters)
	for range waiters {
		go func() {
			for {
				var dst [2]fabric.Completion
				n, err := r.a.cq.Wait(context.Background(), dst[:])
				mu.Lock()
				for _, c := range dst[:n] {
					if c.ErrKind() != errs.Closed {
						t.Errorf("completion %+v", c)
					}
					if seen = append(seen, c.Context); len(seen) == count {
						close(full)
					}
				}
				mu.Unlock()
				if err != nil {
					ends <- err
					return
				}
			}
		}()
	}
	time.Sleep(2 * time.Millisecond)
	check(t, r.a.dom.Close())
	select {
	case <-full:
	case <-time.After(cfg.Patience):
		t.Fatalf("the waiters saw %v", seen)
	}
	select {
	case err := <-ends:
		t.Fatalf("the queue is open and Wait returned %v", err)
	case <-time.After(5 * time.Millisecond):
	}
	check(t, r.a.cq.Close())
	for range waiters {
		wantKind(t, <-ends, errs.Closed)
	}
	slices.Sort(seen)
	for i, context := range seen {
		if context != uint64(i) {
			t.Fatalf("completed: %v", seen)
		}
	}
}
