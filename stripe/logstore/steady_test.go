package logstore

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// The steady state of reads and of small writes makes no garbage.
func TestSteadyStateAllocations(t *testing.T) {
	s, _ := faulty(t)
	ctx := context.Background()
	buf := alignedBytes(4096)
	big := alignedBytes(1 << 20)
	bufs, bigs := [][]byte{buf}, [][]byte{big}
	put(t, s, faultID, 0, big, stripe.Durable)
	check := func(name string, most float64, fn func() error) {
		t.Helper()
		n := testing.AllocsPerRun(300, func() {
			if err := fn(); err != nil {
				t.Fatal(err)
			}
		})
		if n > most {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	check("read 4 KiB", 0, func() error { return s.ReadAt(ctx, faultID, bufs, 8192) })
	check("read 1 MiB", 0, func() error { return s.ReadAt(ctx, faultID, bigs, 0) })
	// A checkpoint now and then makes some, which is less than one a request.
	check("write 4 KiB", 1, func() error {
		return s.WriteAt(ctx, faultID, bufs, 8192, wire.Stamp{}, stripe.Volatile)
	})
	check("write 1 MiB", 1, func() error {
		return s.WriteAt(ctx, faultID, bigs, 0, wire.Stamp{}, stripe.Volatile)
	})
	if c := s.Stats().CopiedBytes; c > 301*2*4096+1<<20 {
		t.Errorf("%d bytes were copied: large data among them", c)
	}
}
