package diskexport

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier"
)

const (
	fileBytes     = 1 << 20   // the longest piece of a file that is sent at once: others want a turn
	copyBytes     = 256 << 10 // the longest piece that is read before it is sent
	aheadPieces   = 4         // pieces of one read that are lent at a time
	streamExtents = 16        // holes told from data in one read; the rest goes as data
)

// Stream delivers a large read in pieces.
func (e *Export) Stream(ctx context.Context, off, length int64, to nbd.Sink) error {
	if e.readsCache() {
		return e.streamCached(ctx, off, length, to)
	}
	if err := e.d.settled(ctx, off, length); err != nil {
		return err
	}
	var buf [streamExtents]nbd.Extent
	extents, err := e.d.extents(off, length, streamExtents, buf[:0])
	if err != nil {
		return err
	}
	end := off + length
	for i := 0; off < end; i++ {
		run := nbd.Extent{Len: end - off} // what there were too many extents for
		if i < len(extents) {
			run = extents[i]
		}
		n := min(run.Len, end-off)
		switch {
		case run.Zero:
			err = to.Deliver(nbd.Piece{Off: off, Len: n})
		case e.mode == Page:
			err = e.streamPaged(ctx, off, n, to)
		default:
			err = e.streamDirect(ctx, off, n, to)
		}
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// outlet passes on what the relay reads.
type outlet struct {
	to   nbd.Sink
	base int64
}

// sentPiece tells the relay when its memory is free.
type sentPiece struct {
	data [][]byte
	done chan struct{}
}

// Return implements nbd.Lent.
func (s *sentPiece) Return() { s.done <- struct{}{} }

// Deliver implements relay.Receiver.
func (o *outlet) Deliver(_ context.Context, at int64, sges []fabric.Sge, _ []uint32) error {
	s := &sentPiece{done: make(chan struct{}, 1)}
	p := nbd.Piece{Off: o.base + at, Lent: s}
	for i := range sges {
		s.data = append(s.data, sges[i].Buf)
		p.Len += int64(len(sges[i].Buf))
	}
	p.Data = s.data
	err := o.to.Deliver(p)
	<-s.done // whatever has happened, the memory is not ours before
	return err
}

// streamDirect has all members read, and sends what each of them has at once.
func (e *Export) streamDirect(ctx context.Context, off, length int64, to nbd.Sink) error {
	engine, err := e.d.engine()
	if err != nil {
		return err
	}
	return engine.Read(ctx, &relay.ReadJob{Object: e.d.id, Off: off, Bytes: length, How: e.how,
		To: &outlet{to, off}, NoSums: true})
}

// streamPaged has the kernel send what it has in memory, without a copy. What it has not is read
// here, because nothing else could be sent while it is.
func (e *Export) streamPaged(ctx context.Context, off, length int64, to nbd.Sink) error {
	var pace lender
	pace.init()
	defer pace.wait()
	return e.d.each(off, length, func(p *part, at, off, n int64) error {
		for n > 0 {
			k := min(n, fileBytes)
			if p.inCache(at, k) {
				if err := to.Deliver(nbd.Piece{Off: off, Len: k, File: p.file, At: at}); err != nil {
					return err
				}
			} else {
				k = min(k, copyBytes)
				if err := e.sendCopy(ctx, &pace, off, k, to); err != nil {
					return err
				}
			}
			at, off, n = at+k, off+k, n-k
		}
		return nil
	})
}

// inCache tells whether the kernel has the range in memory.
func (p *part) inCache(at, n int64) bool {
	if p.inMemory {
		return true
	}
	have, all, err := p.pages(at, n)
	return err == nil && have >= all
}

var pageBytes = int64(unix.Getpagesize())

// sendCopy reads a piece and delivers it.
func (e *Export) sendCopy(ctx context.Context, pace *lender, off, n int64, to nbd.Sink) error {
	c, err := pace.take(ctx)
	if err != nil {
		return err
	}
	b := bounces.Get().(*[]byte)
	c.bounce = b
	if err := e.d.pread((*b)[:n], off); err != nil {
		c.Return()
		return err
	}
	c.list[0] = (*b)[:n]
	return to.Deliver(nbd.Piece{Off: off, Len: n, Data: c.list[:], Lent: c})
}

// lender lets one read lend a few pieces at a time.
type lender struct{ free chan *lentPiece }

// lentPiece is one of them: a part of the cache, or a buffer.
type lentPiece struct {
	from   *lender
	loan   *unifier.Loan
	data   [][]byte
	bounce *[]byte
	list   [1][]byte
}

func (l *lender) init() {
	l.free = make(chan *lentPiece, aheadPieces)
	for range aheadPieces {
		l.free <- &lentPiece{from: l}
	}
}

// take waits for a piece that may be lent.
func (l *lender) take(ctx context.Context) (*lentPiece, error) {
	select {
	case p := <-l.free:
		return p, nil
	case <-ctx.Done():
		return nil, errs.Wrap("diskexport.Stream", "", ctx.Err())
	}
}

// wait returns when all pieces are back: the export is not closed before.
func (l *lender) wait() {
	for range aheadPieces {
		<-l.free
	}
}

// Return implements nbd.Lent.
func (p *lentPiece) Return() {
	if p.loan != nil {
		p.loan.Release()
		p.loan = nil
	}
	if p.bounce != nil {
		bounces.Put(p.bounce)
		p.bounce = nil
	}
	clear(p.data)
	p.data = p.data[:0]
	p.from.free <- p
}

// streamCached sends units of the cache from where they lie. What is missing is read in smaller
// pieces, so that the first leave early.
func (e *Export) streamCached(ctx context.Context, off, length int64, to nbd.Sink) error {
	d := e.d
	d.cacheOn()
	var pace lender
	pace.init()
	defer pace.wait()
	for length > 0 {
		p, err := pace.take(ctx)
		if err != nil {
			return err
		}
		n := min(length, loanBytes, d.cache().ChunkMax())
		if p.loan = d.cache().Lend(d.id, seg.Contig(off, n), e.hint()); p.loan == nil {
			n = min(n, copyBytes)
			if p.loan, err = e.borrow(ctx, off, n); err != nil {
				p.Return()
				return located(err, off)
			}
		}
		for _, s := range p.loan.Sges() {
			p.data = append(p.data, s.Buf)
		}
		if err := to.Deliver(nbd.Piece{Off: off, Len: n, Data: p.data, Lent: p}); err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}

// located gives an error a place, unless it has one.
func located(err error, off int64) error {
	var at *nbd.OffsetError
	if errors.As(err, &at) {
		return err
	}
	return &nbd.OffsetError{Off: off, Err: err}
}
