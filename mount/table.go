package mount

import "sync"

// table gives numbers to open files and directories. The kernel names them by these numbers from
// open to release and never afterwards.
type table[T any] struct {
	mu   sync.RWMutex
	next uint64
	open map[uint64]T
}

func (t *table[T]) add(v T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[uint64]T)
	}
	t.next++
	t.open[t.next] = v
	return t.next
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
