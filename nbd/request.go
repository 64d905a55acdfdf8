package nbd

import (
	"unicode/utf8"

	"github.com/sluice-storage/sluice/internal/gate"
)

// request is one request from its header to its reply. Requests are reused; while one is under way
// it belongs to the goroutine that reads, then to the one that runs it, then to the replier.
type request struct {
	header
	buf     []byte // payload of a write, data of a read, descriptors of a block status
	lent    Buffer // that buf is a part of; nil: it is the pool's
	cost    int64  // bytes of the gates' that buf holds
	release func() // gives back what an export lent by Slice

	errno    uint32
	message  string
	errorOff uint64 // where a read failed
	located  bool   // errorOff is set

	sink     *sink // of a streamed read, and of each of its parts
	part     bool  // a piece of a streamed read: not a request that a client sent
	more     bool  // of a part: it does not complete the reply
	answered bool  // by its parts: nothing is left to be sent

	watch    watch       // see states.go
	slot     gate.Ticket // of its call of the export
	contexts uint64      // that a block status tells of, as bits

	mates []*request // requests that are run with it, see batch.go
	spans []Span     // scratch for them

	chunks  []chunk
	extents []Extent // scratch for Map
	states  []Status // scratch for block status
}

// chunk is one piece of a reply's content.
type chunk struct {
	kind   uint16 // chunkOffsetData, chunkOffsetHole, chunkBlockStatus or chunkStatusExt
	offset uint64
	length uint32 // of data or of the hole
	data   []byte
	piece  Piece // of a streamed read, instead of data
}

func (r *request) fail(errno uint32, message string) {
	r.errno, r.message = errno, clip(message)
	clear(r.chunks)
	r.chunks = r.chunks[:0]
}

func (r *request) failAt(errno uint32, message string, off uint64) {
	r.fail(errno, message)
	r.errorOff, r.located = off, true
}

func (r *request) add(kind uint16, offset uint64, length uint32, data []byte) {
	r.chunks = append(r.chunks, chunk{kind: kind, offset: offset, length: length, data: data})
}

func (r *request) dataBytes() int {
	n := 0
	for i := range r.chunks {
		n += len(r.chunks[i].data)
	}
	return n
}

// reset forgets everything but the scratch space.
func (r *request) reset() {
	clear(r.chunks)
	*r = request{chunks: r.chunks[:0], extents: r.extents[:0], states: r.states[:0],
		mates: r.mates[:0], spans: r.spans[:0]}
}

// clip bounds a message without cutting a character in two.
func clip(s string) string {
	if len(s) <= messageMax {
		return s
	}
	n := messageMax
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
