package server_test

import (
	"bytes"
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
)

// newFullRig is a server on a small store that acknowledges volatile writes early.
func newFullRig(t *testing.T, bytes int64) *rig {
	return newRig(t, func(s *setup) {
		store, err := memstore.New(memstore.Options{MaxBytes: bytes})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		s.store, s.cfg.WriteBack = store, true
		s.cache = unifier.Config{MemoryBytes: rigMemory, DirtyBytes: 8 << 20}
	})
}

// fillStore writes until there is no room.
func fillStore(t *testing.T, g *rig, tg iod.Target) {
	t.Helper()
	p := make([]byte, 64<<10)
	for off := int64(0); ; off += int64(len(p)) {
		_, err := g.remote.Write(t.Context(), tg, seg.Contig(off, int64(len(p))), view(p),
			stripe.Volatile)
		if errs.KindOf(err) == errs.NoSpace {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestReservedSpaceIsWrittenWhenAllElseIsFull: through the cache, durably and not, and past it.
func TestReservedSpaceIsWrittenWhenAllElseIsFull(t *testing.T) {
	g := newFullRig(t, 16<<20)
	const both = capability.Read | capability.Write
	a, b := g.target(1, both), g.target(2, both)
	end, fresh, err := g.remote.ReserveSpace(t.Context(), a, 0, 4<<20, true)
	if err != nil || end != 4<<20 || len(fresh) != 1 {
		t.Fatalf("reserved to %d, %v, %v", end, fresh, err)
	}
	info, err := g.remote.Stat(t.Context(), a)
	if err != nil || info.Size != 4<<20 || info.Allocated != 4<<20 {
		t.Fatalf("%+v, %v", info, err)
	}
	fillStore(t, g, b)
	_, _, err = g.remote.ReserveSpace(t.Context(), b, 64<<20, 1<<20, false)
	if errs.KindOf(err) != errs.NoSpace {
		t.Fatalf("a full store reserved more: %v", err)
	}
	want := bytes.Repeat([]byte("space"), 4<<20/5+1)[:4<<20]
	for i, how := range []iod.How{{}, {Mode: iod.Direct}} {
		for off := int64(i) * 4096; off < 4<<20; off += 1 << 20 {
			tg, n := a, min(1<<20, 4<<20-off)
			tg.How = how
			_, err := g.remote.Write(t.Context(), tg, seg.Contig(off, n), view(want[off:off+n]),
				stripe.Durability(off>>20%2))
			if err != nil {
				t.Fatalf("at %d, how %+v: %v", off, how, err)
			}
		}
	}
	if _, err := g.remote.Sync(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, g.remote, a, 0, 4<<20), want) {
		t.Error("other bytes came back")
	}
	if _, err := g.remote.Blank(t.Context(), a, 100, 2<<20); err != nil {
		t.Fatal(err)
	}
	clear(want[100 : 100+2<<20])
	if !bytes.Equal(read(t, g.remote, a, 0, 4<<20), want) {
		t.Error("other bytes came back after a blank")
	}
	write(t, g.remote, a, 100, want[200:300]) // and it has its space
	if g.counts()["requests_reserve"] != 2 {
		t.Errorf("counted %v", g.counts()["requests_reserve"])
	}
}

// TestReservationLeavesRoomToPendingWrites: what was acknowledged finds its space.
func TestReservationLeavesRoomToPendingWrites(t *testing.T) {
	g := newFullRig(t, 16<<20)
	const both = capability.Read | capability.Write
	a, b := g.target(1, both), g.target(2, both)
	gate := make(chan struct{})
	g.disk.Inject(fault.Rule{Ops: fault.Write, Object: b.Object, Gate: gate})
	for i := range int64(16) {
		write(t, g.remote, b, i<<20, make([]byte, 4096)) // each is promised a grain
	}
	done := make(chan error)
	go func() {
		_, _, err := g.remote.ReserveSpace(t.Context(), a, 0, 16<<20-256<<10, false)
		done <- err
	}()
	close(gate)
	if err := <-done; err != nil && errs.KindOf(err) != errs.NoSpace {
		t.Fatal(err)
	}
	if _, err := g.remote.Sync(t.Context(), b); err != nil {
		t.Fatalf("an acknowledged write was lost: %v", err)
	}
}

// TestReserveGoesOnByPieces: a request looks at a part of a long range, and names few pieces.
func TestReserveGoesOnByPieces(t *testing.T) {
	g := newRig(t)
	a := g.target(1, capability.Read|capability.Write)
	const n = iod.ExtentsMax + 100
	for i := range int64(n) {
		write(t, g.remote, a, 2*i*16384, []byte("x"))
	}
	total, requests := 0, 0
	for at, end := int64(0), int64(2*n*16384); at < end; requests++ {
		next, fresh, err := g.remote.ReserveSpace(t.Context(), a, at, end-at, false)
		if err != nil || next <= at || len(fresh) > iod.ExtentsMax {
			t.Fatalf("from %d to %d, %d pieces, %v", at, next, len(fresh), err)
		}
		total += len(fresh)
		for _, p := range fresh {
			if err := g.remote.ReleaseSpace(t.Context(), a, p.Off, p.Len); err != nil {
				t.Fatal(err)
			}
		}
		at = next
	}
	if total != n || requests != 2 {
		t.Errorf("%d pieces by %d requests", total, requests)
	}
	info, err := g.remote.Stat(t.Context(), a)
	if err != nil || info.Allocated != n*16384 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestReserveNeedsTheRightToWrite, and not a truncation that it has not heard of.
func TestReserveNeedsTheRightToWrite(t *testing.T) {
	g := newRig(t)
	reserve := func(r *remote.Remote, tg iod.Target) errs.Kind {
		_, _, err := r.ReserveSpace(t.Context(), tg, 0, 4096, false)
		return errs.KindOf(err)
	}
	if k := reserve(g.remote, g.target(1, capability.Read)); k == errs.OK {
		t.Error("a reader has reserved space")
	}
	m := g.target(1, capability.Manage)
	m.Stamp.TruncSeq = 5
	if err := g.remote.Truncate(t.Context(), m, 100); err != nil {
		t.Fatal(err)
	}
	tg := g.target(1, capability.Write)
	if k := reserve(g.remote, tg); k != errs.Stale {
		t.Errorf("before the truncation: %v", k)
	}
	tg.Stamp.TruncSeq = 5
	if k := reserve(g.remote, tg); k != errs.OK {
		t.Errorf("after it: %v", k)
	}
}
