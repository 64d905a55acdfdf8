package regcache

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Use is the registrations that one request holds. The zero value is ready for Take, and so it is
// after End.
type Use struct {
	cache  *Cache
	held   []*entry
	missed []miss
	spans  []span
}

// miss is a piece of a request whose memory is not registered.
type miss struct {
	extent
	mem []byte // what to register: the piece, or the operation's buffer that it is a part of
	nth int    // piece
}

// span is memory that is registered in one: what was missed of one buffer, or of several that are
// parts of one object with so little between them that it costs less to register that too.
type span struct {
	extent
	mem    []byte
	data   int64 // bytes that are transferred
	heap   bool  // Go has allocated it: it can be kept
	missed []miss
}

// Take sets the region of each piece and returns true: End must follow when the request is over. Or
// it sets none and returns false: the data is to be copied. op, if not nil, is the operation that
// the request is a part of: its buffers are registered whole, once for all its requests. The memory
// is the request's until End.
func (c *Cache) Take(u *Use, pieces []fabric.Sge, op *mem.Operation) bool {
	u.cache = c
	u.find(pieces, op)
	if len(u.missed) == 0 || u.worthwhile(op) && u.register(pieces) {
		return true
	}
	u.End()
	for i := range pieces {
		pieces[i].Reg = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Copied++
	return false
}

// find sets the regions of the pieces whose memory is registered, and lists the others in missed.
func (u *Use) find(pieces []fabric.Sge, op *mem.Operation) {
	var bufs [][]byte
	if op != nil {
		bufs = op.Bufs
	}
	c := u.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range pieces {
		if len(pieces[i].Buf) == 0 {
			continue
		}
		ext, last := extentOf(pieces[i].Buf), len(u.held)-1
		if last >= 0 && u.held[last].covers(ext) {
			pieces[i].Reg = u.held[last].region
			continue
		}
		m := miss{ext, pieces[i].Buf, i}
		for ; len(bufs) > 0; bufs = bufs[1:] { // pieces come in the order of their buffers
			if whole := extentOf(bufs[0]); whole.covers(ext) {
				m.extent, m.mem = whole, bufs[0]
				break
			}
		}
		e := c.findLocked(ext, m.extent)
		if e == nil {
			u.missed = append(u.missed, m)
			continue
		}
		c.holdLocked(e)
		u.held = append(u.held, e)
		pieces[i].Reg = e.region
	}
	if len(u.missed) == 0 {
		c.stats.Hits++
	}
}

// uses is how many uses are expected of memory that comes for the second time.
const uses = 4

// worthwhile divides what was missed into spans and tells whether to register them. Memory of the
// request that is registered already is not counted, although it would be copied too: a
// conservative estimate.
func (u *Use) worthwhile(op *mem.Operation) bool {
	c := u.cache
	c.measuring.Do(c.measure)
	if !c.costs.known() {
		return false
	}
	u.join(c.costs.gapPages())
	var registering, copying time.Duration
	again := true
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range u.spans {
		s := &u.spans[i]
		registering += c.costs.registering(s.extent)
		copying += c.costs.copying(s.data)
		again = c.seen.again(s, op) && again
	}
	if op != nil && op.Hinted {
		return true // the caller knows that one registration serves many pieces
	}
	return registering <= copying || again && registering <= uses*copying
}

// join divides what was missed into spans. All of an object that Go has allocated is mapped, so
// that two buffers of one object are registered together where the gap costs less than another
// registration. Of other memory only the buffers themselves are known to be mapped.
func (u *Use) join(gapPages uintptr) {
	slices.SortFunc(u.missed, func(a, b miss) int { return cmp.Compare(a.lo, b.lo) })
	for rest := u.missed; len(rest) > 0; {
		s := span{extent: rest[0].extent, mem: rest[0].mem, data: int64(len(rest[0].mem))}
		object := objectOf(s.mem)
		s.heap = object != 0
		count := 1
		for ; count < len(rest); count++ {
			next := &rest[count]
			if next.extent == rest[count-1].extent {
				continue
			}
			if !s.heap || s.gapTo(next.extent) > gapPages || objectOf(next.mem) != object {
				break
			}
			s.hi = max(s.hi, next.hi)
			s.data += int64(len(next.mem))
		}
		s.mem = stretch(s.mem, s.hi-s.lo)
		s.missed, rest = rest[:count], rest[count:]
		u.spans = append(u.spans, s)
	}
}

// register registers the spans, one at a time in all of the cache: requests of one operation, which
// come at once, find what the first of them has made. When it fails some may be registered: End
// ends their use.
func (u *Use) register(pieces []fabric.Sge) bool {
	c := u.cache
	c.making.Lock()
	defer c.making.Unlock()
	for i := range u.spans {
		s := &u.spans[i]
		e, err := c.findOrRegister(s)
		if err != nil {
			c.refused(err)
			return false
		}
		u.held = append(u.held, e)
		for _, m := range s.missed {
			pieces[m.nth].Reg = e.region
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Misses++
	return true
}

// refused counts a registration that failed, and logs the first one that the host refused.
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
	clear(u.missed)
	clear(u.spans)
	u.held, u.missed, u.spans = u.held[:0], u.missed[:0], u.spans[:0]
}
