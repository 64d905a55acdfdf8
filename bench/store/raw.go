package store

import (
	"context"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/uring"
	"github.com/sluice-storage/sluice/stripe"
)

// RawTarget is what plain io_uring works on.
type RawTarget struct {
	Path string // a file that is made, or a device
	Off  int64  // of a device: where its part begins
}

// rawRing is io_uring over a file or a device with direct I/O, without anything of the store. A
// durable write is O_DSYNC for that write.
type rawRing struct {
	file  *os.File
	ring  *uring.Ring
	off   int64
	bytes int64
	next  atomic.Int64
	work  [64]rawWork // of each goroutine
}

type rawWork struct {
	op     uring.Op
	ops    [1]*uring.Op
	pieces [1][]byte
}

// openRaw opens the target and writes it from end to end, so that no write finds space missing.
func openRaw(t RawTarget, bytes int64) (*rawRing, error) {
	const op = "bench store"
	flags := os.O_RDWR | unix.O_DIRECT
	st, err := os.Stat(t.Path)
	if device := err == nil && st.Mode()&os.ModeDevice != 0; !device {
		flags |= os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(t.Path, flags, 0o600)
	if err != nil {
		return nil, errs.Newf(errs.KindOf(err), op, t.Path, "direct I/O: %w", err)
	}
	r := &rawRing{file: f, off: t.Off, bytes: bytes}
	if flags&os.O_CREATE != 0 {
		err = unix.Fallocate(int(f.Fd()), 0, 0, bytes)
	}
	if err == nil {
		r.ring, err = uring.Open(uring.Options{Files: []int{int(f.Fd())}})
	}
	if err != nil {
		f.Close()
		return nil, errs.Wrap(op, t.Path, err)
	}
	fill := r.load(Op{Size: mib, Depth: 4, Class: stripe.Volatile})
	if _, err := fill.run(context.Background(), 0, int(bytes/mib)); err != nil {
		return nil, errs.Wrap(op, t.Path, err)
	}
	return r, f.Sync()
}

// load does the operation on the target.
func (r *rawRing) load(op Op) load {
	r.next.Store(0)
	return load{op: op, bytes: r.bytes, next: &r.next, do: func(w int, buf []byte, off int64) error {
		x := &r.work[w]
		x.pieces[0], x.ops[0] = buf, &x.op
		x.op.Kind, x.op.Off, x.op.Bufs = uring.Write, r.off+off, x.pieces[:]
		x.op.Stable = op.Class != stripe.Volatile
		if op.Read {
			x.op.Kind = uring.Read
		}
		r.ring.Do(x.ops[:])
		return x.op.Err
	}}
}

func (r *rawRing) close() error {
	_ = r.ring.Close() // it does not fail
	return r.file.Close()
}
