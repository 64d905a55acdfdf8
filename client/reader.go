package client

import (
	"context"
	"io"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
)

// ReaderOptions of File.Reader.
type ReaderOptions struct {
	// Offset is where reading begins. Default 0.
	Offset int64

	// Piece, in bytes, is how much one request asks for at most. From 4 KiB to 64 MiB. Default 1 MiB.
	Piece int

	// Ahead, in bytes, bounds how much is read before it is asked for. The memory of a Reader is that
	// and one Piece. Raised to two pieces. Negative: nothing is read ahead. Default 8 MiB.
	Ahead int
}

// The defaults of readers and writers: enough for four servers at the pace of a fast network.
const (
	pieceDefault = 1 << 20
	pieceMin     = 4 << 10
	pieceLargest = 64 << 20
	aheadDefault = 8 << 20
	aheadFirst   = 128 << 10 // what the first request asks for: many only look at a file's head
)

// pieceAndWindow applies the defaults that readers and writers share.
func pieceAndWindow(piece, window int) (int, int) {
	if piece == 0 {
		piece = pieceDefault
	}
	piece = min(max(piece, pieceMin), pieceLargest)
	if window == 0 {
		window = aheadDefault
	}
	if window > 0 {
		window = max(window, 2*piece)
	}
	return piece, window
}

// Reader reads a file in order, and ahead of whoever reads: several requests are under way at a
// time. It is an io.Reader, io.WriterTo (io.Copy copies nothing then), io.Seeker and io.Closer. It
// begins with little and reads further ahead the longer it is used in order. Calls exclude each
// other.
//
// What was read ahead may be older than the moment of Read: at most as old as it took to read the
// bytes before it. What this client itself writes or cuts off meanwhile is always seen. Small files
// and handles that are strict (WithStrict) are not read ahead.
type Reader struct {
	ctx   context.Context
	f     *File
	piece int
	ahead int // negative: nothing

	mu     sync.Mutex // held during a call
	pos    int64
	window int     // how far it reads ahead for the moment
	pieces []*part // in order, touching each other
	spare  []*Memory
	closed bool
}

// part is a range that is being read, or was.
type part struct {
	off    int64
	mem    *Memory
	want   int
	before uint64 // inode.changes when the request was made
	cancel context.CancelFunc
	done   chan struct{}
	n      int // what follows counts when done is closed
	err    error
}

func (p *part) end() int64 { return p.off + int64(p.want) }

// Reader makes a sequential reader of the file. ctx bounds all that it does. Close it when it is
// not needed any more; that leaves the File open.
func (f *File) Reader(ctx context.Context, opts ReaderOptions) *Reader {
	r := &Reader{ctx: ctx, f: f, pos: opts.Offset}
	r.piece, r.ahead = pieceAndWindow(opts.Piece, opts.Ahead)
	r.window = min(aheadFirst, r.piece)
	return r
}

// Read reads what is there next, at least one byte, or waits for it.
func (r *Reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable("client.Read"); err != nil || len(p) == 0 {
		return 0, err
	}
	if r.plain() || len(p) >= r.ahead {
		r.drop(0)
		n, err := r.f.ReadAt(r.ctx, p, r.pos)
		r.pos += int64(n)
		if n > 0 && err == io.EOF {
			err = nil
		}
		return n, err
	}
	data, err := r.next()
	if err != nil {
		return 0, err
	}
	n := copy(p, data)
	r.advance(n)
	return n, nil
}

// WriteTo writes everything from the position to the end of the file to w.
func (r *Reader) WriteTo(w io.Writer) (total int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable("client.Read"); err != nil {
		return 0, err
	}
	for {
		data, err := r.next()
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		n, err := w.Write(data)
		total += int64(n)
		r.advance(n)
		if err == nil && n < len(data) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, err
		}
	}
}

// Seek moves the position. What was read ahead is kept where it is still ahead.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable("client.Seek"); err != nil {
		return r.pos, err
	}
	to, err := seekTo(r.ctx, r.f, r.pos, offset, whence)
	if err == nil {
		r.pos = to
	}
	return r.pos, err
}

// Close ends what is under way and gives the memory back. The File stays open.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errs.New(errs.Closed, "client.Close", "", nil)
	}
	r.closed = true
	r.drop(0)
	for _, m := range r.spare {
		m.Free()
	}
	r.spare = nil
	return nil
}

func (r *Reader) usable(op string) error {
	if r.closed {
		return errs.Newf(errs.Closed, op, "", "the reader is closed")
	}
	return r.f.readable(r.pos)
}

// plain tells whether nothing is to be read ahead: what is known under a lease is here anyway, and
// strict means now.
func (r *Reader) plain() bool {
	return r.ahead < 0 || r.f.strict || r.f.node.small.Load()
}

// next is what follows the position, as much of it as one piece holds. It is the reader's memory,
// good until advance.
func (r *Reader) next() ([]byte, error) {
	r.discardPassed()
	var asked *part // in this call: what it says counts, whatever it is
	for {
		if len(r.pieces) == 0 {
			asked = r.fetch(r.pos)
		}
		p := r.pieces[0]
		if p == asked {
			r.fill()
		}
		<-p.done
		at := int(r.pos - p.off)
		current := p.before == r.f.node.changed()
		if p.n > at && (current || p == asked) {
			r.fill()
			return p.mem.Bytes()[at:p.n], nil
		}
		r.drop(0)
		if p == asked {
			return nil, p.err // a piece that is not filled has one
		}
	}
}

// advance moves the position over what was used.
func (r *Reader) advance(n int) {
	r.pos += int64(n)
	if len(r.pieces) > 0 && r.pos >= r.pieces[0].off+int64(r.pieces[0].n) {
		r.window = min(4*r.window, max(r.ahead, r.piece))
	}
	r.discardPassed()
}

// discardPassed forgets pieces that do not hold the position, nor follow it without a gap.
func (r *Reader) discardPassed() {
	for len(r.pieces) > 0 && r.pos >= r.pieces[0].end() {
		r.release(r.pieces[0])
		r.pieces = r.pieces[1:]
	}
	if len(r.pieces) > 0 && r.pos < r.pieces[0].off {
		r.drop(0)
	}
	if len(r.pieces) == 0 {
		r.pieces = nil
	}
}

// fill reads ahead up to the window, and not behind what is known to be the end of the file.
func (r *Reader) fill() {
	if r.plain() {
		return
	}
	size := r.f.Size()
	for {
		last := r.pieces[len(r.pieces)-1]
		if last.end() >= size || last.end()-r.pos+int64(r.chunk()) > int64(r.window) {
			return
		}
		r.fetch(last.end())
	}
}

// fetch asks for what lies at off, up to a multiple of what is asked for at a time.
func (r *Reader) fetch(off int64) *part {
	want := r.chunk()
	if rest := int64(r.piece) - off%int64(r.piece); int64(want) > rest {
		want = int(rest)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	p := &part{off: off, mem: r.memory(want), want: want, before: r.f.node.changed(),
		cancel: cancel, done: make(chan struct{})}
	r.pieces = append(r.pieces, p)
	go func() {
		defer close(p.done)
		p.n, p.err = r.f.ReadAt(ctx, p.mem.Bytes()[:want], off)
	}()
	return p
}

// chunk is how much one request asks for: half of the window, so that one is under way while the
// other is used; all of it at first.
func (r *Reader) chunk() int {
	if r.window <= aheadFirst {
		return min(r.window, r.piece)
	}
	return min(r.window/2, r.piece)
}

// memory is a piece that was used before, or another one.
func (r *Reader) memory(n int) *Memory {
	for i := len(r.spare) - 1; i >= 0; i-- {
		if m := r.spare[i]; len(m.Bytes()) >= n {
			r.spare = append(r.spare[:i], r.spare[i+1:]...)
			return m
		}
	}
	for len(r.spare) > 0 { // they are of the size that reading began with
		last := len(r.spare) - 1
		r.spare[last].Free()
		r.spare = r.spare[:last]
	}
	return r.f.fs.Alloc(n)
}

// drop gives up all pieces from an index on, and waits until nobody touches their memory.
func (r *Reader) drop(from int) {
	for _, p := range r.pieces[from:] {
		p.cancel()
	}
	for _, p := range r.pieces[from:] {
		r.release(p)
	}
	r.pieces = r.pieces[:from]
	r.window = min(aheadFirst, r.piece)
}

func (r *Reader) release(p *part) {
	p.cancel()
	<-p.done
	r.spare = append(r.spare, p.mem)
}

// changed counts what this client knows to have changed in the file's data.
func (n *inode) changed() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changes
}

// seekTo is where Seek of a view of f with a position leads.
func seekTo(ctx context.Context, f *File, pos, offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += pos
	case io.SeekEnd:
		a, err := f.Stat(ctx)
		if err != nil {
			return pos, err
		}
		offset += a.Size
	default:
		return pos, errs.Newf(errs.Invalid, "client.Seek", "", "whence %d", whence)
	}
	if offset < 0 || offset > layout.FileSizeMax {
		return pos, errs.Newf(errs.Invalid, "client.Seek", "", "offset %d", offset)
	}
	return offset, nil
}

var (
	_ io.ReadSeekCloser = (*Reader)(nil)
	_ io.WriterTo       = (*Reader)(nil)
)
