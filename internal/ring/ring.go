// Package ring is a queue of fixed capacity. Its users must not overflow it: a push into a full
// ring panics. It is not safe for concurrent use, and it allocates nothing after New.
package ring

// Ring holds up to Cap elements, oldest first. The zero value has no room.
type Ring[T any] struct {
	buf  []T
	head int
	n    int
}

// New makes a ring with room for size elements.
func New[T any](size int) Ring[T] { return Ring[T]{buf: make([]T, size)} }

// Len is the number of elements, Cap the room for them.
func (r *Ring[T]) Len() int { return r.n }

// Cap is how many elements fit.
func (r *Ring[T]) Cap() int { return len(r.buf) }

// Full tells whether there is no more room.
func (r *Ring[T]) Full() bool { return r.n == len(r.buf) }

// Push adds an element. A push into a full ring is a broken invariant.
func (r *Ring[T]) Push(v T) {
	if r.n == len(r.buf) {
		panic("broken invariant: ring overflow")
	}
	*r.slot(r.n) = v
	r.n++
}

// Pop takes the oldest element out; there must be one.
func (r *Ring[T]) Pop() T {
	if r.n == 0 {
		panic("broken invariant: pop from an empty ring")
	}
	var zero T
	p := r.slot(0)
	v := *p
	*p = zero
	if r.head++; r.head == len(r.buf) {
		r.head = 0
	}
	r.n--
	return v
}

// At is element i, counted from the oldest.
func (r *Ring[T]) At(i int) *T {
	if i < 0 || i >= r.n {
		panic("broken invariant: ring element out of range")
	}
	return r.slot(i)
}

func (r *Ring[T]) slot(i int) *T {
	i += r.head
	if i >= len(r.buf) {
		i -= len(r.buf)
	}
	return &r.buf[i]
}
