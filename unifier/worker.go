package unifier

// Posted requests and readahead are carried on by a few goroutines, which are started when they are
// needed and end with the cache. What was posted holds nothing before a worker has taken it up, so
// that workers that wait for memory wait for loans and drafts that are out, never for each other.
const (
	workersMax = 32
	aheadMost  = 4        // of them at most read ahead
	postedMax  = 16 << 10 // requests that may wait for a worker
)

// job is one thing to do.
type job struct {
	loan    *Loan
	lent    func(*Loan)
	draft   *Draft
	drafted func(*Draft)
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

// postLocked hands a job to a worker.
func (c *Cache) postLocked(j job) {
	c.jobs.push(j)
	c.rouseLocked()
}

func (c *Cache) rouseLocked() {
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
		case c.jobs.len() > 0:
			j := c.jobs.pop()
			c.mu.Unlock()
			if j.loan != nil {
				c.serveLoan(j.loan, j.lent)
			} else {
				c.serveDraft(j.draft, j.drafted)
			}
			c.mu.Lock()
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
