package unifier

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// Loan is a range of an object, lent to a reader. Its bytes do not change until Release,
// whatever is written meanwhile. A loan is used by one goroutine at a time.
type Loan struct {
	c     *Cache
	units []*unit
	sges  []fabric.Sge
	own   *fill   // started by this loan, nil if all was there
	join  []*fill // of others, that this loan waits for
	live  bool
	next  *Loan // in Cache.loans

	id     Key
	access seg.Access
	count  int64 // units reserved
	ready  chan struct{}
	err    error
}

// Sges are the pieces of memory that hold the range, in order. They belong to the cache; the
// slice is valid until Release.
func (l *Loan) Sges() []fabric.Sge { return l.sges }

// Sums appends the CRC-32C of each chunk bytes of the loan's stream; the last may be shorter.
func (l *Loan) Sums(dst []uint32, chunk int64) []uint32 { return sumSges(dst, l.sges, chunk) }

// sumSges sums a stream of pieces chunk by chunk.
func sumSges(dst []uint32, sges []fabric.Sge, chunk int64) []uint32 {
	var crc uint32
	left := chunk
	for _, s := range sges {
		for b := s.Buf; len(b) > 0; {
			n := min(left, int64(len(b)))
			crc = crc32c.Update(crc, b[:n])
			b = b[n:]
			if left -= n; left == 0 {
				dst, crc, left = append(dst, crc), 0, chunk
			}
		}
	}
	if left < chunk {
		dst = append(dst, crc)
	}
	return dst
}

// Release gives the range back. The loan must not be used afterwards.
func (l *Loan) Release() {
	invariant.Check(l.live, "unifier.Loan released twice")
	l.c.unlend(l)
}

// Read lends the bytes of an access to one object. What is missing is read from the backing:
// adjacent units in one read, and a unit that somebody else is fetching is waited for, not
// read twice. What was never written reads as zeroes. It waits while more than ReadShare is
// lent. An access that touches more units than that is refused with errs.TooBig.
func (c *Cache) Read(ctx context.Context, id Key, a seg.Access, h Hint) (*Loan, error) {
	l, err := c.open(id, a)
	if err != nil {
		return nil, err
	}
	if err := c.serve(ctx, l); err != nil {
		c.unlend(l)
		return nil, err
	}
	return l, nil
}

// PostRead starts Read and does not wait: Check, Wait or done tell when the loan is there.
func (c *Cache) PostRead(id Key, a seg.Access, h Hint, done func(*Loan)) (*Loan, error) {
	l, err := c.open(id, a)
	if err != nil {
		return nil, err
	}
	l.ready = make(chan struct{})
	go func() {
		l.err = c.serve(context.Background(), l)
		close(l.ready)
		if done != nil {
			done(l)
		}
	}()
	return l, nil
}

// Check tells whether the loan is there, or why it never will be.
func (l *Loan) Check() (done bool, err error) {
	if l.ready == nil {
		return true, nil
	}
	select {
	case <-l.ready:
		return true, l.err
	default:
		return false, nil
	}
}

// Wait returns when the loan is there, or why it never will be.
func (l *Loan) Wait(ctx context.Context) error {
	if l.ready == nil {
		return nil
	}
	select {
	case <-l.ready:
		return l.err
	case <-ctx.Done():
		return errs.Wrap("unifier.Wait", "", ctx.Err())
	}
}

func (c *Cache) open(id Key, a seg.Access) (*Loan, error) {
	if err := a.Validate(math.MaxInt64, stripe.MaxObjectBytes); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errs.New(errs.Closed, "unifier.Read", id.String(), nil)
	}
	l := c.newLoanLocked()
	l.id, l.access = id, a
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return l, nil
		}
		l.count += (p.End()-1)/c.unit - p.Off/c.unit + 1
	}
}

func (c *Cache) serve(ctx context.Context, l *Loan) error {
	const op = "unifier.Read"
	count := l.count
	l.count = 0
	if count > c.reads.Total() {
		return errs.Newf(errs.TooBig, op, l.id.String(),
			"the access touches %d units, at most %d can be lent", count, c.reads.Total())
	}
	if err := c.reads.Acquire(ctx, count); err != nil {
		return errs.Wrap(op, l.id.String(), err)
	}
	l.count = count
	for {
		c.lend(l)
		again, err := c.complete(ctx, l)
		if again {
			c.letGo(l)
			continue
		}
		if err != nil {
			return errs.Wrap(op, l.id.String(), err)
		}
		l.cover()
		return nil
	}
}

// lend pins what is there and starts the fill of what is not.
func (c *Cache) lend(l *Loan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.count == 0 {
		return
	}
	o := c.objectLocked(l.id)
	for cur := l.access.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return
		}
		c.lendPieceLocked(l, o, p.Off, p.Len)
	}
}

func (c *Cache) lendPieceLocked(l *Loan, o *object, off, length int64) {
	for index := off / c.unit; index*c.unit < off+length; index++ {
		u := o.units[index]
		switch {
		case u == nil:
			c.stats.Misses++
			u = c.startLocked(o, index, l)
		case u.fill != nil:
			c.stats.Misses++
			c.pinLocked(u)
			if u.fill != l.own && (len(l.join) == 0 || l.join[len(l.join)-1] != u.fill) {
				l.join = append(l.join, u.fill)
			}
		default:
			c.stats.Hits++
			c.pinLocked(u)
		}
		base := index * c.unit
		c.policy.touch(u, max(off-base, 0), min(off+length-base, c.unit))
		l.units = append(l.units, u)
	}
}

func (c *Cache) newLoanLocked() *Loan {
	l := c.loans
	if l == nil {
		l = &Loan{c: c}
	} else {
		c.loans = l.next
	}
	l.live, l.next = true, nil
	return l
}

// complete waits until all units of the loan hold their bytes. again is true when another
// reader, whose fill this one has waited for, gave up.
func (c *Cache) complete(ctx context.Context, l *Loan) (again bool, err error) {
	if l.own != nil {
		if err := c.run(ctx, l.own); err != nil {
			return false, err
		}
	}
	for _, f := range l.join {
		select {
		case <-f.done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		switch errs.KindOf(f.err) {
		case errs.OK:
		case errs.Canceled, errs.TimedOut:
			return true, nil
		default:
			return false, f.err
		}
	}
	return false, nil
}

// cover lists the memory of the access.
func (l *Loan) cover() {
	unit, i := l.c.unit, 0
	for cur := l.access.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return
		}
		for off := p.Off; off < p.End(); i++ {
			lo := off % unit
			n := min(unit-lo, p.End()-off)
			l.sges = append(l.sges, l.units[i].buf.Sge(int(lo), int(n)))
			off += n
		}
	}
}

// letGo gives back the units of a loan, but not its share of the memory.
func (c *Cache) letGo(l *Loan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, u := range l.units {
		c.unpinLocked(u)
		l.units[i] = nil
	}
	clear(l.sges)
	clear(l.join)
	l.units, l.sges, l.join = l.units[:0], l.sges[:0], l.join[:0]
	l.own = nil
}

// unlend gives back what a loan holds, and the loan itself.
func (c *Cache) unlend(l *Loan) {
	count := l.count
	c.letGo(l)
	c.mu.Lock()
	*l = Loan{c: c, units: l.units, sges: l.sges, join: l.join, next: c.loans}
	c.loans = l
	c.mu.Unlock()
	c.reads.Release(count)
}
