package diskexport

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/unifier"
)

// gated is a member whose reads wait until they are let through, and fail where it is told.
type gated struct {
	device.Device
	mu    sync.Mutex
	open  chan struct{} // nil: nothing waits
	bad   int64         // reads that cover this byte fail; negative: none
	reads atomic.Int64
}

func (g *gated) Do(ops []*device.Op) {
	g.mu.Lock()
	open, bad := g.open, g.bad
	g.mu.Unlock()
	for _, op := range ops {
		if op.Kind != device.Read {
			g.Device.Do([]*device.Op{op})
			continue
		}
		g.reads.Add(1)
		if open != nil {
			<-open
		}
		g.Device.Do([]*device.Op{op})
		if n := lengthOf(op.Bufs); bad >= op.Off && bad < op.Off+n {
			op.N, op.Err = int(bad-op.Off)/512*512, syscall.EIO
		}
	}
}

func (g *gated) Begin(ops []*device.Op) { g.Do(ops) }
func (g *gated) Wait(*device.Op)        {}

// gatedSet opens a set in direct mode over gated members.
func gatedSet(t *testing.T, count int, streams relay.Streams) (*Export, []*gated, []byte) {
	gates := make([]*gated, count)
	h := New(Options{Cache: unifier.Config{MemoryBytes: 32 << 20},
		Wrap: func(member int, d device.Device) device.Device {
			gates[member] = &gated{Device: d, bad: -1}
			return gates[member]
		}})
	s := newSet(t, count, 64<<10)
	s.Mode, s.Streams = Direct, streams
	e := open(t, h, s)
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	want := bytes.Repeat([]byte("0123456789abcdef"), int(e.Size()/16))
	for i := range want {
		want[i] += byte(i >> 12)
	}
	if err := e.WriteAt(t.Context(), want, 0, false); err != nil {
		t.Fatal(err)
	}
	return e, gates, want
}

// arrivals is a sink that tells which bytes have come.
type arrivals struct {
	collector
	count atomic.Int64
}

func (a *arrivals) Deliver(p nbd.Piece) error {
	err := a.collector.Deliver(p)
	a.count.Add(p.Len)
	return err
}

// TestMembersDoNotWaitForEachOther: while one member does not answer, what the others hold of the
// same read has been sent already; with one stream, or none, it has not.
func TestMembersDoNotWaitForEachOther(t *testing.T) {
	for _, c := range []struct {
		streams relay.Streams
		least   int64
		most    int64
	}{{relay.Multiple, 768 << 10, 768 << 10}, {relay.Plain, 0, 0}} {
		e, gates, want := gatedSet(t, 4, c.streams)
		slow := gates[0]
		slow.mu.Lock()
		slow.open = make(chan struct{})
		slow.mu.Unlock()
		to := &arrivals{collector: collector{got: make([]byte, 1<<20)}}
		done := make(chan error, 1)
		go func() { done <- e.Stream(t.Context(), 0, 1<<20, to) }()
		end := time.Now().Add(time.Minute)
		for ; to.count.Load() < c.least; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%v: only %d bytes came", c.streams, to.count.Load())
			}
		}
		for slow.reads.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		if n := to.count.Load(); n > c.most {
			t.Errorf("%v: %d bytes came, of which %d are on a member that does not answer", c.streams,
				n, n-c.most)
		}
		close(slow.open)
		if err := <-done; err != nil || !bytes.Equal(to.got, want[:1<<20]) {
			t.Errorf("%v: %v, or other bytes", c.streams, err)
		}
	}
}

// TestErrorInTheMiddle: a member that fails is told with the place in the export; what other
// members hold may have been sent before.
func TestErrorInTheMiddle(t *testing.T) {
	e, gates, want := gatedSet(t, 3, relay.Default)
	gates[1].mu.Lock()
	gates[1].bad = dataFrom + 64<<10 + 5000 // in its second stripe
	gates[1].mu.Unlock()
	const bad = 4*64<<10 + 5000
	for what, read := range map[string]func() error{
		"stream": func() error {
			return e.Stream(t.Context(), 0, 1<<20, &collector{got: make([]byte, 1<<20)})
		},
		"read": func() error { return e.ReadAt(t.Context(), make([]byte, 1<<20), 0) },
		"odd":  func() error { return e.ReadAt(t.Context(), make([]byte, 999_999), 1) },
	} {
		err := read()
		var at *nbd.OffsetError
		if errs.KindOf(err) != errs.IO || !errors.As(err, &at) || at.Off > bad || at.Off < bad-4096 {
			t.Errorf("%s: %v, want IO at about %d", what, err, bad)
		}
	}
	gates[1].mu.Lock()
	gates[1].bad = -1
	gates[1].mu.Unlock()
	if err := compare(context.Background(), e, want[:1<<20], 0, true); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// BenchmarkSlowMembers reads a mebibyte at a time from paced members and sends it to a peer that
// is as fast as all of them together: what it is worth that pieces leave at once, and from all
// members.
func BenchmarkSlowMembers(b *testing.B) {
	for _, streams := range []relay.Streams{relay.Plain, relay.Single, relay.Multiple} {
		b.Run(streams.String(), func(b *testing.B) {
			h := New(Options{Wrap: func(_ int, d device.Device) device.Device {
				return device.Throttled(d, device.ThrottleOptions{BytesPerSecond: 16 << 20})
			}})
			s := newSet(b, 2, 64<<10)
			s.Mode, s.Streams = Direct, streams
			e := open(b, h, s)
			if err := e.WriteAt(b.Context(), make([]byte, 1<<20), 0, false); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(1 << 20)
			for b.Loop() {
				to := &slowPeer{collector: collector{got: make([]byte, 1<<20)}, rate: 32 << 20}
				if err := e.Stream(b.Context(), 0, 1<<20, to); err != nil {
					b.Fatal(err)
				}
			}
			if err := errors.Join(e.Close(), h.Close()); err != nil {
				b.Error(err)
			}
		})
	}
}

// slowPeer takes a piece for as long as a network of that rate would.
type slowPeer struct {
	collector
	line sync.Mutex
	rate int64 // bytes a second
}

func (s *slowPeer) Deliver(p nbd.Piece) error {
	s.line.Lock() // one wire
	time.Sleep(time.Duration(p.Len) * time.Second / time.Duration(s.rate))
	s.line.Unlock()
	return s.collector.Deliver(p)
}
