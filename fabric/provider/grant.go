package provider

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/keytable"
)

// Memory is the part of a region that every provider has.
type Memory struct {
	of     *Domain
	mem    []byte
	closed atomic.Bool
}

// Open makes m stand for mem.
func (m *Memory) Open(of *Domain, mem []byte) { m.of, m.mem = of, mem }

// Bytes implements fabric.Region.
func (m *Memory) Bytes() []byte { return m.mem }

// Shut lets the memory be used no more. It is false when it was shut before.
func (m *Memory) Shut() bool { return !m.closed.Swap(true) }

// Closed tells whether Shut was called.
func (m *Memory) Closed() bool { return m.closed.Load() }

func (m *Memory) openIn(d *Domain) bool { return m.of == d && !m.closed.Load() }

// CheckGrant tells whether a grant makes sense. When it does ep is an endpoint of m's domain.
func (m *Memory) CheckGrant(ep fabric.Endpoint, off, length int, rights fabric.Rights) error {
	if own, ok := ep.(interface{ base() *Endpoint }); ok {
		return m.checkGrant(own.base(), off, length, rights)
	}
	return m.checkGrant(nil, off, length, rights)
}

func (m *Memory) checkGrant(e *Endpoint, off, length int, rights fabric.Rights) error {
	if e == nil || e.domain != m.of {
		return errs.Newf(errs.Invalid, "fabric.Grant", "", "the endpoint is of another domain")
	}
	if err := fabric.CheckGrant(m.mem, off, length, rights); err != nil {
		return err
	}
	return e.Check("fabric.Grant")
}

// Region is registered memory of a provider whose endpoints are of type E, and whose grants are in
// a table. It implements fabric.Region.
type Region[E granted] struct {
	Memory
	grants *Grants[E]
	live   atomic.Int64 // grants that are not revoked, at least
}

// granted is a provider's endpoint.
type granted interface {
	comparable
	fabric.Endpoint
	base() *Endpoint
}

// Grants finds the grants of a domain by key. Safe for concurrent use.
//
// Stall, if not 0, bounds how long Revoke waits for copies that are under way; then it calls
// Stalled, which ends the connection and with it the copies. Withdraw, if not nil, ends the direct
// use of a grant by the peer that Region.GrantDirect had opened: when it returns the peer has
// stopped. Both are called without a lock.
type Grants[E granted] struct {
	Stall    time.Duration
	Stalled  func(E)
	Withdraw func(ep E, slot uint32)

	table *keytable.Table[Grant[E]]
}

// Grant is one entry of the table, used by one grant after another. Its lock comes after the
// endpoint's.
type Grant[E granted] struct {
	all *Grants[E]

	mu   sync.Mutex
	idle sync.Cond // users fell to 0, or a revocation has ended

	key      uint64 // 0: no access
	revoking uint64 // the key while Revoke waits for the last user
	region   *Region[E]
	ep       E
	mem      []byte
	rights   fabric.Rights
	slot     uint32 // of direct use, from 1; 0: none
	users    int    // copies of this side under way

	timer *time.Timer // of a revocation that waits; made once
	due   time.Time   // when it has waited too long; zero: it does not wait
}

// Open makes an empty table.
func (t *Grants[E]) Open() {
	t.table = keytable.New(func() *Grant[E] {
		g := &Grant[E]{all: t}
		g.idle.L = &g.mu
		return g
	})
}

// Register makes r stand for memory whose grants are in t.
func (t *Grants[E]) Register(r *Region[E], of *Domain, mem []byte) {
	r.Memory.Open(of, mem)
	r.grants = t
}

// The address of a grant's first byte is not 0, so that mistakes are seen, and tells the slot of
// direct use:
//
//	0           16               64
//	|slot or 0  |2^44 + offset   |     slots count from 1; offsets are below 2^44
const (
	slotShift = 48
	addrBase  = 1 << 44
)

// Addr is the address of the first byte of a grant with that slot of direct use.
func Addr(slot uint32) uint64 { return uint64(slot)<<slotShift | addrBase }

// Aim is what an address names: a slot, 0 for none, and an offset in its grant.
func Aim(addr uint64) (slot uint32, off uint64) {
	return uint32(addr >> slotShift), addr&(1<<slotShift-1) - addrBase
}

// Grant implements fabric.Region.
func (r *Region[E]) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	return r.GrantDirect(ep, off, length, rights, nil)
}

// GrantDirect is Grant with direct access: direct, if not nil, may let the peer use the memory
// without this side, and returns the slot for that, or 0. It is called with the grant's lock.
func (r *Region[E]) GrantDirect(
	ep fabric.Endpoint, off, length int, rights fabric.Rights, direct func(e E, key uint64) uint32,
) (fabric.Remote, error) {
	e, ok := ep.(E)
	var base *Endpoint
	if ok {
		base = e.base()
	}
	if err := r.checkGrant(base, off, length, rights); err != nil {
		return fabric.Remote{}, err
	}
	g, key, err := r.grants.table.Place()
	if err != nil {
		return fabric.Remote{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r.live.Add(1)
	if r.Closed() { // checked under g.mu, and after live has grown: a later Close finds the grant
		r.live.Add(-1)
		r.grants.table.GiveBack(key)
		return fabric.Remote{}, r.of.closedErr("Grant")
	}
	g.key, g.region, g.ep, g.rights = key, r, e, rights
	g.mem = r.mem[off : off+length]
	if direct != nil {
		g.slot = direct(e, key)
	}
	return fabric.Remote{Key: key, Addr: Addr(g.slot), Len: uint64(length)}, nil
}

// Acquire returns length bytes at addr for an access by the peer of e, or nil where the key does
// not allow it. The caller releases the grant when it has stopped touching the memory.
func (t *Grants[E]) Acquire(e E, key, addr uint64, length int, need fabric.Rights) (
	*Grant[E], []byte,
) {
	g := t.table.Find(key)
	if g == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.key != key || g.key == 0 || g.ep != e || g.rights&need != need {
		return nil, nil
	}
	off, size := addr-Addr(g.slot), uint64(len(g.mem))
	if off > size || uint64(length) > size-off {
		return nil, nil
	}
	g.users++
	return g, g.mem[off : off+uint64(length)]
}

// Release ends the use that Acquire began.
func (g *Grant[E]) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users == 0 {
		g.idle.Broadcast()
	}
}

// Revoke implements fabric.Region.
func (r *Region[E]) Revoke(rem fabric.Remote) {
	if g := r.grants.table.Find(rem.Key); g != nil && g.revoke(rem.Key, r) {
		r.live.Add(-1)
		r.grants.table.GiveBack(rem.Key)
	}
}

// Close implements fabric.Region. It scans the whole table, if there are grants: regions that have
// some live long, and a list of each region's grants would cost every grant.
func (r *Region[E]) Close() error {
	r.Shut()
	if r.live.Load() == 0 {
		return nil
	}
	for _, g := range r.grants.table.All() {
		g.mu.Lock()
		key, mine := g.key|g.revoking, g.region == r // one of them is 0
		g.mu.Unlock()
		if mine {
			r.Revoke(fabric.Remote{Key: key})
		}
	}
	return nil
}

// revoke ends the grant under key, if it is still there, and waits for its users. It tells whether
// this call was the one that ended it.
func (g *Grant[E]) revoke(key uint64, of *Region[E]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.region != of || key == 0 {
		return false
	}
	for g.revoking == key { // another call revokes it: both may return only when it is over
		g.idle.Wait()
	}
	if g.key != key || g.region != of {
		return false
	}
	g.key, g.revoking = 0, key
	if g.users > 0 {
		g.awaitUsersLocked()
	}
	if slot, ep := g.slot, g.ep; slot != 0 {
		g.mu.Unlock()
		g.all.Withdraw(ep, slot)
		g.mu.Lock()
	}
	var nobody E
	g.revoking, g.region, g.ep, g.mem, g.slot = 0, nil, nobody, nil, 0
	g.idle.Broadcast()
	return true
}

// awaitUsersLocked waits until no copy is under way.
func (g *Grant[E]) awaitUsersLocked() {
	if limit := g.all.Stall; limit > 0 {
		g.due = time.Now().Add(limit)
		if g.timer == nil {
			g.timer = time.AfterFunc(limit, g.stalled)
		} else {
			g.timer.Reset(limit)
		}
		defer func() {
			g.timer.Stop()
			g.due = time.Time{} // the timer may have fired at this moment
		}()
	}
	for g.users > 0 {
		g.idle.Wait()
	}
}

// stalled ends the connection of a copy that takes too long.
func (g *Grant[E]) stalled() {
	g.mu.Lock()
	ep, late := g.ep, !g.due.IsZero() && !time.Now().Before(g.due)
	g.mu.Unlock()
	if late {
		g.all.Stalled(ep)
	}
}
