package vmtest

import (
	"fmt"
	"sync"
)

// consoleMax bounds what is kept of a guest's console. The end matters: it has the oops.
const consoleMax = 256 << 10

// console keeps the last consoleMax to 2*consoleMax bytes that were written to it.
type console struct {
	mu      sync.Mutex
	text    []byte
	dropped int
}

// Write never fails and never blocks, so that a chatty guest does not stop.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, p...)
	if over := len(c.text) - consoleMax; over > consoleMax {
		c.dropped += over
		c.text = append(c.text[:0], c.text[over:]...)
	}
	return len(p), nil
}

// tail is at most n bytes of the end.
func (c *console) tail(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := max(0, len(c.text)-n)
	if cut := c.dropped + from; cut > 0 {
		return fmt.Sprintf("[%d bytes before this]\n%s", cut, c.text[from:])
	}
	return string(c.text)
}
