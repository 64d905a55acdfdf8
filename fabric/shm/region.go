package shm

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// region is registered memory. Where it lies in an arena the peer can use grants on it directly
// (slot.go).
type region struct {
	provider.Region[*endpoint]
	arena *arena // that it lies in, or nil
	base  int    // where in it
}

func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	return r.GrantDirect(ep, off, length, rights, func(e *endpoint, key uint64) uint32 {
		return e.openSlot(r, key, off, length, rights)
	})
}
