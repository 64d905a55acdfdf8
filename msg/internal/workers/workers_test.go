package workers

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryJobIsDone: jobs that start others, which wait for each other, are all done, and no
// goroutine is left behind.
func TestEveryJobIsDone(t *testing.T) {
	for _, idle := range []int{0, 1, 3} {
		var done atomic.Int64
		var p *Pool[int]
		var under sync.WaitGroup
		p = New(idle, func(left int) {
			defer under.Done()
			done.Add(1)
			if left == 0 {
				return
			}
			next := make(chan struct{})
			under.Add(2)
			p.Go(left - 1)
			q := New(1, func(struct{}) { close(next) })
			q.Go(struct{}{})
			<-next // it runs though this one waits
			q.Close()
			p.Go(left - 1)
		})
		under.Add(1)
		p.Go(9)
		under.Wait()
		p.Close()
		if want := int64(1<<10 - 1); done.Load() != want {
			t.Errorf("idle %d: %d jobs, want %d", idle, done.Load(), want)
		}
	}
}

// TestWorkersAreKept: jobs one after the other are done by the same goroutine, and no more than
// asked for stay.
func TestWorkersAreKept(t *testing.T) {
	ran := make(chan struct{})
	p := New(2, func(struct{}) { ran <- struct{}{} })
	for range 5 {
		p.Go(struct{}{})
	}
	for range 5 {
		<-ran
	}
	for p.idle.Load() != 2 { // the last ones count themselves
		runtime.Gosched()
	}
	p.Go(struct{}{})
	if n := p.idle.Load(); n != 1 {
		t.Errorf("%d are idle beside one that works", n)
	}
	<-ran
	p.Close()
}
