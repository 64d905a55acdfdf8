package delay

import (
	"container/heap"

	"github.com/sluice-storage/sluice/fabric"
)

// item is a completion that is held back.
type item struct {
	due    int64
	places int // in the send queue or receive queue, given back when it is handed out
	c      fabric.Completion
}

// lane holds one endpoint's completions of requests, or those of receives, in order. It is guarded
// by its queue's mu.
type lane struct {
	ep    *endpoint // nil: completions of endpoints that are forgotten
	recv  bool
	items []item // from head on
	head  int
	last  int64 // the latest due so far: nothing overtakes
	loose bool  // everything may go
	index int   // in the queue's heap, -1 if empty
}

// push adds a completion, due at the given time or with the one before it.
func (l *lane) push(it item) int64 {
	l.last = max(l.last, it.due)
	it.due = l.last
	if len(l.items) == cap(l.items) && l.head > 0 {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, it)
	return it.due
}

func (l *lane) empty() bool { return l.head == len(l.items) }

// due is when the oldest completion may go.
func (l *lane) due() int64 {
	if l.loose {
		return 0
	}
	return l.items[l.head].due
}

func (l *lane) pop() item {
	it := l.items[l.head]
	l.items[l.head] = item{}
	if l.head++; l.empty() {
		l.items, l.head = l.items[:0], 0
	}
	return it
}

// lanes is a heap of those that hold something, by the time of the oldest.
type lanes []*lane

func (h lanes) Len() int           { return len(h) }
func (h lanes) Less(i, j int) bool { return h[i].due() < h[j].due() }

func (h lanes) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *lanes) Push(x any) {
	l := x.(*lane)
	l.index = len(*h)
	*h = append(*h, l)
}

// Pop implements heap.Interface.
func (h *lanes) Pop() any {
	n := len(*h) - 1
	l := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	l.index = -1
	return l
}

// add puts a completion into its lane, and the lane where it belongs.
func (h *lanes) add(l *lane, it item) (due int64) {
	due = l.push(it)
	if l.index < 0 {
		heap.Push(h, l)
	}
	return due
}

// next takes the oldest completion that is due.
func (h *lanes) next(now int64) (*lane, item, bool) {
	if len(*h) == 0 || (*h)[0].due() > now {
		return nil, item{}, false
	}
	l := (*h)[0]
	it := l.pop()
	if l.empty() {
		heap.Pop(h)
	} else {
		heap.Fix(h, 0)
	}
	return l, it, true
}

// loosen lets everything of a lane go.
func (h *lanes) loosen(l *lane) {
	l.loose = true
	if l.index >= 0 {
		heap.Fix(h, l.index)
	}
}
