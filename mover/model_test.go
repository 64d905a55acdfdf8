package mover_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
)

// modelMove is one move of a random shape and what the model knows of it.
type modelMove struct {
	plan    *mover.Plan
	dir     mover.Direction
	pieces  []fabric.Sge
	remotes []fabric.Remote
	views   [][]byte // of the far side's segments
	revoked []int    // segments that the far side took back
	run     mover.Run
	stream  []byte // what the destination shall hold
	old     []byte // what it held before
	over    bool
	err     error
}

func (v *modelMove) destination() [][]byte {
	if v.dir == mover.Put {
		return v.views
	}
	var list [][]byte
	for _, s := range v.pieces {
		list = append(list, s.Buf)
	}
	return list
}

// model is a rig with random limits on which random moves run, several at a time.
type model struct {
	*rapid.T
	r       *rig
	m       *mover.Mover
	staging *mem.Pool
	notices *mem.Pool
	moves   []*modelMove
	broken  bool
	u       map[uint32]*mover.Unpacker
}

const (
	modelArea   = 64 << 10 // of each move, at both sides: data below, the slot above
	modelSlot   = 32 << 10
	modelMsgs   = 4 * modelArea // where the far side receives
	modelMsgMax = 1024
)

// TestModel holds random moves against bytes that were copied by hand, over sim: any legal order of
// events, connections that break, grants that are taken back, moves that are cancelled.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		md := newModel(rt)
		for i := range rapid.IntRange(1, 3).Draw(rt, "moves") {
			md.moves = append(md.moves, md.draw(i))
		}
		if rapid.IntRange(0, 3).Draw(rt, "breaks") == 0 {
			md.broken = true
			md.r.prov.net.BreakAfter(md.r.far.ep, rapid.IntRange(1, 40).Draw(rt, "break after"))
		}
		for _, v := range md.moves {
			md.start(v)
		}
		md.finish()
		md.judge()
	})
}

func newModel(rt *rapid.T) *model {
	opts := sim.Options{
		Seed:        rapid.Uint64().Draw(rt, "seed"),
		MaxDelay:    rapid.IntRange(0, 10).Draw(rt, "delay"),
		RegionsOnly: rapid.Bool().Draw(rt, "regions only"),
		RefusalEnds: rapid.Bool().Draw(rt, "refusal ends"),
		Limits: fabric.Caps{
			MaxSge:      rapid.IntRange(1, 4).Draw(rt, "sge"),
			MaxTransfer: rapid.SampledFrom([]int{16, 300, 1 << 20}).Draw(rt, "transfer"),
		},
	}
	md := &model{T: rt, u: map[uint32]*mover.Unpacker{}}
	prov := onSim(opts)
	if rapid.Bool().Draw(rt, "post moves") {
		open := prov.open
		prov.open = func(t tester) (fabric.Domain, fabric.Domain, string, mem.Source) {
			near, far, addr, source := open(t)
			return postMoves{near}, far, addr, source
		}
	}
	md.r = newRig(rt, prov, rigOptions{depth: 128})
	var err error
	md.staging, err = mem.NewPool(md.r.near.arena, 700, rapid.IntRange(1, 20).Draw(rt, "staging"))
	check(rt, err)
	md.notices, err = mem.NewPool(md.r.near.arena, modelMsgMax, 3)
	check(rt, err)
	md.m = md.r.mover(mover.Options{
		SendDepth: rapid.IntRange(1, 12).Draw(rt, "depth"), Mark: 7,
		Staging: mover.FromPool(md.staging), Notices: md.notices,
		Table: &mover.Table{Rows: []mover.Row{{Fragments: 1, PackBelow: 40}}},
	})
	for i := range 3 {
		off := modelMsgs + i*modelMsgMax
		md.r.recv(md.r.far.mem[off : off+modelMsgMax : off+modelMsgMax])
	}
	return md
}

// postMoves says that Post moves the data itself: then the last Read of a chain speaks for the
// others, which must hold in any order of events, too.
type postMoves struct{ fabric.Domain }

func (d postMoves) Caps() fabric.Caps {
	caps := d.Domain.Caps()
	caps.PostMoves = true
	return caps
}

// cuts draws lengths, zeros among them, that add up to total.
func cuts(rt *rapid.T, total int, what string) []int {
	at := rapid.SliceOfN(rapid.IntRange(0, total), 0, 12).Draw(rt, what)
	slices.Sort(at)
	var lengths []int
	last := 0
	for _, a := range append(at, total) {
		lengths = append(lengths, a-last)
		last = a
	}
	return lengths
}

// places puts pieces of these lengths somewhere in an area, apart from each other, in any order.
func places(rt *rapid.T, lengths []int, what string) []int {
	order := rapid.Permutation(slices.Collect(seq(len(lengths)))).Draw(rt, what)
	offs, next := make([]int, len(lengths)), 0
	for _, i := range order {
		next += rapid.IntRange(0, 64).Draw(rt, "gap")
		offs[i] = next
		next += lengths[i]
	}
	return offs
}

func seq(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// draw makes move number i in its own area.
func (md *model) draw(i int) *modelMove {
	v := &modelMove{dir: rapid.SampledFrom([]mover.Direction{mover.Put, mover.Get}).Draw(md.T, "dir")}
	total := rapid.IntRange(0, 2000).Draw(md.T, "total")
	base := i * modelArea
	here, there := cuts(md.T, total, "pieces"), cuts(md.T, total, "segments")
	for k, off := range places(md.T, here, "piece order") {
		v.pieces = append(v.pieces, md.r.near.sge(base+off, here[k]))
	}
	for k, off := range places(md.T, there, "segment order") {
		at := base + off
		v.views = append(v.views, md.r.far.mem[at:at+there[k]:at+there[k]])
		v.remotes = append(v.remotes,
			md.r.far.grant(md, at, there[k], fabric.RemoteRead|fabric.RemoteWrite))
	}
	fill(md.r.near.mem[base:base+modelArea], uint64(2*i))
	fill(md.r.far.mem[base:base+modelArea], uint64(2*i+1))
	v.stream = joined(v.pieces, ofSge)
	if v.dir == mover.Get {
		v.stream = joined(v.views, ofView)
	}
	v.old = joined(v.destination(), ofView)
	md.drawRun(i, v)
	if rapid.IntRange(0, 3).Draw(md.T, "revokes") == 0 {
		k := rapid.IntRange(0, len(there)-1).Draw(md.T, "revoked")
		md.r.far.revoke(v.remotes[k])
		v.revoked = append(v.revoked, k)
	}
	var err error
	v.plan, err = md.m.NewPlan(v.dir, v.pieces, v.remotes)
	check(md, err)
	return v
}

func (md *model) drawRun(i int, v *modelMove) {
	v.run.Notice = mover.Notice{
		How: rapid.SampledFrom([]mover.How{mover.None, mover.Immediate, mover.Message}).Draw(md.T, "how"),
		Tag: uint32(i), Lengths: rapid.Bool().Draw(md.T, "lengths"),
	}
	v.run.Method = rapid.SampledFrom([]mover.Method{mover.Auto, mover.Gather}).Draw(md.T, "method")
	slot := i*modelArea + modelSlot
	if v.dir == mover.Put && v.run.Notice.How != mover.None {
		v.run.Slot = md.r.far.grant(md, slot, modelSlot, fabric.RemoteWrite)
		if len(v.stream) > 0 && rapid.Bool().Draw(md.T, "pack") {
			v.run.Method = mover.Pack
		}
	}
	u := mover.NewUnpacker(md.r.far.mem[slot : slot+modelSlot])
	check(md, u.Expect(uint32(i), v.views))
	md.u[uint32(i)] = u
	v.run.Done = func(err error) { v.over, v.err = true, err }
}

// start begins a move; with Pack it may find no buffers, and gathers then.
func (md *model) start(v *modelMove) {
	err := md.m.Start(v.plan, v.run)
	if errs.KindOf(err) == errs.Again && v.run.Method == mover.Pack {
		v.run.Method = mover.Gather
		err = md.m.Start(v.plan, v.run)
	}
	if err != nil {
		v.over, v.err = true, err
	}
}

// finish is a poll loop that cancels moves now and then, until all are over.
func (md *model) finish() {
	batch := make([]fabric.Completion, rapid.IntRange(1, 5).Draw(md.T, "batch"))
	cancelAt := rapid.IntRange(-1, 30).Draw(md.T, "cancel at")
	for i := 0; slices.ContainsFunc(md.moves, func(v *modelMove) bool { return !v.over }); i++ {
		if i == cancelAt {
			md.m.Cancel(md.moves[0].plan)
		}
		if i > 100_000 {
			md.Fatal("the moves do not end")
		}
		n := md.r.near.cq.Poll(batch)
		for k := range batch[:n] {
			if !md.m.Completed(&batch[k]) {
				md.Fatalf("%+v is not the mover's", batch[k])
			}
		}
	}
}

// judge looks at everything after the moves are over and their memory was used for something else.
func (md *model) judge() {
	if n := md.staging.Stats().InUse + md.notices.Stats().InUse; n > 0 {
		md.Fatalf("%d buffers are still out", n)
	}
	var kept [][]byte // what Gets left behind, and what must not change any more
	for _, v := range md.moves {
		if v.dir == mover.Put {
			for _, s := range v.pieces {
				for k := range s.Buf {
					s.Buf[k] ^= 0xff // nobody may see that
				}
			}
		}
		kept = append(kept, joined(v.pieces, ofSge))
	}
	md.r.prov.net.Idle()
	told := md.receive()
	for i, v := range md.moves {
		if !bytes.Equal(kept[i], joined(v.pieces, ofSge)) {
			md.Fatalf("move %d: memory changed after the end", i)
		}
		md.judgeMove(v, told[uint32(i)])
	}
}

func (md *model) judgeMove(v *modelMove, told bool) {
	name := fmt.Sprintf("%v of %d bytes: %v", v.run.Method, len(v.stream), v.err)
	got := joined(v.destination(), ofView)
	refused := slices.ContainsFunc(v.revoked, func(k int) bool { return v.remotes[k].Len > 0 })
	anyRefused := slices.ContainsFunc(md.moves, func(o *modelMove) bool { return len(o.revoked) > 0 })
	var piece *mover.PieceError
	switch kind := errs.KindOf(v.err); {
	case kind == errs.OK && v.run.Notice.How != mover.None && !told && !md.broken && !anyRefused:
		md.Fatal(name, ": no notice came")
	case kind == errs.OK && (told || v.run.Notice.How == mover.None) && !bytes.Equal(got, v.stream):
		md.Fatal(name, ": wrong bytes")
	case kind == errs.OK && refused && v.run.Method != mover.Pack && v.run.Method != mover.Auto:
		md.Fatal(name, ": a segment was revoked")
	case kind == errs.OK, kind == errs.Canceled:
	case kind == errs.Perm:
		if !errors.As(v.err, &piece) || !slices.Contains(v.revoked, piece.Segment) {
			md.Fatal(name, ": it names a segment that was not revoked ", v.revoked)
		}
	case kind == errs.Disconnected:
		if !md.broken && !anyRefused {
			md.Fatal(name, ": nothing broke")
		}
	default:
		md.Fatal(name, ": not to be expected")
	}
	md.judgeBytes(name, v, got)
}

// judgeBytes lets each byte of the destination be the old one or the right one, and nothing else.
func (md *model) judgeBytes(name string, v *modelMove, got []byte) {
	for k := range got {
		if got[k] != v.stream[k] && got[k] != v.old[k] {
			md.Fatalf("%s: byte %d is neither the old one nor the right one", name, k)
		}
	}
}

// receive takes what came at the far side and tells which moves gave a good notice.
func (md *model) receive() map[uint32]bool {
	told := map[uint32]bool{}
	batch := make([]fabric.Completion, 16)
	at := 0
	for _, c := range batch[:md.r.far.cq.Poll(batch)] {
		if c.Op != fabric.OpRecv || c.Err != nil {
			continue
		}
		off := modelMsgs + at*modelMsgMax
		at++
		if c.WithImm {
			tag := c.Imm &^ (1 << 31)
			check(md, md.u[tag].Imm(c.Imm))
			told[tag] = true
			continue
		}
		msg := md.r.far.mem[off : off+c.Len]
		n, err := mover.ParseNotice(msg, 64)
		check(md, err)
		if n.Tag > 2 {
			md.Fatalf("tag %d", n.Tag)
		}
		check(md, md.u[n.Tag].Message(msg))
		told[n.Tag] = true
	}
	return told
}
