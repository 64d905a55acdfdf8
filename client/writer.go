package client

import (
	"context"
	"io"
	"sync"

	"github.com/sluice-storage/sluice/errs"
)

// WriterOptions of File.Writer.
type WriterOptions struct {
	// Offset is where writing begins. Ignored for files that were opened with O_APPEND. Default 0.
	Offset int64

	// Piece, in bytes, is how much one request carries at most. From 4 KiB to 64 MiB. Default 1 MiB.
	Piece int

	// Behind, in bytes, bounds how much of what was written is gathered or under way, and by that the
	// memory of the Writer. Raised to two pieces. Negative: each Write returns when the servers have
	// the data. Default 8 MiB.
	Behind int
}

// Writer writes a file in order, and behind whoever writes: it gathers what it is given into
// pieces, and sends several at a time. It is an io.Writer, io.ReaderFrom (data is read into the
// memory that it is sent from) and io.Closer. Calls exclude each other.
//
// What Write has accepted others see when it was sent: after Flush, Sync or Close at the latest.
// The first error stops the Writer. It is returned by every call from then on, Close among them, so
// that it is enough to look at the error of Close. Of what was written since the last Flush some
// may be in the file then, and some not.
//
// Of a file that was opened with O_APPEND one piece at a time is appended, each as one append. With
// O_SYNC, and for handles that are strict (WithStrict), nothing is kept back.
type Writer struct {
	ctx   context.Context
	f     *File
	piece int
	most  int // pieces, including the one that is being filled; 0: nothing is kept back

	mu     sync.Mutex // held during a call
	pos    int64      // where the next byte goes
	fill   []byte     // of cur: what was gathered, which ends at pos
	cur    *Memory    // nil: none
	made   int        // pieces that were allocated
	closed bool

	free  []*Memory
	under int          // how many are under way
	sent  chan *Memory // those that are not any more; has room for all

	failed struct {
		mu  sync.Mutex
		err error
	}
}

// Writer makes a sequential writer of the file. ctx bounds all that it does. What was written and
// not flushed is lost unless Close is called, which leaves the File open.
func (f *File) Writer(ctx context.Context, opts WriterOptions) *Writer {
	w := &Writer{ctx: ctx, f: f, pos: opts.Offset}
	piece, behind := pieceAndWindow(opts.Piece, opts.Behind)
	w.piece = piece
	switch {
	case behind < 0 || f.strict || f.durable:
	case f.append: // one that is filled, and one on its way: more would come in any order
		w.most = 2
	default:
		w.most = behind / piece
	}
	w.sent = make(chan *Memory, max(w.most, 1))
	return w
}

// Write accepts p. It waits where as much is under way as may be.
func (w *Writer) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return 0, err
	}
	if w.most == 0 {
		n, err = w.put(p, w.pos)
		w.pos += int64(n)
		w.fail(err)
		return n, err
	}
	for n < len(p) {
		room, err := w.room()
		if err != nil {
			return n, err
		}
		n += w.gathered(copy(room, p[n:]))
	}
	return n, w.err()
}

// ReadFrom writes all that r gives, until it is at its end.
func (w *Writer) ReadFrom(r io.Reader) (total int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.most == 0 {
		return w.readThrough(r)
	}
	for idle := 0; ; {
		room, err := w.room()
		if err != nil {
			return total, err
		}
		n, err := r.Read(room)
		total += int64(w.gathered(n))
		switch {
		case err == io.EOF:
			return total, w.err()
		case err != nil:
			return total, err
		case n > 0:
			idle = 0
		default:
			if idle++; idle == idleReadsMax {
				return total, io.ErrNoProgress
			}
		}
	}
}

// idleReadsMax is how often a source may give nothing, as in package bufio.
const idleReadsMax = 100

// readThrough is ReadFrom where nothing is kept back.
func (w *Writer) readThrough(r io.Reader) (total int64, err error) {
	if err := w.usable(); err != nil {
		return 0, err
	}
	m := w.f.fs.Alloc(w.piece)
	defer m.Free()
	for {
		n, err := r.Read(m.Bytes())
		if n > 0 {
			wrote, werr := w.put(m.Bytes()[:n], w.pos)
			total, w.pos = total+int64(wrote), w.pos+int64(wrote)
			if werr != nil {
				w.fail(werr)
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Flush returns when the servers have everything that was written. That does not make it durable:
// see Sync.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	return w.flush()
}

// Sync is Flush, and File.Sync.
func (w *Writer) Sync() error {
	if err := w.Flush(); err != nil {
		return err
	}
	err := w.f.Sync(w.ctx)
	w.fail(err)
	return err
}

// Close is Flush, and gives the memory back. The File stays open. After an error, too, it returns
// when nothing is under way any more.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errs.New(errs.Closed, "client.Close", "", nil)
	}
	w.closed = true
	err := w.flush()
	if w.cur != nil {
		w.cur.Free()
	}
	w.cur, w.fill = nil, nil
	for _, m := range w.free {
		m.Free()
	}
	w.free = nil
	return err
}

func (w *Writer) usable() error {
	if w.closed {
		return errs.Newf(errs.Closed, "client.Write", "", "the writer is closed")
	}
	return w.err()
}

func (w *Writer) err() error {
	w.failed.mu.Lock()
	defer w.failed.mu.Unlock()
	return w.failed.err
}

// fail notes the first error.
func (w *Writer) fail(err error) {
	w.failed.mu.Lock()
	defer w.failed.mu.Unlock()
	if w.failed.err == nil {
		w.failed.err = err
	}
}

// room is memory for what comes next: never empty. It waits for a piece where all are under way.
func (w *Writer) room() ([]byte, error) {
	if err := w.usable(); err != nil {
		return nil, err
	}
	if w.cur == nil {
		w.cur = w.take()
		end := w.piece
		if !w.f.append { // pieces end at multiples of their length, where stripes do, too
			end -= int(w.pos % int64(w.piece))
		}
		w.fill = w.cur.Bytes()[:0:end]
	}
	return w.fill[len(w.fill):cap(w.fill)], w.err()
}

// take is a piece that nobody uses.
func (w *Writer) take() *Memory {
	if len(w.free) == 0 && w.made < w.most && len(w.sent) == 0 {
		w.made++
		return w.f.fs.Alloc(w.piece)
	}
	if len(w.free) == 0 {
		w.reap()
	}
	last := len(w.free) - 1
	m := w.free[last]
	w.free = w.free[:last]
	return m
}

// reap waits for one piece that is under way.
func (w *Writer) reap() {
	w.free = append(w.free, <-w.sent)
	w.under--
}

// gathered takes note of n bytes in what room has returned, and sends what is full.
func (w *Writer) gathered(n int) int {
	w.fill = w.fill[:len(w.fill)+n]
	w.pos += int64(n)
	if len(w.fill) == cap(w.fill) {
		w.send()
	}
	return n
}

// send has the piece that was filled written in the background. Appends follow each other.
func (w *Writer) send() {
	if w.cur == nil {
		return
	}
	if w.f.append {
		w.settle()
	}
	m, data, off := w.cur, w.fill, w.pos-int64(len(w.fill))
	w.cur, w.fill = nil, nil
	w.under++
	go func() {
		if len(data) > 0 && w.err() == nil {
			_, err := w.put(data, off)
			w.fail(err)
		}
		w.sent <- m
	}()
}

// flush sends what was gathered and waits for all that is under way.
func (w *Writer) flush() error {
	w.send()
	w.settle()
	return w.err()
}

// settle waits until nothing is under way.
func (w *Writer) settle() {
	for w.under > 0 {
		w.reap()
	}
}

// put writes to the file.
func (w *Writer) put(p []byte, off int64) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case w.f.append:
		if _, err := w.f.Append(w.ctx, p); err != nil {
			return 0, err
		}
		return len(p), nil
	case w.f.durable:
		return w.f.WriteAtDurable(w.ctx, p, off)
	}
	return w.f.WriteAt(w.ctx, p, off)
}

var (
	_ io.WriteCloser = (*Writer)(nil)
	_ io.ReaderFrom  = (*Writer)(nil)
)
