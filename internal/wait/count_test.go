package wait

import (
	"errors"
	"testing"
	"time"
)

// TestCountWaitsForAll: the wait ends with the last of what was started, and tells of the first
// failure once.
func TestCountWaitsForAll(t *testing.T) {
	c, broken := NewCount(), errors.New("broken")
	c.Add(3)
	go func() {
		c.Done(1, nil)
		c.Done(1, broken)
		time.Sleep(time.Millisecond)
		c.Done(1, errors.New("later"))
	}()
	if err := c.Wait(); err != broken || c.Busy() {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal("a failure is told twice")
	}
}
