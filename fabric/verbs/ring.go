//go:build cgo && linux && (amd64 || arm64)

package verbs

// ring is a queue with fixed room. Its users count, so it never overflows.
type ring[T any] struct {
	buf  []T
	head int
	n    int
}

func newRing[T any](size int) ring[T] { return ring[T]{buf: make([]T, size)} }

func (r *ring[T]) push(v T) {
	*r.slot(r.n) = v
	r.n++
}

func (r *ring[T]) pop() T {
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

func (r *ring[T]) slot(i int) *T {
	i += r.head
	if i >= len(r.buf) {
		i -= len(r.buf)
	}
	return &r.buf[i]
}

func (r *ring[T]) full() bool { return r.n == len(r.buf) }
