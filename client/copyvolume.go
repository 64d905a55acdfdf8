package client

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
)

// VolumeCopy says how a volume is copied. All fields may be left out.
type VolumeCopy struct {
	// Resume: the destination holds some of the copy already. What is equal is not written again, and
	// what is a hole in the source is one in the copy.
	Resume bool

	Expect func(bytes int64) // told how much is to be looked at, bit by bit
	Moved  func(bytes int64) // told how much of it was
}

// VolumeCopied is what a copy has done.
type VolumeCopied struct {
	Data    int64 // bytes that are no holes
	Written int64 // bytes that had to be written
}

// copyChunk is what is read and written at a time, and copyWorkers how many of these are under way.
const (
	copyChunk   = 1 << 20
	copyWorkers = 8

	// copyGrain is the smallest run of zeroes that becomes a hole.
	copyGrain = 64 << 10
)

// CopyVolume copies a volume to another one that is at least as large. Holes stay holes, and runs
// of zeroes become some. What was copied is durable when it returns. It reads what is there at the
// moment: nobody should write to the source meanwhile.
func CopyVolume(ctx context.Context, dst, src *File, o VolumeCopy) (VolumeCopied, error) {
	if dst.Size() < src.Size() {
		return VolumeCopied{}, errs.Newf(errs.TooBig, "client.CopyVolume", "",
			"%d bytes do not fit into %d", src.Size(), dst.Size())
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &volumeCopier{o: o, dst: dst, src: src, jobs: make(chan seg.Piece), stop: stop}
	var wg sync.WaitGroup
	for range copyWorkers {
		wg.Go(func() { c.work(ctx) })
	}
	err := c.walk(ctx)
	close(c.jobs)
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil {
		err = dst.Sync(ctx)
	}
	return c.done, errs.Wrap("client.CopyVolume", "", err)
}

type volumeCopier struct {
	o        VolumeCopy
	dst, src *File
	jobs     chan seg.Piece
	stop     context.CancelCauseFunc

	mu   sync.Mutex
	done VolumeCopied
}

// walk hands out what holds data, in order.
func (c *volumeCopier) walk(ctx context.Context) error {
	size := c.src.Size()
	for off := int64(0); off < size; {
		list, err := c.src.Map(ctx, off, size-off)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return errs.Newf(errs.IO, "client.CopyVolume", "", "nothing is known of what is at %d", off)
		}
		for _, e := range list {
			if e.Hole {
				err = c.hole(ctx, e.Off, e.Len)
			} else {
				err = c.data(ctx, e.Off, e.Len)
			}
			if err != nil {
				return err
			}
			off = e.Off + e.Len
		}
	}
	return nil
}

// hole is only worth something where the copy may hold what was there once.
func (c *volumeCopier) hole(ctx context.Context, off, n int64) error {
	if !c.o.Resume {
		return nil
	}
	return c.dst.Punch(ctx, off, n)
}

func (c *volumeCopier) data(ctx context.Context, off, n int64) error {
	if c.o.Expect != nil {
		c.o.Expect(n)
	}
	for n > 0 {
		part := min(n, copyChunk-off%copyChunk)
		select {
		case c.jobs <- seg.Piece{Off: off, Len: part}:
		case <-ctx.Done():
			return ctx.Err()
		}
		off, n = off+part, n-part
	}
	return nil
}

func (c *volumeCopier) work(ctx context.Context) {
	p, was := make([]byte, copyChunk), []byte(nil)
	if c.o.Resume {
		was = make([]byte, copyChunk)
	}
	for s := range c.jobs {
		if ctx.Err() != nil {
			continue
		}
		written, err := c.copy(ctx, s, p[:s.Len], was)
		if err != nil {
			c.stop(err)
			continue
		}
		c.mu.Lock()
		c.done.Data += s.Len
		c.done.Written += written
		c.mu.Unlock()
		if c.o.Moved != nil {
			c.o.Moved(s.Len)
		}
	}
}

// copy moves a part, and tells how much of it was written.
func (c *volumeCopier) copy(ctx context.Context, s seg.Piece, p, was []byte) (written int64,
	err error) {
	if err := readWhole(ctx, c.src, p, s.Off); err != nil {
		return 0, err
	}
	if was != nil {
		if err := readWhole(ctx, c.dst, was[:len(p)], s.Off); err != nil {
			return 0, err
		}
	}
	for from := 0; from < len(p); {
		end, same := c.run(p, was, from, s.Off)
		if !same {
			if _, err := c.dst.WriteAt(ctx, p[from:end], s.Off+int64(from)); err != nil {
				return written, err
			}
			written += int64(end - from)
		}
		from = end
	}
	return written, nil
}

// run finds the end of what begins at from and is there already as a whole, or not at all, grain by
// grain.
func (c *volumeCopier) run(p, was []byte, from int, off int64) (end int, same bool) {
	end = min(len(p), from+copyGrain-int((off+int64(from))%copyGrain))
	same = c.same(p[from:end], was, from)
	for end < len(p) {
		next := min(len(p), end+copyGrain)
		if c.same(p[end:next], was, end) != same {
			break
		}
		end = next
	}
	return end, same
}

// same tells whether the copy has a piece already: what was found there, or a hole.
func (c *volumeCopier) same(p, was []byte, from int) bool {
	if was != nil {
		return bytes.Equal(p, was[from:from+len(p)])
	}
	return isZero(p)
}

func isZero(p []byte) bool {
	const page = 4096
	var zero [page]byte
	for len(p) > page {
		if !bytes.Equal(p[:page], zero[:]) {
			return false
		}
		p = p[page:]
	}
	return bytes.Equal(p, zero[:len(p)])
}

func readWhole(ctx context.Context, f *File, p []byte, off int64) error {
	n, err := f.ReadAt(ctx, p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = errs.Newf(errs.IO, "client.CopyVolume", "", "%d of %d bytes at %d", n, len(p), off)
	}
	return err
}
