package sim

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// region is registered memory; keys is guarded by net.mu. Keys come from the seed, so grants are in
// a table of the net.
type region struct {
	provider.Memory
	net  *Net
	keys map[uint64]struct{}
}

// grant is one right on one piece of memory for the peer of one endpoint.
type grant struct {
	region *region
	ep     *endpoint
	addr   uint64
	mem    []byte
	rights fabric.Rights
}

func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	n := r.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := r.CheckGrant(ep, off, length, rights); err != nil {
		return fabric.Remote{}, err
	}
	e := ep.(*endpoint)
	if r.Closed() {
		return fabric.Remote{}, errs.New(errs.Closed, "fabric.Grant", "", nil)
	}
	key := n.rng.Uint64()
	for n.grants[key].region != nil || key == 0 {
		key = n.rng.Uint64()
	}
	// An address that is not an offset: users must not rely on it.
	addr := uint64(n.rng.Uint32())<<16 + 0x1000
	mem := r.Bytes()[off : off+length]
	n.grants[key] = grant{region: r, ep: e, addr: addr, mem: mem, rights: rights}
	r.keys[key] = struct{}{}
	return fabric.Remote{Key: key, Addr: addr, Len: uint64(length)}, nil
}

func (r *region) Revoke(rem fabric.Remote) {
	n := r.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := r.keys[rem.Key]; ok { // else it is a key of another region
		delete(r.keys, rem.Key)
		delete(n.grants, rem.Key)
	}
}

func (r *region) Close() error {
	n := r.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range r.keys {
		delete(n.grants, key)
	}
	clear(r.keys)
	r.Shut()
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
