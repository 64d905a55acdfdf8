package tcp

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/keytable"
)

// region is registered memory. The kernel needs no registration, so it only bounds grants.
type region struct {
	d      *domain
	mem    []byte
	closed atomic.Bool
}

// grant is one place of the key table, used by one grant after another.
type grant struct {
	mu   sync.Mutex
	idle *sync.Cond // broadcast when users falls to 0, and when a revocation is through

	key      uint64 // 0: no access
	revoking uint64 // the key while Revoke waits for the last user
	region   *region
	ep       *endpoint
	mem      []byte
	rights   fabric.Rights
	users    int // placements and answers under way

	timer *time.Timer // of a revocation that waits; made once
	due   time.Time   // when it has waited too long; zero: it does not wait
}

// keyTable finds grants by key. Addresses are offsets in the grant plus a base that makes mistakes
// visible.
type keyTable struct{ *keytable.Table[grant] }

func newKeyTable() keyTable {
	return keyTable{keytable.New(func() *grant {
		g := &grant{}
		g.idle = sync.NewCond(&g.mu)
		return g
	})}
}

const addrBase = 1 << 32

// acquire opens length bytes at addr for the peer of e, or returns nil. The caller releases the
// grant when it has stopped touching the memory.
func (k *keyTable) acquire(e *endpoint, h *header, need fabric.Rights) (*grant, []byte) {
	g := k.Find(h.key)
	if g == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.key != h.key || g.key == 0 || g.ep != e || g.rights&need != need || h.addr < addrBase {
		return nil, nil
	}
	off, size := h.addr-addrBase, uint64(len(g.mem))
	if off > size || uint64(h.length) > size-off {
		return nil, nil
	}
	g.users++
	return g, g.mem[off : off+uint64(h.length)]
}

func (g *grant) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users == 0 {
		g.idle.Broadcast()
	}
}

// revoke ends the grant under key, if it is still there, and waits for its users. A user can only
// be stuck because its peer is, so after the stall timeout that connection goes. It tells whether
// this call was the one that ended it.
func (g *grant) revoke(key uint64, of *region) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.region != of || key == 0 {
		return false
	}
	for g.revoking == key { // by somebody else: both may only return when it is over
		g.idle.Wait()
	}
	if g.key != key || g.region != of {
		return false
	}
	g.key, g.revoking = 0, key
	if g.users > 0 {
		g.outlastLocked(of.d.opts.StallTimeout)
	}
	g.revoking, g.region, g.ep, g.mem = 0, nil, nil, nil
	g.idle.Broadcast()
	return true
}

// outlastLocked waits for the users.
func (g *grant) outlastLocked(limit time.Duration) {
	g.due = time.Now().Add(limit)
	if g.timer == nil {
		g.timer = time.AfterFunc(limit, g.stalled)
	} else {
		g.timer.Reset(limit)
	}
	for g.users > 0 {
		g.idle.Wait()
	}
	g.timer.Stop()
	g.due = time.Time{} // should the timer have gone off in this moment
}

// stalled ends the connection whose peer keeps a user.
func (g *grant) stalled() {
	g.mu.Lock()
	ep, late := g.ep, !g.due.IsZero() && !time.Now().Before(g.due)
	g.mu.Unlock()
	if late {
		ep.die(errs.Disconnected, "the peer stalled inside a frame while a grant was revoked")
	}
}

func (r *region) Bytes() []byte { return r.mem }

func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	e, ok := ep.(*endpoint)
	if !ok || e.d != r.d {
		return fabric.Remote{}, errs.Newf(errs.Invalid, "fabric.Grant", "",
			"the endpoint is of another domain")
	}
	if err := fabric.CheckGrant(r.mem, off, length, rights); err != nil {
		return fabric.Remote{}, err
	}
	if err := e.deadErr("fabric.Grant"); err != nil {
		return fabric.Remote{}, err
	}
	g, key, err := r.d.keys.Place()
	if err != nil {
		return fabric.Remote{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.closed.Load() { // looked at under g.mu: Close comes by later and finds the grant, or this
		r.d.keys.GiveBack(key)
		return fabric.Remote{}, errClosed("fabric.Grant")
	}
	g.key, g.region, g.ep, g.rights = key, r, e, rights
	g.mem = r.mem[off : off+length]
	return fabric.Remote{Key: key, Addr: addrBase, Len: uint64(length)}, nil
}

func (r *region) Revoke(rem fabric.Remote) {
	if g := r.d.keys.Find(rem.Key); g != nil && g.revoke(rem.Key, r) {
		r.d.keys.GiveBack(rem.Key)
	}
}

// Close looks through the whole table: regions live long, and grants should not pay for their end.
func (r *region) Close() error {
	r.closed.Store(true)
	for _, g := range r.d.keys.All() {
		g.mu.Lock()
		key, mine := g.key|g.revoking, g.region == r // one of them is 0
		g.mu.Unlock()
		if mine {
			r.Revoke(fabric.Remote{Key: key})
		}
	}
	return nil
}
