package nbd

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// batching is an export that takes small requests together.
type batching struct {
	*fake
	reads, writes atomic.Int64 // of batches
	most          atomic.Int64 // requests in one
}

func (b *batching) each(list []Span, do func(s Span) error) error {
	b.most.Store(max(b.most.Load(), int64(len(list))))
	for i := range list {
		if err := do(list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *batching) Batches() bool { return true }

func (b *batching) ReadMany(ctx context.Context, list []Span) error {
	b.reads.Add(1)
	return b.each(list, func(s Span) error { return b.ReadAt(ctx, s.Data, s.Off) })
}

func (b *batching) WriteMany(ctx context.Context, list []Span) error {
	b.writes.Add(1)
	for i := range list {
		for j := range i {
			if list[i].Off < list[j].Off+int64(len(list[j].Data)) &&
				list[j].Off < list[i].Off+int64(len(list[i].Data)) {
				panic("overlapping writes in a batch")
			}
		}
	}
	return b.each(list, func(s Span) error { return b.WriteAt(ctx, s.Data, s.Off, false) })
}

// burst sends requests in one piece, and collects the answers by their order.
func (c *client) burst(cmd uint16, offs []uint64, n uint32, payload func(i int) []byte) []answer {
	c.tb.Helper()
	var all []byte
	first := c.cookie + 1
	for i, off := range offs {
		c.cookie++
		h := header{cmd: cmd, cookie: c.cookie, offset: off, length: uint64(n)}
		all = append(all, requestMessage(h, payload(i))...)
	}
	c.write(all)
	got := make([]answer, len(offs))
	for range offs {
		a := c.receiveAny(func(cookie uint64) (uint16, uint64, uint32) {
			return cmd, offs[cookie-first], n
		})
		got[a.cookie-first] = a
	}
	return got
}

// TestBatches: small requests that come together are given to the export together; each has its own
// reply, and its own error.
func TestBatches(t *testing.T) {
	for _, structured := range []bool{false, true} {
		b := &batching{fake: newFake(1 << 20)}
		s := serve(t, Config{}, entryOf("", b, b.fake))
		c := ready(t, s, "", structured)
		var offs []uint64
		for i := range 40 {
			offs = append(offs, uint64(i*7%40)*4096)
		}
		page := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, 4096) }
		for i, a := range c.burst(cmdWrite, offs, 4096, page) {
			if a.errno != 0 {
				t.Fatalf("write %d: error %d", i, a.errno)
			}
		}
		none := func(int) []byte { return nil }
		for i, a := range c.burst(cmdRead, offs, 4096, none) {
			if a.errno != 0 || !bytes.Equal(a.data, page(i)) {
				t.Fatalf("read %d: error %d, begins with %d", i, a.errno, a.data[0])
			}
		}
		if b.reads.Load() == 0 || b.most.Load() < 2 || b.most.Load() > batchMax {
			t.Errorf("%d batches of reads, %d of writes, with %d requests at the most", b.reads.Load(),
				b.writes.Load(), b.most.Load())
		}
		b.setHook(func(_ string, off int64) error {
			if off == 5*4096 {
				return errs.New(errs.NoSpace, "fake", "", nil)
			}
			return nil
		})
		for _, cmd := range []uint16{cmdRead, cmdWrite} {
			with := none
			if cmd == cmdWrite {
				with = page
			}
			for i, a := range c.burst(cmd, offs, 4096, with) {
				if want := map[bool]uint32{true: nbdNOSPC}[offs[i] == 5*4096]; a.errno != want {
					t.Errorf("cmd %d at %d: error %d, want %d", cmd, offs[i], a.errno, want)
				}
			}
		}
		b.setHook(nil)
		same := make([]uint64, 20) // all of them to one place
		for i, a := range c.burst(cmdWrite, same, 4096, page) {
			if a.errno != 0 {
				t.Errorf("write %d to the same place: error %d", i, a.errno)
			}
		}
		c.want(nbdOK, cmdFlush, 0, 0, 0, nil)
	}
}

// TestBatchesGather: requests that come one by one while others are under way are done together
// when those are done.
func TestBatchesGather(t *testing.T) {
	b := &batching{fake: newFake(1 << 20)}
	s := serve(t, Config{}, entryOf("", b, b.fake))
	c := ready(t, s, "", true)
	var entered atomic.Int64
	gate := make(chan struct{})
	b.setHook(func(string, int64) error {
		entered.Add(1)
		<-gate
		return nil
	})
	const all = batchesMost + 8
	for i := range all {
		c.write(requestMessage(header{cmd: cmdRead, cookie: uint64(i), offset: uint64(i) << 12,
			length: 4096}, nil))
		for i < batchesMost && entered.Load() <= int64(i) {
			time.Sleep(time.Millisecond)
		}
	}
	for range 100 { // until all of them were read, or some time has passed: then they are fewer
		if s.Stats().Reads >= all {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := entered.Load(); n != batchesMost {
		t.Errorf("%d requests are under way by themselves", n)
	}
	close(gate)
	for range all {
		c.receiveAny(func(cookie uint64) (uint16, uint64, uint32) { return cmdRead, cookie << 12, 4096 })
	}
	if b.most.Load() < 2 {
		t.Errorf("%d requests were done together at the most", b.most.Load())
	}
}

// TestBatchPanics: it ends its connection, and no other.
func TestBatchPanics(t *testing.T) {
	b := &batching{fake: newFake(1 << 20)}
	s := serve(t, Config{}, entryOf("", b, b.fake))
	c, other := ready(t, s, "", true), ready(t, s, "", true)
	var on atomic.Bool
	on.Store(true)
	b.setHook(func(string, int64) error {
		if on.Load() {
			panic("on purpose")
		}
		return nil
	})
	var all []byte
	for i := range 8 {
		all = append(all, requestMessage(header{cmd: cmdRead, cookie: uint64(i), offset: uint64(i) << 12,
			length: 4096}, nil)...)
	}
	c.write(all)
	buf := make([]byte, 1<<16)
	for { // whatever comes, then the end
		if _, err := c.nc.Read(buf); err != nil {
			break
		}
	}
	on.Store(false)
	other.want(nbdOK, cmdRead, 0, 0, 4096, nil)
}
