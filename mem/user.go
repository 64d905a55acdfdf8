package mem

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
)

// UserOptions describe a user of zones.
type UserOptions struct {
	// Name is what errors and Stats call it. Default "".
	Name string

	// Weight is its part of the sum of all users' weights, and thus of all bytes. Default 1.
	Weight int
}

func (o UserOptions) withDefaults() UserOptions {
	if o.Weight == 0 {
		o.Weight = 1
	}
	return o
}

func (o UserOptions) validate() error {
	if o.Weight < 1 || o.Weight > 1<<20 {
		return errs.Newf(errs.Invalid, "mem.NewUser", o.Name, "weight %d", o.Weight)
	}
	return nil
}

// User is one of several users of zones, for example a client of a server. Safe for concurrent use.
type User struct {
	zones  *Zones
	name   string
	weight int64
	held   atomic.Int64 // bytes of buffers that are out
	closed atomic.Bool  // set under zones.mu

	// Guarded by zones.mu.
	share    int64              // bytes
	requests list.List[request] // those that wait, oldest first
	waiting  int
}

// request is one blocked Take. dst grows only while it waits, under zones.mu.
type request struct {
	wait.Waiter
	user    *User
	arrival uint64
	sizes   []int
	dst     []*Buf
	link    list.Link[request] // in its user's requests; in Zones.idle
}

// NewUser adds a user. The shares of the others shrink accordingly; they keep what they hold.
func (z *Zones) NewUser(opts UserOptions) (*User, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	u := &User{zones: z, name: opts.Name, weight: int64(opts.Weight)}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.closed {
		return nil, errs.New(errs.Closed, "mem.NewUser", opts.Name, nil)
	}
	z.users = append(z.users, u)
	z.weights += u.weight
	z.divideLocked()
	return u, nil
}

// divideLocked computes the users' shares.
func (z *Zones) divideLocked() {
	for _, u := range z.users {
		// Weights are bounded so that this does not overflow below 2^43 bytes of memory. A user that
		// holds nothing is below its share, however small that is, or it could starve.
		u.share = max(z.total*u.weight/z.weights, 1)
	}
}

// Take takes buffers for a transfer of n bytes and appends them to dst: one of at least n bytes, or
// several, to be filled in order, that hold at least n bytes together. A transfer of more than
// ClassMax is taken as one of ClassMax after another. It waits for its turn until ctx ends. Each
// buffer is returned by its own Return, in any order. n that is not positive, or more than all
// buffers can hold, is errs.Invalid.
func (u *User) Take(ctx context.Context, n int, dst []*Buf) ([]*Buf, error) {
	sizes := [1]int{n}
	return u.TakeList(ctx, sizes[:], dst)
}

// TakeList is Take for several transfers, all or none. The buffers of the first come first; those
// of one transfer are as many as it takes to reach its size.
func (u *User) TakeList(ctx context.Context, sizes []int, dst []*Buf) ([]*Buf, error) {
	if err := u.check(sizes); err != nil {
		return dst, err
	}
	had := len(dst)
	if u.zones.waiting.Load() == 0 {
		if got, ok := u.zones.grab(u, sizes, dst); ok {
			return handOutAll(got, had), nil
		}
	}
	return u.wait(ctx, sizes, dst)
}

// TryTake is Take that returns false instead of waiting. It does not overtake waiting requests. It
// may also return false while another call that will fail holds buffers for a moment.
func (u *User) TryTake(n int, dst []*Buf) ([]*Buf, bool) {
	sizes, had := [1]int{n}, len(dst)
	if u.check(sizes[:]) != nil || u.zones.waiting.Load() > 0 {
		return dst, false
	}
	dst, ok := u.zones.grab(u, sizes[:], dst)
	if !ok {
		// A request may have begun to wait while the buffers were tried.
		u.zones.wake()
		return dst, false
	}
	return handOutAll(dst, had), true
}

func handOutAll(dst []*Buf, from int) []*Buf {
	for _, b := range dst[from:] {
		b.handOut()
	}
	return dst
}

func (u *User) check(sizes []int) error {
	for _, n := range sizes {
		if n <= 0 {
			return errs.Newf(errs.Invalid, "mem.Take", u.name, "%d bytes", n)
		}
	}
	if u.closed.Load() {
		return errs.New(errs.Closed, "mem.Take", u.name, nil)
	}
	return nil
}

// wait queues a request and blocks until it is granted or given up.
func (u *User) wait(ctx context.Context, sizes []int, dst []*Buf) ([]*Buf, error) {
	z, had := u.zones, len(dst)
	if !z.possible(sizes) {
		return dst, errs.Newf(errs.Invalid, "mem.Take", u.name,
			"all %d bytes of buffers together cannot hold the request", z.total)
	}
	z.mu.Lock()
	if u.closed.Load() {
		z.mu.Unlock()
		return dst, errs.New(errs.Closed, "mem.Take", u.name, nil)
	}
	r := z.enqueueLocked(u, sizes, dst)
	z.dispatchLocked()
	z.mu.Unlock()

	woken, err := r.Wait(ctx)
	z.mu.Lock()
	switch {
	case woken:
	case r.link.In():
		u.removeLocked(r)
		err = errs.New(errs.KindOf(ctx.Err()), "mem.Take", u.name, ctx.Err())
		z.dispatchLocked() // it may have blocked others
	default:
		err = r.Woken() // granted at the same moment: the buffers are taken, or they would leak
	}
	dst = r.dst
	z.recycleLocked(r)
	z.mu.Unlock()
	if err != nil {
		return dst, err
	}
	return handOutAll(dst, had), nil
}

// wake dispatches waiting requests, if there are any.
func (z *Zones) wake() {
	if z.waiting.Load() == 0 {
		return
	}
	z.mu.Lock()
	z.dispatchLocked()
	z.mu.Unlock()
}

// dispatchLocked grants requests in their order until one does not fit.
func (z *Zones) dispatchLocked() {
	for r := z.nextLocked(); r != nil; r = z.nextLocked() {
		dst, ok := z.grab(r.user, r.sizes, r.dst)
		if !ok {
			return
		}
		r.dst = dst
		r.user.removeLocked(r)
		r.Wake(nil)
	}
}

// nextLocked is the request whose turn it is: the oldest of a user below its share; if there is
// none, the oldest of all. It looks at each user that waits, of which there are few.
func (z *Zones) nextLocked() *request {
	var next *request
	below := false
	for _, u := range z.queue {
		poor := u.held.Load() < u.share
		switch {
		case next == nil, poor && !below:
		case poor != below, u.requests.First().arrival > next.arrival:
			continue
		}
		next, below = u.requests.First(), poor
	}
	return next
}

func (z *Zones) enqueueLocked(u *User, sizes []int, dst []*Buf) *request {
	r := z.idle.First()
	if r == nil {
		r = &request{}
	} else {
		z.idle.Remove(&r.link)
	}
	r.Arm()
	z.arrival++
	r.user, r.arrival, r.dst = u, z.arrival, dst
	r.sizes = append(r.sizes[:0], sizes...)
	if u.requests.Empty() {
		z.queue = append(z.queue, u)
	}
	u.requests.PushLast(&r.link, r)
	u.waiting++
	z.waiting.Add(1)
	return r
}

// removeLocked removes a request from its user's queue.
func (u *User) removeLocked(r *request) {
	u.requests.Remove(&r.link)
	u.waiting--
	z := u.zones
	z.waiting.Add(-1)
	if u.requests.Empty() {
		z.queue = slices.DeleteFunc(z.queue, func(other *User) bool { return other == u })
	}
}

func (z *Zones) recycleLocked(r *request) {
	r.user, r.dst = nil, nil
	z.idle.PushFirst(&r.link, r)
}

// Close ends the user: its share goes to the others and its requests that wait, and all later ones,
// fail with errs.Closed. Buffers that it holds stay valid until they are returned. Closing twice is
// allowed.
func (u *User) Close() {
	z := u.zones
	z.mu.Lock()
	defer z.mu.Unlock()
	if u.closed.Swap(true) {
		return
	}
	for r := u.requests.First(); r != nil; r = u.requests.First() {
		u.removeLocked(r)
		r.Wake(errs.New(errs.Closed, "mem.Take", u.name, nil))
	}
	z.users = slices.DeleteFunc(z.users, func(other *User) bool { return other == u })
	z.weights -= u.weight
	z.divideLocked()
	z.dispatchLocked()
}

// UserStats describe a user at one moment.
type UserStats struct {
	Name       string
	HeldBytes  int64 // of buffers that it has not returned
	ShareBytes int64
	Waiting    int // requests that wait
}

// Stats returns the user's counters.
func (u *User) Stats() UserStats {
	u.zones.mu.Lock()
	defer u.zones.mu.Unlock()
	return UserStats{
		Name: u.name, HeldBytes: u.held.Load(), ShareBytes: u.share, Waiting: u.waiting,
	}
}
