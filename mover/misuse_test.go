package mover_test

import (
	"math"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
)

func TestOptions(t *testing.T) {
	r := newRig(t, onSim(sim.Options{}), rigOptions{})
	good := mover.Options{Domain: r.near.dom, Endpoint: r.near.ep, SendDepth: 8}
	_, err := mover.New(good)
	check(t, err)
	for name, change := range map[string]func(o *mover.Options){
		"no domain":      func(o *mover.Options) { o.Domain = nil },
		"no endpoint":    func(o *mover.Options) { o.Endpoint = nil },
		"no depth":       func(o *mover.Options) { o.SendDepth = 0 },
		"too deep":       func(o *mover.Options) { o.SendDepth = 1 << 20 },
		"negative moves": func(o *mover.Options) { o.Moves = -1 },
		"many moves":     func(o *mover.Options) { o.Moves = 4097 },
		"many pieces":    func(o *mover.Options) { o.MaxPieces = 1 << 30 },
		"bad table":      func(o *mover.Options) { o.Table = &mover.Table{Rows: []mover.Row{{}}} },
	} {
		o := good
		change(&o)
		if _, err := mover.New(o); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadPlans(t *testing.T) {
	r := newRig(t, onSim(sim.Options{RegionsOnly: true}), rigOptions{})
	m := r.mover(mover.Options{MaxPieces: 4})
	a, b := r.near.sge(0, 10), r.far.grant(t, 0, 10, fabric.RemoteWrite)
	piece := func(n int) []fabric.Sge { return slices.Repeat([]fabric.Sge{a}, n) }
	part := func(n int) []fabric.Remote { return slices.Repeat([]fabric.Remote{b}, n) }
	for name, c := range map[string]struct {
		dir    mover.Direction
		local  []fabric.Sge
		remote []fabric.Remote
		want   errs.Kind
	}{
		"no direction":  {0, piece(1), part(1), errs.Invalid},
		"shorter":       {mover.Put, piece(1), part(2), errs.Invalid},
		"longer":        {mover.Get, piece(2), part(1), errs.Invalid},
		"nothing there": {mover.Put, piece(1), nil, errs.Invalid},
		"pieces":        {mover.Put, piece(5), part(4), errs.TooBig},
		"segments":      {mover.Put, piece(4), part(5), errs.TooBig},
		"no region":     {mover.Put, []fabric.Sge{{Buf: make([]byte, 10)}}, part(1), errs.Invalid},
		"outside": {mover.Put, []fabric.Sge{{Reg: a.Reg, Buf: make([]byte, 10)}}, part(1),
			errs.Invalid},
		"endless": {mover.Get, piece(1),
			[]fabric.Remote{{Len: math.MaxUint64}, {Len: 11}}, errs.Invalid},
	} {
		if _, err := m.NewPlan(c.dir, c.local, c.remote); errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	p, err := m.NewPlan(mover.Put, piece(1), part(1))
	check(t, err)
	wantKind(t, p.Reset(mover.Put, piece(1), part(2)), errs.Invalid)
	if p.Bytes() != 0 || p.Requests() != 0 || p.Fragments() != 0 {
		t.Fatal("a plan that could not be made is empty")
	}
}

// TestTooManyRequests is refused while it is counted, not after.
func TestTooManyRequests(t *testing.T) {
	limits := fabric.Caps{MaxTransfer: 1}
	r := newRig(t, onSim(sim.Options{Limits: limits}), rigOptions{bytes: 2 << 20})
	m := r.mover(mover.Options{})
	grant := r.far.grant(t, 0, 2<<20, fabric.RemoteWrite)
	_, err := m.NewPlan(mover.Put, []fabric.Sge{r.near.sge(0, 2<<20)}, []fabric.Remote{grant})
	wantKind(t, err, errs.TooBig)
}

func TestBadRuns(t *testing.T) {
	r := newRig(t, onSim(sim.Options{}), rigOptions{})
	bare, err := mover.New(mover.Options{Domain: r.near.dom, Endpoint: r.near.ep, SendDepth: 8})
	check(t, err)
	m := r.mover(mover.Options{Mark: 1})
	pieces, segments, _ := r.shape(spread(300, 10), spread(300, 10), fabric.RemoteWrite)
	slot := r.far.grant(t, 0, 3000, fabric.RemoteWrite)
	imm := mover.Notice{How: mover.Immediate}
	for name, c := range map[string]struct {
		m    *mover.Mover
		dir  mover.Direction
		run  mover.Run
		want errs.Kind
	}{
		"no such method": {m, mover.Put, mover.Run{Method: 9}, errs.Invalid},
		"no such notice": {m, mover.Put, mover.Run{Notice: mover.Notice{How: 9}}, errs.Invalid},
		"tag":            {m, mover.Put, mover.Run{Notice: mover.Notice{Tag: 1 << 31}}, errs.Invalid},
		"packed Get": {m, mover.Get, mover.Run{Method: mover.Pack, Slot: slot, Notice: imm},
			errs.Invalid},
		"no notice": {m, mover.Put, mover.Run{Method: mover.Pack, Slot: slot}, errs.Invalid},
		"no slot":   {m, mover.Put, mover.Run{Method: mover.Pack, Notice: imm}, errs.Invalid},
		"small slot": {m, mover.Put,
			mover.Run{Method: mover.Pack, Slot: slot.Slice(0, 2999), Notice: imm}, errs.Invalid},
		"no staging": {bare, mover.Put, mover.Run{Method: mover.Pack, Slot: slot, Notice: imm},
			errs.Invalid},
		"no pool": {bare, mover.Put, mover.Run{Notice: mover.Notice{How: mover.Message}}, errs.Invalid},
		"long list": {m, mover.Put,
			mover.Run{Notice: mover.Notice{How: mover.Message, Lengths: true}}, errs.TooBig},
	} {
		p, err := c.m.NewPlan(c.dir, pieces, segments)
		check(t, err)
		c.run.Done = func(error) { t.Error("nothing was begun") }
		if err := c.m.Start(p, c.run); errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if r.posts.Load() != 0 {
		t.Fatal("something was posted")
	}
	defer func() {
		if recover() == nil {
			t.Fatal("a plan of another mover is a programmer's error")
		}
	}()
	p, err := m.NewPlan(mover.Put, pieces, segments)
	check(t, err)
	_ = bare.Start(p, mover.Run{})
}

// TestNoBuffers has packing demanded, and only preferred, while the staging is out.
func TestNoBuffers(t *testing.T) {
	r := newRig(t, onSim(sim.Options{}), rigOptions{})
	staging, err := mem.NewPool(r.near.arena, 1000, 2)
	check(t, err)
	notices, err := mem.NewPool(r.near.arena, 64, 1)
	check(t, err)
	m := r.mover(mover.Options{
		Staging: mover.FromPool(staging), Notices: notices,
		Table: &mover.Table{Rows: []mover.Row{{Fragments: 1, PackBelow: 1000}}},
	})
	pieces, segments, _ := r.shape(spread(10, 150), spread(10, 150), fabric.RemoteWrite)
	p, err := m.NewPlan(mover.Put, pieces, segments)
	check(t, err)
	run := mover.Run{
		Method: mover.Pack, Slot: r.far.grant(t, 0, 1500, fabric.RemoteWrite),
		Notice: mover.Notice{How: mover.Immediate},
	}
	held := staging.TryTake()
	wantKind(t, m.Start(p, run), errs.Again)
	if staging.Stats().InUse != 1 {
		t.Fatal("what it had taken was not returned")
	}
	r.recv(nil)
	run.Method = mover.Auto
	ctx, cancel := patience()
	defer cancel()
	check(t, m.Move(ctx, p, run, r.near.cq))
	held.Return()
	r.recv(nil)
	check(t, m.Move(ctx, p, run, r.near.cq))
	if s := m.Stats(); s.Moves != 2 || s.Packed != 1 || s.NoStaging != 1 {
		t.Fatalf("%+v", s)
	}
	word := notices.TryTake()
	run.Notice.How = mover.Message
	wantKind(t, m.Start(p, run), errs.Again)
	if staging.Stats().InUse != 0 {
		t.Fatal("the staging was not returned")
	}
	word.Return()
}

// TestNothing moves no bytes: it touches nothing and tells the peer all the same.
func TestNothing(t *testing.T) {
	everywhere(t, rigOptions{}, func(t *testing.T, r *rig) {
		m := r.mover(mover.Options{})
		p, err := m.NewPlan(mover.Put, []fabric.Sge{{}, {}}, []fabric.Remote{{Key: 99}})
		check(t, err)
		done := 0
		check(t, m.Start(p, mover.Run{Done: func(err error) { check(t, err); done++ }}))
		if done != 1 || r.posts.Load() != 0 {
			t.Fatal("there was nothing to wait for")
		}
		ctx, cancel := patience()
		defer cancel()
		buf := r.far.mem[:64]
		for _, how := range []mover.How{mover.Immediate, mover.Message} {
			r.recv(buf)
			check(t, m.Move(ctx, p, mover.Run{
				Notice: mover.Notice{How: how, Tag: 5, Lengths: true},
			}, r.near.cq))
			c := r.far.next(t)
			u := mover.NewUnpacker(nil)
			check(t, u.Expect(5, [][]byte{nil}))
			if how == mover.Immediate {
				check(t, u.Imm(c.Imm))
			} else {
				check(t, u.Message(buf[:c.Len]))
			}
		}
	})
}
