package regcache

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/fabric"
)

// List is the registrations of a list of pieces, put together.
type List struct {
	cache  *Cache
	refs   []Ref
	misses []miss // while it is made
	given  []int  // pieces whose Reg was set
	next   *List
}

// miss is a piece that was not registered when the list was begun.
type miss struct {
	extent
	nth int // in pieces
}

// Put ends the use of all pieces. The List must not be used again.
func (l *List) Put() {
	c := l.cache
	var gone []*entry
	c.mu.Lock()
	for _, r := range l.refs {
		if c.putLocked(r) {
			gone = append(gone, r.entry)
		}
	}
	clear(l.refs)
	l.refs, l.misses, l.given = l.refs[:0], l.misses[:0], l.given[:0]
	l.next, c.lists = c.lists, l
	c.mu.Unlock()
	c.deregister(gone)
}

// Registrations is how many different ones the list holds.
func (l *List) Registrations() int { return len(l.refs) }

// GetList is Get for many pieces at once: it sets the Reg of each piece that has none, all or none.
// Pieces of one hinted parent are registered together, either with the whole parent (see Hint) or,
// where that is too large, each group of them whose gaps cost less to register along than one
// registration more. That is optimistic: where the registration of a group fails, its pieces are
// registered one by one. Without a hint only pieces that touch, and are slices of one array, are
// joined.
func (c *Cache) GetList(ctx context.Context, pieces []fabric.Sge) (*List, error) {
	c.mu.Lock()
	l := c.newListLocked()
	for i := range pieces {
		if pieces[i].Reg != nil || len(pieces[i].Buf) == 0 {
			continue
		}
		m := miss{extentOf(pieces[i].Buf), i}
		if l.reuse(pieces, m) {
			c.stats.Hits++
		} else if e, ok := c.cached.find(m.extent); ok {
			c.stats.Hits++
			l.refs = append(l.refs, c.holdLocked(e, pieces[i].Buf))
			l.reuse(pieces, m)
		} else {
			l.misses = append(l.misses, m)
		}
	}
	c.mu.Unlock()
	if err := l.fill(ctx, pieces); err != nil {
		for _, i := range l.given {
			pieces[i].Reg = nil
		}
		l.Put()
		return nil, err
	}
	return l, nil
}

func (c *Cache) newListLocked() *List {
	l := c.lists
	if l == nil {
		return &List{cache: c}
	}
	c.lists, l.next = l.next, nil
	return l
}

// reuse serves a piece from the registration that was added last, if that covers it.
func (l *List) reuse(pieces []fabric.Sge, m miss) bool {
	if len(l.refs) == 0 {
		return false
	}
	last := l.refs[len(l.refs)-1].entry
	if !last.covers(m.extent) {
		return false
	}
	pieces[m.nth].Reg = last.region
	l.given = append(l.given, m.nth)
	return true
}

// fill registers what was missed, group by group.
func (l *List) fill(ctx context.Context, pieces []fabric.Sge) error {
	slices.SortFunc(l.misses, func(a, b miss) int {
		switch {
		case a.lo < b.lo:
			return -1
		case a.lo > b.lo:
			return 1
		}
		return 0
	})
	for rest := l.misses; len(rest) > 0; {
		if l.reuse(pieces, rest[0]) {
			rest = rest[1:]
			continue
		}
		count, span := l.cache.group(pieces, rest)
		group := rest[:count]
		rest = rest[count:]
		if err := l.add(ctx, span); err != nil {
			if count == 1 || ctx.Err() != nil {
				return err
			}
			if err := l.addEach(ctx, pieces, group); err != nil {
				return err
			}
			continue
		}
		for _, m := range group {
			l.reuse(pieces, m)
		}
	}
	return nil
}

func (l *List) add(ctx context.Context, memory []byte) error {
	r, err := l.cache.Get(ctx, memory)
	if err == nil {
		l.refs = append(l.refs, r)
	}
	return err
}

// addEach registers the pieces of a group that could not be registered as one.
func (l *List) addEach(ctx context.Context, pieces []fabric.Sge, group []miss) error {
	l.cache.mu.Lock()
	l.cache.stats.Retreats++
	l.cache.mu.Unlock()
	for _, m := range group {
		if l.reuse(pieces, m) {
			continue
		}
		if err := l.add(ctx, pieces[m.nth].Buf); err != nil {
			return err
		}
		l.reuse(pieces, m)
	}
	return nil
}

// group tells how many of the misses, sorted by address, are registered as one, and as what.
func (c *Cache) group(pieces []fabric.Sge, misses []miss) (count int, span []byte) {
	first := misses[0]
	base := pieces[first.nth].Buf
	c.mu.Lock()
	parent, hinted := c.hints.find(first.extent)
	c.mu.Unlock()
	// Without a parent the array behind the first slice is what the pieces may share, and no gap
	// is allowed; with one, all of it is known to be mapped.
	whole := base[:cap(base)]
	if hinted {
		whole = parent.mem
	}
	room, ext := extentOf(whole), first.extent
	for count = 1; count < len(misses); count++ {
		next := misses[count]
		joined := extent{ext.lo, max(ext.hi, next.hi)}
		if !room.covers(next.extent) || int64(joined.pages())*pageBytes > c.opts.SpanBytes {
			break
		}
		if next.lo > ext.hi && (!hinted || ext.gapTo(next.extent) > c.opts.Costs.gapPages()) {
			break
		}
		ext = joined
	}
	return count, whole[ext.lo-room.lo : ext.hi-room.lo]
}
