package relay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/logstore"
	"github.com/sluice-storage/sluice/wire"
)

// network is a peer at the end of a wire: whatever is delivered passes a throttled device, whose
// rate all requests share.
type network struct {
	wire *device.Throttle
	ops  sync.Pool
}

type packet struct {
	op  device.Op
	ops [1]*device.Op
}

func (n *network) Deliver(_ context.Context, _ int64, data []fabric.Sge, _ []uint32) error {
	p, ok := n.ops.Get().(*packet)
	if !ok {
		p = &packet{}
	}
	p.op = device.Op{Kind: device.Write, Bufs: p.op.Bufs[:0]}
	for _, s := range data {
		p.op.Bufs = append(p.op.Bufs, s.Buf)
	}
	p.ops[0] = &p.op
	n.wire.Do(p.ops[:])
	err := p.op.Err
	n.ops.Put(p)
	return err
}

// sink is a device that keeps nothing.
type sink struct{ device.Memory }

func (s *sink) Do(ops []*device.Op) {}

const (
	memberRate  = 100_000_000 // bytes a second
	benchLarge  = 8 << 20
	benchObject = 32 << 20
)

// benchEngine is a store on members that are throttled, together as fast as the network.
func benchEngine(b *testing.B, members int) (e, plain *Engine, net *network, end func()) {
	opt := logstore.Options{LogBytes: 4 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	var slow []device.Device
	for i := range members {
		mem := device.NewMemory(fmt.Sprint("member ", i), benchObject*2/int64(members)+16<<20)
		opt.Devices = append(opt.Devices, mem)
		slow = append(slow, device.Throttled(mem, device.ThrottleOptions{
			BytesPerSecond: memberRate, Latency: 100 * time.Microsecond}))
	}
	if _, err := logstore.Create(opt); err != nil {
		b.Fatal(err)
	}
	fast, err := logstore.Open(opt)
	if err != nil {
		b.Fatal(err)
	}
	for off := int64(0); off < benchObject; off += 4 << 20 {
		err := fast.WriteAt(context.Background(), alpha, [][]byte{fill(4<<20, 1)}, off, wire.Stamp{},
			stripe.Volatile)
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := fast.Close(); err != nil {
		b.Fatal(err)
	}
	opt.Devices = slow
	s, err := logstore.Open(opt)
	if err != nil {
		b.Fatal(err)
	}
	e, err = New(Options{Disk: s, Place: s, Room: &room{}})
	if err != nil {
		b.Fatal(err)
	}
	// What is plain has the memory of the whole request.
	plain, err = New(Options{Disk: s, Place: s, Room: &room{}, WindowBytes: benchLarge,
		Streams: Plain})
	if err != nil {
		b.Fatal(err)
	}
	net = &network{wire: device.Throttled(&sink{}, device.ThrottleOptions{
		BytesPerSecond: memberRate * int64(members), Latency: 50 * time.Microsecond})}
	return e, plain, net, func() {
		e.Close()
		plain.Close()
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkStreams is one large request, and several, in the three ways, over throttled members
// behind a network of the same pace. A request that is not plain has the default window of 1 MiB.
func BenchmarkStreams(b *testing.B) {
	for _, members := range []int{1, 2, 4, 8} {
		e, plain, net, end := benchEngine(b, members)
		for _, bytes := range []int64{1 << 20, benchLarge} {
			for _, depth := range []int{1, 4} {
				for _, streams := range []Streams{Plain, Single, Multiple} {
					with := e
					if streams == Plain {
						with = plain
					}
					name := fmt.Sprintf("members=%d/bytes=%d/depth=%d/%v", members, bytes, depth, streams)
					b.Run(name, func(b *testing.B) {
						job := ReadJob{Object: alpha, Bytes: bytes, To: net, How: How{Streams: streams}}
						moveAll(b, with, depth, job)
					})
				}
			}
		}
		end()
	}
}

// moveAll reads b.N times, depth of them at a time, one place after the other.
func moveAll(b *testing.B, e *Engine, depth int, like ReadJob) {
	b.SetBytes(like.Bytes)
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range depth {
		wg.Go(func() {
			for k := i; k < b.N; k += depth {
				job := like
				job.Off = int64(k) % (benchObject / like.Bytes) * like.Bytes
				if err := e.Read(context.Background(), &job); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
