package mover_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/seg"
)

// everywhere runs a test on every provider that a process can have by itself.
func everywhere(t *testing.T, o rigOptions, fn func(t *testing.T, r *rig)) {
	all := append(onVerbs(),
		onSim(sim.Options{RegionsOnly: true}), onSim(sim.Options{Seed: 1, MaxDelay: 8}),
		onTCP(), onShm(false), onShm(true))
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) { fn(t, newRig(t, p, o)) })
	}
}

// spread is count pieces of size bytes, one apart.
func spread(count, size int) seg.Access {
	return seg.Strided(seg.Vector{
		Block: int64(size), Dims: []seg.Dim{{Count: int64(count), Stride: int64(2 * size)}},
	})
}

// shape makes the pieces and segments of two accesses.
func (r *rig) shape(local, remote seg.Access, rights fabric.Rights) (
	[]fabric.Sge, []fabric.Remote, [][]byte,
) {
	r.t.Helper()
	pieces, err := mover.Pieces(nil, r.near.arena.RegionOf(r.near.dom), r.near.mem, local)
	check(r.t, err)
	grant := r.far.grant(r.t, 0, len(r.far.mem), rights)
	segments, err := mover.Segments(nil, grant, remote)
	check(r.t, err)
	theirs, err := mover.Pieces(nil, nil, r.far.mem, remote)
	check(r.t, err)
	var views [][]byte
	for _, s := range theirs {
		views = append(views, s.Buf)
	}
	return pieces, segments, views
}

// fill writes bytes that tell where they are from.
func fill(mem []byte, seed uint64) {
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(mem) // never fails
}

// joined is a stream's bytes.
func joined[T any](list []T, bytes func(T) []byte) []byte {
	var all []byte
	for _, p := range list {
		all = append(all, bytes(p)...)
	}
	return all
}

func ofSge(s fabric.Sge) []byte { return s.Buf }
func ofView(v []byte) []byte    { return v }

// TestPut moves 16 pieces into 4 segments, by both methods and with all notices.
func TestPut(t *testing.T) {
	everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
		m := r.mover(mover.Options{})
		pieces, segments, views := r.shape(spread(16, 4096), spread(4, 16384), fabric.RemoteWrite)
		p, err := m.NewPlan(mover.Put, pieces, segments)
		check(t, err)
		slot := r.far.mem[512<<10 : 640<<10]
		remote := r.far.grant(t, 512<<10, len(slot), fabric.RemoteWrite)
		u := mover.NewUnpacker(slot)
		buf := r.far.mem[768<<10 : 770<<10]
		tag := uint32(0)
		for _, method := range []mover.Method{mover.Gather, mover.Pack} {
			for _, how := range []mover.How{mover.Immediate, mover.Message} {
				tag++
				fill(r.near.mem, uint64(tag))
				clear(r.far.mem)
				check(t, u.Expect(tag, views))
				r.recv(buf)
				r.posts.Store(0)
				r.requests.Store(0)
				ctx, cancel := patience()
				check(t, m.Move(ctx, p, mover.Run{
					Method: method, Slot: remote,
					Notice: mover.Notice{How: how, Tag: tag, Lengths: true},
				}, r.near.cq))
				cancel()
				c := r.far.next(t)
				check(t, c.Err)
				if how == mover.Immediate {
					check(t, u.Imm(c.Imm))
				} else {
					check(t, u.Message(buf[:c.Len]))
				}
				if !bytes.Equal(joined(pieces, ofSge), joined(views, ofView)) {
					t.Fatal(method, how, ": wrong bytes")
				}
				wants := map[mover.Method]int64{mover.Gather: 4, mover.Pack: 1}[method]
				if how == mover.Message {
					wants++
				}
				if r.posts.Load() != 1 || r.requests.Load() != wants {
					t.Fatalf("%v: %d requests in %d chains, want %d in 1", method,
						r.requests.Load(), r.posts.Load(), wants)
				}
			}
		}
	})
}

// TestGet scatters 4 segments over 16 pieces: one Read each, and a notice behind them.
func TestGet(t *testing.T) {
	everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
		m := r.mover(mover.Options{})
		pieces, segments, views := r.shape(spread(16, 4096), spread(4, 16384), fabric.RemoteRead)
		p, err := m.NewPlan(mover.Get, pieces, segments)
		check(t, err)
		fill(r.far.mem, 5)
		r.recv(nil)
		ctx, cancel := patience()
		defer cancel()
		check(t, m.Move(ctx, p, mover.Run{
			Notice: mover.Notice{How: mover.Immediate, Tag: 9},
		}, r.near.cq))
		if c := r.far.next(t); c.Err != nil || c.Imm != 9 {
			t.Fatalf("notice %+v", c)
		}
		if !bytes.Equal(joined(pieces, ofSge), joined(views, ofView)) {
			t.Fatal("wrong bytes")
		}
		if r.posts.Load() != 1 || r.requests.Load() != 5 {
			t.Fatalf("%d requests in %d chains", r.requests.Load(), r.posts.Load())
		}
	})
}

// TestLimits cuts requests where MaxSge and MaxTransfer do, and chains where the queue does.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		maxSge, maxTransfer, depth int
		requests, chains           int64
	}{
		{32, 1 << 20, 64, 4, 1},     // one a segment
		{16, 1 << 20, 64, 4, 1},     // just so
		{8, 1 << 20, 64, 8, 1},      // 16 pieces a segment, 8 a request
		{5, 1 << 20, 64, 16, 1},     // 5+5+5+1
		{32, 1000, 64, 4 * 5, 1},    // 4096 bytes a segment
		{1, 1 << 20, 64, 64, 1},     // a request a piece, and the queue takes them
		{1, 1 << 20, 16, 64, 0},     // in parts
		{1, 1 << 20, 1, 64, 64},     // one by one
		{32, 1 << 20, 4, 4, 1},      // full
		{32, 1 << 20, 3, 4, 2},      // 3, then 1
		{1, 100, 64, 4 * 3 * 16, 0}, // 256 bytes a piece
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			limits := fabric.Caps{MaxSge: c.maxSge, MaxTransfer: c.maxTransfer}
			r := newRig(t, onSim(sim.Options{Seed: 3, MaxDelay: 5, Limits: limits}), rigOptions{})
			m := r.mover(mover.Options{SendDepth: c.depth})
			for _, dir := range []mover.Direction{mover.Put, mover.Get} {
				r.posts.Store(0)
				r.requests.Store(0)
				rights := fabric.RemoteRead | fabric.RemoteWrite
				pieces, segments, views := r.shape(spread(64, 256), spread(4, 4096), rights)
				p, err := m.NewPlan(dir, pieces, segments)
				check(t, err)
				fill(r.near.mem, 1)
				fill(r.far.mem, 2)
				ctx, cancel := patience()
				check(t, m.Move(ctx, p, mover.Run{}, r.near.cq))
				cancel()
				if !bytes.Equal(joined(pieces, ofSge), joined(views, ofView)) {
					t.Fatal("wrong bytes")
				}
				if got := r.requests.Load(); got != c.requests || int64(p.Requests()) != got {
					t.Fatalf("%d requests, want %d", got, c.requests)
				}
				if got := r.posts.Load(); c.chains > 0 && dir == mover.Put && got != c.chains {
					t.Fatalf("%d chains, want %d", got, c.chains)
				}
			}
		})
	}
}

// TestGetIsToldOnce counts the completions of a Get of 16 segments: where Post itself moves the
// data one tells the end of all, so that a poller is not woken in the middle.
func TestGetIsToldOnce(t *testing.T) {
	everywhere(t, rigOptions{bytes: 4 << 20}, func(t *testing.T, r *rig) {
		m := r.mover(mover.Options{})
		shape := spread(16, 64<<10)
		pieces, segments, views := r.shape(shape, shape, fabric.RemoteRead)
		p, err := m.NewPlan(mover.Get, pieces, segments)
		check(t, err)
		want := 16
		if r.near.dom.Caps().PostMoves {
			want = 1
		}
		ctx, cancel := patience()
		defer cancel()
		for round := range uint64(3) {
			fill(r.far.mem, round)
			got, over := 0, false
			check(t, m.Start(p, mover.Run{Done: func(err error) { check(t, err); over = true }}))
			var batch [4]fabric.Completion
			for !over {
				n, err := r.near.cq.Wait(ctx, batch[:])
				check(t, err)
				for i := range batch[:n] {
					m.Completed(&batch[i])
				}
				got += n
			}
			if got != want {
				t.Fatalf("%d completions, want %d", got, want)
			}
			if !bytes.Equal(joined(pieces, ofSge), joined(views, ofView)) {
				t.Fatal("wrong bytes")
			}
		}
	})
}
