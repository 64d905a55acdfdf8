package unifier

// Posted requests and readahead are carried on by a few goroutines, which are started when they are
// needed and end with the cache. There are two queues. What has to wait for memory holds nothing
// before a worker has taken it up, and may not occupy all workers. What has its memory already
// waits at most for the backing, and for fills that somebody runs: those that it joined stand
// before it in the queue. So workers that wait for memory wait for loans and drafts that are out,
// never for each other.
const (
	workersMax = 32
	hungryMost = 24       // of them at most wait for memory
	aheadMost  = 4        // of them at most read ahead
	postedMax  = 16 << 10 // requests that may wait for a worker
)

// job is one thing to do.
type job struct {
	loan    *Loan
	lent    func(*Loan)
	draft   *Draft
	drafted func(*Draft)
	help    *fill
	ahead   guess
}

// jobs is a queue that does not allocate when it has found its size.
type jobs struct {
	list []job
	head int
}

func (q *jobs) len() int { return len(q.list) - q.head }

func (q *jobs) push(j job) {
	if q.head > 256 && q.head > len(q.list)/2 {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, j)
}

func (q *jobs) pop() job {
	j := q.list[q.head]
	q.list[q.head] = job{}
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return j
}

// postLocked hands a job to a worker: one that has its memory, or one that has to wait for it.
func (c *Cache) postLocked(q *jobs, j job) {
	q.push(j)
	c.rouseLocked()
}

func (c *Cache) rouseLocked() {
	if c.closed {
		return // those who still run finish what there is
	}
	if c.idle > 0 {
		c.wake.Signal()
	} else if c.workers < workersMax {
		c.workers++
		c.crew.Add(1)
		go c.worker()
	}
}

func (c *Cache) worker() {
	defer c.crew.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.calls.len() > 0:
			c.serveLocked(c.calls.pop())
		case c.jobs.len() > 0 && c.hungry < hungryMost:
			c.hungry++
			c.serveLocked(c.jobs.pop())
			c.hungry--
		case c.closed:
			c.workers--
			return
		case c.guesses.len() > 0 && c.guessing < aheadMost:
			j := c.guesses.pop()
			c.guessing++
			c.readAheadLocked(j.ahead)
			c.guessing--
		default:
			c.idle++
			c.wake.Wait()
			c.idle--
		}
	}
}

func (c *Cache) serveLocked(j job) {
	c.mu.Unlock()
	defer c.mu.Lock()
	switch {
	case j.help != nil:
		c.lift(c.life, j.help)
		c.mu.Lock()
		c.leaveFillLocked(j.help)
		c.mu.Unlock()
	case j.loan != nil:
		c.serveLoan(j.loan, j.lent)
	default:
		c.serveDraft(j.draft, j.drafted)
	}
}
