package unifier

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func BenchmarkHit1M(b *testing.B) { benchRead(b, 1<<20) }
func BenchmarkHit4K(b *testing.B) { benchRead(b, 4<<10) }

func benchCache(b *testing.B) *Cache {
	c, err := New(Config{MemoryBytes: 64 << 20}, newRig(b, Config{}).store.Engine)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// benchRead measures what a cached read costs beside the network: no byte is touched.
func benchRead(b *testing.B, n int64) {
	c := benchCache(b)
	ctx := context.Background()
	b.SetBytes(n)
	b.ReportAllocs()
	var sges []fabric.Sge
	for i := int64(0); b.Loop(); i++ {
		l, err := c.Read(ctx, alpha, seg.Contig(i*n%(16<<20), n), Hint{})
		if err != nil {
			b.Fatal(err)
		}
		sges = l.Sges()
		l.Release()
	}
	_ = sges
}

func BenchmarkPublish1M(b *testing.B) { benchPublish(b, 1<<20) }
func BenchmarkPublish4K(b *testing.B) { benchPublish(b, 4<<10) }

func benchPublish(b *testing.B, n int64) {
	c := benchCache(b)
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
