package attach

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/errs"
)

// order keeps changes of the same bytes apart, over all connections of a device: a request that the
// kernel sends a second time waits for the first, where that is still under way, and so does what
// comes behind it. Without that an old write could land on a newer one: see the package's comment.
//
// A change that has begun is carried through, whatever becomes of its connection: whether servers
// have got it cannot be known. One that has not begun is given up with its connection. So what is
// left over of connections that have ended is at most changesMax requests, however long servers
// are away and however often the kernel sends all of them again.
//
// What was carried through for nobody is remembered: the kernel sends it once more, and has its
// answer at once. Without that a change that takes longer than the kernel waits would be made again
// and again, and never be answered.
type order struct {
	places chan struct{} // one for each change that has begun, or waits for one that has
	seed   maphash.Seed

	mu    sync.Mutex
	under map[*change]struct{} // have begun
	made  []made               // for nobody, the oldest first; nothing has changed their bytes since
}

// changesMax is how many changes are under way at a time: what the kernel sends through two
// connections with full queues of 128 each. Looking at all of them takes less than a request's
// system calls do. As many are remembered.
const changesMax = 256

// change is some ranges of bytes that are being changed, or none for what changes no bytes.
type change struct {
	what what
	list []span
	data [][]byte // of a write, that of each range
	done chan struct{}
}

// what a change is. The durable ones are others, because their answer says more.
type what uint8

const (
	isFlush what = iota
	isWrite
	isTrim
	isZeroes
	isDurable what = 1 << 7
)

func (w what) durable(fua bool) what {
	if fua {
		w |= isDurable
	}
	return w
}

// made is a range that was changed, and with what.
type made struct {
	what what
	span span
	sum  uint64 // of the data of a write
}

// span is a range of bytes.
type span struct{ off, length int64 }

func (s span) meets(t span) bool { return s.off < t.off+t.length && t.off < s.off+s.length }

func (c *change) meets(list []span) bool {
	for _, s := range c.list {
		for _, t := range list {
			if s.meets(t) {
				return true
			}
		}
	}
	return false
}

func newOrder() *order {
	return &order{places: make(chan struct{}, changesMax), under: make(map[*change]struct{}),
		seed: maphash.MakeSeed()}
}

// run makes a change, behind all that has begun on the same bytes. link ends with the connection;
// fn is not told of that.
func (o *order) run(ctx, link context.Context, c *change, fn func(context.Context) error) error {
	select {
	case o.places <- struct{}{}:
		defer func() { <-o.places }()
	case <-link.Done():
		return errEnded
	}
	c.done = make(chan struct{})
	for {
		other, known := o.begin(c)
		if known {
			return nil
		}
		if other == nil {
			break
		}
		select {
		case <-other.done:
		case <-link.Done():
			return errEnded
		}
	}
	if link.Err() != nil {
		o.finish(c, false)
		return errEnded
	}
	err := fn(context.WithoutCancel(ctx))
	o.finish(c, err == nil && link.Err() != nil)
	return err
}

// begin counts a change in, unless another one is in its way, or it is known to have been made.
func (o *order) begin(c *change) (other *change, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for other := range o.under {
		if other.meets(c.list) {
			return other, false
		}
	}
	if len(o.made) > 0 && o.knownLocked(c) {
		return nil, true
	}
	o.under[c] = struct{}{}
	return nil, false
}

// knownLocked tells whether all of a change was made before for nobody. Either way that is
// forgotten: it is answered now, or the bytes are changed.
func (o *order) knownLocked(c *change) bool {
	found := 0
	for i, s := range c.list {
		found += len(slices.DeleteFunc(slices.Clone(o.made), func(m made) bool {
			return m.what != c.what || m.span != s || m.sum != o.sum(c, i)
		}))
	}
	o.made = slices.DeleteFunc(o.made, func(m made) bool { return c.meets([]span{m.span}) })
	return found > 0 && found == len(c.list)
}

// sum is that of the data of a range.
func (o *order) sum(c *change, i int) uint64 {
	if c.data == nil {
		return 0
	}
	return maphash.Bytes(o.seed, c.data[i])
}

// anyMade tells whether something is remembered.
func (o *order) anyMade() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.made) > 0
}

// finish counts a change out. forNobody: it was made, and nobody was there to be told.
func (o *order) finish(c *change, forNobody bool) {
	o.mu.Lock()
	delete(o.under, c)
	if forNobody {
		for i, s := range c.list {
			o.made = append(o.made, made{c.what, s, o.sum(c, i)})
		}
		if n := len(o.made) - changesMax; n > 0 {
			o.made = slices.Delete(o.made, 0, n)
		}
	}
	o.mu.Unlock()
	close(c.done)
}

// begun is how many changes have begun and not ended.
func (o *order) begun() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.under)
}

// errEnded is the answer to a request whose connection has ended; nobody reads it.
var errEnded = errs.Newf(errs.Disconnected, "attach", "", "the connection has ended")
