package wait

import "sync"

// Count counts work that was started and is not over, and lets one goroutine wait until there is
// none: a reusable sync.WaitGroup that keeps the first failure. Make one with NewCount.
type Count struct {
	mu      sync.Mutex
	pending int
	err     error         // the first failure
	zero    chan struct{} // room for one: pending became 0
}

// NewCount makes a count of nothing.
func NewCount() *Count { return &Count{zero: make(chan struct{}, 1)} }

// Add counts n more.
func (c *Count) Add(n int) {
	c.mu.Lock()
	c.pending += n
	c.mu.Unlock()
}

// Done counts n less; err is why they failed, nil if they did not.
func (c *Count) Done(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	if c.pending -= n; c.pending == 0 {
		select {
		case c.zero <- struct{}{}:
		default:
		}
	}
}

// Busy tells whether something is pending.
func (c *Count) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending > 0
}

// Wait blocks until nothing is pending, returns the first failure and resets it.
func (c *Count) Wait() error {
	for {
		c.mu.Lock()
		if c.pending == 0 {
			err := c.err
			c.err = nil
			c.mu.Unlock()
			return err
		}
		c.mu.Unlock()
		<-c.zero
	}
}
