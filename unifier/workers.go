package unifier

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/internal/freelist"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/unifier/internal/index"
)

// Fills of several places and readahead are helped along by a few goroutines, which are started
// when they are needed and end with the cache. They never wait for memory: a fill has its own
// before somebody helps with it, and readahead goes without. So no worker waits for another one.
const (
	workersMax = 32
	aheadMost  = 4 // of them at most read ahead
)

// workers are these goroutines. help and readAhead are what they do; help is called with mu held.
type workers struct {
	help      func(ctx context.Context, t *fetch)
	readAhead func()

	life context.Context // ends with the cache
	kill context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond // of idle workers
	closed  bool
	started int
	idle    int
	asked   []*fetch // to help with
	ahead   int      // ranges to read ahead that the index has, or had
	reading int      // workers that read ahead

	freeFetches freelist.List[fetch]
	freeReads   freelist.List[read]
}

// fetch is the reading of one fill: one read of the backing for each run of adjacent units. Several
// places are read in parallel, with the help of workers that have nothing else to do. It is used
// again when the last helper has left. Guarded by workers.mu.
type fetch struct {
	fill     *index.Fill // nil: over, and nothing is left to help with
	next     int         // place that nobody reads yet
	nextUnit int         // its first unit
	active   int         // readers of the backing
	err      error       // the first one of theirs
	rest     wait.Queue  // whoever started it, for the others
	refs     int         // who started it, and helpers that were asked
}

// read is what one read of the backing needs.
type read struct {
	bufs [][]byte
	sums []uint32
}

func (k *workers) init(help func(context.Context, *fetch), readAhead func()) {
	k.help, k.readAhead = help, readAhead
	k.wake.L = &k.mu
	k.life, k.kill = context.WithCancel(context.Background())
}

// stop ends the workers and returns when they have ended.
func (k *workers) stop() {
	k.mu.Lock()
	k.closed = true
	k.wake.Broadcast()
	k.mu.Unlock()
	k.kill()
	k.done.Wait()
}

// askLocked has up to n workers that have nothing else to do help with a fetch.
func (k *workers) askLocked(t *fetch, n int) {
	free := workersMax - (k.started - k.idle) - len(k.asked)
	for range min(n, free) {
		t.refs++
		k.asked = append(k.asked, t)
		k.rouseLocked()
	}
}

// leaveLocked ends the interest of one who has helped, or has started the fetch.
func (k *workers) leaveLocked(t *fetch) {
	if t.refs--; t.refs == 0 {
		k.freeFetches.Put(t)
	}
}

// readSoon has workers read ahead: the index has that many ranges for them.
func (k *workers) readSoon(ranges int) {
	if ranges == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ahead = max(k.ahead, ranges)
	k.rouseLocked()
}

// rouseLocked finds a worker for one more thing to do.
func (k *workers) rouseLocked() {
	if k.closed {
		return // those who still run finish what there is
	}
	if k.idle > 0 {
		k.wake.Signal()
	} else if k.started < workersMax {
		k.started++
		k.done.Go(k.work)
	}
}

// work is a worker's life.
func (k *workers) work() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		switch n := len(k.asked); {
		case n > 0:
			t := k.asked[n-1]
			k.asked = k.asked[:n-1]
			k.help(k.life, t)
			k.leaveLocked(t)
		case k.closed:
			k.started--
			return
		case k.ahead > 0 && k.reading < aheadMost:
			k.ahead--
			k.reading++
			k.mu.Unlock()
			k.readAhead()
			k.mu.Lock()
			k.reading--
		default:
			k.idle++
			k.wake.Wait()
			k.idle--
		}
	}
}
