package mover_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
)

// TestNoAllocations moves a plan again and again, and makes it again in its room.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	all := append(onQuietVerbs(), onSim(sim.Options{}), onTCP(), onShm(false), onShm(true))
	for _, prov := range all {
		for _, depth := range []int{64, 4} {
			t.Run(fmt.Sprintf("%s/%d", prov.name, depth), func(t *testing.T) {
				steady(t, newRig(t, prov, rigOptions{raw: true}), depth)
			})
		}
	}
}

func steady(t *testing.T, r *rig, depth int) {
	m := r.mover(mover.Options{SendDepth: depth})
	pieces, segments, views := r.shape(
		spread(20, 64), spread(10, 128), fabric.RemoteRead|fabric.RemoteWrite)
	slot := r.far.grant(t, 8192, 2048, fabric.RemoteWrite)
	u := mover.NewUnpacker(r.far.mem[8192 : 8192+2048])
	p, err := m.NewPlan(mover.Put, pieces, segments)
	check(t, err)
	buf := r.far.mem[16384 : 16384+256]
	recvs := []fabric.Recv{{Reg: r.far.arena.RegionOf(r.far.dom), Buf: buf}}
	// The far side waits in a goroutine of its own, as a peer does: where nobody waits a provider may
	// need means that allocate.
	jobs, ready, ended := make(chan struct{}), make(chan error), make(chan error)
	defer close(jobs)
	go func() {
		batch := make([]fabric.Completion, 1)
		for range jobs {
			ready <- errors.Join(u.Expect(1, views), r.far.ep.PostRecv(recvs))
			n, err := r.far.cq.Wait(context.Background(), batch)
			switch c := &batch[0]; {
			case err != nil || n != 1 || c.Err != nil:
			case c.WithImm:
				err = u.Imm(c.Imm)
			default:
				err = u.Message(buf[:c.Len])
			}
			ended <- errors.Join(err, batch[0].Err)
		}
	}()
	move := func(dir mover.Direction, method mover.Method, how mover.How) {
		check(t, p.Reset(dir, pieces, segments))
		jobs <- struct{}{}
		check(t, <-ready)
		check(t, m.Move(context.Background(), p, mover.Run{
			Method: method, Slot: slot, Notice: mover.Notice{How: how, Tag: 1, Lengths: true},
		}, r.near.cq))
		check(t, <-ended)
	}
	all := func() {
		for _, how := range []mover.How{mover.Immediate, mover.Message} {
			move(mover.Put, mover.Gather, how)
			move(mover.Put, mover.Pack, how)
			move(mover.Get, mover.Auto, how)
		}
	}
	for range 20 {
		all()
	}
	// Goroutines of the provider may allocate now and then; one in every move would be seen.
	if got := alloctest.PerRun(0, 100, all); got >= 1 {
		t.Fatalf("%v allocations in 6 moves", got)
	}
}

// TestCopies counts them: none at all by gathering, one at each side by packing.
func TestCopies(t *testing.T) {
	everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
		m := r.mover(mover.Options{})
		pieces, segments, views := r.shape(spread(16, 512), spread(8, 1024), fabric.RemoteWrite)
		slot := r.far.grant(t, 65536, 8192, fabric.RemoteWrite)
		u := mover.NewUnpacker(r.far.mem[65536 : 65536+8192])
		p, err := m.NewPlan(mover.Put, pieces, segments)
		check(t, err)
		for method, want := range map[mover.Method]uint64{mover.Gather: 0, mover.Pack: 8192} {
			before := mem.Copies()
			r.recv(nil)
			check(t, u.Expect(1, views))
			ctx, cancel := patience()
			check(t, m.Move(ctx, p, mover.Run{
				Method: method, Slot: slot, Notice: mover.Notice{How: mover.Immediate, Tag: 1},
			}, r.near.cq))
			cancel()
			check(t, u.Imm(r.far.next(t).Imm))
			got := mem.Copies().Since(before)
			if got[mem.CopyPack].Bytes != want || got[mem.CopyUnpack].Bytes != want ||
				got.Total().Bytes != 2*want {
				t.Fatalf("%v: %+v", method, got)
			}
		}
	})
}
