// Package list is an intrusive doubly linked list: its links lie in the elements, so that adding
// and removing neither allocate nor search. A type has one Link for each list that it can be in at
// the same time. It has no lock and no length.
package list

import "github.com/sluice-storage/sluice/internal/invariant"

// List has its elements in order. The zero value is empty. It must not be copied or moved while it
// has elements.
type List[T any] struct{ first, last *Link[T] }

// Link is a place in a list for the element that it is a field of. The zero value is in none.
type Link[T any] struct {
	prev, next *Link[T]
	list       *List[T] // nil: in none
	of         *T
}

// In tells whether the link is in a list.
func (k *Link[T]) In() bool { return k.list != nil }

// Next is the element behind that of the link; nil when there is none.
func (k *Link[T]) Next() *T { return k.next.element() }

func (k *Link[T]) element() *T {
	if k == nil {
		return nil
	}
	return k.of
}

// Empty tells whether the list has no elements.
func (l *List[T]) Empty() bool { return l.first == nil }

// First is the first element; nil when there is none.
func (l *List[T]) First() *T { return l.first.element() }

// Last is the last element; nil when there is none.
func (l *List[T]) Last() *T { return l.last.element() }

// PushFirst puts of before all others. k is its link, and in no list.
func (l *List[T]) PushFirst(k *Link[T], of *T) {
	if k.list != nil {
		misused()
	}
	k.list, k.of, k.next = l, of, l.first
	if l.first == nil {
		l.last = k
	} else {
		l.first.prev = k
	}
	l.first = k
}

// PushLast puts of behind all others. k is its link, and in no list.
func (l *List[T]) PushLast(k *Link[T], of *T) {
	if k.list != nil {
		misused()
	}
	k.list, k.of, k.prev = l, of, l.last
	if l.last == nil {
		l.first = k
	} else {
		l.last.next = k
	}
	l.last = k
}

// Remove takes the element of k out of the list.
func (l *List[T]) Remove(k *Link[T]) {
	if k.list != l {
		misused()
	}
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next, k.list = nil, nil, nil
}

// EndWith rotates the list until the element of k is the last one.
func (l *List[T]) EndWith(k *Link[T]) {
	if k.list != l {
		misused()
	}
	if k == l.last {
		return
	}
	l.last.next, l.first.prev = l.first, l.last
	l.first, l.last = k.next, k
	l.first.prev, l.last.next = nil, nil
}

func misused() {
	invariant.Check(false, "an element is put into a second list, or taken out of one it is not in")
}
