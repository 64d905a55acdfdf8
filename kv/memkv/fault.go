package memkv

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/kv"
)

// Every returns a function for Options.Before that fails each n-th transaction with err.
func Every(n uint64, err error) func(*kv.Txn) error {
	var count atomic.Uint64
	return func(*kv.Txn) error {
		if count.Add(1)%n == 0 {
			return err
		}
		return nil
	}
}

// Seeded returns a function for Options.Before that fails a share (0..1) of the transactions with
// err, chosen by seed.
func Seeded(seed uint64, share float64, err error) func(*kv.Txn) error {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(*kv.Txn) error {
		mu.Lock()
		defer mu.Unlock()
		if rng.Float64() < share {
			return err
		}
		return nil
	}
}

// Lost turns such a function into one for Options.After.
func Lost(f func(*kv.Txn) error) func(*kv.Txn, kv.Version) error {
	return func(t *kv.Txn, _ kv.Version) error { return f(t) }
}
