package unifier

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/freelist"
)

// Fills of several places and readahead are helped along by a few goroutines, which are started
// when they are needed and end with the cache. They never wait for memory: a fill has its own
// before somebody helps with it, and readahead goes without. So no worker waits for another one.
const (
	workersMax = 32
	aheadMost  = 4 // of them at most read ahead
)

// crew is the workers.
type crew struct {
	life context.Context // ends with the cache
	kill context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond // of idle workers
	closed  bool
	workers int
	idle    int
	asked   []*fetch // to help with
	ahead   int      // ranges to read ahead that the index has, or had
	reading int      // workers that read ahead

	freeFetches freelist.List[fetch]
	freeReads   freelist.List[read]
}

func (k *crew) init() {
	k.wake.L = &k.mu
	k.life, k.kill = context.WithCancel(context.Background())
}

// stop ends the workers and returns when they have ended.
func (k *crew) stop() {
	k.mu.Lock()
	k.closed = true
	k.wake.Broadcast()
	k.mu.Unlock()
	k.kill()
	k.done.Wait()
}

// ask has up to n workers that have nothing else to do help with a fetch.
func (k *crew) ask(c *Cache, t *fetch, n int) {
	free := workersMax - (k.workers - k.idle) - len(k.asked)
	for range min(n, free) {
		t.refs++
		k.asked = append(k.asked, t)
		k.rouse(c)
	}
}

// leave ends the interest of one who has helped, or has started the fetch.
func (k *crew) leave(t *fetch) {
	if t.refs--; t.refs == 0 {
		k.freeFetches.Put(t)
	}
}

// readAheadSoon has workers read ahead: the index has that many ranges for them.
func (c *Cache) readAheadSoon(ranges int) {
	if ranges == 0 {
		return
	}
	k := &c.crew
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ahead = max(k.ahead, ranges)
	k.rouse(c)
}

// rouse finds a worker for one more thing to do.
func (k *crew) rouse(c *Cache) {
	if k.closed {
		return // those who still run finish what there is
	}
	if k.idle > 0 {
		k.wake.Signal()
	} else if k.workers < workersMax {
		k.workers++
		k.done.Go(c.work)
	}
}

// work is a worker's life.
func (c *Cache) work() {
	k := &c.crew
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		switch n := len(k.asked); {
		case n > 0:
			t := k.asked[n-1]
			k.asked = k.asked[:n-1]
			c.help(k.life, t)
			k.leave(t)
		case k.closed:
			k.workers--
			return
		case k.ahead > 0 && k.reading < aheadMost:
			k.ahead--
			k.reading++
			k.mu.Unlock()
			c.readAhead()
			k.mu.Lock()
			k.reading--
		default:
			k.idle++
			k.wake.Wait()
			k.idle--
		}
	}
}
