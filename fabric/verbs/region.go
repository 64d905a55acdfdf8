//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// region is memory that is registered with every device of the domain. The registration gives no
// remote access; grants do.
type region struct {
	provider.Memory
	d     *domain
	mrs   [maxDevices]*cMR // by the device's index; written under mu
	lkeys [maxDevices]uint32

	mu sync.RWMutex // held for reading by Grants under way, so that Close finds all of them
}

// register registers the memory with every device. Memory of no bytes needs none.
func (r *region) register() error {
	for _, dev := range r.d.allDevices() {
		if err := r.plugIn(dev); err != nil {
			r.deregister()
			return err
		}
	}
	return nil
}

// plugIn registers the memory with one device, unless that is gone.
func (r *region) plugIn(dev *device) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Bytes()) == 0 || r.Closed() || !dev.refs.enter() {
		return nil
	}
	defer dev.refs.leave()
	access := accessLocal
	if dev.info.windows {
		access |= accessBind
	}
	mr, err := registerMemory(dev.pd, r.Bytes(), uint64(addrOf(r.Bytes())), access)
	if err != nil {
		return memoryError("verbs.Register", dev.name, err)
	}
	r.mrs[dev.index], r.lkeys[dev.index] = mr, localKey(mr)
	return nil
}

// unplug ends the registration with a device that is not used any more.
func (r *region) unplug(dev *device) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mr := r.mrs[dev.index]; mr != nil {
		deregisterMemory(mr)
		r.mrs[dev.index] = nil
	}
}

func (r *region) deregister() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, mr := range r.mrs {
		if mr != nil {
			deregisterMemory(mr)
			r.mrs[i] = nil
		}
	}
}

// Grant returns before the device has bound the window, but the window is bound before any message
// that is posted on ep later is sent.
func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	if err := r.CheckGrant(ep, off, length, rights); err != nil {
		return fabric.Remote{}, err
	}
	e := ep.(*endpoint)
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.Closed() {
		return fabric.Remote{}, errs.New(errs.Closed, "fabric.Grant", "", nil)
	}
	g, err := r.d.grants.add(r, e)
	if err != nil {
		return fabric.Remote{}, err
	}
	defer r.d.grants.done(g)
	g.mem, g.rights = r.Bytes()[off:off+length], rights
	if err := g.arm(); err != nil {
		r.d.grants.end(g)
		return fabric.Remote{}, err
	}
	return fabric.Remote{Key: g.key(), Addr: uint64(addrOf(g.mem)), Len: uint64(length)}, nil
}

// Revoke waits until the device has invalidated the window. That takes as long as the requests
// before it, at most until a silent peer is given up.
func (r *region) Revoke(rem fabric.Remote) {
	if g := r.d.grants.find(rem.Key, r); g != nil {
		r.end(g)
	}
}

func (r *region) end(g *grant) {
	g.disarm()
	r.d.grants.end(g)
	r.d.grants.done(g)
}

// Close revokes all grants and ends the registrations. Requests that use the memory must be
// completed.
func (r *region) Close() error {
	r.mu.Lock()
	first := r.Shut()
	r.mu.Unlock()
	if !first {
		return nil
	}
	for _, g := range r.d.grants.of(r) {
		r.end(g)
	}
	r.d.plug.RLock() // no device is removed while it has a registration of this memory
	defer r.d.plug.RUnlock()
	r.d.mu.Lock()
	delete(r.d.regions, r)
	r.d.mu.Unlock()
	r.deregister()
	return nil
}
