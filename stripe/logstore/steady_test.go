package logstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// The steady state makes no garbage, checkpoints included, and copies small writes only.
func TestSteadyStateAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they are given")
	}
	s, _ := faulty(t)
	ctx := context.Background()
	buf := alignedBytes(4096)
	big := alignedBytes(1 << 20)
	bufs, bigs := [][]byte{buf}, [][]byte{big}
	put(t, s, faultID, 0, big, stripe.Durable)
	before, calls := s.Stats(), uint64(0)
	st := wire.Stamp{Session: 1}
	for _, c := range []struct {
		name string
		fn   func(d stripe.Durability) error
	}{
		{"read 4 KiB", func(stripe.Durability) error { return s.ReadAt(ctx, faultID, bufs, 8192) }},
		{"read 1 MiB", func(stripe.Durability) error { return s.ReadAt(ctx, faultID, bigs, 0) }},
		{"write 4 KiB", func(d stripe.Durability) error {
			st.Seq++
			return s.WriteAt(ctx, faultID, bufs, 8192, st, d)
		}},
		{"write 1 MiB", func(d stripe.Durability) error {
			return s.WriteAt(ctx, faultID, bigs, 0, wire.Stamp{}, d)
		}},
	} {
		for _, d := range []stripe.Durability{stripe.Volatile, stripe.Durable, stripe.Grouped} {
			n := alloctest.PerRun(0, 200, func() {
				calls++
				if err := c.fn(d); err != nil {
					t.Fatal(err)
				}
			})
			if n > 0 {
				t.Errorf("%s, durability %d: %v allocations", c.name, d, n)
			}
		}
	}
	after := s.Stats()
	if n := after.Checkpoints - before.Checkpoints; n < 10 {
		t.Errorf("only %d checkpoints: this is not the steady state", n)
	}
	// What was read may have come from memory, where small writes wait for their place.
	if c := after.CopiedBytes - before.CopiedBytes; c > calls*4096 {
		t.Errorf("%d bytes were copied: large data among them", c)
	}
}

// A log of the default size that is full is replayed, and memory stays within its bound. How long
// that takes is in the log; bench store measures it.
func TestFullLogIsReplayed(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 128 MiB")
	}
	opt := Options{LateCheckpoints: true, IndexBytes: 1 << 20}
	r := newRig(t, opt, memoryDevices(1, 256<<20, nil))
	const blocks = 8192
	last := make([]uint64, blocks)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			buf := alignedBytes(4096)
			for i := range uint64(5000) {
				blk := rnd.IntN(blocks/4)*4 + w
				binary.LittleEndian.PutUint64(buf, i+1)
				err := r.WriteAt(context.Background(), faultID, [][]byte{buf}, int64(blk)*4096,
					wire.Stamp{}, stripe.Volatile)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				last[blk] = i + 1
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	before := r.Stats()
	if before.LogBytes != 128<<20 || before.MemoryUsed > before.MemoryBytes {
		t.Fatalf("before the crash: %+v", before)
	}
	begin := time.Now()
	r = r.crash(t)
	defer r.Close()
	t.Logf("%d MiB of the log replayed in %v", before.LogUsed>>20, time.Since(begin))
	want := make([]byte, 4096)
	for blk, v := range last {
		binary.LittleEndian.PutUint64(want, v)
		if got, err := get(r.Store, faultID, int64(blk)*4096, 4096); err != nil ||
			!bytes.Equal(got, want) {
			t.Fatalf("block %d differs: %v", blk, err)
		}
	}
	if after := r.Stats(); after.MemoryUsed > after.MemoryBytes {
		t.Fatalf("after it: %+v", after)
	}
}
