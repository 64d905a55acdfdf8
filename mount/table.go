package mount

import (
	"maps"
	"sync"
	"sync/atomic"
)

// table gives numbers to open files and directories. The kernel names them by these numbers from
// open to release and never afterwards.
type table[T any] struct {
	last *atomic.Uint64 // number that was given; files and directories have none in common

	mu   sync.RWMutex
	open map[uint64]T
}

func (t *table[T]) add(v T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[uint64]T)
	}
	id := t.last.Add(1)
	t.open[id] = v
	return id
}

// put gives something the number that it had.
func (t *table[T]) put(id uint64, v T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[uint64]T)
	}
	t.open[id] = v
}

// all lists what is open.
func (t *table[T]) all() []T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]T, 0, len(t.open))
	for _, v := range t.open {
		all = append(all, v)
	}
	return all
}

// numbered lists what is open, by numbers.
func (t *table[T]) numbered() map[uint64]T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return maps.Clone(t.open)
}

func (t *table[T]) get(id uint64) (v T, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok = t.open[id]
	return v, ok
}

func (t *table[T]) remove(id uint64) (v T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok = t.open[id]
	delete(t.open, id)
	return v, ok
}

func (t *table[T]) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.open)
}

// drain empties the table.
func (t *table[T]) drain() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]T, 0, len(t.open))
	for _, v := range t.open {
		all = append(all, v)
	}
	clear(t.open)
	return all
}
