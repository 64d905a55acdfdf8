package regcache

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Use is the registrations that one request holds. The zero value is ready for Take, and so it is
// after End.
type Use struct {
	cache  *Cache
	held   []*entry
	missed []miss
	spans  []span
}

// miss is a piece of memory that is not registered.
type miss struct {
	extent
	nth int // piece of the request
}

// span is memory that is registered in one: a missed piece, or several of one object with so little
// between them that it costs less to register that too.
type span struct {
	extent
	mem    []byte
	heap   bool // Go has allocated it: it can be kept
	missed []miss
}

// Take gives each piece the region that its memory lies in, and tells true: End must follow when
// the request is over. Or it gives none and tells false: the data is to be copied. The memory is
// the request's until End.
func (c *Cache) Take(u *Use, pieces []fabric.Sge) bool {
	u.cache = c
	bytes := u.find(pieces)
	if len(u.missed) == 0 || u.worthwhile(pieces, bytes) && u.register(pieces) {
		return true
	}
	u.End()
	for i := range pieces {
		pieces[i].Reg = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Copied++
	c.stats.CopiedBytes += uint64(bytes)
	return false
}

// find gives regions to the pieces whose memory is registered, and lists the others in missed. It
// returns the length of all.
func (u *Use) find(pieces []fabric.Sge) (bytes int64) {
	c := u.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range pieces {
		if len(pieces[i].Buf) == 0 {
			continue
		}
		bytes += int64(len(pieces[i].Buf))
		m := miss{extentOf(pieces[i].Buf), i}
		last := len(u.held) - 1
		if last < 0 || !u.held[last].covers(m.extent) {
			e := c.cached.find(m.extent)
			if e == nil {
				u.missed = append(u.missed, m)
				continue
			}
			c.holdLocked(e)
			u.held = append(u.held, e)
			last++
		}
		pieces[i].Reg = u.held[last].region
	}
	if len(u.missed) == 0 {
		c.stats.Hits++
	}
	return bytes
}

// uses is how often memory is expected to be used that comes for the second time.
const uses = 4

// worthwhile tells whether to register what was missed of a request of so many bytes, and divides
// it into spans. All of the data would be copied, also what lies in registered memory: the
// copying side has no regions of the program's.
func (u *Use) worthwhile(pieces []fabric.Sge, bytes int64) bool {
	c := u.cache
	c.measuring.Do(c.measure)
	if !c.costs.known() {
		return false
	}
	u.join(pieces, c.costs.gapPages())
	registering, again := time.Duration(0), true
	c.mu.Lock()
	for i := range u.spans {
		registering += c.costs.registering(u.spans[i].extent)
		again = c.seen.again(&u.spans[i]) && again
	}
	c.mu.Unlock()
	copying := c.costs.copying(bytes)
	return registering <= copying || again && registering <= uses*copying
}

// join divides what was missed into spans. All of an object that Go has allocated is mapped, so
// that two pieces of one are registered together where the gap costs less than one registration
// more. Of other memory only the pieces themselves are known to be there.
func (u *Use) join(pieces []fabric.Sge, gapPages uintptr) {
	slices.SortFunc(u.missed, func(a, b miss) int { return cmp.Compare(a.lo, b.lo) })
	for rest := u.missed; len(rest) > 0; {
		s := span{extent: rest[0].extent, mem: pieces[rest[0].nth].Buf}
		object := objectOf(s.mem)
		s.heap = object != 0
		count := 1
		for ; s.heap && count < len(rest); count++ {
			next := rest[count]
			if s.gapTo(next.extent) > gapPages || objectOf(pieces[next.nth].Buf) != object {
				break
			}
			s.hi = max(s.hi, next.hi)
		}
		s.mem = stretch(s.mem, s.hi-s.lo)
		s.missed, rest = rest[:count], rest[count:]
		u.spans = append(u.spans, s)
	}
}

// register registers the spans. When it fails some may be registered: End ends their use.
func (u *Use) register(pieces []fabric.Sge) bool {
	for i := range u.spans {
		s := &u.spans[i]
		e, err := u.cache.register(s)
		if err != nil {
			u.cache.refused(err)
			return false
		}
		u.held = append(u.held, e)
		for _, m := range s.missed {
			pieces[m.nth].Reg = e.region
		}
	}
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	u.cache.stats.Misses++
	return true
}

// refused counts a registration that could not be made. Having no room is no news.
func (c *Cache) refused(err error) {
	c.mu.Lock()
	c.stats.Refused++
	told := c.told || errs.KindOf(err) == errs.Again
	c.told = c.told || !told
	c.mu.Unlock()
	if !told {
		c.opts.Logger.Warn("memory of this program cannot be registered: its data is copied",
			"provider", c.domain.Caps().Provider, "err", err)
	}
}

// End ends the use. Operations on the memory must be completed, and grants on it revoked.
func (u *Use) End() {
	if c := u.cache; c != nil {
		c.release(u.held)
	}
	clear(u.held)
	clear(u.spans)
	u.held, u.missed, u.spans = u.held[:0], u.missed[:0], u.spans[:0]
}
