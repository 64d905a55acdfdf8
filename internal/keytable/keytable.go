// Package keytable allocates keys that cannot be guessed and finds their values. Places are reused;
// keys are not.
//
//	key: 0                    44     64
//	     |random, never again |place |
//
// It does not know whether a key is still valid: the value of its place does, under its own lock.
package keytable

import (
	crand "crypto/rand"
	"math/rand/v2"
	"sync"

	"github.com/sluice-storage/sluice/errs"
)

// PlaceBits is the size of the place in a key: so many at once, over a million. What is above them
// is random and never 0.
const PlaceBits = 20

// Table finds values by key. Safe for concurrent use.
type Table[T any] struct {
	fresh func() *T

	mu   sync.RWMutex
	all  []*T
	free []uint32
	rng  *rand.ChaCha8
}

// New makes a table whose places are made by fresh.
func New[T any](fresh func() *T) *Table[T] {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails, by its contract
	return &Table[T]{fresh: fresh, rng: rand.NewChaCha8(seed)}
}

// Place finds a free place and a key for it: errs.Again when there are too many.
func (k *Table[T]) Place() (*T, uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.free) == 0 {
		if len(k.all) == 1<<PlaceBits {
			return nil, 0, errs.Newf(errs.Again, "fabric.Grant", "", "too many grants")
		}
		k.free = append(k.free, uint32(len(k.all)))
		k.all = append(k.all, k.fresh())
	}
	at := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	key := k.rng.Uint64()<<PlaceBits | uint64(at)
	for key>>PlaceBits == 0 {
		key = k.rng.Uint64()<<PlaceBits | uint64(at)
	}
	return k.all[at], key, nil
}

// GiveBack frees the place of a key.
func (k *Table[T]) GiveBack(key uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = append(k.free, uint32(key&(1<<PlaceBits-1)))
}

// Find is the place that a key names, whether or not it holds that key now; nil if there is none.
func (k *Table[T]) Find(key uint64) *T {
	at := key & (1<<PlaceBits - 1)
	k.mu.RLock()
	defer k.mu.RUnlock()
	if at >= uint64(len(k.all)) {
		return nil
	}
	return k.all[at]
}

// All returns the present places.
func (k *Table[T]) All() []*T {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.all[:len(k.all):len(k.all)]
}
