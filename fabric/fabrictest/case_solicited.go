package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func solicitedCases() []testCase {
	return []testCase{
		{"unsolicited completions do not wake", testUnsolicited},
		{"a solicited message wakes", testSolicited},
		{"a solicited immediate wakes", testSolicitedImm},
		{"a failure wakes those who wait for solicited events", testSolicitedFailure},
		{"solicited is only a hint elsewhere", testSolicitedHint},
		{"those who wait for solicited events are called back", testSolicitedWake},
		{"spin", testSpin},
	}
}

// asleep proves that Wait at s returns nothing for a while.
func (s *side) asleep() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	var dst [4]fabric.Completion
	if n, err := s.cq.Wait(ctx, dst[:]); n > 0 || !errors.Is(err, context.DeadlineExceeded) {
		s.t.Fatalf("Wait returned %d completions, %v: %+v", n, err, dst[:n])
	}
}

// arrive waits, by Poll alone, until count completions are there.
func (s *side) arrive(count int) []fabric.Completion {
	s.t.Helper()
	var all []fabric.Completion
	for start := time.Now(); len(all) < count; time.Sleep(50 * time.Microsecond) {
		var dst [3]fabric.Completion
		all = append(all, dst[:s.cq.Poll(dst[:])]...)
		if time.Since(start) > s.cfg.Patience {
			s.t.Fatalf("%d of %d completions arrived: %+v", len(all), count, all)
		}
	}
	return all
}

// waiter calls Wait at s, for at most room completions each time, until count came, in the
// background.
func (s *side) waiter(count, room int) <-chan []fabric.Completion {
	out := make(chan []fabric.Completion, 1)
	ctx, cancel := s.cfg.limit()
	go func() {
		defer cancel()
		var all []fabric.Completion
		for len(all) < count {
			dst := make([]fabric.Completion, room)
			n, err := s.cq.Wait(ctx, dst)
			all = append(all, dst[:n]...)
			if err != nil {
				break
			}
		}
		out <- all
	}()
	return out
}

func testUnsolicited(t *testing.T, cfg Config) {
	r := newRigWith(t, cfg, fabric.CQOptions{SolicitedOnly: true})
	const count = 6
	for i := range uint64(count) {
		r.b.recv(i, 16)
	}
	for i := range uint64(count) {
		r.a.post(r.a.send(i, "quiet"))
	}
	r.b.asleep()
	r.a.asleep() // its completions are no solicited receives either
	for _, s := range []*side{r.a, r.b} {
		for i, c := range s.arrive(count) {
			if c.Context != uint64(i) || c.Err != nil {
				t.Fatalf("completion %d is %+v", i, c)
			}
		}
		s.nothing()
	}
}

func testSolicited(t *testing.T, cfg Config) {
	r := newRigWith(t, cfg, fabric.CQOptions{SolicitedOnly: true})
	for round := range 10 {
		const count = 5
		for i := range uint64(count) {
			r.b.recv(i, 16)
		}
		// With room for all of them one Wait brings them, so it may not return before the last.
		woken := r.b.waiter([]int{1, count}[round%2], []int{count, 2}[round%2])
		if round%3 == 0 {
			time.Sleep(2 * time.Millisecond) // let it fall asleep
		}
		for i := range uint64(count) {
			wr := r.a.send(i, fmt.Sprintf("message %d", i))
			if i == count-1 {
				wr.Flags |= fabric.FlagSolicited
			}
			r.a.post(wr)
		}
		all := <-woken
		if len(all) != count {
			t.Fatalf("%d of %d completions: %+v", len(all), count, all)
		}
		for i, c := range all {
			if c.Context != uint64(i) || c.Len != 9 || c.Err != nil {
				t.Fatalf("completion %d is %+v", i, c)
			}
		}
		r.a.arrive(count)
	}
	r.b.asleep()
}

func testSolicitedImm(t *testing.T, cfg Config) {
	r := newRigWith(t, cfg, fabric.CQOptions{SolicitedOnly: true})
	rem := r.b.grant(memBytes/2, 64, fabric.RemoteWrite)
	r.b.recv(1, 8)
	r.b.recv(2, 8)
	woken := r.b.waiter(2, 1)
	quiet, loud := r.a.write(1, 0, "quiet", rem), r.a.write(2, 64, "loud", rem)
	quiet.Op, loud.Op = fabric.OpWriteImm, fabric.OpWriteImm
	loud.Flags |= fabric.FlagSolicited
	r.a.post(quiet, loud)
	all := <-woken
	if len(all) != 2 || all[0].Context != 1 || all[1].Context != 2 || all[1].Len != 4 {
		t.Fatalf("completions %+v", all)
	}
	r.a.arrive(2)
}

func testSolicitedFailure(t *testing.T, cfg Config) {
	r := newRigWith(t, cfg, fabric.CQOptions{SolicitedOnly: true})
	for i := range uint64(3) {
		r.a.recv(i, 8)
		r.b.recv(i, 8)
	}
	woken := r.b.waiter(3, 2)
	time.Sleep(2 * time.Millisecond)
	check(t, r.a.ep.Close())
	all := <-woken
	if len(all) != 3 {
		t.Fatalf("completions %+v", all)
	}
	for i, c := range all {
		if c.Context != uint64(i) || c.ErrKind() != errs.Disconnected {
			t.Fatalf("completion %d is %+v", i, c)
		}
	}
	if all := <-r.a.waiter(3, 2); len(all) != 3 || all[0].ErrKind() != errs.Closed {
		t.Fatalf("completions %+v", all)
	}
}

func testSolicitedWake(t *testing.T, cfg Config) {
	r := newRigWith(t, cfg, fabric.CQOptions{SolicitedOnly: true})
	r.b.recv(1, 8)
	r.a.post(r.a.send(1, "x"))
	r.a.arrive(1)
	back := make(chan int, 1)
	go func() {
		var dst [4]fabric.Completion
		n, err := r.b.cq.Wait(context.Background(), dst[:])
		if err != nil {
			n = -1
		}
		for _, c := range dst[:max(n, 0)] { // it may bring what is there along
			if c.Context != 1 {
				n = -1
			}
		}
		back <- n
	}()
	time.Sleep(5 * time.Millisecond)
	r.b.cq.Wake()
	select {
	case n := <-back:
		if n < 0 || n > 1 {
			t.Fatalf("Wait returned %d completions", n)
		}
		if n == 0 {
			r.b.arrive(1)
		}
	case <-time.After(cfg.Patience):
		t.Fatal("Wake did not call the waiter back")
	}
	r.b.nothing()
}

func testSolicitedHint(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for i := range uint64(4) {
		r.b.recv(i, 8)
		wr := r.a.send(i, "x")
		if i%2 == 0 {
			wr.Flags |= fabric.FlagSolicited
		}
		r.a.post(wr)
		r.b.got(i, 1)
		r.a.done(i, errs.OK)
	}
}

// testSpin waits with every kind of Spin, for what is there already, comes at once, and comes when
// a waiter must have gone to sleep.
func testSpin(t *testing.T, cfg Config) {
	for name, spin := range map[string]time.Duration{
		"judged by the provider": 0, "none": -1, "none at all": -time.Hour,
		"short": time.Microsecond, "some": time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, cfg, fabric.CQOptions{Spin: spin})
			for i := range uint64(12) {
				r.b.recv(i, 8)
				woken := r.b.waiter(1, 1)
				if i%3 == 0 {
					time.Sleep(4 * time.Millisecond)
				}
				r.a.post(r.a.send(i, "up"))
				if all := <-woken; len(all) != 1 || all[0].Context != i {
					t.Fatalf("completions %+v", all)
				}
				r.a.done(i, errs.OK)
			}
			r.b.asleep()
		})
	}
}
