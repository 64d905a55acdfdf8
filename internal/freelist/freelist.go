// Package freelist keeps unused objects for reuse, so that nothing is allocated per request. It has
// no lock and no bound: its user adds them where needed.
package freelist

// List holds unused objects. The zero value is empty.
type List[T any] struct{ free []*T }

// Get returns an unused object, in the state in which it was put, or a new one that is zero.
func (l *List[T]) Get() *T {
	n := len(l.free) - 1
	if n < 0 {
		return new(T)
	}
	v := l.free[n]
	l.free[n] = nil
	l.free = l.free[:n]
	return v
}

// Put adds an object that nothing else refers to.
func (l *List[T]) Put(v *T) { l.free = append(l.free, v) }
