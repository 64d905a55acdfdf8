// Package freelist keeps objects that are over until somebody needs the next one of their kind, so
// that nothing is allocated per request. It has no lock and no bound; both are the owner's
// business.
package freelist

// List holds objects that are over. The zero value is empty.
type List[T any] struct{ free []*T }

// Get is an object that is over, in the state in which it was put, or a new one that is zero.
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

// Put keeps an object that nobody else refers to.
func (l *List[T]) Put(v *T) { l.free = append(l.free, v) }
