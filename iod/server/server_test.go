package server_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/wire"
)

func TestMain(m *testing.M) { goleakMain(m) }

func view(p ...[]byte) *msg.Memory {
	m := &msg.Memory{}
	var n int64
	for _, b := range p {
		m.Windows = append(m.Windows, fabric.Sge{Buf: b})
		n += int64(len(b))
	}
	m.Access = seg.Contig(0, n)
	return m
}

func write(t *testing.T, r *remote.Remote, tg iod.Target, off int64, p []byte) {
	t.Helper()
	_, err := r.Write(t.Context(), tg, seg.Contig(off, int64(len(p))), view(p), stripe.Volatile)
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, r *remote.Remote, tg iod.Target, off, n int64) []byte {
	t.Helper()
	p := make([]byte, n)
	if _, err := r.Read(t.Context(), tg, seg.Contig(off, n), view(p)); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWrittenBytesComeBack(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	write(t, g.remote, tg, 12345, data)
	if got := read(t, g.remote, tg, 12345, int64(len(data))); !bytes.Equal(got, data) {
		t.Fatal("bytes differ")
	}
	if got := read(t, g.remote, tg, 0, 12345); !bytes.Equal(got, make([]byte, 12345)) {
		t.Fatal("a hole does not read as zeroes")
	}
	info, err := g.remote.Stat(t.Context(), tg)
	if err != nil || info.Size != 12345+int64(len(data)) {
		t.Fatalf("stat: %+v %v", info, err)
	}
}

// TestWhoMayMeasure: the length of an object is for those who read it or write it.
func TestWhoMayMeasure(t *testing.T) {
	g := newRig(t)
	write(t, g.remote, g.target(1, capability.Write), 0, make([]byte, 100))
	for _, r := range []capability.Rights{0, capability.Read, capability.Write, capability.Manage} {
		info, err := g.remote.Stat(t.Context(), g.target(1, r))
		if r == 0 && errs.KindOf(err) != errs.Perm || r != 0 && (err != nil || info.Size != 100) {
			t.Errorf("rights %b: %d bytes, %v", r, info.Size, err)
		}
	}
}

// TestListsAgainstModel writes and reads random lists of pieces with random memory and compares
// with a byte slice.
func TestListsAgainstModel(t *testing.T) {
	for _, seed := range []uint64{1794747727843421894, uint64(time.Now().UnixNano())} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { testLists(t, seed) })
	}
}

func testLists(t *testing.T, seed uint64) {
	rng := mrand.New(mrand.NewPCG(seed, 1))
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	const size = 1 << 20
	model := make([]byte, size)
	for range 150 {
		var pieces []seg.Piece
		for range 1 + rng.IntN(6) {
			off := rng.Int64N(size)
			pieces = append(pieces, seg.Piece{Off: off, Len: 1 + rng.Int64N(min(200<<10, size-off))})
		}
		access := seg.List(pieces)
		buf := make([]byte, access.Len())
		half := rng.Int64N(access.Len() + 1)
		m := view(buf[:half], buf[half:])
		if rng.IntN(2) == 0 {
			_, _ = rand.Read(buf)
			if _, err := g.remote.Write(t.Context(), tg, access, m, stripe.Volatile); err != nil {
				t.Fatal(err)
			}
			eachPiece(pieces, func(p seg.Piece, pos int64) { copy(model[p.Off:p.End()], buf[pos:]) })
			continue
		}
		if _, err := g.remote.Read(t.Context(), tg, access, m); err != nil {
			t.Fatal(err)
		}
		eachPiece(pieces, func(p seg.Piece, pos int64) {
			if !bytes.Equal(buf[pos:pos+p.Len], model[p.Off:p.End()]) {
				t.Fatalf("piece %+v differs from the model", p)
			}
		})
	}
}

func eachPiece(pieces []seg.Piece, fn func(p seg.Piece, pos int64)) {
	var pos int64
	for _, p := range pieces {
		fn(p, pos)
		pos += p.Len
	}
}

func TestCapabilitiesAreDemanded(t *testing.T) {
	g := newRig(t)
	ctx := t.Context()
	p := make([]byte, 100)
	try := func(tg iod.Target) error {
		_, err := g.remote.Write(ctx, tg, seg.Contig(0, 100), view(p), stripe.Volatile)
		return err
	}
	good := g.target(1, capability.Write)
	if err := try(good); err != nil {
		t.Fatal(err)
	}
	forged := good
	forged.Cap[1] |= byte(capability.Manage)
	other := g.target(2, capability.Write)
	other.Object.File = 1
	gen := good
	gen.Object.Gen++
	session := good
	session.Stamp.Session++
	expired := g.targetUntil(1, capability.Write, g.now().Add(-time.Second))
	for _, c := range []struct {
		name string
		tg   iod.Target
		want errs.Kind
	}{
		{"forged", forged, errs.Forged},
		{"none", iod.Target{Server: 1, Object: good.Object}, errs.Forged},
		{"read only", g.target(1, capability.Read), errs.Perm},
		{"other file", other, errs.Perm},
		{"other generation", gen, errs.Stale},
		{"other session", session, errs.Perm},
		{"expired", expired, errs.Expired},
	} {
		if err := try(c.tg); errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := g.remote.Truncate(ctx, good, 0); errs.KindOf(err) != errs.Perm {
		t.Errorf("truncate without the right: %v", err)
	}
	if n := g.counts()["capabilities_forged"]; n != 2 {
		t.Errorf("%d forged capabilities counted, want 2", n)
	}
}

func TestTruncationKeepsOldBytesAway(t *testing.T) {
	g := newRig(t)
	ctx := t.Context()
	tg := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, tg, 0, bytes.Repeat([]byte{7}, 300<<10))
	cut := g.target(1, capability.Manage)
	cut.Stamp.TruncSeq = 1
	if err := g.remote.Truncate(ctx, cut, 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := g.remote.Write(ctx, tg, seg.Contig(5000, 10), view(make([]byte, 10)),
		stripe.Volatile); errs.KindOf(err) != errs.Stale {
		t.Fatalf("a write from before the truncation: %v", err)
	}
	tg.Stamp.TruncSeq = 1
	write(t, g.remote, tg, 200<<10, []byte{1})
	got := read(t, g.remote, tg, 0, 200<<10)
	if !bytes.Equal(got[:1000], bytes.Repeat([]byte{7}, 1000)) ||
		!bytes.Equal(got[1000:], make([]byte, len(got)-1000)) {
		t.Fatal("bytes from before the truncation came back")
	}
}

func TestPunchMapRemove(t *testing.T) {
	g := newRig(t)
	ctx := t.Context()
	tg := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, tg, 0, bytes.Repeat([]byte{7}, 256<<10))
	if _, err := g.remote.Punch(ctx, tg, 64<<10, 64<<10, stripe.Durable); err != nil {
		t.Fatal(err)
	}
	if got := read(t, g.remote, tg, 64<<10, 64<<10); !bytes.Equal(got, make([]byte, 64<<10)) {
		t.Fatal("punched bytes are still there")
	}
	x, err := g.remote.Map(ctx, tg, 0, 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	var holes int64
	for _, e := range x {
		if e.Hole {
			holes += e.Len
		}
	}
	if holes != 64<<10 {
		t.Fatalf("map %v", x)
	}
	if err := g.remote.Remove(ctx, g.target(1, capability.Manage)); err != nil {
		t.Fatal(err)
	}
	if info, err := g.disk.Stat(ctx, tg.Object); err != nil || info.Allocated != 0 {
		t.Fatalf("a removed object still has bytes: %+v, %v", info, err)
	}
}

// TestMapOfAHugeObjectComesInParts: one request does not look at all of it.
func TestMapOfAHugeObjectComesInParts(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	const far = 1 << 40
	write(t, g.remote, tg, far, []byte{7})
	at, requests := int64(0), 0
	for {
		x, err := g.remote.Map(t.Context(), tg, at, 2*far-at)
		if err != nil || len(x) == 0 {
			t.Fatalf("from %d: %v, %v", at, x, err)
		}
		requests++
		if last := x[len(x)-1]; last.Off+last.Len < far {
			at = last.Off + last.Len
			continue
		}
		break
	}
	if requests < 4 || requests > 8 {
		t.Fatalf("%d requests", requests)
	}
}

// TestRemovedObjectIsAnError: never zeroes, for who read it before, by every kind of request, after
// a restart of the server too, and for as long as there may be a capability.
func TestRemovedObjectIsAnError(t *testing.T) {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	open := func(s *setup) { s.store = store }
	g := newRig(t, open)
	ctx := t.Context()
	tg := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, tg, 0, bytes.Repeat([]byte{7}, 256<<10))
	g.check(g.remote.Remove(ctx, g.target(1, capability.Manage)))
	refused := func(g *rig, tg iod.Target, want errs.Kind) {
		t.Helper()
		buf := make([]byte, 64<<10)
		for _, how := range []iod.How{{}, {Mode: iod.Direct}} {
			tg.How = how
			_, err := g.ask(iod.OpRead, tg, iod.Args{Access: seg.Contig(0, 64<<10)}, nil, view(buf))
			if errs.KindOf(err) != want {
				t.Fatalf("read of a removed object: %v, want %v", err, want)
			}
		}
		_, err := g.remote.Map(ctx, tg, 0, 4096)
		if errs.KindOf(err) != want {
			t.Fatalf("map of a removed object: %v, want %v", err, want)
		}
	}
	refused(g, tg, errs.NotFound)
	if _, err := g.remote.Write(ctx, tg, seg.Contig(0, 1), view([]byte{1}),
		stripe.Volatile); errs.KindOf(err) != errs.NotFound {
		t.Fatalf("write to a removed object: %v", err)
	}
	g.check(g.remote.Remove(ctx, g.target(1, capability.Manage))) // repeated after a lost answer
	hole := g.target(2, capability.Read|capability.Write)
	present := g.target(3, capability.Read|capability.Write)
	write(t, g.remote, present, 0, []byte{7})
	time.Sleep(5 * time.Millisecond) // capabilities know milliseconds
	g.close()

	g = newRig(t, open)
	refused(g, tg, errs.Expired)
	refused(g, hole, errs.Expired) // who knows
	read(t, g.remote, present, 0, 1)
	time.Sleep(5 * time.Millisecond)
	read(t, g.remote, g.target(2, capability.Read), 0, 4096) // renewed: a hole, or it had failed
}

func TestFencedGenerationIsRefused(t *testing.T) {
	g := newRig(t)
	old := g.target(1, capability.Write)
	fence := g.targetGen(1, 2, capability.Manage)
	if err := g.remote.Fence(t.Context(), fence); err != nil {
		t.Fatal(err)
	}
	_, err := g.remote.Write(t.Context(), old, seg.Contig(0, 1), view([]byte{1}), stripe.Volatile)
	if errs.KindOf(err) != errs.Fenced {
		t.Fatalf("a fenced writer: %v", err)
	}
}

// TestAFenceSettlesOneFile: what others have written and not synced stays pending.
func TestAFenceSettlesOneFile(t *testing.T) {
	g := newRig(t, writesBack, func(s *setup) { s.cache.DirtyAge = time.Hour })
	for file := uint64(1); file <= 50; file++ {
		write(t, g.remote, g.target(file, capability.Write), 0, []byte{1})
	}
	before := g.disk.Calls(fault.Write)
	g.check(g.remote.Fence(t.Context(), g.targetGen(7, 2, capability.Manage)))
	if n := g.disk.Calls(fault.Write) - before; n == 0 || n > 5 {
		t.Fatalf("a fence for one file wrote %d times", n)
	}
}

// TestMemoryStaysBounded has more clients than memory and checks the high-water marks.
func TestMemoryStaysBounded(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			rng := mrand.New(mrand.NewPCG(uint64(i), 3))
			p := make([]byte, 2<<20)
			for range 12 {
				off := rng.Int64N(64 << 20)
				var err error
				if rng.IntN(2) == 0 {
					_, err = g.remote.Write(t.Context(), tg, seg.Contig(off, int64(len(p))), view(p),
						stripe.Volatile)
				} else {
					_, err = g.remote.Read(t.Context(), tg, seg.Contig(off, int64(len(p))), view(p))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	g.awaitIdle(t)
	if high := g.counts()["cache_bytes_high"]; high > rigMemory {
		t.Fatalf("cache used %d of %d bytes", high, int64(rigMemory))
	}
}

// TestCanceledRequestsLeaveNothing cancels at random moments and checks that all memory comes back.
func TestCanceledRequestsLeaveNothing(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	rng := mrand.New(mrand.NewPCG(1, 1))
	p := make([]byte, 1<<20)
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(2000))*time.Microsecond)
		if rng.IntN(2) == 0 {
			_, _ = g.remote.Write(ctx, tg, seg.Contig(0, 1<<20), view(p), stripe.Volatile)
		} else {
			_, _ = g.remote.Read(ctx, tg, seg.Contig(0, 1<<20), view(p))
		}
		cancel()
	}
	write(t, g.remote, tg, 0, p)
	g.awaitIdle(t)
}

func TestAServerThatIsGoneIsNamed(t *testing.T) {
	g := newRig(t)
	g.stop()
	r := remote.New(g.pool, remote.Options{WaitMax: 300 * time.Millisecond})
	_, err := r.Sync(t.Context(), g.target(1, capability.Write))
	if errs.KindOf(err) != errs.TimedOut ||
		!bytes.Contains([]byte(err.Error()), []byte("server 1")) {
		t.Fatalf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Sync(ctx, g.target(1, capability.Write))
	if errs.KindOf(err) != errs.Canceled {
		t.Fatalf("a canceled call: %v", err)
	}
}

func TestUnknownRequestIsRefused(t *testing.T) {
	g := newRig(t)
	conn, err := g.pool.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var e wire.Enc
	tg := g.target(1, capability.Manage)
	iod.AppendRequest(&e, 999, &tg, &iod.Args{})
	err = conn.Call(t.Context(), &msg.Request{Op: 999, Stamp: tg.Stamp, Body: e.B}, &msg.Reply{})
	if errs.KindOf(err) != errs.Unsupported {
		t.Fatalf("request 999: %v", err)
	}
	junk := &msg.Request{Op: uint16(iod.OpRead), Body: []byte("junk")}
	err = conn.Call(t.Context(), junk, &msg.Reply{})
	if errs.KindOf(err) != errs.Protocol {
		t.Fatalf("junk: %v", err)
	}
}

var _ msg.Handler = (*server.Server)(nil)
