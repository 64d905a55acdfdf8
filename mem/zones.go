package mem

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
)

// The classes of zones: buffers of 64 KiB, 128 KiB and so on up to 2 MiB. A unit of transfer below
// that costs more in messages than it saves in memory, and one above gains nothing: two units a
// request already let disk and network overlap.
const (
	Classes  = 6
	ClassMin = 64 << 10
	ClassMax = ClassMin << (Classes - 1)
)

// ClassBytes is the size of the buffers of class k, from 0.
func ClassBytes(k int) int { return ClassMin << k }

// classOf is the smallest class whose buffers hold n bytes, for n up to ClassMax.
func classOf(n int) int { return bits.Len(uint((n - 1) / ClassMin)) }

// ZonesOptions say how many buffers there are.
type ZonesOptions struct {
	// Counts are the numbers of buffers, by class. Default: Spread of what the arena has left.
	Counts [Classes]int
}

// Spread divides bytes among the classes, the same number of bytes to each; what does not fill a
// buffer of one class goes to the next smaller one. Less than ClassMin bytes are left over.
func Spread(bytes int) [Classes]int {
	var counts [Classes]int
	share, rest := bytes/Classes, bytes%Classes
	for k := Classes - 1; k >= 0; k-- {
		rest += share
		counts[k] = rest / ClassBytes(k)
		rest %= ClassBytes(k)
	}
	return counts
}

// ZonesBytes is how large an arena must be for these numbers of buffers.
func ZonesBytes(counts [Classes]int) int {
	n := 0
	for k, count := range counts {
		n += count * ClassBytes(k)
	}
	return n
}

// Zones are buffers of several sizes, shared by several users. A transfer gets a buffer of the
// smallest class that holds it; if there is none, of the next bigger class that has one (it falls
// up); if there is none either, it is chopped into several smaller ones, big ones first. Buffers
// themselves are never split, so memory does not fragment.
//
// Sharing: each user has a share of all bytes by its weight. While nobody waits, any user may take
// any buffers. Otherwise users that hold less than their share come first, the oldest request
// first; a user that holds its share or more waits until no such request is left. The next request
// blocks all others until it fits, however large it is: so no request starves, as long as buffers
// are returned. A request is given all of its buffers in one step. A user that takes more while it
// holds some can wait for ever behind users below their share: it should ask for everything at
// once.
//
// Safe for concurrent use. Taking and returning allocates nothing, and while nobody waits locks
// only the zones it touches.
type Zones struct {
	total int64 // bytes of all buffers
	zones [Classes]zone

	fellUp, chopped atomic.Uint64

	// waiting is the number of requests in all queues. It is changed under mu and read without it:
	// Return reads it after it has put the buffer back, and a waiter increments it before it looks for
	// buffers, so that no wake-up is lost.
	waiting atomic.Int32

	mu      sync.Mutex
	users   []*User
	weights int64              // of all users
	queue   []*User            // users with waiting requests
	arrival uint64             // requests that waited so far
	idle    list.List[request] // for reuse
	closed  bool
}

// zone is a list of equal buffers. Each has a lock of its own.
type zone struct {
	zones *Zones
	bufs  []Buf

	mu    sync.Mutex
	free  []*Buf // a stack: the last one returned is most likely in the processor's cache
	low   int    // the fewest that were free at one time
	takes uint64

	_ [64]byte // keeps the locks of two zones out of one cache line
}

// NewZones cuts the buffers from a, big ones first, so that each starts on a multiple of its size
// in the arena if nothing was cut before.
func NewZones(a *Arena, opts ZonesOptions) (*Zones, error) {
	if opts.Counts == ([Classes]int{}) {
		a.mu.Lock()
		opts.Counts = Spread(len(a.mem) - roundUp(a.cut, ClassMin))
		a.mu.Unlock()
	}
	z := &Zones{}
	for k := Classes - 1; k >= 0; k-- {
		count := opts.Counts[k]
		if count < 0 {
			return nil, errs.Newf(errs.Invalid, "mem.NewZones", "", "%d buffers of %d bytes",
				count, ClassBytes(k))
		}
		if err := z.zones[k].build(z, a, ClassBytes(k), count); err != nil {
			return nil, errs.Wrap("mem.NewZones", "", err)
		}
		z.total += int64(count) * int64(ClassBytes(k))
	}
	if z.total == 0 {
		return nil, errs.Newf(errs.Invalid, "mem.NewZones", "", "not a single buffer")
	}
	for k := range z.zones {
		a.addHome(&z.zones[k])
	}
	return z, nil
}

func (l *zone) build(z *Zones, a *Arena, size, count int) error {
	l.zones, l.low = z, count
	l.bufs, l.free = make([]Buf, count), make([]*Buf, 0, count)
	for i := range l.bufs {
		mem, err := a.Cut(size, alignment(size))
		if err != nil {
			return err
		}
		b := &l.bufs[i]
		b.home, b.arena, b.mem, b.nth = l, a, mem, i
		if invariant.Enabled {
			b.poison()
		}
	}
	for i := range l.bufs {
		l.free = append(l.free, &l.bufs[count-1-i])
	}
	return nil
}

// pop moves up to count free buffers to dst.
func (l *zone) pop(dst []*Buf, count int) []*Buf {
	if len(l.bufs) == 0 {
		return dst
	}
	l.mu.Lock()
	n := len(l.free)
	count = min(count, n)
	for i := range count {
		dst = append(dst, l.free[n-1-i])
	}
	l.free = l.free[:n-count]
	l.low = min(l.low, n-count)
	l.takes += uint64(count)
	l.mu.Unlock()
	return dst
}

func (l *zone) push(b *Buf) {
	l.mu.Lock()
	l.free = append(l.free, b)
	l.mu.Unlock()
}

// put frees a buffer and dispatches waiting requests.
func (l *zone) put(b *Buf) {
	u := b.user
	b.user = nil
	u.held.Add(-int64(len(b.mem)))
	l.push(b)
	l.zones.wake()
}

func (l *zone) all() []Buf { return l.bufs }

// cover takes buffers for one transfer of n bytes: it falls up, else it chops. It tells whether
// there were enough; what it took is in dst in either case.
func (z *Zones) cover(dst []*Buf, n int) ([]*Buf, bool) {
	for ; n > ClassMax; n -= ClassMax {
		var ok bool
		if dst, ok = z.cover(dst, ClassMax); !ok {
			return dst, false
		}
	}
	own, had := classOf(n), len(dst)
	for k := own; k < Classes; k++ {
		if dst = z.zones[k].pop(dst, 1); len(dst) > had {
			if k > own {
				z.fellUp.Add(1)
			}
			return dst, true
		}
	}
	for k := own - 1; k >= 0 && n > 0; k-- {
		size := ClassBytes(k)
		before := len(dst)
		dst = z.zones[k].pop(dst, (n+size-1)/size)
		n -= (len(dst) - before) * size
	}
	if n > 0 {
		return dst, false
	}
	z.chopped.Add(1)
	return dst, true
}

// grab takes buffers for all of the sizes, for u, or none.
func (z *Zones) grab(u *User, sizes []int, dst []*Buf) ([]*Buf, bool) {
	had, ok := len(dst), true
	for _, n := range sizes {
		if dst, ok = z.cover(dst, n); !ok {
			break
		}
	}
	if !ok {
		for _, b := range dst[had:] {
			b.home.(*zone).push(b)
		}
		return dst[:had], false
	}
	var bytes int64
	for _, b := range dst[had:] {
		b.user = u
		bytes += int64(len(b.mem))
	}
	u.held.Add(bytes)
	return dst, true
}

// possible tells whether the sizes can be covered when every buffer is free. It follows cover on
// numbers alone.
func (z *Zones) possible(sizes []int) bool {
	var free [Classes]int
	for k := range free {
		free[k] = len(z.zones[k].bufs)
	}
	for _, n := range sizes {
		for ; n > ClassMax; n -= ClassMax {
			if !coverCount(&free, ClassMax) {
				return false
			}
		}
		if !coverCount(&free, n) {
			return false
		}
	}
	return true
}

func coverCount(free *[Classes]int, n int) bool {
	own := classOf(n)
	for k := own; k < Classes; k++ {
		if free[k] > 0 {
			free[k]--
			return true
		}
	}
	for k := own - 1; k >= 0 && n > 0; k-- {
		size := ClassBytes(k)
		count := min(free[k], (n+size-1)/size)
		free[k] -= count
		n -= count * size
	}
	return n <= 0
}

// ClassStats describe one zone at one moment.
type ClassStats struct {
	BufBytes  int    // size of one buffer
	Count     int    // buffers in all
	InUse     int    // taken and not yet returned
	HighWater int    // the largest InUse so far
	Takes     uint64 // buffers taken so far
}

// ZonesStats describe zones at one moment.
type ZonesStats struct {
	Class   [Classes]ClassStats
	FellUp  uint64 // transfers that got a bigger buffer
	Chopped uint64 // transfers that got several smaller ones
	Waits   uint64 // requests that had to wait
	Waiting int    // requests that wait now
	Users   int
}

// Stats returns the counters of the zones.
func (z *Zones) Stats() ZonesStats {
	s := ZonesStats{FellUp: z.fellUp.Load(), Chopped: z.chopped.Load()}
	for k := range z.zones {
		l := &z.zones[k]
		l.mu.Lock()
		s.Class[k] = ClassStats{
			BufBytes: ClassBytes(k), Count: len(l.bufs), InUse: len(l.bufs) - len(l.free),
			HighWater: len(l.bufs) - l.low, Takes: l.takes,
		}
		l.mu.Unlock()
	}
	z.mu.Lock()
	s.Waits, s.Waiting, s.Users = z.arrival, int(z.waiting.Load()), len(z.users)
	z.mu.Unlock()
	return s
}

// Close fails waiting requests with errs.Closed and ends all users. Buffers that are still taken
// make it return errs.Busy, or panic with the name of one of them under -tags invariants. It does
// not close the arena.
func (z *Zones) Close() error {
	z.mu.Lock()
	z.closed = true
	users := append([]*User(nil), z.users...)
	z.mu.Unlock()
	for _, u := range users {
		u.Close()
	}
	out := 0
	for k := range z.zones {
		l := &z.zones[k]
		if invariant.Enabled {
			checkLeaks(l)
		}
		l.mu.Lock()
		out += len(l.bufs) - len(l.free)
		l.mu.Unlock()
	}
	if out > 0 {
		return errs.Newf(errs.Busy, "mem.Zones.Close", "", "%d buffers are not returned", out)
	}
	return nil
}
