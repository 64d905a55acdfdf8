package remote

import (
	"context"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// TestMemoryThatIsNotThere: a write of memory that the program has given back panics, and is
// forgotten: later ones of the same bytes do not wait for it, and it leaves nothing kept.
func TestMemoryThatIsNotThere(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{RetainBytes: 256 << 10, KeepMax: time.Minute})
	gone, err := unix.Mmap(-1, 0, 8<<10, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(gone) })
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if recover() == nil {
				t.Error("memory that cannot be read was written")
			}
		}()
		_ = g.write(1, 0, gone, stripe.Volatile)
	}()
	if s := g.Stats(); s.KeptBytes != 0 || s.KeptWrites != 0 {
		t.Errorf("something is kept of it: %+v", s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := []byte("what is there")
	_, err = g.Write(ctx, g.target(1), seg.Contig(0, int64(len(p))), memory(p), stripe.Volatile)
	must(t, err)
	must(t, g.expect(1, 0, p))
	must(t, g.SyncAll(t.Context()))
	g.awaitForgotten()
}
