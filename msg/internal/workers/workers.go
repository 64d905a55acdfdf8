// Package workers runs jobs on goroutines, some of which it keeps for the next ones.
package workers

import (
	"sync"
	"sync/atomic"
)

// Pool runs jobs. Safe for concurrent use.
type Pool[J any] struct {
	do   func(J)
	max  int32        // how many are kept
	jobs chan J       // to a worker that has nothing to do
	idle atomic.Int32 // workers that have nothing to do
	all  sync.WaitGroup
}

// New makes a pool that keeps idle goroutines.
func New[J any](idle int, do func(J)) *Pool[J] {
	return &Pool[J]{do: do, max: int32(idle), jobs: make(chan J, idle)}
}

// Go gives a job to an idle worker, or to a new one. It does not block: each job in the channel is
// for a worker that has counted itself as idle, even if it does not receive yet.
func (p *Pool[J]) Go(j J) {
	for n := p.idle.Load(); n > 0; n = p.idle.Load() {
		if p.idle.CompareAndSwap(n, n-1) {
			p.jobs <- j
			return
		}
	}
	p.all.Add(1)
	go p.work(j)
}

// Close ends the workers and waits for their jobs. Nobody may call Go any more.
func (p *Pool[J]) Close() {
	close(p.jobs)
	p.all.Wait()
}

func (p *Pool[J]) work(j J) {
	defer p.all.Done()
	for ok := true; ok; {
		p.do(j)
		if ok = p.becomeIdle(); ok {
			j, ok = <-p.jobs
		}
	}
}

// becomeIdle counts the worker as idle, unless enough are.
func (p *Pool[J]) becomeIdle() bool {
	for n := p.idle.Load(); n < p.max; n = p.idle.Load() {
		if p.idle.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}
