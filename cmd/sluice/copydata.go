package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

const (
	// copyDepth is how many pieces of one file are under way at once: one being read while others are
	// written is enough to keep both sides busy.
	copyDepth = 4

	// sparseRun is how many zeroes make a hole with --sparse=always: shorter ones save no space on a
	// cluster, and cost a request each.
	sparseRun = 64 << 10
)

// transfer moves the data of one file.
type transfer struct {
	in     source
	out    sink
	size   int64 // of in, when the copy began
	keep   int64 // what out has is compared up to here, and written where it differs
	sparse string
	sum    bool // remember what was read, for verify
	moved  func(bytes int64)

	written, kept, holes atomic.Int64

	mu     sync.Mutex
	pos    int64 // what is behind it was not begun
	dataTo int64 // data up to here, as far as is known; pos is in it, or at its end
	end    int64 // the highest byte that out certainly has
	eof    int64 // where in ended; size unless it was cut
	pieces []piece
}

// piece is a part of a file that is moved at once.
type piece struct {
	off, n int64
	hole   bool
	sum    [sha256.Size]byte // of its data, when it was read
}

// run moves everything, copyDepth pieces at once, then what a growing file has got meanwhile.
func (t *transfer) run(ctx context.Context) error {
	t.eof, t.end = t.size, t.keep
	depth := int(min(copyDepth, t.size/copyBytes+1))
	fails := make([]error, depth)
	var wg sync.WaitGroup
	for w := range depth {
		wg.Go(func() { fails[w] = t.work(ctx) })
	}
	wg.Wait()
	if err := errors.Join(fails...); err != nil {
		return err
	}
	if t.eof == t.size {
		if err := t.grown(ctx); err != nil {
			return err
		}
	}
	if t.end == t.eof {
		return nil
	}
	return t.out.resize(t.eof)
}

// work moves one piece after the other.
func (t *transfer) work(ctx context.Context) error {
	bufs := [2][]byte{make([]byte, min(copyBytes, max(t.size, 1)))}
	if t.keep > 0 {
		bufs[1] = make([]byte, len(bufs[0]))
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, ok, err := t.next()
		if err != nil || !ok {
			return err
		}
		if err := t.move(p, bufs); err != nil {
			return err
		}
	}
}

// next takes the next piece: a whole hole, or data up to the next multiple of copyBytes.
func (t *transfer) next() (piece, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pos >= t.eof {
		return piece{}, false, nil
	}
	p := piece{off: t.pos}
	if t.pos >= t.dataTo {
		from, to := t.pos, t.size
		if t.sparse != "never" {
			var err error
			if from, to, err = t.in.extent(t.pos, t.size); err != nil {
				return p, false, err
			}
		}
		t.dataTo = to
		if from > t.pos {
			p.n, p.hole, t.pos = from-t.pos, true, from
			return p, true, nil
		}
	}
	p.n = min(t.dataTo, (t.pos/copyBytes+1)*copyBytes) - t.pos
	t.pos += p.n
	return p, true, nil
}

func (t *transfer) move(p piece, bufs [2][]byte) error {
	defer t.moved(p.n)
	if p.hole {
		t.holes.Add(p.n)
		t.note(p, false)
		if p.off < t.keep {
			return t.out.punch(p.off, min(p.n, t.keep-p.off))
		}
		return nil
	}
	buf := bufs[0][:p.n]
	n, err := t.in.ReadAt(buf, p.off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if buf = buf[:n]; int64(n) < p.n { // it was cut meanwhile
		p.n = int64(n)
		t.cut(p.off + p.n)
	}
	if t.sum {
		p.sum = sha256.Sum256(buf)
	}
	t.note(p, true)
	same, err := t.same(buf, p.off, bufs[1])
	switch {
	case err != nil:
		return err
	case same:
		t.kept.Add(p.n)
		return nil
	}
	return t.write(buf, p.off)
}

// note remembers a piece, and how far out reaches with it.
func (t *transfer) note(p piece, data bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if data && t.sparse != "always" {
		t.end = max(t.end, p.off+p.n)
	}
	if t.sum && p.n > 0 {
		t.pieces = append(t.pieces, p)
	}
}

func (t *transfer) cut(at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eof = min(t.eof, at)
}

// same tells whether out has these bytes already.
func (t *transfer) same(want []byte, off int64, buf []byte) (bool, error) {
	if off+int64(len(want)) > t.keep || len(want) == 0 {
		return false, nil
	}
	got := buf[:len(want)]
	if _, err := t.out.ReadAt(got, off); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(got, want), nil
}

// write writes data, with --sparse=always without its long runs of zeroes.
func (t *transfer) write(buf []byte, off int64) error {
	if t.sparse != "always" {
		_, err := t.out.WriteAt(buf, off)
		t.written.Add(int64(len(buf)))
		return err
	}
	for len(buf) > 0 {
		n, zero := zeroRun(buf)
		if !zero {
			if _, err := t.out.WriteAt(buf[:n], off); err != nil {
				return err
			}
			t.written.Add(int64(n))
			t.mu.Lock()
			t.end = max(t.end, off+int64(n))
			t.mu.Unlock()
		} else {
			t.holes.Add(int64(n))
			if off < t.keep {
				if err := t.out.punch(off, min(int64(n), t.keep-off)); err != nil {
					return err
				}
			}
		}
		buf, off = buf[n:], off+int64(n)
	}
	return nil
}

// zeroRun is the length of the first part of buf, in steps of sparseRun, that is all zeroes, or of
// which no step is.
func zeroRun(buf []byte) (n int, zero bool) {
	for at := 0; at < len(buf); at += sparseRun {
		step := buf[at:min(at+sparseRun, len(buf))]
		is := len(step) == sparseRun && isZero(step)
		if at == 0 {
			zero = is
		} else if is != zero {
			return at, zero
		}
	}
	return len(buf), zero
}

func isZero(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(zeroes))
		if !bytes.Equal(b[:n], zeroes[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// zeroes are some, to compare with and to write. Nobody changes them.
var zeroes [64 << 10]byte

func writeZeroes(w io.WriterAt, off, n int64) error {
	for n > 0 {
		step := min(n, int64(len(zeroes)))
		if _, err := w.WriteAt(zeroes[:step], off); err != nil {
			return err
		}
		off, n = off+step, n-step
	}
	return nil
}

// grown moves what was appended to the source since its length was read.
func (t *transfer) grown(ctx context.Context) error {
	buf := make([]byte, 64<<10)
	for ctx.Err() == nil {
		n, err := t.in.ReadAt(buf, t.eof)
		if n > 0 {
			p := piece{off: t.eof, n: int64(n)}
			if t.sum {
				p.sum = sha256.Sum256(buf[:n])
			}
			t.note(p, true)
			if _, err := t.out.WriteAt(buf[:n], t.eof); err != nil {
				return err
			}
			t.written.Add(int64(n))
			t.eof += int64(n)
			t.end = max(t.end, t.eof)
			t.moved(int64(n))
		}
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// verify reads back what was written and compares it with what was read.
func (t *transfer) verify(ctx context.Context, back source) error {
	var next atomic.Int64
	depth := int(min(copyDepth, int64(len(t.pieces))))
	fails := make([]error, depth+1)
	for _, p := range t.pieces { // one after the other: mostly nothing has to be read
		if p.hole && fails[depth] == nil {
			fails[depth] = p.verifyHole(ctx, back)
		}
	}
	var wg sync.WaitGroup
	for w := range depth {
		wg.Go(func() {
			buf := make([]byte, copyBytes)
			for fails[w] == nil {
				i := next.Add(1) - 1
				if i >= int64(len(t.pieces)) {
					return
				}
				if fails[w] = ctx.Err(); fails[w] == nil && !t.pieces[i].hole {
					fails[w] = t.pieces[i].verifyData(back, buf)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(fails...); err != nil {
		return err
	}
	if n, _ := back.ReadAt(make([]byte, 1), t.eof); n != 0 {
		return fmt.Errorf("the copy is longer than the %d bytes that were read", t.eof)
	}
	return nil
}

func (p *piece) verifyData(back source, buf []byte) error {
	buf = buf[:p.n] // a piece of data is never longer
	n, err := back.ReadAt(buf, p.off)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case int64(n) < p.n:
		return fmt.Errorf("the copy ends at byte %d", p.off+int64(n))
	case sha256.Sum256(buf) != p.sum:
		return fmt.Errorf("the copy differs from what was read, between byte %d and %d", p.off,
			p.off+p.n)
	}
	return nil
}

// verifyHole reads what is no hole in the copy, which must be zeroes.
func (p *piece) verifyHole(ctx context.Context, back source) error {
	buf := make([]byte, min(copyBytes, p.n))
	for off, end := p.off, p.off+p.n; off < end; {
		from, to, err := back.extent(off, end)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		n, err := back.ReadAt(buf[:min(to-from, int64(len(buf)))], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !isZero(buf[:n]) {
			return fmt.Errorf("the copy has data between byte %d and %d, where a hole was read", from, to)
		}
		if n == 0 {
			return nil
		}
		off = from + int64(n)
	}
	return nil
}
