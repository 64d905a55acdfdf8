package provider

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/ring"
)

// ReadDepth is how many Reads an endpoint may have under way: the tags of a SendQueue. Both ends
// have the same, since frames rely on it.
const ReadDepth = 16

// Request is one posted request, a copy of the user's: its slices are the user's again when Post
// returns. Requests are reused, and their slices keep their capacity. Own is what the provider
// adds.
type Request[X any] struct {
	Op      fabric.Op
	Flags   fabric.Flags
	Context uint64
	Imm     uint32
	Remote  fabric.Remote
	Bufs    [][]byte
	Length  int
	Number  uint64 // the provider's sequence number; 0: none yet
	Err     error  // how it failed
	Own     X

	inline []byte // what FlagInline copied
	moved  int    // bytes that Gather or Scatter have moved
	piece  int    // where the rest begins
	off    int    // in it
}

// SendQueue holds an endpoint's requests from Post to their completion. The endpoint's lock guards
// it.
//
//	New -> Posted -> Started (Sends and Writes, completed in this order) -> Complete
//	              \> Reads, by tag (completed in any order) -------------/
type SendQueue[X any] struct {
	Posted   ring.Ring[*Request[X]] // not started
	Started  ring.Ring[*Request[X]] // Sends and Writes
	Reads    [ReadDepth]*Request[X] // under way; nil: the tag is free
	ReadsOut int

	free []*Request[X]
}

// Open makes an empty queue.
func (q *SendQueue[X]) Open(depth int) {
	q.Posted = ring.New[*Request[X]](depth)
	q.Started = ring.New[*Request[X]](depth)
}

// New copies a request. The place for it is held (Endpoint.HoldSends).
func (q *SendQueue[X]) New(wr *fabric.WR) *Request[X] {
	var w *Request[X]
	if n := len(q.free); n > 0 {
		w, q.free = q.free[n-1], q.free[:n-1]
	} else {
		w = &Request[X]{}
	}
	*w = Request[X]{
		Op: wr.Op, Flags: wr.Flags, Context: wr.Context, Imm: wr.Imm, Remote: wr.Remote,
		Bufs: w.Bufs[:0], inline: w.inline[:0], Length: wr.Len(),
	}
	if wr.Flags&fabric.FlagInline != 0 {
		for i := range wr.Local {
			w.inline = append(w.inline, wr.Local[i].Buf...)
		}
		w.Bufs = append(w.Bufs, w.inline)
		return w
	}
	for i := range wr.Local {
		w.Bufs = append(w.Bufs, wr.Local[i].Buf)
	}
	return w
}

// Next is the oldest request that has not started, or nil where there is none or where it may not
// start yet: it waits for Reads before its fence, or for a free tag.
func (q *SendQueue[X]) Next() *Request[X] {
	if q.Posted.Len() == 0 {
		return nil
	}
	w := *q.Posted.At(0)
	if w.Flags&fabric.FlagFence != 0 && q.ReadsOut > 0 ||
		w.Op == fabric.OpRead && q.ReadsOut == ReadDepth {
		return nil
	}
	return w
}

// FreeTag is a tag for the next Read. There must be one: see Next.
func (q *SendQueue[X]) FreeTag() int {
	tag := 0
	for q.Reads[tag] != nil {
		tag++
	}
	return tag
}

// StartRead moves the oldest posted request, a Read, under a tag.
func (q *SendQueue[X]) StartRead(tag int) {
	q.Reads[tag] = q.Posted.Pop()
	q.ReadsOut++
}

// EndRead takes a Read out, to be completed.
func (q *SendQueue[X]) EndRead(tag int) *Request[X] {
	w := q.Reads[tag]
	q.Reads[tag] = nil
	q.ReadsOut--
	return w
}

// Complete ends a request that is in no list any more. It returns the completion, without EP; told
// is false if the request has none. The request is free then.
func (q *SendQueue[X]) Complete(e *Endpoint, w *Request[X]) (c fabric.Completion, told bool) {
	if w.Err == nil && w.Flags&fabric.FlagSignaled == 0 {
		e.Silent()
	} else {
		told = true
		c = fabric.Completion{Op: w.Op, Context: w.Context, Len: w.Length, Err: w.Err}
	}
	clear(w.Bufs) // the memory is the caller's, and perhaps garbage
	q.free = append(q.free, w)
	return c, told
}

// Flush calls complete for every request, in order. Those that have no error of their own get err;
// a refused Write keeps its reason. complete is called with the endpoint's lock.
func (q *SendQueue[X]) Flush(err error, complete func(*Request[X])) {
	fail := func(w *Request[X]) {
		if w.Err == nil {
			w.Err = err
		}
		complete(w)
	}
	for q.Started.Len() > 0 {
		fail(q.Started.Pop())
	}
	for tag, w := range q.Reads {
		if w != nil {
			fail(q.EndRead(tag))
		}
	}
	for q.Posted.Len() > 0 {
		fail(q.Posted.Pop())
	}
}

// Rest is how many bytes Gather and Scatter have not moved yet.
func (w *Request[X]) Rest() int { return w.Length - w.moved }

// Begun tells whether Gather or Scatter have moved any.
func (w *Request[X]) Begun() bool { return w.moved > 0 }

// Gather copies the next bytes of a request into x and then y, the two parts of a range that wraps
// around the end of a ring.
func (w *Request[X]) Gather(x, y []byte) {
	for _, to := range [2][]byte{x, y} {
		for len(to) > 0 {
			n := copy(to, w.left())
			w.advance(n)
			to = to[n:]
		}
	}
}

// Scatter copies x and then y into the request's pieces.
func (w *Request[X]) Scatter(x, y []byte) {
	for _, from := range [2][]byte{x, y} {
		for len(from) > 0 {
			n := copy(w.left(), from)
			w.advance(n)
			from = from[n:]
		}
	}
}

// Take is what is left of the piece that is being moved. It counts as moved.
func (w *Request[X]) Take() []byte {
	b := w.left()
	w.advance(len(b))
	return b
}

// left is what is left of the piece that is being moved; it skips empty ones.
func (w *Request[X]) left() []byte {
	for w.off == len(w.Bufs[w.piece]) {
		w.piece, w.off = w.piece+1, 0
	}
	return w.Bufs[w.piece][w.off:]
}

func (w *Request[X]) advance(n int) {
	w.off += n
	w.moved += n
}
