package transfer

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
)

// moving is one transfer, at either end.
type moving struct {
	*control
	data    exio.Handle
	opts    Options
	extent  extent
	buffers []buffer
	tell    func(bytes int64) // of progress; never nil
	seen    []bool            // sink: blocks that have come
	got     int               // and how many
	sums    []uint32          // as far as they are known
	result  Result
	mu      sync.Mutex // guards seen, got, sums and result
}

func newMoving(c *control, data exio.Handle, o Options, size int64, buffers []buffer,
	tell func(int64)) *moving {

	if tell == nil {
		tell = func(int64) {}
	}
	m := &moving{control: c, data: data, opts: o, extent: extent{size, o.Block}, buffers: buffers,
		tell: tell}
	m.sums = make([]uint32, m.extent.count())
	m.result.Bytes = size
	return m
}

// window is blocks that the sink has asked for.
type window struct {
	first  int
	blocks []block
	left   int // blocks that are not done
}

// job is one block of a window.
type job struct {
	in *window
	at int
}

// source answers what the sink asks for until it has finished. from is nil for memory.
func (m *moving) source(ctx context.Context, from exio.Handle) (Result, error) {
	ctx, cancel := m.pulse.watch(ctx, m.opts.Timeout, m.data.Info().Name)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	jobs := make(chan job)
	var workers sync.WaitGroup
	for i := range m.buffers {
		workers.Go(func() {
			for j := range jobs {
				if err := m.sendBlock(ctx, from, &m.buffers[i], j); err != nil {
					stop(err)
				}
			}
		})
	}
	err := m.answer(ctx, jobs)
	close(jobs)
	if err != nil {
		stop(err) // and with it what workers wait for
		if cause := context.Cause(ctx); ctx.Err() != nil && cause != nil {
			err = cause
		}
		m.fail(err)
		_ = m.data.Close() // so that the workers' memory is free
	}
	workers.Wait()
	stop(nil)
	return m.result, m.reason(err)
}

// answer takes what the sink says.
func (m *moving) answer(ctx context.Context, jobs chan<- job) error {
	for {
		w, err := m.next(ctx)
		if err != nil {
			return err
		}
		switch w.kind {
		case msgWant:
			if len(w.blocks) == 0 || w.first+len(w.blocks) > m.extent.count() {
				return errs.Newf(errs.Protocol, "transfer", "", "blocks are wanted that there are not")
			}
			in := &window{first: w.first, blocks: w.blocks, left: len(w.blocks)}
			for i := range w.blocks {
				select {
				case jobs <- job{in, i}:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		case msgFinished:
			return m.finished(&w)
		default:
			return errs.Newf(errs.Protocol, "transfer", "", "message %d", w.kind)
		}
	}
}

// finished compares what the sink has with what was sent.
func (m *moving) finished(w *message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.result.Sum = m.extent.whole(m.sums)
	if w.sum != m.result.Sum {
		return errs.Newf(errs.Corrupt, "transfer", "", "the copy has the sum %08x, the original %08x",
			w.sum, m.result.Sum)
	}
	return nil
}

// sendBlock reads a block and sends it, unless the sink has the same.
func (m *moving) sendBlock(ctx context.Context, from exio.Handle, b *buffer, j job) error {
	i := j.in.first + j.at
	n := m.extent.length(i)
	pieces := b.first(n)
	if from != nil {
		ev, err := exio.Wait(ctx, from.Read, exio.Op{Tag: uint64(m.extent.offset(i)), Pieces: pieces})
		if err == nil && ev.Len != n {
			err = errs.Newf(errs.Stale, "transfer", from.Info().Name,
				"it became shorter while it was read: %d of %d bytes at %d", ev.Len, n, m.extent.offset(i))
		}
		if err != nil {
			return err
		}
	}
	sum, has := sumOf(pieces), j.in.blocks[j.at]
	same := has.set && has.sum == sum
	if !same {
		_, err := exio.Wait(ctx, m.data.Write, exio.Op{Tag: uint64(i), Pieces: pieces, Note: sum,
			Parent: b.all})
		if err != nil {
			return err
		}
	}
	m.pulse.beat()
	m.tell(int64(n))
	m.mu.Lock()
	m.sums[i] = sum
	m.count(int64(n), !same)
	j.in.blocks[j.at] = block{set: !same, sum: sum}
	j.in.left--
	over := j.in.left == 0
	m.mu.Unlock()
	if !over {
		return nil
	}
	return m.send(ctx, message{kind: msgSent, first: j.in.first, blocks: j.in.blocks})
}

// count counts a block.
func (m *moving) count(bytes int64, moved bool) {
	if moved {
		m.result.Moved += bytes
	} else {
		m.result.Skipped += bytes
	}
}
