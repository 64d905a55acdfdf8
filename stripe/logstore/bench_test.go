package logstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/wire"
)

const benchBytes = 512 << 20

// callers runs b.N requests from that many goroutines.
func callers(b *testing.B, n int, fn func(i int, k int64, buf []byte) error, bytes int) {
	b.SetBytes(int64(bytes))
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range n {
		wg.Go(func() {
			buf := alignedBytes(bytes)
			for k := i; k < b.N; k += n {
				if err := fn(i, int64(k), buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkStore compares the store with its own device: the same sizes and depths.
func BenchmarkStore(b *testing.B) {
	ctx := context.Background()
	id := stripe.ObjectID{File: 1}
	r := newRig(b, Options{LogBytes: 64 << 20}, fileDevices(b, 1, benchBytes*2, false))
	defer r.Close()
	raw := r.members[0].dev
	big := alignedBytes(1 << 20)
	for off := int64(0); off < benchBytes; off += int64(len(big)) {
		if err := r.WriteAt(ctx, id, [][]byte{big}, off, wire.Stamp{}, stripe.Volatile); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Sync(ctx, id); err != nil {
		b.Fatal(err)
	}
	place := func(k int64, size int, random bool) int64 {
		n := int64(benchBytes / size)
		if random {
			return rand.Int64N(n) * int64(size)
		}
		return k % n * int64(size)
	}
	for _, c := range []struct {
		name   string
		size   int
		depth  int
		random bool
		read   bool
	}{
		{"write4k", 4096, 1, true, false}, {"write4k", 4096, 16, true, false},
		{"write1m", 1 << 20, 1, false, false}, {"write1m", 1 << 20, 4, false, false},
		{"read4k", 4096, 1, true, true}, {"read4k", 4096, 32, true, true},
		{"read1m", 1 << 20, 1, false, true}, {"read1m", 1 << 20, 4, false, true},
	} {
		// The raw device is measured on the data area above what the store uses.
		b.Run(fmt.Sprintf("%s/depth=%d/raw", c.name, c.depth), func(b *testing.B) {
			base := r.members[0].g.dataAt
			callers(b, c.depth, func(_ int, k int64, buf []byte) error {
				op := device.Op{Kind: device.Read, Off: base + place(k, c.size, c.random),
					Bufs: [][]byte{buf}}
				if !c.read {
					op.Kind, op.Stable = device.Write, true
					op.Off += benchBytes - 8<<20
				}
				return device.One(raw, &op)
			}, c.size)
		})
		b.Run(fmt.Sprintf("%s/depth=%d/store", c.name, c.depth), func(b *testing.B) {
			before := r.Stats()
			callers(b, c.depth, func(_ int, k int64, buf []byte) error {
				bufs := [][]byte{buf}
				if c.read {
					return r.ReadAt(ctx, id, bufs, place(k, c.size, c.random))
				}
				return r.WriteAt(ctx, id, bufs, place(k, c.size, c.random), wire.Stamp{}, stripe.Durable)
			}, c.size)
			after := r.Stats()
			if w := after.WriteBytes - before.WriteBytes; w > 0 {
				b.ReportMetric(float64(after.DiskWriteBytes-before.DiskWriteBytes)/float64(w), "amp")
				b.ReportMetric(float64(after.Writes-before.Writes)/float64(after.Groups-before.Groups),
					"group")
			}
		})
	}
}
