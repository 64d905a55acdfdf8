package mover_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/seg"
)

// lane moves one shape, one move at a time: the far side unpacks and the next one begins.
type lane struct {
	*rig
	m       *mover.Mover
	u       *mover.Unpacker
	slot    fabric.Remote
	jobs    chan [][]byte
	ready   chan error
	arrived chan error
}

// newLane has memory for a move of most bytes in pieces that are gap apart.
func newLane(tb tester, prov provider, most, span int) *lane {
	r := newRig(tb, prov, rigOptions{bytes: span + most, raw: true})
	staging, err := mem.NewArena(most, nil)
	check(tb, err)
	tb.Cleanup(func() { check(tb, staging.Close()) })
	check(tb, staging.Attach(r.near.dom))
	pool, err := mem.NewPool(staging, most, 1)
	check(tb, err)
	l := &lane{
		rig: r, m: r.mover(mover.Options{Staging: mover.FromPool(pool)}),
		u:    mover.NewUnpacker(r.far.mem[span:]),
		jobs: make(chan [][]byte), ready: make(chan error), arrived: make(chan error, 1),
	}
	l.slot = r.far.grant(tb, span, most, fabric.RemoteWrite)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		l.receive()
	}()
	tb.Cleanup(func() { close(l.jobs); <-gone })
	return l
}

func (l *lane) receive() {
	recvs, batch := make([]fabric.Recv, 1), make([]fabric.Completion, 1)
	for views := range l.jobs {
		err := l.u.Expect(1, views)
		if err == nil {
			err = l.far.ep.PostRecv(recvs)
		}
		l.ready <- err
		n := 0
		for n == 0 && err == nil {
			n, err = l.far.cq.Wait(context.Background(), batch)
		}
		if err == nil {
			err = batch[0].Err
		}
		if err == nil {
			err = l.u.Imm(batch[0].Imm)
		}
		l.arrived <- err
	}
}

// once is how long one move takes until its data is in the far side's pieces.
func (l *lane) once(p *mover.Plan, method mover.Method, views [][]byte) time.Duration {
	l.jobs <- views
	check(l.t, <-l.ready)
	begin := time.Now()
	check(l.t, l.m.Move(context.Background(), p, mover.Run{
		Method: method, Slot: l.slot, Notice: mover.Notice{How: mover.Immediate, Tag: 1},
	}, l.near.cq))
	check(l.t, <-l.arrived)
	return time.Since(begin)
}

// BenchmarkPut compares gathering, packing and contiguous memory, in turns: 16 pieces, which begin
// 1 MiB apart at least.
func BenchmarkPut(b *testing.B) {
	const count = 16
	for _, prov := range []provider{onTCP(), onShm(false), onShm(true)} {
		for _, size := range []int{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/16x%d", prov.name, size), func(b *testing.B) {
				stride := max(1<<20, 2*size)
				l := newLane(b, prov, count*size, count*stride)
				apart := seg.Strided(seg.Vector{
					Block: int64(size), Dims: []seg.Dim{{Count: count, Stride: int64(stride)}},
				})
				comparePut(b, l, apart, seg.Contig(0, int64(count*size)))
			})
		}
	}
}

func comparePut(b *testing.B, l *lane, apart, contig seg.Access) {
	ways := []struct {
		name   string
		method mover.Method
		access seg.Access
		plan   *mover.Plan
		views  [][]byte
		times  []time.Duration
		copied uint64
	}{
		{name: "gather", method: mover.Gather, access: apart},
		{name: "pack", method: mover.Pack, access: apart},
		{name: "contig", method: mover.Gather, access: contig},
	}
	for i := range ways {
		w := &ways[i]
		pieces, segments, views := l.shape(w.access, w.access, fabric.RemoteWrite)
		var err error
		w.plan, err = l.m.NewPlan(mover.Put, pieces, segments)
		check(b, err)
		w.views = views
		l.once(w.plan, w.method, w.views)
	}
	b.ResetTimer()
	for range b.N {
		for i := range ways {
			w := &ways[i]
			before := mem.Copied()
			w.times = append(w.times, l.once(w.plan, w.method, w.views))
			w.copied += mem.Copied() - before
		}
	}
	for _, w := range ways {
		slices.Sort(w.times)
		bytes := float64(w.plan.Bytes())
		b.ReportMetric(bytes/1e6/w.times[len(w.times)/2].Seconds(), w.name+"-MB/s")
		b.ReportMetric(float64(w.copied)/bytes/float64(b.N), w.name+"-copies/B")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkTune shows where the methods cross.
func BenchmarkTune(b *testing.B) {
	for _, prov := range []provider{onTCP(), onShm(false), onShm(true)} {
		b.Run(prov.name, func(b *testing.B) {
			r := newRig(b, prov, rigOptions{raw: true})
			source := mem.Source(nil)
			if prov.nearListens {
				source = r.farSource
			}
			for range b.N {
				table, samples, err := mover.Tune(context.Background(), r.near.side(nil),
					r.far.side(source), mover.TuneOptions{Rounds: 101})
				check(b, err)
				for _, row := range table.Rows {
					line := fmt.Sprintf("%d pieces, gather/pack in us:", row.Fragments)
					for _, s := range samples {
						if s.Fragments == row.Fragments {
							line += fmt.Sprintf("  %d B %.1f/%.1f", s.Bytes,
								float64(s.Gather)/1e3, float64(s.Pack)/1e3)
						}
					}
					b.Logf("%s; pack below %d B", line, row.PackBelow)
				}
			}
		})
	}
}
