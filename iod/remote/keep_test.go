package remote

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// TestMemoryIsBounded writes much more than may be kept: the oldest objects are synced, nothing is
// refused, and nothing is lost.
func TestMemoryIsBounded(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	const bound = 256 << 10
	g := newRig(t, d, 1, Options{RetainBytes: bound, KeepMax: time.Minute})
	var wg sync.WaitGroup
	for w := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(w, 5))
			for i := range 60 {
				file := w*100 + uint64(rng.IntN(5))
				p := bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(40<<10))
				if err := g.write(file, 0, p, stripe.Volatile); err != nil {
					t.Error(err)
					return
				}
				if s := g.Stats(); s.KeptBytes > bound {
					t.Errorf("%d bytes are kept, at most %d", s.KeptBytes, bound)
				}
				if err := g.expect(file, 0, p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s := g.Stats(); s.Forced == 0 || s.Lost != 0 {
		t.Fatalf("%+v", s)
	}
	must(t, g.SyncAll(t.Context()))
	if s := g.Stats(); s.KeptBytes != 0 || s.KeptWrites != 0 {
		t.Fatalf("after a sync of everything: %+v", s)
	}
	g.awaitForgotten()
}

// awaitForgotten waits until no object is remembered: work in the background holds on to one for a
// moment longer than a request.
func (g *rig) awaitForgotten() {
	for g.Stats().Objects != 0 {
		time.Sleep(time.Millisecond)
	}
}

// TestLargeWritesAreDurable: what is too large to be kept does not have to be.
func TestLargeWritesAreDurable(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{RetainBytes: 64 << 10})
	p := bytes.Repeat([]byte{3}, 17<<10)
	must(t, g.write(1, 0, p, stripe.Volatile))
	if s := g.Stats(); s.KeptWrites != 0 {
		t.Fatalf("%+v", s)
	}
	d.crash()
	must(t, g.expect(1, 0, p))
	off := newRig(t, d, 2, Options{RetainBytes: -1})
	must(t, off.write(2, 0, p, stripe.Volatile))
	d.crash()
	must(t, off.expect(2, 0, p))
}

// TestLongLists: a description that no message holds is refused, however little may be kept.
func TestLongLists(t *testing.T) {
	g := newRig(t, newDouble(t, 1), 1, Options{RetainBytes: 64 << 10})
	var at []seg.Piece
	for i := range int64(8000) {
		at = append(at, seg.Piece{Off: i * 3, Len: 1})
	}
	for _, n := range []int{10, 300, 8000} {
		p := bytes.Repeat([]byte{9}, n)
		_, err := g.Write(t.Context(), g.target(1), seg.List(at[:n]), memory(p), stripe.Volatile)
		if want := n > 1000; errs.KindOf(err) == errs.TooBig != want || err != nil != want {
			t.Errorf("%d pieces: %v", n, err)
		}
	}
}

// TestManyObjects has more objects with unsynced writes than there are slots.
func TestManyObjects(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{KeepMax: time.Minute})
	const files = 3 * slotsMax
	for f := range uint64(files) {
		must(t, g.write(f+1, 0, []byte{byte(f), 1}, stripe.Volatile))
	}
	srv := g.server(1)
	g.mu.Lock()
	made := srv.tables[1].made
	g.mu.Unlock()
	if made > slotsMax || g.Stats().Forced == 0 {
		t.Fatalf("%d slots, %+v", made, g.Stats())
	}
	d.crash()
	for f := range uint64(files) {
		must(t, g.expect(f+1, 0, []byte{byte(f), 1}))
	}
}

// TestSlots: whatever runs at once, a slot carries one request at a time and is not lent to another
// object while it has kept writes. The double would otherwise lose writes; here the table itself is
// looked at.
func TestSlots(t *testing.T) {
	d := newDouble(t, 1)
	g := newRig(t, d, 1, Options{RetainBytes: 1 << 20, KeepMax: time.Minute})
	var wg sync.WaitGroup
	for w := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(w, 6))
			for range 60 {
				file, dur := uint64(1+rng.IntN(4)), stripe.Durability(rng.IntN(2))
				if err := g.write(file, int64(w)*4096, make([]byte, 1+rng.IntN(4096)), dur); err != nil {
					t.Error(err)
				}
				if rng.IntN(10) == 0 {
					if err := g.sync(file); err != nil {
						t.Error(err)
					}
				}
				checkSlots(t, g.Remote)
			}
		})
	}
	wg.Wait()
	must(t, g.SyncAll(t.Context()))
	table := g.server(1).tables[1]
	if table.held != 0 || len(table.free) != table.made {
		t.Fatalf("%d slots are held, %d of %d free", table.held, len(table.free), table.made)
	}
}

func checkSlots(t *testing.T, r *Remote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	srv := (*r.servers.Load())[1]
	owner := map[*slot]*object{}
	last := map[*slot]uint32{}
	for _, o := range srv.objects {
		for k := o.first; k != nil; k = k.next {
			if k.slot == nil {
				continue
			}
			if was := owner[k.slot]; was != nil && was != o {
				t.Errorf("slot %d has kept writes of two objects", k.slot.id)
			}
			owner[k.slot] = o
			if k.stamp.Seq <= last[k.slot] {
				t.Errorf("slot %d: number %d behind %d", k.slot.id, k.stamp.Seq, last[k.slot])
			}
			last[k.slot] = k.stamp.Seq
		}
	}
	for _, s := range srv.tables[1].free {
		if s.busy || s.kept != 0 || owner[s] != nil {
			t.Errorf("slot %d is free: busy %v, %d kept", s.id, s.busy, s.kept)
		}
	}
}

// TestDamageOnTheWay is asked for again, or sent again, once.
func TestDamageOnTheWay(t *testing.T) {
	d := newDouble(t, 1)
	g := newRig(t, d, 1, Options{})
	p := bytes.Repeat([]byte{1, 2, 3}, 50<<10)
	set := func(reads, writes int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.damageReads, d.damageWrites = reads, writes
	}
	set(1, 1)
	must(t, g.write(1, 5, p, stripe.Volatile))
	must(t, g.expect(1, 5, p))
	set(2, 0)
	if err := g.expect(1, 5, p); errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("a read that is damaged twice: %v", err)
	}
	set(0, 2)
	if err := g.write(1, 5, p, stripe.Durable); errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("a write that is damaged twice: %v", err)
	}
	if s := g.Stats(); s.ReadSums != 3 || s.WriteSums != 2 {
		t.Fatalf("%+v", s)
	}
	set(1, 0)
	tg := g.target(1)
	tg.How.NoSums = true
	got := make([]byte, len(p))
	if _, err := g.Read(t.Context(), tg, seg.Contig(5, int64(len(p))), memory(got)); err != nil ||
		bytes.Equal(got, p) {
		t.Fatalf("a damaged read without sums: %v", err)
	}
}

// TestRightsAreRenewed: what is kept is sent again, and synced, by fresh rights when the old ones
// have ended.
func TestRightsAreRenewed(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	asked := 0
	g := newRig(t, d, 1, Options{KeepMax: time.Minute,
		Renew: func(_ context.Context, tg *iod.Target) error {
			asked++
			tg.Cap[0] = freshCap
			return nil
		}})
	p := []byte("unsynced")
	must(t, g.write(1, 0, p, stripe.Volatile))
	d.mu.Lock()
	d.expired = true
	d.mu.Unlock()
	d.crash()
	tg := g.target(1)
	tg.Cap[0] = freshCap
	got := make([]byte, len(p))
	_, err := g.Read(t.Context(), tg, seg.Contig(0, int64(len(p))), memory(got))
	must(t, err)
	if !bytes.Equal(got, p) || asked == 0 {
		t.Fatalf("%q, asked %d times", got, asked)
	}
	must(t, g.SyncAll(t.Context()))
	if s := g.Stats(); s.Lost != 0 || s.Resent != 1 || s.KeptWrites != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestLossIsTold: a server that refuses what it has lost makes the next sync fail, once; with Lost,
// that is told instead. A lack of space is told as such.
func TestLossIsTold(t *testing.T) {
	for i, refusal := range []errs.Kind{errs.NoSpace, errs.NoSpace, errs.Corrupt} {
		callback, want := i == 1, errs.IO
		if refusal == errs.NoSpace {
			want = errs.NoSpace
		}
		d := newDouble(t, 1)
		d.lazy = true
		var told []error
		opts := Options{KeepMax: time.Minute}
		if callback {
			opts.Lost = func(_ iod.Target, err error) { told = append(told, err) }
		}
		g := newRig(t, d, 1, opts)
		must(t, g.write(1, 0, []byte("lost"), stripe.Volatile))
		d.mu.Lock()
		d.refuse = errs.New(refusal, "double", "", nil)
		d.mu.Unlock()
		d.crash()
		err := g.sync(1)
		if !callback && errs.KindOf(err) != want || callback && (err != nil || len(told) != 1) {
			t.Fatalf("sync after a loss: %v, told %v", err, told)
		}
		must(t, g.sync(1))
		if s := g.Stats(); s.Lost != 1 || s.KeptWrites != 0 {
			t.Fatalf("%+v", s)
		}
		g.awaitForgotten()
	}
}

// TestSyncThatFails: a server that cannot sync is believed: the writes are not kept for ever.
func TestSyncThatFails(t *testing.T) {
	d := newDouble(t, 1)
	g := newRig(t, d, 1, Options{KeepMax: time.Minute})
	must(t, g.write(1, 0, []byte("x"), stripe.Volatile))
	d.failSync = errs.New(errs.IO, "disk", "", nil)
	if err := g.sync(1); errs.KindOf(err) != errs.IO {
		t.Fatal(err)
	}
	if s := g.Stats(); s.KeptWrites != 0 || s.Lost != 1 {
		t.Fatalf("%+v", s)
	}
}

// TestNewSession: what was kept in a session that has ended is sent again in the next one.
func TestNewSession(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{KeepMax: time.Minute})
	must(t, g.write(1, 0, []byte("one"), stripe.Volatile))
	g.session = 2
	must(t, g.write(1, 3, []byte("two"), stripe.Volatile))
	d.crash()
	must(t, g.expect(1, 0, []byte("onetwo")))
	must(t, g.sync(1))
	d.crash()
	must(t, g.expect(1, 0, []byte("onetwo")))
}

// TestIdleClientNotices: a server that was started again gets what it has lost from clients that do
// nothing.
func TestIdleClientNotices(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{KeepMax: time.Hour})
	must(t, g.write(1, 0, []byte("idle"), stripe.Volatile))
	d.crash()
	for g.Stats().Resent == 0 {
		time.Sleep(time.Millisecond)
	}
	other := newRig(t, d, 2, Options{})
	must(t, other.expect(1, 0, []byte("idle")))
}

// TestOldWritesAreSynced: what nobody syncs is synced after a while.
func TestOldWritesAreSynced(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{KeepMax: 20 * time.Millisecond})
	must(t, g.write(1, 0, []byte("idle"), stripe.Volatile))
	for g.Stats().KeptWrites > 0 {
		time.Sleep(time.Millisecond)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if got := d.objects[g.target(1).Object].data[:4]; string(got) != "idle" {
		t.Fatalf("the server has %q", got)
	}
}

// TestServerAway: a server that does not come back does not stop writes to others for long: what
// finds no room is made durable. Here the other server is the same one, back again.
func TestServerAway(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{RetainBytes: 64 << 10, KeepMax: time.Minute,
		WaitMax: 50 * time.Millisecond})
	p := make([]byte, 8<<10)
	for i := range 3 {
		must(t, g.write(uint64(i+1), 0, p, stripe.Volatile))
	}
	d.mu.Lock()
	d.down = true
	d.mu.Unlock()
	for range 6 {
		if err := g.write(9, 0, p, stripe.Volatile); err == nil {
			t.Fatal("a write to a server that is away succeeded")
		}
	}
	d.restart()
	deadline := time.Now().Add(time.Minute) // on a busy host it is back later than WaitMax
	for i := 0; i < 20; {
		err := g.write(uint64(i+1), 0, p, stripe.Volatile)
		if err == nil {
			i++
		} else if errs.KindOf(err) != errs.TimedOut || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	for err := g.SyncAll(t.Context()); err != nil; err = g.SyncAll(t.Context()) {
		if errs.KindOf(err) != errs.TimedOut || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestOverlapKeepsItsOrder: of writes to one place at one time the one that was on top before a
// crash is on top after it.
func TestOverlapKeepsItsOrder(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{KeepMax: time.Minute})
	for round := range 10 {
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				p := bytes.Repeat([]byte{byte(round*8 + w)}, 2000)
				if err := g.write(1, int64(w)*100, p, stripe.Volatile); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		before, err := g.read(1, 0, 4096)
		must(t, err)
		d.crash()
		must(t, g.expect(1, 0, before))
	}
}

// TestGoneFilesStayGone: what was written to a file that was removed since is not sent again.
func TestGoneFilesStayGone(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{KeepMax: time.Minute,
		Renew: func(context.Context, *iod.Target) error {
			return errs.New(errs.NotFound, "meta", "", nil)
		}})
	must(t, g.write(1, 0, []byte("gone"), stripe.Volatile))
	d.crash()
	must(t, g.expect(1, 0, make([]byte, 4)))
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := g.Stats(); d.arrived != 1 || s.Superseded != 1 || s.Lost != 0 || s.KeptWrites != 0 {
		t.Fatalf("%d writes arrived, %+v", d.arrived, s)
	}
}

// TestManyKeptWrites: sending many again takes time for each, not for each pair.
func TestManyKeptWrites(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{KeepMax: time.Minute})
	want := make([]byte, 4096)
	for i := range 1500 {
		want[i] = byte(i)
		must(t, g.write(1, int64(i), want[i:i+1], stripe.Volatile))
	}
	d.crash()
	must(t, g.expect(1, 0, want))
	if s := g.Stats(); s.Resent != 1500 {
		t.Fatalf("%+v", s)
	}
}

// TestGathered: data that was gathered in a room is kept there, without a copy, and sent again from
// there; the rest of the room is free meanwhile, and all of it after a sync.
func TestGathered(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{RetainBytes: 1 << 20, KeepMax: time.Minute})
	want := make([]byte, 30_000)
	for i := range want {
		want[i] = byte(i * 7)
	}
	room, err := g.Reserve(t.Context(), 200<<10)
	must(t, err)
	if len(room.Bytes()) != 200<<10 {
		t.Fatalf("%d bytes", len(room.Bytes()))
	}
	copy(room.Bytes(), want)
	before := mem.Copies()
	_, err = g.WriteKept(t.Context(), g.target(1), 100, room, len(want))
	must(t, err)
	if n := mem.Copies().Since(before).Total().Bytes; n >= uint64(len(want)) {
		t.Errorf("%d bytes were copied", n)
	}
	if s := g.Stats(); s.KeptWrites != 1 || s.KeptBytes > 32<<10 {
		t.Errorf("%+v", s)
	}
	d.crash()
	must(t, g.expect(1, 100, want))
	must(t, g.sync(1))
	if s := g.Stats(); s.KeptBytes != 0 || s.Resent != 1 {
		t.Errorf("%+v", s)
	}
}

// TestGatheredAndRefused: a room whose write has failed is the caller's still.
func TestGatheredAndRefused(t *testing.T) {
	d := newDouble(t, 1)
	g := newRig(t, d, 1, Options{RetainBytes: 1 << 20, KeepMax: time.Minute,
		WaitMax: 50 * time.Millisecond})
	room, err := g.Reserve(t.Context(), 5000)
	must(t, err)
	copy(room.Bytes(), "again")
	d.mu.Lock()
	d.down = true
	d.mu.Unlock()
	if _, err := g.WriteKept(t.Context(), g.target(1), 0, room, 5); err == nil {
		t.Fatal("a write to a server that is away succeeded")
	}
	if s := g.Stats(); s.KeptBytes == 0 || s.KeptWrites != 0 || string(room.Bytes()[:5]) != "again" {
		t.Fatalf("%+v", s)
	}
	d.restart()
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := g.WriteKept(t.Context(), g.target(1), 0, room, 5)
		if err == nil {
			break
		}
		if errs.KindOf(err) != errs.TimedOut || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	must(t, g.expect(1, 0, []byte("again")))
	other, err := g.Reserve(t.Context(), 5000)
	must(t, err)
	other.Return()
	must(t, g.SyncAll(t.Context()))
	if s := g.Stats(); s.KeptBytes != 0 {
		t.Fatalf("%+v", s)
	}
	if room, err := g.Reserve(t.Context(), 2<<20); room != nil || err != nil {
		t.Errorf("more than there is: %v, %v", room, err)
	}
	if _, err := g.WriteKept(t.Context(), g.target(1), 0, foreignRoom{}, 5); err == nil {
		t.Error("a room that is not its own was taken")
	}
}

type foreignRoom struct{}

func (foreignRoom) Bytes() []byte { return make([]byte, 5) }
func (foreignRoom) Return()       {}
