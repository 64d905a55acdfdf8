package devicetest

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/stripe/device"
)

// Throttle is a device that is slow: every batch waits for as long as Delay says, one batch after
// the other. It serves tests of stalls, and measurements of what a slow disk costs.
type Throttle struct {
	device.Device

	// Delay says how long a batch takes in addition.
	Delay func(ops []*device.Op) time.Duration

	mu sync.Mutex
}

// Do implements device.Device.
func (t *Throttle) Do(ops []*device.Op) {
	if d := t.Delay(ops); d > 0 {
		t.mu.Lock()
		time.Sleep(d)
		t.mu.Unlock()
	}
	t.Device.Do(ops)
}
