package shm

import (
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// region is registered memory.
type region struct {
	d      *domain
	mem    []byte
	arena  *arena // that it lies in, or nil
	base   int    // where in it
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
	slot     uint32 // direct use, from 1; 0: none
	users    int    // copies of this side under way
}

// keyTable finds grants by key.
//
//	key: 0                    44     64
//	     |random, never again |place |
type keyTable struct {
	mu   sync.RWMutex
	all  []*grant
	free []uint32
	rng  *rand.ChaCha8
}

const placeBits = 20 // so many grants at once, over a million

func (k *keyTable) open() {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails, by its contract
	k.rng = rand.NewChaCha8(seed)
}

// place finds a free place and a key for it.
func (k *keyTable) place() (*grant, uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.free) == 0 {
		if len(k.all) == 1<<placeBits {
			return nil, 0, errs.Newf(errs.Again, "fabric.Grant", "", "too many grants")
		}
		g := &grant{}
		g.idle = sync.NewCond(&g.mu)
		k.free = append(k.free, uint32(len(k.all)))
		k.all = append(k.all, g)
	}
	at := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	key := k.rng.Uint64()<<placeBits | uint64(at)
	for key>>placeBits == 0 {
		key = k.rng.Uint64()<<placeBits | uint64(at)
	}
	return k.all[at], key, nil
}

func (k *keyTable) giveBack(key uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = append(k.free, uint32(key&(1<<placeBits-1)))
}

func (k *keyTable) find(key uint64) *grant {
	at := key & (1<<placeBits - 1)
	k.mu.RLock()
	defer k.mu.RUnlock()
	if at >= uint64(len(k.all)) {
		return nil
	}
	return k.all[at]
}

// access is a use of granted memory that came through the ring.
type access struct {
	key, addr uint64
	length    int // of the whole request, all of which must be allowed
	off, part int // what of it is copied now
	need      fabric.Rights
}

// acquire opens memory to the peer of e, or returns nil. The caller releases the grant when it has
// stopped touching the memory.
func (k *keyTable) acquire(e *endpoint, a access) (*grant, []byte) {
	g := k.find(a.key)
	if g == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.key != a.key || g.key == 0 || g.ep != e || g.rights&a.need != a.need {
		return nil, nil
	}
	off, size := a.addr-addrOf(g.slot), uint64(len(g.mem))
	if off > size || uint64(a.length) > size-off {
		return nil, nil
	}
	g.users++
	return g, g.mem[off+uint64(a.off):][:a.part]
}

func (g *grant) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users == 0 {
		g.idle.Broadcast()
	}
}

// revoke ends the grant under key, if it is still there, and waits for its users: this side's
// copies, which are short, and the peer's (closeSlot). It tells whether this call was the one
// that ended it.
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
	for g.users > 0 {
		g.idle.Wait()
	}
	if at, ep := g.slot, g.ep; at != 0 {
		g.mu.Unlock()
		ep.closeSlot(at)
		g.mu.Lock()
	}
	g.revoking, g.region, g.ep, g.mem, g.slot = 0, nil, nil, nil, 0
	g.idle.Broadcast()
	return true
}

func (r *region) Bytes() []byte { return r.mem }

func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	e, ok := ep.(*endpoint)
	why := ""
	switch {
	case !ok || e.d != r.d:
		why = "the endpoint is of another domain"
	case off < 0 || length < 0 || off > len(r.mem) || length > len(r.mem)-off:
		why = "the range leaves the region"
	case rights == 0 || rights&^(fabric.RemoteRead|fabric.RemoteWrite) != 0:
		why = "no such rights"
	}
	if why != "" {
		return fabric.Remote{}, errs.Newf(errs.Invalid, "fabric.Grant", "", "%s", why)
	}
	if err := e.deadErr("fabric.Grant"); err != nil {
		return fabric.Remote{}, err
	}
	g, key, err := r.d.keys.place()
	if err != nil {
		return fabric.Remote{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.closed.Load() { // looked at under g.mu: Close comes by later and finds the grant, or this
		r.d.keys.giveBack(key)
		return fabric.Remote{}, errClosed("fabric.Grant")
	}
	g.key, g.region, g.ep, g.rights = key, r, e, rights
	g.mem = r.mem[off : off+length]
	g.slot = e.openSlot(r, key, off, length, rights)
	return fabric.Remote{Key: key, Addr: addrOf(g.slot), Len: uint64(length)}, nil
}

func (r *region) Revoke(rem fabric.Remote) {
	if g := r.d.keys.find(rem.Key); g != nil && g.revoke(rem.Key, r) {
		r.d.keys.giveBack(rem.Key)
	}
}

// Close looks through the whole table: regions live long, and grants should not pay for their end.
func (r *region) Close() error {
	r.closed.Store(true)
	k := &r.d.keys
	k.mu.RLock()
	all := k.all[:len(k.all):len(k.all)]
	k.mu.RUnlock()
	for _, g := range all {
		g.mu.Lock()
		key, mine := g.key|g.revoking, g.region == r // one of them is 0
		g.mu.Unlock()
		if mine {
			r.Revoke(fabric.Remote{Key: key})
		}
	}
	return nil
}
