package memory

import (
	"context"
	"sync"
	"testing"
	"time"
)

// nobody has nothing to evict.
type nobody struct{}

func (nobody) Evict(uint8, bool) bool { return false }

// newPool makes a pool of some slabs, and allocates all of them.
func newPool(t *testing.T, slabs int) (*Pool, *sync.Mutex, *Request) {
	t.Helper()
	var mu sync.Mutex
	bytes := int64(slabs) * SlabBytes
	p, err := New(Config{Bytes: bytes, ReadyBytes: bytes, LoanBytes: bytes}, &mu, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	all := &Request{}
	all.Ask(SlabShift, slabs)
	if !p.TryAllocate(all, false) {
		t.Fatal("fresh memory cannot be had")
	}
	t.Cleanup(func() {
		mu.Lock()
		p.Free(all)
		p.Stop()
		mu.Unlock()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, &mu, all
}

// want asks for slabs on another goroutine, and returns when the request stands in the queue.
func want(ctx context.Context, t *testing.T, p *Pool, mu *sync.Mutex, slabs int) chan error {
	t.Helper()
	mu.Lock()
	before := p.waits
	mu.Unlock()
	done := make(chan error, 1)
	go func() {
		var r Request
		r.Ask(SlabShift, slabs)
		mu.Lock()
		defer mu.Unlock()
		err := p.Allocate(ctx, &r)
		p.Free(&r)
		p.Serve()
		done <- err
	}()
	for {
		mu.Lock()
		in := p.waits > before
		mu.Unlock()
		if in {
			return done
		}
		time.Sleep(time.Millisecond)
	}
}

// Those who wait are served in the order in which they came, the small behind the large.
func TestQueueKeepsItsOrder(t *testing.T) {
	p, mu, all := newPool(t, 4)
	large := want(t.Context(), t, p, mu, 3)
	small := want(t.Context(), t, p, mu, 1)
	mu.Lock()
	for range 2 {
		p.FreeBlock(all.Got[0])
		all.Got = all.Got[1:]
		p.Serve()
	}
	if len(large)+len(small) > 0 || p.HasFree(SlabShift) {
		t.Error("somebody was served who had to wait")
	}
	p.Free(all)
	p.Serve()
	mu.Unlock()
	if err := <-large; err != nil {
		t.Error(err)
	}
	if err := <-small; err != nil {
		t.Error(err)
	}
}

// A loan that steps aside while somebody waits for memory waits until something is let go of.
func TestLoanStandsAside(t *testing.T) {
	p, mu, all := newPool(t, 2)
	p.Hold(all.Got[0])
	queued := want(t.Context(), t, p, mu, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var w Waiter
	mu.Lock()
	if err := p.StandAside(ctx, &w); err == nil {
		t.Error("nothing was let go of, and the loan tries again")
	}
	mu.Unlock()
	aside := make(chan error, 1)
	go func() {
		mu.Lock()
		defer mu.Unlock()
		aside <- p.StandAside(t.Context(), &w)
	}()
	for in := false; !in; {
		mu.Lock()
		in = !p.gate.Empty()
		mu.Unlock()
	}
	mu.Lock()
	p.Unhold(all.Got[0])
	p.Free(all)
	p.Serve()
	mu.Unlock()
	for _, done := range []chan error{aside, queued} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// New loans wait for one who has waited long for memory, and not for one who has given up.
func TestGateOpensWhenTheQueueIsLeft(t *testing.T) {
	p, mu, _ := newPool(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	queued := want(ctx, t, p, mu, 1)
	time.Sleep(2 * queueMax)
	passed := make(chan error, 1)
	go func() {
		var w Waiter
		mu.Lock()
		defer mu.Unlock()
		passed <- p.Pass(t.Context(), &w)
	}()
	for in := false; !in; {
		mu.Lock()
		in = !p.gate.Empty()
		mu.Unlock()
	}
	cancel()
	if err := <-queued; err == nil {
		t.Error("memory was had that is not there")
	}
	if err := <-passed; err != nil {
		t.Error(err)
	}
}
