package logstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/wire"
)

// Requests that come while the disk is busy share the next commit: on a slow disk there are far
// fewer syncs than durable writes.
func TestSyncsAreShared(t *testing.T) {
	const writers, each = 16, 20
	slow := &devicetest.Throttle{Device: device.NewMemory("memory", 32<<20),
		Delay: func(ops []*device.Op) time.Duration {
			if ops[0].Kind == device.Sync || ops[0].Stable {
				return time.Millisecond
			}
			return 0
		}}
	r := newRig(t, Options{LogBytes: 4 << 20}, func() []device.Device { return []device.Device{slow} })
	defer r.Close()
	before := r.Stats()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			buf := [][]byte{alignedBytes(blockBytes)}
			for i := range each {
				err := r.WriteAt(context.Background(), stripe.ObjectID{File: uint64(w) + 1}, buf,
					int64(i)*blockBytes, wire.Stamp{}, stripe.Durable)
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	after := r.Stats()
	if n := after.Groups - before.Groups; n == 0 || n > writers*each/2 {
		t.Errorf("%d commits for %d durable writes", n, writers*each)
	}
}

// Who is alone writes the log himself; whoever comes meanwhile must not be forgotten.
func TestNobodyIsForgottenBehindALoneWriter(t *testing.T) {
	r := newRig(t, Options{LogBytes: 1 << 20}, memoryDevices(1, 16<<20, nil))
	defer r.Close()
	ctx := context.Background()
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			buf := [][]byte{alignedBytes(blockBytes)}
			id := stripe.ObjectID{File: uint64(w) + 1}
			for i := range 3000 { // pauses of every kind between them
				d := stripe.Volatile
				if i%3 == w {
					d = stripe.Durable
				}
				err := r.WriteAt(ctx, id, buf, int64(i%64)*blockBytes, wire.Stamp{}, d)
				if err == nil && i%50 == 0 {
					err = r.Sync(ctx, id)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait() // a request that nobody writes waits for ever
}
