package nbd

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
)

// StreamBytes is the shortest read that a Streamer is asked to deliver in pieces: each piece has a
// header and is looked at by itself on both sides, which small reads do not make up for.
const StreamBytes = 128 << 10

// streams tells whether a read is delivered in pieces. A client without structured replies, or who
// asked for one piece, gets all of it at once from ReadAt, since with a header on its way nothing
// could be told of an error any more.
func (c *conn) streams(h *header) bool {
	return c.open.streamer != nil && h.cmd == cmdRead && h.length >= StreamBytes &&
		c.structured && h.flags&cmdFlagDF == 0
}

// sink sends the pieces of one read. Each piece is a part: a request of its own for the replier,
// with one chunk, which leaves together with whatever else is queued at that moment. Behind its
// parts comes the request itself, which ends the reply with an error or an empty chunk; the last
// part ends it where nothing can fail any more.
type sink struct {
	c   *conn
	req header

	// Guarded by the replier's lock, so that parts are queued in the order they were counted in.
	left  int64 // bytes that have not been delivered
	files bool  // a piece lies in a file, whose bytes may turn out to be missing
	ended bool  // the export has returned
	wrong error // the export has broken its contract

	// The replier's, while it writes.
	lost   error // bytes of a file were missing
	lostAt int64
}

// streamRead has the export deliver.
func (c *conn) streamRead(ctx context.Context, req *request) error {
	s := &sink{c: c, req: req.header, left: int64(req.length)}
	req.sink = s
	r := &c.out
	defer func() {
		r.mu.Lock()
		s.ended = true // also when it panics
		r.mu.Unlock()
	}()
	err := c.open.streamer.Stream(ctx, int64(req.offset), int64(req.length), s)
	var at *OffsetError
	if errors.As(err, &at) && s.covers(at.Off, 1) {
		req.errorOff, req.located = uint64(at.Off), true
	}
	r.mu.Lock()
	left, wrong := s.left, s.wrong
	r.mu.Unlock()
	req.answered = left == 0 && !s.files // whatever came behind it, the client has all of it
	switch {
	case wrong != nil && req.answered:
		c.srv.cfg.Logger.Error("nbd: too much was delivered, closing the connection", "err", wrong)
		c.cut() // the client has bytes that it should not have, and believes them
	case wrong != nil:
		return wrong
	case left > 0 && err == nil:
		return errs.Newf(errs.IO, "nbd.Stream", "", "%d of %d bytes were not delivered", left,
			req.length)
	}
	return err
}

func (s *sink) covers(off, n int64) bool {
	from := int64(s.req.offset)
	return off >= from && n > 0 && n <= int64(s.req.length) && off-from <= int64(s.req.length)-n
}

// Deliver implements Sink.
func (s *sink) Deliver(p Piece) error {
	r := &s.c.out
	if r.failed.Load() {
		p.giveBack()
		return errs.New(errs.Closed, "nbd.Deliver", "", nil)
	}
	part := s.part(p)
	r.mu.Lock()
	if err := s.countLocked(&p); err != nil {
		r.mu.Unlock()
		p.giveBack()
		part.reset()
		s.c.srv.reqs.Put(part)
		return err
	}
	part.more = s.left > 0 || s.files
	r.entered++ // it holds the connection open until it has left
	r.queue = append(r.queue, part)
	if s.left == 0 && s.files && p.Lent == nil {
		r.mu.Unlock() // the request itself follows at once, and takes it along
		return nil    // what is lent leaves now: the export may wait for it before it ends
	}
	r.flushAndUnlock()
	return nil
}

// part makes the piece a request.
func (s *sink) part(p Piece) *request {
	part := s.c.srv.reqs.Get().(*request)
	part.header, part.sink, part.part = s.req, s, true
	kind := chunkOffsetData
	if p.Data == nil && p.File == nil {
		kind = chunkOffsetHole
	}
	part.chunks = append(part.chunks, chunk{
		kind: kind, offset: uint64(p.Off), length: uint32(p.Len), piece: p,
	})
	return part
}

// countLocked checks a piece and counts its bytes. What breaks the contract fails the request:
// nobody knows what the client would have to make of it.
func (s *sink) countLocked(p *Piece) error {
	sum := p.Len
	if p.Data != nil {
		sum = 0
		for _, b := range p.Data {
			sum += int64(len(b))
		}
	}
	switch {
	case s.ended:
		return errs.Newf(errs.Invalid, "nbd.Deliver", "", "after the end of its read")
	case s.wrong != nil:
		return s.wrong
	case !s.covers(p.Off, p.Len) || sum != p.Len || p.Len > s.left:
		s.wrong = errs.Newf(errs.IO, "nbd.Deliver", "",
			"%d bytes at %d, %d of them in memory, in a read of %d at %d, %d of them missing",
			p.Len, p.Off, sum, s.req.length, s.req.offset, s.left)
		return s.wrong
	}
	s.left -= p.Len
	s.files = s.files || p.Data == nil && p.File != nil
	s.c.count.bytesOut.Add(p.Len)
	return nil
}

// lose notes that bytes of a file were missing when they were sent.
func (s *sink) lose(at int64, err error) {
	if s.lost == nil {
		s.lost, s.lostAt = err, at
	}
}

// conclude turns what was lost on the way into the request's error. All of its parts have left.
func (s *sink) conclude(req *request) {
	if s.lost == nil || req.errno != nbdOK {
		return
	}
	req.errorOff, req.located = uint64(s.lostAt), true
	s.c.failRequest(req, s.lost)
	s.c.count.errors.Add(1)
}

// giveBack returns what the export has lent.
func (p *Piece) giveBack() {
	if lent := p.Lent; lent != nil {
		p.Lent = nil
		lent.Return()
	}
}

// piece appends a piece's bytes to the present write, or sends them if they lie in a file.
func (r *replier) piece(part *request, p *Piece) {
	for _, b := range p.Data {
		r.data(b)
	}
	if p.Data != nil || p.File == nil {
		return
	}
	if n, err := r.sendFile(p.File, p.At, p.Len); err != nil {
		part.sink.lose(p.Off+n, err)
		r.pad(p.Len - n)
	}
}

// pad sends zeroes where a header has promised bytes that are not there.
func (r *replier) pad(n int64) {
	zeroes := r.c.srv.zeroes
	for n > 0 && !r.failed.Load() {
		k := min(n, int64(len(zeroes)))
		r.data(zeroes[:k])
		n -= k
	}
}
