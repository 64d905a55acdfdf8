package devicetest

import (
	"sync"

	"github.com/sluice-storage/sluice/stripe/device"
)

// Fault is a device whose operations fail on demand.
type Fault struct {
	device.Device

	mu   sync.Mutex
	rule func(op *device.Op) error
	full error
}

// Fail makes operations fail with what the rule returns; nil lets them pass. A nil rule ends it.
func (f *Fault) Fail(rule func(op *device.Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = rule
}

// Full makes Reserve fail with the error.
func (f *Fault) Full(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = err
}

// Reserve implements device.Device.
func (f *Fault) Reserve(off, length int64) error {
	f.mu.Lock()
	err := f.full
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Device.Reserve(off, length)
}

// Do implements device.Device.
func (f *Fault) Do(ops []*device.Op) {
	f.mu.Lock()
	rule := f.rule
	f.mu.Unlock()
	if rule == nil {
		f.Device.Do(ops)
		return
	}
	var pass []*device.Op
	for _, op := range ops {
		if err := rule(op); err != nil {
			op.N, op.Err = 0, err
		} else {
			pass = append(pass, op)
		}
	}
	f.Device.Do(pass)
}
