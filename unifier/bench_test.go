package unifier

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// What requests cost in the cache alone: the backing does nothing, and no byte is moved. Writes are
// summed, as they are where the sender's sums are compared.

func BenchmarkHit1M(b *testing.B)  { benchRead(b, 1<<20, 16<<20) }
func BenchmarkHit4K(b *testing.B)  { benchRead(b, 4<<10, 16<<20) }
func BenchmarkMiss1M(b *testing.B) { benchRead(b, 1<<20, 1<<40) }
func BenchmarkMiss4K(b *testing.B) { benchRead(b, 4<<10, 1<<40) }

func benchRead(b *testing.B, n, over int64) {
	c := newStill(b, Config{MemoryBytes: 64 << 20, ReadaheadBytes: -1}).Cache
	step := max(n, slabBytes)
	if over == 16<<20 {
		step = n
	}
	ctx := context.Background()
	b.SetBytes(n)
	b.ReportAllocs()
	var sges []fabric.Sge
	for i := int64(0); b.Loop(); i++ {
		l, err := c.Read(ctx, alpha, seg.Contig(i*step%over, n), Hint{})
		if err != nil {
			b.Fatal(err)
		}
		sges = l.Sges()
		l.Release()
	}
	_ = sges
}

func BenchmarkSums1M(b *testing.B) {
	c := newStill(b, Config{MemoryBytes: 64 << 20}).Cache
	l, err := c.Read(context.Background(), alpha, seg.Contig(0, 1<<20), Hint{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Release()
	b.ReportAllocs()
	for b.Loop() {
		l.Sums(sumRoom[:0], 64<<10)
	}
}

func BenchmarkPublish1M(b *testing.B)     { benchPublish(b, 1<<20, 0) }
func BenchmarkPublish4K(b *testing.B)     { benchPublish(b, 4<<10, 0) }
func BenchmarkPublishBack1M(b *testing.B) { benchPublish(b, 1<<20, 16<<20) }
func BenchmarkPublishBack4K(b *testing.B) { benchPublish(b, 4<<10, 16<<20) }

func benchPublish(b *testing.B, n, dirty int64) {
	c := newStill(b, Config{MemoryBytes: 64 << 20, DirtyBytes: dirty}).Cache
	ctx := context.Background()
	b.SetBytes(n)
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		d, err := c.Draft(ctx, alpha, seg.Contig(i*n%(16<<20), n), Hint{})
		if err == nil {
			_, err = d.Publish(ctx, wire.Stamp{}, stripe.Volatile)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
