package mover_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mover"
)

// TestShapes moves random shapes over real providers, every way, on one connection: what a move
// leaves behind must not disturb the next.
func TestShapes(t *testing.T) {
	for _, prov := range append(onVerbs(), onTCP(), onShm(false), onShm(true)) {
		for _, depth := range []int{64, 3} {
			t.Run(prov.name, func(t *testing.T) {
				r := newRig(t, prov, rigOptions{})
				m := r.mover(mover.Options{SendDepth: depth})
				p, err := m.NewPlan(mover.Put, nil, nil)
				check(t, err)
				const slotAt, slotLen, msgAt = 512 << 10, 256 << 10, 900 << 10
				grant := r.far.grant(t, 0, slotAt, fabric.RemoteRead|fabric.RemoteWrite)
				s := &shapes{
					r: r, m: m, p: p, grant: grant, msg: r.far.mem[msgAt : msgAt+2048],
					slot: r.far.grant(t, slotAt, slotLen, fabric.RemoteWrite),
					u:    mover.NewUnpacker(r.far.mem[slotAt : slotAt+slotLen]),
				}
				rapid.Check(t, s.once)
			})
		}
	}
}

// shapes is what lives from one shape to the next.
type shapes struct {
	r     *rig
	m     *mover.Mover
	p     *mover.Plan
	u     *mover.Unpacker
	grant fabric.Remote
	slot  fabric.Remote
	msg   []byte
	tag   uint32
}

func (s *shapes) once(rt *rapid.T) {
	s.tag++
	total := rapid.SampledFrom([]int{0, 1, 100, 5000, 200_000}).Draw(rt, "total")
	here, there := cuts(rt, total, "pieces"), cuts(rt, total, "segments")
	var pieces []fabric.Sge
	var segments []fabric.Remote
	var views [][]byte
	for i, off := range places(rt, here, "piece order") {
		pieces = append(pieces, s.r.near.sge(off, here[i]))
	}
	for i, off := range places(rt, there, "segment order") {
		segments = append(segments, s.grant.Slice(uint64(off), uint64(there[i])))
		views = append(views, s.r.far.mem[off:off+there[i]:off+there[i]])
	}
	fill(s.r.near.mem[:total+2048], uint64(s.tag))
	fill(s.r.far.mem[:total+2048], uint64(s.tag)+1)
	dir := rapid.SampledFrom([]mover.Direction{mover.Put, mover.Get}).Draw(rt, "dir")
	want := joined(pieces, ofSge)
	if dir == mover.Get {
		want = joined(views, ofView)
	}
	run := mover.Run{Slot: s.slot, Notice: mover.Notice{
		How: rapid.SampledFrom([]mover.How{mover.Immediate, mover.Message}).Draw(rt, "how"),
		Tag: s.tag, Lengths: rapid.Bool().Draw(rt, "lengths"),
	}}
	if dir == mover.Put && total > 0 {
		methods := []mover.Method{mover.Auto, mover.Gather, mover.Pack}
		run.Method = rapid.SampledFrom(methods).Draw(rt, "method")
	}
	check(rt, s.p.Reset(dir, pieces, segments))
	check(rt, s.u.Expect(s.tag, views))
	s.r.recv(s.msg)
	ctx, cancel := patience()
	defer cancel()
	check(rt, s.m.Move(ctx, s.p, run, s.r.near.cq))
	c := s.r.far.next(rt)
	check(rt, c.Err)
	if c.WithImm {
		check(rt, s.u.Imm(c.Imm))
	} else {
		check(rt, s.u.Message(s.msg[:c.Len]))
	}
	if !bytes.Equal(want, joined(pieces, ofSge)) || !bytes.Equal(want, joined(views, ofView)) {
		rt.Fatal("wrong bytes")
	}
}
