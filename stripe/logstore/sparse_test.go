package logstore

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// A huge object with two pieces of data is mapped by a few looks at the members, not by one for
// each unit.
func TestHolesAreNotSteppedThrough(t *testing.T) {
	r := newRig(t, Options{LogBytes: 1 << 20}, memoryDevices(3, 16<<20, nil))
	defer r.Close()
	ctx := context.Background()
	id := stripe.ObjectID{File: 7, Gen: 1}
	const far = 200<<30 + 12345*blockBytes
	for _, off := range []int64{0, far} {
		err := r.WriteAt(ctx, id, [][]byte{alignedBytes(blockBytes)}, off, wire.Stamp{}, stripe.Durable)
		if err != nil {
			t.Fatal(err)
		}
	}
	looks := 0
	err := r.eachSpan("test", id, 0, far+blockBytes, func(at, end int64) (bool, error) {
		looks++
		return true, nil
	})
	if err != nil || looks == 0 || looks > 64 {
		t.Errorf("%v: %d looks for two pieces of data", err, looks)
	}
	got, err := r.Map(ctx, id, 0, far+2*blockBytes, 100)
	want := []stripe.Extent{{Off: 0, Len: blockBytes},
		{Off: blockBytes, Len: far - blockBytes, Hole: true},
		{Off: far, Len: blockBytes}, {Off: far + blockBytes, Len: blockBytes, Hole: true}}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v: %+v", err, got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("extent %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}
