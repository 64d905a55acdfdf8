package wait

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// stock is a number of things that are taken one by one; who finds none waits.
type stock struct {
	mu    sync.Mutex
	left  int
	queue Queue
}

func (s *stock) take(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.left == 0 {
		if err := s.queue.Wait(ctx, &s.mu); err != nil {
			return err
		}
	}
	s.left--
	return nil
}

func (s *stock) put() {
	s.mu.Lock()
	s.left++
	s.queue.WakeAll()
	s.mu.Unlock()
}

// TestNoWakeUpIsLost wakes waiters at the moment in which their contexts end, with places that are
// used again and again: nobody sleeps while there is something to take, and no wake-up is left for
// the next wait.
func TestNoWakeUpIsLost(t *testing.T) {
	base := rand.Uint64()
	var s stock
	for seed := base; seed != base+2000; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if s.take(ctx) == nil {
					s.put()
				}
			})
		}
		wg.Go(func() { // this one has no end but a wake-up
			if err := s.take(context.Background()); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		for _, fn := range []func(){cancel, s.put} {
			turns := rng.IntN(30)
			wg.Go(func() {
				for range turns {
					runtime.Gosched()
				}
				fn()
			})
		}
		wg.Wait()
		if s.left != 0 || !s.queue.Empty() {
			t.Fatalf("seed %d: %d left over, somebody waits: %v", seed, s.left, !s.queue.Empty())
		}
		for p := s.queue.idle.First(); p != nil; p = p.link.Next() {
			if len(p.ready) != 0 {
				t.Fatalf("seed %d: a wake-up is left for the next wait", seed)
			}
		}
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	var s stock
	ask, done := make(chan struct{}), make(chan struct{})
	go func() {
		for range ask {
			_ = s.take(context.Background())
			done <- struct{}{}
		}
	}()
	defer close(ask)
	n := alloctest.PerRun(0, 200, func() {
		ask <- struct{}{}
		for waits := false; !waits; runtime.Gosched() {
			s.mu.Lock()
			waits = !s.queue.Empty()
			s.mu.Unlock()
		}
		s.put()
		<-done
	})
	if n > 0 {
		t.Errorf("%.1f allocations a wait", n)
	}
}
