package transfer

import (
	"context"
	"io"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
	"github.com/sluice-storage/sluice/internal/crc32c"
)

// windowsAhead is how many windows are asked for at once, so that the source never waits.
const windowsAhead = 2

// sink asks for blocks until all are there. to is nil for memory.
func (m *moving) sink(ctx context.Context, to Copy) (Result, error) {
	ctx, cancel := m.pulse.watch(ctx, m.opts.Timeout, m.data.Info().Name)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	m.seen = make([]bool, m.extent.count())
	came := make(chan struct{}, 1)
	var workers sync.WaitGroup
	for i := range m.buffers {
		workers.Go(func() {
			for {
				over, err := m.takeBlock(ctx, to, &m.buffers[i])
				if err != nil && !over {
					stop(err)
				}
				if over || err != nil {
					return
				}
				select {
				case came <- struct{}{}:
				default:
				}
			}
		})
	}
	err := m.collect(ctx, to, came)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		m.fail(err)
	}
	stop(errDone)
	_ = m.data.Close() // so that the workers' reads end
	workers.Wait()
	if err == nil {
		if err = m.complete(ctx, to); err != nil {
			m.fail(err)
		}
	}
	return m.result, m.reason(err)
}

// errDone ends the workers of a sink that has everything.
var errDone = errs.Newf(errs.Closed, "transfer", "", "all is there")

// collect asks for all windows, and returns when all blocks are there.
func (m *moving) collect(ctx context.Context, to Copy, came <-chan struct{}) error {
	next, open, expected := 0, 0, 0
	for next < m.extent.count() || open > 0 {
		if open < windowsAhead && next < m.extent.count() {
			want, err := m.ask(ctx, to, next)
			if err != nil {
				return err
			}
			next += want
			open++
			continue
		}
		s, err := m.expect(ctx, msgSent)
		if err != nil {
			return err
		}
		n, err := m.told(&s, next)
		if err != nil {
			return err
		}
		expected += n
		open--
	}
	for m.arrived() < expected {
		select {
		case <-came:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// ask asks for the window that begins at a block, and says what is there of it.
func (m *moving) ask(ctx context.Context, to Copy, first int) (int, error) {
	n := min(m.extent.window(), m.extent.count()-first)
	w := message{kind: msgWant, first: first, blocks: make([]block, n)}
	if to != nil && m.extent.offset(first) < to.Found() {
		stop := m.keepAlive(ctx)
		defer stop()
		b := make([]byte, m.extent.block)
		for i := range w.blocks {
			if m.extent.offset(first+i) >= to.Found() {
				break
			}
			b := b[:m.extent.length(first+i)]
			got, err := to.ReadAt(b, m.extent.offset(first+i))
			if got < len(b) && err != nil && err != io.EOF {
				return 0, err
			}
			if got == len(b) {
				w.blocks[i] = block{true, crc32c.Sum(b)}
			}
		}
	}
	return n, m.send(ctx, w)
}

// told takes what the source says of a window, and returns how many blocks it has sent.
func (m *moving) told(s *message, asked int) (sent int, err error) {
	if len(s.blocks) == 0 || s.first+len(s.blocks) > asked {
		return 0, errs.Newf(errs.Protocol, "transfer", "", "blocks are told of that were not asked for")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, b := range s.blocks {
		at := s.first + i
		if m.seen[at] && m.sums[at] != b.sum {
			return 0, errs.Newf(errs.Corrupt, "transfer", "", "block %d came with another sum", at)
		}
		m.sums[at] = b.sum
		n := int64(m.extent.length(at))
		m.count(n, b.set)
		if b.set {
			sent++
		} else {
			m.tell(n)
		}
	}
	return sent, nil
}

func (m *moving) arrived() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.got
}

// takeBlock receives a block, compares its sum and writes it. over tells that no more will come.
func (m *moving) takeBlock(ctx context.Context, to Copy, b *buffer) (over bool, err error) {
	done := make(chan exio.Event, 1)
	op := exio.Op{Tag: exio.AnyTag, Pieces: b.pieces, Parent: b.all,
		Done: func(ev exio.Event) { done <- ev }}
	if err = m.data.Read(&op); err != nil {
		return context.Cause(ctx) == errDone, err
	}
	ev := <-done // it ends with the connection, not before: the memory is in use
	if ev.Err != nil {
		return context.Cause(ctx) == errDone, ev.Err
	}
	i := ev.Tag
	if i >= uint64(m.extent.count()) || ev.Len != m.extent.length(int(i)) {
		return false, errs.Newf(errs.Protocol, "transfer", "", "block %d of %d bytes", i, ev.Len)
	}
	pieces := b.first(ev.Len)
	if sum := sumOf(pieces); sum != ev.Note {
		return false, errs.Newf(errs.Corrupt, "transfer", "", "block %d came with the sum %08x, not %08x",
			i, sum, ev.Note)
	}
	at := m.extent.offset(int(i))
	for _, p := range pieces {
		if to == nil {
			break
		}
		if _, err := to.WriteAt(p, at); err != nil {
			return false, err
		}
		at += int64(len(p))
	}
	m.pulse.beat()
	m.tell(int64(ev.Len))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[i] {
		return false, errs.Newf(errs.Protocol, "transfer", "", "block %d came twice", i)
	}
	if m.sums[i] != 0 && m.sums[i] != ev.Note {
		return false, errs.Newf(errs.Corrupt, "transfer", "", "block %d came with another sum", i)
	}
	m.seen[i], m.sums[i] = true, ev.Note
	m.got++
	return false, nil
}

// complete ends the transfer: the copy takes its name, and the source hears of it.
func (m *moving) complete(ctx context.Context, to Copy) error {
	ctx = context.WithoutCancel(ctx) // from errDone; the source's end is noticed by what is sent
	m.result.Sum = m.extent.whole(m.sums)
	if to != nil {
		stop := m.keepAlive(ctx)
		check := func(r io.ReaderAt) error { return m.readBack(r) }
		if !m.opts.Verify {
			check = nil
		}
		err := to.Complete(ctx, check)
		stop()
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.Timeout)
	defer cancel()
	return m.send(ctx, message{kind: msgFinished, sum: m.result.Sum, moved: m.result.Moved,
		skipped: m.result.Skipped})
}

// readBack compares a copy with the sums.
func (m *moving) readBack(r io.ReaderAt) error {
	b := make([]byte, m.extent.block)
	for i := range m.sums {
		b := b[:m.extent.length(i)]
		if n, err := r.ReadAt(b, m.extent.offset(i)); n < len(b) {
			return err
		}
		if sum := crc32c.Sum(b); sum != m.sums[i] {
			return errs.Newf(errs.Corrupt, "transfer", "", "block %d has the sum %08x when it is read "+
				"back, not %08x", i, sum, m.sums[i])
		}
		m.pulse.beat()
	}
	return nil
}
