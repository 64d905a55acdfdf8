package engine

import (
	"hash/maphash"

	"github.com/sluice-storage/sluice/kv"
)

// recentSlots is how many versions Recent keeps: 256 KiB. A key that shares its slot with one that
// changed costs a read, so there are many more slots than keys that running transactions touch.
const recentSlots = 1 << 15

// Recent tells of a key whether it may have changed after a version, without reading it. Keys share
// slots by their hash: it errs, now and then, towards "changed", never the other way.
type Recent struct {
	seed   maphash.Seed
	opened kv.Version // as in Changes
	burnt  kv.Version
	last   [recentSlots]kv.Version // the latest commit that touched a key of the slot, since opened
}

// NewRecent is for a store that was opened at version opened, see NewChanges.
func NewRecent(opened, burnt kv.Version) *Recent {
	return &Recent{seed: maphash.MakeSeed(), opened: opened, burnt: burnt}
}

// Record notes the effects of t, committed as version v.
func (r *Recent) Record(v kv.Version, t *kv.Txn) {
	for i := range t.Effects() {
		*r.slot(t.Effect(i)) = v
	}
}

// Latest is the last commit since the opening that touched the key, or a later one; 0: none did.
func (r *Recent) Latest(key []byte) kv.Version { return *r.slot(key) }

// Touched tells whether the key changed after version since, or might have. What a crash undid, and
// what was before the opening, counts as changed.
func (r *Recent) Touched(key []byte, since kv.Version) bool {
	return since < r.opened || since > r.opened && since <= r.burnt || r.Latest(key) > since
}

func (r *Recent) slot(key []byte) *kv.Version {
	return &r.last[maphash.Bytes(r.seed, key)%recentSlots]
}
