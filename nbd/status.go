package nbd

import (
	"context"
	"encoding/binary"
	"math/bits"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// statusBatch is how many runs a block status asks an export for at a time.
const statusBatch = 128

// statusExtents bounds the descriptors of one context; a client asks again for what is left. With
// the context's number they fill 32 KiB, with extended headers 64 KiB.
const statusExtents = 4095

// statusBytes are those of the descriptors of one context.
func (c *conn) statusBytes(h *header) int {
	if c.extended {
		return 8 + 16*c.extentsMax(h)
	}
	return 4 + 8*c.extentsMax(h)
}

// extentsMax bounds the descriptors of each context.
func (c *conn) extentsMax(h *header) int {
	onlyBase := uint64(1) << metaBaseID
	if h.flags&cmdFlagReqOne != 0 || c.open.mapper == nil && c.contexts == onlyBase {
		return 1
	}
	return statusExtents
}

// blockStatus makes one chunk for each context that is asked for. They lie in the request's buffer,
// one behind the other.
func (c *conn) blockStatus(ctx context.Context, req *request) error {
	room := c.statusBytes(&req.header)
	kind := chunkBlockStatus
	if c.extended {
		kind = chunkStatusExt
	}
	for left, place := req.contexts, 0; left != 0; place++ {
		id := bits.TrailingZeros64(left)
		left &^= 1 << id
		w := newStatusWriter(req.buf[place*room:(place+1)*room:(place+1)*room], id, c.extended)
		if err := c.contextStatus(ctx, req, id, w); err != nil {
			return err
		}
		out := w.finish()
		req.add(kind, 0, uint32(len(out)), out)
	}
	return nil
}

// contextStatus fills the descriptors of one context.
func (c *conn) contextStatus(ctx context.Context, req *request, id int, w *statusWriter) error {
	most := c.extentsMax(&req.header)
	off, left := int64(req.offset), int64(req.length)
	for left > 0 && w.count < most {
		states, err := c.statesOf(ctx, req, id, off, left, min(statusBatch, most-w.count))
		if err != nil {
			return err
		}
		for _, st := range states {
			n := min(st.Len, left)
			if n <= 0 {
				break
			}
			w.run(n, st.Flags)
			off += n
			left -= n
		}
	}
	return nil
}

// statesOf asks for runs of one context. At least one of at least one byte comes back, so that
// whoever loops over them gets on.
func (c *conn) statesOf(
	ctx context.Context, req *request, id int, off, left int64, ask int,
) ([]Status, error) {
	req.states = req.states[:0]
	if id == int(metaBaseID) {
		exts, err := c.mapRange(ctx, off, left, ask, req.extents[:0])
		if err != nil {
			return nil, err
		}
		req.extents = exts
		for _, e := range exts {
			req.states = append(req.states, Status{Len: e.Len, Flags: stateOf(e)})
		}
		return req.states, nil
	}
	status := c.open.contexts[id]
	if status == nil {
		return append(req.states, Status{Len: left}), nil
	}
	states, err := status(ctx, off, left, ask, req.states)
	if err != nil {
		return nil, err
	}
	if len(states) == 0 || states[0].Len <= 0 || len(states) > ask {
		return nil, errs.Newf(errs.IO, "nbd.Context", "", "%d runs of %d at %d", len(states), ask, off)
	}
	req.states = states
	return states, nil
}

func stateOf(e Extent) (s uint32) {
	if e.Hole {
		s |= stateHole
	}
	if e.Zero {
		s |= stateZero
	}
	return s
}

// statusWriter encodes the descriptors of one context: the context u32, then length u32, state u32
// each; with extended headers the context u32 and their number u32, then length u64, state u64.
type statusWriter struct {
	out      []byte
	extended bool
	count    int
	length   uint64 // of the last descriptor, which may still grow
	state    uint32
}

func newStatusWriter(buf []byte, id int, extended bool) *statusWriter {
	w := &statusWriter{out: binary.BigEndian.AppendUint32(buf[:0], uint32(id)), extended: extended}
	if extended {
		w.out = append(w.out, 0, 0, 0, 0)
	}
	return w
}

// run adds n bytes of one state. Neighbours of equal state make one descriptor.
func (w *statusWriter) run(n int64, state uint32) {
	if w.count > 0 && w.state == state {
		w.length += uint64(n)
		return
	}
	w.put()
	w.count++
	w.length, w.state = uint64(n), state
}

// put writes the last descriptor down.
func (w *statusWriter) put() {
	switch {
	case w.count == 0:
	case w.extended:
		w.out = binary.BigEndian.AppendUint64(w.out, w.length)
		w.out = binary.BigEndian.AppendUint64(w.out, uint64(w.state))
	default:
		w.out = binary.BigEndian.AppendUint32(w.out, uint32(w.length))
		w.out = binary.BigEndian.AppendUint32(w.out, w.state)
	}
}

func (w *statusWriter) finish() []byte {
	w.put()
	if w.extended {
		binary.BigEndian.PutUint32(w.out[4:], uint32(w.count))
	}
	return w.out
}

// takeContexts finds the functions of the contexts that the entry has promised, by their numbers.
func (o *opened) takeContexts(from Contexter, entry Entry) {
	if from == nil {
		return
	}
	for _, have := range from.Contexts() {
		for i, name := range entry.Contexts {
			if name == have.Name {
				o.contexts[contextID(i)] = have.Status
			}
		}
	}
}

// contextID is the number of the i-th context of an entry.
func contextID(i int) uint32 { return metaBaseID + 1 + uint32(i) }

// contextMatches tells whether a query of a client means a context. A namespace alone, like base:,
// stands for all of its contexts when they are listed, and for none when they are selected.
func contextMatches(query, name string, listing bool) bool {
	if query == name {
		return true
	}
	return listing && strings.HasSuffix(query, ":") && strings.HasPrefix(name, query)
}

// cache fetches a range, where the export can.
func (o *opened) cache(ctx context.Context, off, length int64) error {
	if o.cacher == nil || length == 0 {
		return nil
	}
	return o.cacher.Cache(ctx, off, length)
}
