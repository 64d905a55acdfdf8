package exio

import (
	"errors"
	"io"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// The driver of files. Operations are carried out by some goroutines, so that several are under way
// at once; the tag is the offset. A file of this host reads and writes all pieces of an operation
// in one system call.

// File is what can be opened as one: of this host, or of a cluster.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// FileOptions bound a file's handle.
type FileOptions struct {
	Name   string // for people
	Depth  int    // how many operations are under way at once. Default 4
	Queue  int    // how many may wait besides. Default 1024
	Driver string // as Info tells it. Default "file"
}

type file struct {
	f    File
	opts FileOptions

	mu      sync.Mutex
	more    *sync.Cond
	queue   []job
	closed  bool
	running sync.WaitGroup
}

type job struct {
	op    *Op
	write bool
}

// NewFile makes a handle of an open file, which belongs to it from then on.
func NewFile(f File, opts FileOptions) Handle {
	if opts.Depth <= 0 {
		opts.Depth = 4
	}
	if opts.Queue <= 0 {
		opts.Queue = 1024
	}
	if opts.Driver == "" {
		opts.Driver = "file"
	}
	h := &file{f: f, opts: opts}
	h.more = sync.NewCond(&h.mu)
	for range opts.Depth {
		h.running.Go(h.work)
	}
	return h
}

// Read implements Handle.
func (h *file) Read(op *Op) error { return h.begin(op, false) }

// Write implements Handle.
func (h *file) Write(op *Op) error { return h.begin(op, true) }

// Info implements Handle.
func (h *file) Info() Info { return Info{Driver: h.opts.Driver, Name: h.opts.Name} }

func (h *file) begin(op *Op, write bool) error {
	if err := op.validate("exio.File", write); err != nil {
		return err
	}
	if op.Tag > math.MaxInt64-uint64(bytesOf(op.Pieces)) {
		return errs.Newf(errs.OutOfRange, "exio.File", h.opts.Name, "offset %d", op.Tag)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return errs.New(errs.Closed, "exio.File", h.opts.Name, nil)
	case len(h.queue) >= h.opts.Queue:
		return errs.Newf(errs.Again, "exio.File", h.opts.Name, "%d operations wait", h.opts.Queue)
	}
	h.queue = append(h.queue, job{op, write})
	h.more.Signal()
	return nil
}

// Close implements Handle. What is under way is waited for.
func (h *file) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.running.Wait()
		return nil
	}
	h.closed = true
	queue := h.queue
	h.queue = nil
	h.mu.Unlock()
	h.more.Broadcast()
	h.running.Wait()
	for _, j := range queue {
		j.op.Done(Event{Op: j.op, Tag: j.op.Tag, Note: j.op.Note,
			Err: errs.New(errs.Closed, "exio.File", h.opts.Name, nil)})
	}
	return errs.Wrap("exio.Close", h.opts.Name, h.f.Close())
}

func (h *file) work() {
	for {
		h.mu.Lock()
		for len(h.queue) == 0 && !h.closed {
			h.more.Wait()
		}
		if h.closed {
			h.mu.Unlock()
			return
		}
		j := h.queue[0]
		h.queue = h.queue[1:]
		h.mu.Unlock()
		n, err := h.do(j)
		ev := Event{Op: j.op, Tag: j.op.Tag, Note: j.op.Note, Len: n}
		if err != nil {
			ev.Len, ev.Err = 0, errs.Wrap("exio.File", h.opts.Name, err)
		}
		j.op.Done(ev)
	}
}

// do carries an operation out; at the end of the file a read is short.
func (h *file) do(j job) (n int, err error) {
	if f, ok := h.f.(*os.File); ok && len(j.op.Pieces) > 1 {
		return vectored(f, j)
	}
	off := int64(j.op.Tag)
	for _, p := range j.op.Pieces {
		var k int
		if j.write {
			k, err = h.f.WriteAt(p, off+int64(n))
		} else if k, err = h.f.ReadAt(p, off+int64(n)); errors.Is(err, io.EOF) {
			return n + k, nil
		}
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// vectored is do with all pieces in one call of the kernel, and more where that does less.
func vectored(f *os.File, j job) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	rest := head(j.op.Pieces, bytesOf(j.op.Pieces))
	call := unix.Preadv
	if j.write {
		call = unix.Pwritev
	}
	for len(rest) > 0 && err == nil {
		var k int
		var failed error
		err = raw.Control(func(fd uintptr) { // a file never waits in the poller
			k, failed = call(int(fd), rest, int64(j.op.Tag)+int64(n))
		})
		if failed == unix.EINTR {
			continue
		}
		if err == nil {
			err = failed
		}
		if err == nil && k == 0 && !j.write {
			return n, nil
		}
		n += max(k, 0)
		rest = behind(rest, max(k, 0))
	}
	return n, err
}

// behind is what is left of pieces without their first n bytes.
func behind(pieces [][]byte, n int) [][]byte {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	if n > 0 {
		pieces = append([][]byte{pieces[0][n:]}, pieces[1:]...)
	}
	return pieces
}
