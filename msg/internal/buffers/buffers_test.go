package buffers

import (
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// TestBuffersAreApart: no two buffers share a byte or a cache line, all lie in the region, and each
// receive is posted as itself.
func TestBuffersAreApart(t *testing.T) {
	d := sim.New(sim.Options{}).Open()
	defer d.Close()
	size := Size{Recvs: 3, RecvBytes: 100, Sends: 2, SendBytes: 65}
	b, err := New(d, size, 1<<56)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var all [][]byte
	for i := range size.Recvs {
		all = append(all, b.Recv(i))
	}
	for i := range size.Sends {
		all = append(all, b.Send(i))
	}
	end := 0
	for i, buf := range all {
		at := fabric.OffsetIn(b.Region().Bytes(), buf)
		if at < end || at%64 != 0 || len(buf) != cap(buf) {
			t.Errorf("buffer %d of %d bytes is at %d, the one before ends at %d", i, len(buf), at, end)
		}
		end = at + len(buf)
	}
	for i, r := range b.Posts() {
		if r.Context != 1<<56+uint64(i) || &r.Buf[0] != &b.Recv(i)[0] || len(r.Buf) != size.RecvBytes {
			t.Errorf("receive %d is posted as %x", i, r.Context)
		}
	}
}
