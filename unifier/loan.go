package unifier

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// Loan is an access to an object, lent to a reader. Its bytes do not change until Release,
// whatever is written meanwhile. A loan is used by one goroutine at a time.
type Loan struct {
	c      *Cache
	id     Key
	access seg.Access
	hint   Hint
	parts  []lent
	sges   []fabric.Sge
	own    *fill   // started by this loan, nil if all was there
	join   []*fill // of others, that this loan waits for
	need   need
	wait   need // its place in other lines
	tries  int  // for memory
	joins  int  // fills of others that have failed
	posted posted
	live   bool
	next   *Loan // in Cache.spareLoans
}

// lent is what a loan holds of one unit.
type lent struct {
	u     *unit
	index int64
	lo, n int64
}

// posted is what those who do not wait ask.
type posted struct {
	done  atomic.Bool
	err   error         // valid when done
	ready chan struct{} // a token when done
	left  bool          // nobody is interested any more; guarded by Cache.mu
	async bool
}

func (p *posted) start() {
	p.done.Store(false)
	p.err, p.left, p.async = nil, false, true
	if p.ready == nil {
		p.ready = make(chan struct{}, 1)
	}
	select {
	case <-p.ready:
	default:
	}
}

func (p *posted) finish(err error) {
	p.err = err
	p.done.Store(true)
	if p.async {
		p.ready <- struct{}{}
	}
}

func (p *posted) check() (bool, error) {
	if !p.done.Load() {
		return false, nil
	}
	return true, p.err
}

func (p *posted) wait(ctx context.Context) error {
	if p.done.Load() {
		return p.err
	}
	if _, ok := wait.For(ctx, p.ready); !ok {
		return errs.Wrap("unifier.Wait", "", ctx.Err())
	}
	p.ready <- struct{}{} // for whoever asks again
	return p.err
}

// Read lends the bytes of an access. What is missing is read from the backing: adjacent units in
// one read, and a unit that somebody else is fetching is waited for, not read twice. What was
// never written reads as zeroes. It waits while too much is lent; an access that touches more
// units than can be lent at once (see ReadShare) is refused with errs.TooBig.
func (c *Cache) Read(ctx context.Context, id Key, a seg.Access, h Hint) (*Loan, error) {
	if err := checkAccess("unifier.Read", id, a, h); err != nil {
		return nil, err
	}
	c.mu.Lock()
	l, err := c.newLoanLocked(id, a, h)
	if err == nil {
		err = c.lendLocked(ctx, l)
	}
	c.mu.Unlock()
	if l == nil {
		return nil, err
	}
	if err = c.complete(ctx, l, err); err != nil {
		c.unlend(l)
		return nil, err
	}
	return l, nil
}

// Lend is Read of what the cache holds already, found in one step: nil, and nothing has happened,
// when something is missing or still being read, or when readers have to wait for memory.
func (c *Cache) Lend(id Key, a seg.Access, h Hint) *Loan {
	if checkAccess("unifier.Lend", id, a, h) != nil {
		return nil // Read will say why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[id]
	if o == nil || h.Unit != 0 && o.unit() != int64(h.Unit) || !c.gate.Empty() ||
		c.blockedLocked() {
		return nil
	}
	l, err := c.newLoanLocked(id, a, h)
	if err != nil {
		return nil
	}
	if !c.beginLocked(l, o, true) {
		c.forgetLoanLocked(l)
		return nil
	}
	l.cover()
	l.posted.finish(nil)
	return l
}

// filling tells whether somebody is still reading what the loan has pinned.
func (l *Loan) filling() bool {
	for i := range l.parts {
		if l.parts[i].u.fill != nil {
			return true
		}
	}
	return false
}

// PostRead is Read that waits neither for memory nor for the backing. done, if there is one, is
// called once, on another goroutine, when the loan is there or has failed; it must not wait long.
// Otherwise Check and Wait tell. A loan that was posted is always to be released, also when it has
// failed; released before it is done it is given up, and done is not called. errs.Busy when too
// many are posted already.
func (c *Cache) PostRead(id Key, a seg.Access, h Hint, done func(*Loan)) (*Loan, error) {
	if err := checkAccess("unifier.PostRead", id, a, h); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs.len()+c.calls.len() >= postedMax {
		return nil, errs.Newf(errs.Busy, "unifier.PostRead", id.String(), "%d posted", postedMax)
	}
	l, err := c.newLoanLocked(id, a, h)
	if err != nil {
		return nil, err
	}
	l.posted.start()
	q := &c.jobs
	if c.tryLendLocked(l) {
		q = &c.calls
		if l.own == nil && len(l.join) == 0 {
			l.cover()
			if done == nil {
				l.posted.finish(nil)
				return l, nil
			}
		}
	}
	c.postLocked(q, job{loan: l, lent: done})
	return l, nil
}

// serveLoan carries a posted loan on, on a worker.
func (c *Cache) serveLoan(l *Loan, done func(*Loan)) {
	var err error
	c.mu.Lock()
	if len(l.parts) == 0 && !l.posted.left {
		err = c.lendLocked(c.life, l)
	}
	c.mu.Unlock()
	if len(l.sges) == 0 {
		err = c.complete(c.life, l, err)
	}
	c.mu.Lock()
	left := l.posted.left
	if !left {
		l.posted.finish(err)
	}
	c.mu.Unlock()
	if left {
		l.posted.async = false
		c.unlend(l)
	} else if done != nil {
		done(l)
	}
}

// Check tells whether the loan is there, or why it never will be.
func (l *Loan) Check() (done bool, err error) { return l.posted.check() }

// Wait returns when the loan is there, or tells why it never will be, or that ctx has ended.
func (l *Loan) Wait(ctx context.Context) error { return l.posted.wait(ctx) }

// Sges are the pieces of memory that hold the access, in order. They belong to the cache; the
// slice is valid until Release.
func (l *Loan) Sges() []fabric.Sge { return l.sges }

// Sums appends the CRC-32C of each chunk bytes of the loan's stream to dst; the last may be
// shorter. chunk is a multiple of 4 KiB. The sums are joined from those of the blocks; bytes are
// summed only where pieces do not lie on blocks.
func (l *Loan) Sums(dst []uint32, chunk int64) []uint32 {
	s := newStream(dst, chunk)
	for i := range l.parts {
		s.unit(l.parts[i].u, l.parts[i].lo, l.parts[i].n)
	}
	return s.finish()
}

// Release gives the access back. The loan must not be used afterwards.
func (l *Loan) Release() {
	invariant.Check(l.live, "unifier.Loan released twice")
	if l.posted.async && !l.posted.done.Load() {
		l.c.mu.Lock()
		l.posted.left = !l.posted.done.Load()
		left := l.posted.left
		l.c.mu.Unlock()
		if left {
			return
		}
	}
	l.c.unlend(l)
}

func checkAccess(op string, id Key, a seg.Access, h Hint) error {
	if !h.ok() {
		return errs.Newf(errs.Invalid, op, id.String(), "hint %+v", h)
	}
	if err := a.Validate(math.MaxInt64, stripe.MaxObjectBytes); err != nil {
		return errs.Wrap(op, id.String(), err)
	}
	return nil
}

func (c *Cache) newLoanLocked(id Key, a seg.Access, h Hint) (*Loan, error) {
	if c.closed {
		return nil, errs.New(errs.Closed, "unifier.Read", id.String(), nil)
	}
	l := c.spareLoans
	if l == nil {
		l = &Loan{c: c}
	} else {
		c.spareLoans = l.next
	}
	l.id, l.access, l.hint = id, a, h
	l.live, l.next, l.tries, l.joins = true, nil, 0, 0
	c.out++
	return l, nil
}

// joinsMax is how many failures of others a loan takes note of before it fails with the last.
const joinsMax = 8

// complete waits until all units of the loan hold their bytes, and lists them. When another
// reader, whose fill this one has waited for, gives up, it starts again.
func (c *Cache) complete(ctx context.Context, l *Loan, err error) error {
	for err == nil {
		var again bool
		if again, err = c.await(ctx, l); err != nil || !again {
			break
		}
		c.mu.Lock()
		c.letGoLocked(l)
		err = c.lendLocked(ctx, l)
		c.mu.Unlock()
	}
	if err != nil {
		return errs.Wrap("unifier.Read", l.id.String(), err)
	}
	l.cover()
	if !l.posted.async {
		l.posted.finish(nil)
	}
	return nil
}

func (c *Cache) await(ctx context.Context, l *Loan) (again bool, err error) {
	if l.own != nil {
		if err := c.run(ctx, l.own); err != nil {
			return false, err
		}
	}
	for _, f := range l.join {
		if err := c.waitFill(ctx, f, l); err != nil {
			return false, err
		}
		if f.err == nil {
			continue
		}
		// He gave up, or failed on a place that this loan does not need: it tries for itself.
		if l.joins++; l.joins < joinsMax {
			return true, nil
		}
		return false, f.err
	}
	return false, nil
}

// cover lists the memory of the access.
func (l *Loan) cover() {
	var g gather
	for i := range l.parts {
		p := &l.parts[i]
		l.sges = g.sge(l.sges, p.u.blk, int(p.lo), int(p.n))
	}
}

// letGoLocked gives back what the loan holds.
func (c *Cache) letGoLocked(l *Loan) {
	for i := range l.parts {
		if u := l.parts[i].u; u != nil {
			c.unpinLocked(u)
		}
		l.parts[i].u = nil
	}
	for i, f := range l.join {
		c.leaveFillLocked(f)
		l.join[i] = nil
	}
	if l.own != nil {
		c.leaveFillLocked(l.own)
	}
	clear(l.sges)
	l.parts, l.sges, l.join, l.own = l.parts[:0], l.sges[:0], l.join[:0], nil
}

// unlend gives back what a loan holds, and the loan itself.
func (c *Cache) unlend(l *Loan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letGoLocked(l)
	c.giveLocked(&l.need)
	c.feedLocked()
	c.forgetLoanLocked(l)
}

// forgetLoanLocked keeps a loan that holds nothing for the next reader.
func (c *Cache) forgetLoanLocked(l *Loan) {
	l.access, l.live = seg.Access{}, false
	l.posted.async = false
	l.next, c.spareLoans = c.spareLoans, l
	c.out--
}
