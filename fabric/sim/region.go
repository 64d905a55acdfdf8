package sim

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// region is registered memory; keys and closed are guarded by net.mu.
type region struct {
	domain *domain
	mem    []byte
	keys   map[uint64]struct{}
	closed bool
}

// grant is one right on one piece of memory for the peer of one endpoint.
type grant struct {
	region *region
	ep     *endpoint
	addr   uint64
	mem    []byte
	rights fabric.Rights
}

func (r *region) Bytes() []byte { return r.mem }

func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	n := r.domain.net
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := ep.(*endpoint)
	why := ""
	switch {
	case !ok || e.domain != r.domain:
		why = "the endpoint is of another domain"
	case off < 0 || length < 0 || off > len(r.mem) || length > len(r.mem)-off:
		why = "the range leaves the region"
	case rights == 0 || rights&^(fabric.RemoteRead|fabric.RemoteWrite) != 0:
		why = "no such rights"
	}
	if why != "" {
		return fabric.Remote{}, errs.Newf(errs.Invalid, "fabric.Grant", r.domain.name, "%s", why)
	}
	if r.closed {
		return fabric.Remote{}, errs.New(errs.Closed, "fabric.Grant", r.domain.name, nil)
	}
	if e.dead != errs.OK {
		return fabric.Remote{}, e.deadErr("fabric.Grant")
	}
	key := n.rng.Uint64()
	for n.grants[key].region != nil || key == 0 {
		key = n.rng.Uint64()
	}
	// An address that is not an offset: users must not count on either.
	addr := uint64(n.rng.Uint32())<<16 + 0x1000
	mem := r.mem[off : off+length]
	n.grants[key] = grant{region: r, ep: e, addr: addr, mem: mem, rights: rights}
	r.keys[key] = struct{}{}
	return fabric.Remote{Key: key, Addr: addr, Len: uint64(length)}, nil
}

func (r *region) Revoke(rem fabric.Remote) {
	n := r.domain.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := r.keys[rem.Key]; ok { // a key of another region is not ours to revoke
		delete(r.keys, rem.Key)
		delete(n.grants, rem.Key)
	}
}

func (r *region) Close() error {
	n := r.domain.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range r.keys {
		delete(n.grants, key)
	}
	clear(r.keys)
	r.closed = true
	return nil
}

// openLocked finds the memory that rem names for the peer of e, or nil when e did not grant it.
func (e *endpoint) openLocked(rem fabric.Remote, need fabric.Rights) []byte {
	if rem.Len == 0 {
		return []byte{} // nothing moves, nothing to protect
	}
	g, ok := e.net.grants[rem.Key]
	if !ok || g.ep != e || g.rights&need != need || rem.Addr < g.addr {
		return nil
	}
	off, size := rem.Addr-g.addr, uint64(len(g.mem))
	if off > size || rem.Len > size-off {
		return nil
	}
	return g.mem[off : off+rem.Len]
}
