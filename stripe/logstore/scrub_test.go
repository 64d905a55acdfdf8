package logstore

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// TestScrubKeepsItsRate: a scrub takes at least as long as its rate says, tells how far it is, and
// can be ended.
func TestScrubKeepsItsRate(t *testing.T) {
	r := newRig(t, Options{LogBytes: 1 << 20}, memoryDevices(2, 64<<20, nil))
	defer r.Close()
	ctx := context.Background()
	const size = 8 << 20
	id := stripe.ObjectID{File: 1}
	data := [][]byte{alignedBytes(size)}
	if err := r.WriteAt(ctx, id, data, 0, wire.Stamp{}, stripe.Durable); err != nil {
		t.Fatal(err)
	}
	type place struct{ done, total int64 }
	last := map[string]place{}
	begin := time.Now()
	done, err := r.Scrub(ctx, ScrubOptions{
		BytesPerSecond: 32 << 20,
		Progress: func(device string, done, total int64) {
			if done < last[device].done || done > total {
				t.Errorf("%s: %d of %d after %v", device, done, total, last[device])
			}
			last[device] = place{done, total}
		},
	})
	took := time.Since(begin)
	if err != nil || done.Bytes != size || done.Objects == 0 || done.Problems != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	if took < 150*time.Millisecond { // a quarter of a second, less what a burst may take at once
		t.Errorf("%d bytes in %v", done.Bytes, took)
	}
	if len(last) != 2 {
		t.Errorf("told of %d members", len(last))
	}
	for device, p := range last {
		if p.done != p.total || p.total == 0 {
			t.Errorf("%s ended at %+v", device, p)
		}
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := r.Scrub(short, ScrubOptions{BytesPerSecond: 1 << 10}); err == nil {
		t.Error("a scrub went on after the end of its context")
	}
}
