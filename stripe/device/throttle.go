package device

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// ThrottleOptions say how fast a throttled device is.
type ThrottleOptions struct {
	// BytesPerSecond is the rate of all transfers together. 0: not limited.
	BytesPerSecond int64

	// Latency is what each operation takes besides its transfer. Latencies of operations that are
	// there at the same time overlap each other, and transfers of others.
	Latency time.Duration

	// Depth is how many operations are served at the same time; more wait. 0: any number.
	Depth int
}

// Throttle paces another device like a disk, or like a disk at the end of a network, so that a
// bench can tell what overlap is worth where the host's own disk is not the limit. Operations are
// carried out at once and are finished when a disk of that pace would have finished them: later
// than that by the host's own delays, which are not made up for.
type Throttle struct {
	Device
	starter Starter // the same, if it is one

	mu   sync.Mutex
	pace pace
	due  map[*Op]time.Duration // operations that were begun
}

var (
	_ Device  = (*Throttle)(nil)
	_ Starter = (*Throttle)(nil)
)

// Throttled wraps a device. It can always begin operations; where d cannot, they are carried out
// in Begin.
func Throttled(d Device, o ThrottleOptions) *Throttle {
	t := &Throttle{Device: d, due: map[*Op]time.Duration{}}
	t.starter, _ = d.(Starter)
	t.pace = pace{o: o, start: time.Now()}
	if o.Depth > 0 {
		t.pace.done = make([]time.Duration, o.Depth)
	}
	return t
}

// Do implements Device.
func (t *Throttle) Do(ops []*Op) {
	t.mu.Lock()
	var due time.Duration
	for _, op := range ops {
		due = max(due, t.pace.next(t.pace.now(), op))
	}
	t.mu.Unlock()
	t.Device.Do(ops)
	t.pace.sleep(due)
}

// Begin implements Starter.
func (t *Throttle) Begin(ops []*Op) {
	t.mu.Lock()
	for _, op := range ops {
		t.due[op] = t.pace.next(t.pace.now(), op)
	}
	t.mu.Unlock()
	if t.starter != nil {
		t.starter.Begin(ops)
	} else {
		t.Device.Do(ops)
	}
}

// Wait implements Starter.
func (t *Throttle) Wait(op *Op) {
	if t.starter != nil {
		t.starter.Wait(op)
	}
	t.mu.Lock()
	due := t.due[op]
	delete(t.due, op)
	t.mu.Unlock()
	t.pace.sleep(due)
}

// Room implements Sparse where the device does.
func (t *Throttle) Room() (total, free int64, ok bool) {
	if s, is := t.Device.(Sparse); is {
		return s.Room()
	}
	return 0, 0, false
}

// Punch implements Sparse where the device does.
func (t *Throttle) Punch(off, length int64) error {
	if s, is := t.Device.(Sparse); is {
		return s.Punch(off, length)
	}
	return errs.New(errs.Unsupported, "punch", t.Name(), nil)
}

// Fresh is what the device says, if it does.
func (t *Throttle) Fresh() bool {
	f, ok := t.Device.(interface{ Fresh() bool })
	return ok && f.Fresh()
}

// Close implements Device. Nothing may be under way.
func (t *Throttle) Close() error {
	t.pace.alarms.close()
	return t.Device.Close()
}

// pace computes when operations are finished. Times are since start.
type pace struct {
	o     ThrottleOptions
	start time.Time
	free  time.Duration   // when the transfers so far are over
	done  []time.Duration // of the last Depth operations, in turn
	turn  int

	alarms alarms
}

func (p *pace) now() time.Duration { return time.Since(p.start) }

// next says when an operation that comes now is finished: it waits for its turn among Depth, then
// takes its latency, then its bytes follow those of the others.
func (p *pace) next(now time.Duration, op *Op) time.Duration {
	begin := now
	if len(p.done) > 0 {
		begin = max(begin, p.done[p.turn])
	}
	end := max(begin+p.o.Latency, p.free)
	if p.o.BytesPerSecond > 0 && op.Kind != Sync {
		n := 0
		for _, b := range op.Bufs {
			n += len(b)
		}
		end += time.Duration(float64(n) / float64(p.o.BytesPerSecond) * float64(time.Second))
		p.free = end
	}
	if len(p.done) > 0 {
		p.done[p.turn] = end
		p.turn = (p.turn + 1) % len(p.done)
	}
	return end
}

// sleep waits until a time.
func (p *pace) sleep(until time.Duration) {
	left := until - p.now()
	if left <= 0 {
		return
	}
	a, err := p.alarms.take()
	if err == nil {
		err = a.wait(left)
		p.alarms.put(a)
	}
	if err != nil {
		time.Sleep(until - p.now())
	}
}
