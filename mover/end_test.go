package mover_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/seg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRevokedSegment takes one of eight grants back: the move fails and names it, the others are in
// place, and the connection goes on. Where a refusal ends it, those before are in place.
func TestRevokedSegment(t *testing.T) {
	for _, dir := range []mover.Direction{mover.Put, mover.Get} {
		everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
			m := r.mover(mover.Options{})
			fill(r.near.mem, 1)
			fill(r.far.mem, 2)
			var pieces []fabric.Sge
			var segments []fabric.Remote
			for i := range 8 {
				pieces = append(pieces, r.near.sge(i*2000, 1000))
				segments = append(segments,
					r.far.grant(t, i*3000, 1000, fabric.RemoteRead|fabric.RemoteWrite))
			}
			r.far.revoke(segments[5])
			p, err := m.NewPlan(dir, pieces, segments)
			check(t, err)
			ctx, cancel := patience()
			defer cancel()
			err = m.Move(ctx, p, mover.Run{}, r.near.cq)
			var piece *mover.PieceError
			if errs.KindOf(err) != errs.Perm || !errors.As(err, &piece) || piece.Segment != 5 {
				t.Fatalf("%v: %v", dir, err)
			}
			ends := r.near.dom.Caps().RefusalEnds
			for i := range 8 {
				same := bytes.Equal(pieces[i].Buf, r.far.mem[i*3000:i*3000+1000])
				if same != (i < 5 || i > 5 && !ends) {
					t.Fatalf("segment %d: %v", i, same)
				}
			}
			if ends {
				wantKind(t, m.Start(p, mover.Run{}), errs.Disconnected)
				return
			}
			segments[5] = r.far.grant(t, 5*3000, 1000, fabric.RemoteRead|fabric.RemoteWrite)
			check(t, p.Reset(dir, pieces, segments))
			check(t, m.Move(ctx, p, mover.Run{}, r.near.cq))
		})
	}
}

// TestRevokedSlot fails a packed move, which has no segment to name.
func TestRevokedSlot(t *testing.T) {
	everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
		m := r.mover(mover.Options{})
		pieces, segments, _ := r.shape(spread(4, 100), spread(4, 100), fabric.RemoteWrite)
		p, err := m.NewPlan(mover.Put, pieces, segments)
		check(t, err)
		slot := r.far.grant(t, 8000, 1000, fabric.RemoteWrite)
		r.far.revoke(slot)
		r.recv(nil) // without one the provider would hold the notice back
		ctx, cancel := patience()
		defer cancel()
		err = m.Move(ctx, p, mover.Run{
			Method: mover.Pack, Slot: slot, Notice: mover.Notice{How: mover.Immediate},
		}, r.near.cq)
		var piece *mover.PieceError
		if errs.KindOf(err) != errs.Perm || !errors.As(err, &piece) || piece.Segment != -1 {
			t.Fatal(err)
		}
	})
}

// TestDeath ends the connection while a move of many parts is under way, from either side.
func TestDeath(t *testing.T) {
	for _, c := range []struct {
		name string
		kill func(r *rig) error
		want errs.Kind
	}{
		{"by the peer", func(r *rig) error { return r.far.ep.Close() }, errs.Disconnected},
		{"by this side", func(r *rig) error { return r.near.ep.Close() }, errs.Closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
				m := r.mover(mover.Options{SendDepth: 2})
				pieces, segments, _ := r.shape(spread(500, 1000), spread(500, 1000),
					fabric.RemoteRead|fabric.RemoteWrite)
				put, err := m.NewPlan(mover.Put, pieces, segments)
				check(t, err)
				get, err := m.NewPlan(mover.Get, pieces, segments)
				check(t, err)
				check(t, m.Start(put, mover.Run{}))
				check(t, m.Start(get, mover.Run{}))
				check(t, c.kill(r))
				ctx, cancel := patience()
				defer cancel()
				wantKind(t, m.Drive(ctx, put, r.near.cq, nil), c.want)
				wantKind(t, m.Drive(ctx, get, r.near.cq, nil), c.want)
				err = m.Start(put, mover.Run{})
				wantKind(t, err, c.want)
				if ctx.Err() != nil {
					t.Fatal("only the test's patience ended it")
				}
			})
		})
	}
}

// TestCancelled drives a move of many parts with a context that has ended: what was posted is
// waited for, nothing else is posted, and nothing touches the memory afterwards.
func TestCancelled(t *testing.T) {
	everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
		m := r.mover(mover.Options{SendDepth: 4})
		pieces, segments, _ := r.shape(spread(100, 1000), spread(100, 1000), fabric.RemoteRead)
		p, err := m.NewPlan(mover.Get, pieces, segments)
		check(t, err)
		fill(r.far.mem, 1)
		ctx, cancel := context.WithCancel(context.Background())
		check(t, m.Start(p, mover.Run{}))
		cancel()
		wantKind(t, m.Drive(ctx, p, r.near.cq, nil), errs.Canceled)
		if n := r.requests.Load(); n == 0 || n >= 100 {
			t.Fatalf("%d requests", n)
		}
		before := joined(pieces, ofSge)
		fill(r.far.mem, 2)
		ctx, cancel = patience()
		defer cancel()
		if !bytes.Equal(before, joined(pieces, ofSge)) {
			t.Fatal("memory changed after the end")
		}
		check(t, m.Move(ctx, p, mover.Run{}, r.near.cq)) // and it can be done again
	})
}

// TestQueueClosed throws the queue away under Drive: the mover ends what it has.
func TestQueueClosed(t *testing.T) {
	r := newRig(t, onSim(sim.Options{MaxDelay: 3}), rigOptions{})
	m := r.mover(mover.Options{SendDepth: 4})
	pieces, segments, _ := r.shape(spread(20, 100), spread(20, 100), fabric.RemoteRead)
	p, err := m.NewPlan(mover.Get, pieces, segments)
	check(t, err)
	check(t, m.Start(p, mover.Run{}))
	check(t, r.near.ep.Close())
	check(t, r.near.cq.Close())
	wantKind(t, m.Drive(context.Background(), p, r.near.cq, nil), errs.Closed)
}

// TestNoticeBehindReads changes the far side's memory as soon as the notice is there, which it may.
func TestNoticeBehindReads(t *testing.T) {
	for seed := range uint64(50) {
		r := newRig(t, onSim(sim.Options{Seed: seed, MaxDelay: 20}), rigOptions{})
		m := r.mover(mover.Options{})
		pieces, segments, views := r.shape(spread(6, 100), spread(6, 100), fabric.RemoteRead)
		p, err := m.NewPlan(mover.Get, pieces, segments)
		check(t, err)
		fill(r.far.mem, 1)
		want := joined(views, ofView)
		r.recv(nil)
		check(t, m.Start(p, mover.Run{Notice: mover.Notice{How: mover.Immediate}}))
		for r.far.cq.Poll(make([]fabric.Completion, 1)) == 0 {
		}
		clear(r.far.mem)
		ctx, cancel := patience()
		check(t, m.Drive(ctx, p, r.near.cq, nil))
		cancel()
		if !bytes.Equal(want, joined(pieces, ofSge)) {
			t.Fatalf("seed %d: the notice came before the Reads were done", seed)
		}
	}
}

// TestOthersPoll has many goroutines move over one endpoint while one polls its queue, as a server
// does.
func TestOthersPoll(t *testing.T) {
	everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
		const workers, rounds = 8, 20
		m := r.mover(mover.Options{SendDepth: 16, Mark: 9})
		ctx, cancel := patience()
		defer cancel()
		polling, stop := context.WithCancel(context.Background())
		var poller, all sync.WaitGroup
		poller.Go(func() {
			batch := make([]fabric.Completion, 4)
			for {
				n, err := r.near.cq.Wait(polling, batch)
				if err != nil {
					return
				}
				for i := range batch[:n] {
					if !m.Completed(&batch[i]) {
						t.Error("a completion of somebody else")
					}
				}
			}
		})
		grant := r.far.grant(t, 0, len(r.far.mem), fabric.RemoteRead|fabric.RemoteWrite)
		for w := range workers {
			all.Go(func() { work(ctx, t, r, m, grant, w, rounds) })
		}
		all.Wait()
		stop()
		poller.Wait()
		if s := m.Stats(); s.Moves != 2*workers*rounds || s.Requests != 10*s.Moves {
			t.Fatalf("%+v", s)
		}
	})
}

// work puts ten pieces and gets them back somewhere else.
func work(
	ctx context.Context, t *testing.T, r *rig, m *mover.Mover, grant fabric.Remote, w, rounds int,
) {
	const area = 32 << 10
	reg := r.near.arena.RegionOf(r.near.dom)
	base := w * 2 * area
	from, to := r.near.mem[base:base+area], r.near.mem[base+area:base+2*area]
	src, err := mover.Pieces(nil, reg, from, spread(10, 300))
	dst, err2 := mover.Pieces(nil, reg, to, spread(10, 300))
	segments, err3 := mover.Segments(nil, grant.Slice(uint64(base), area), spread(10, 300))
	put, err4 := m.NewPlan(mover.Put, src, segments)
	get, err5 := m.NewPlan(mover.Get, dst, segments)
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		t.Error(err)
		return
	}
	for i := range rounds {
		fill(from, uint64(i))
		for _, p := range []*mover.Plan{put, get} {
			if err := m.Start(p, mover.Run{}); err != nil {
				t.Error(err)
				return
			}
			if err := m.Await(ctx, p); err != nil {
				t.Error(err)
				return
			}
		}
		if !bytes.Equal(joined(src, ofSge), joined(dst, ofSge)) {
			t.Error("wrong bytes")
		}
	}
}

// TestAwaitCancelled gives up while somebody else polls, and returns when what was posted is done.
func TestAwaitCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, onSim(sim.Options{MaxDelay: 3}), rigOptions{})
		m := r.mover(mover.Options{SendDepth: 2})
		pieces, segments, _ := r.shape(spread(20, 100), spread(20, 100), fabric.RemoteRead)
		p, err := m.NewPlan(mover.Get, pieces, segments)
		check(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		check(t, m.Start(p, mover.Run{}))
		var ended error
		returned := false
		go func() { ended, returned = m.Await(ctx, p), true }()
		cancel()
		synctest.Wait() // it waits, although it was cancelled
		if returned {
			t.Fatal("two Reads are under way")
		}
		batch := make([]fabric.Completion, 1)
		for got := 0; got < 2; {
			n := r.near.cq.Poll(batch)
			for i := range batch[:n] {
				m.Completed(&batch[i])
			}
			got += n
		}
		synctest.Wait()
		if !returned || r.requests.Load() != 2 {
			t.Fatal(returned, r.requests.Load())
		}
		wantKind(t, ended, errs.Canceled)
	})
}

// TestTune measures small shapes wherever it can.
func TestTune(t *testing.T) {
	everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
		ctx, cancel := patience()
		defer cancel()
		var source mem.Source
		if r.prov.nearListens {
			source = r.farSource
		}
		opts := mover.TuneOptions{Fragments: []int{2, 5}, Sizes: []int{64, 512}, Rounds: 3}
		near, far := r.near.side(nil), r.far.side(source)
		table, samples, err := mover.Tune(ctx, near, far, opts)
		check(t, err)
		if len(table.Rows) != 2 || table.Rows[1].Fragments != 5 || len(samples) != 4 {
			t.Fatalf("%+v, %+v", table, samples)
		}
		for _, s := range samples {
			if s.Gather <= 0 || s.Pack <= 0 {
				t.Fatalf("%+v", s)
			}
		}
		check(t, r.far.ep.Close())
		_, _, err = mover.Tune(ctx, near, far, opts)
		if err == nil {
			t.Fatal("the endpoint is dead")
		}
		opts.Sizes = []int{512, 64}
		_, _, err = mover.Tune(ctx, near, far, opts)
		wantKind(t, err, errs.Invalid)
	})
}

func TestPieces(t *testing.T) {
	area := []byte("0123456789")
	list := []seg.Piece{{Off: 8, Len: 2}, {Off: 3, Len: 0}, {Off: 0, Len: 3}}
	pieces, err := mover.Pieces(nil, nil, area, seg.List(list))
	check(t, err)
	if got := joined(pieces, ofSge); len(pieces) != 2 || string(got) != "89012" {
		t.Fatalf("%q", got)
	}
	grant := fabric.Remote{Key: 1, Addr: 100, Len: 10}
	segments, err := mover.Segments(nil, grant, spread(2, 3))
	check(t, err)
	if len(segments) != 2 || segments[1] != (fabric.Remote{Key: 1, Addr: 106, Len: 3}) {
		t.Fatalf("%+v", segments)
	}
	_, err = mover.Pieces(nil, nil, area, seg.Contig(9, 2))
	wantKind(t, err, errs.Invalid)
	_, err = mover.Segments(nil, grant, seg.Contig(9, 2))
	wantKind(t, err, errs.Invalid)
	huge := seg.Vector{Block: 1, Dims: []seg.Dim{{Count: 1 << 40, Stride: 0}}}
	_, err = mover.Segments(nil, grant, seg.Strided(huge))
	wantKind(t, err, errs.TooBig)
}
