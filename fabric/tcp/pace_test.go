package tcp

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// TestPace sends more than the kernel's buffers hold. How much faster than asked for it may be at
// the start is the kernel's business; without a pace it is tens of times as fast.
func TestPace(t *testing.T) {
	const pace, rounds = 32 << 20, 16 // half a second at that pace
	a, b := pair(t, Options{PaceBytes: pace})
	rem, err := b.reg.Grant(b.ep, 0, bulkSize, fabric.RemoteWrite)
	fatal(t, err)
	data := make([]byte, bulkSize)
	began := time.Now()
	for range rounds {
		fatal(t, a.ep.Post([]fabric.WR{{Op: fabric.OpWrite, Local: []fabric.Sge{{Buf: data}},
			Remote: rem.Slice(0, bulkSize), Flags: fabric.FlagSignaled}}))
		_, err := a.cq.Wait(t.Context(), a.dst[:1])
		fatal(t, err)
		fatal(t, a.dst[0].Err)
	}
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Fatalf("%d MiB took %v, at %d MiB a second", rounds, took, pace>>20)
	}
}

func TestPaceMustMakeSense(t *testing.T) {
	if d, err := Open(Options{PaceBytes: -1}); err == nil {
		_ = d.Close()
		t.Fatal("a negative pace is taken")
	}
}
