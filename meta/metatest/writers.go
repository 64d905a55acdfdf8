package metatest

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// disk makes a volume.
func (e *env) disk() meta.Volume {
	e.Helper()
	v, err := e.Service.CreateVolume(e.ctx, e.root(), "disk", 1<<20, meta.NewFile{Mode: 0o600})
	e.must(err)
	return v
}

// client begins a session.
func (e *env) client(name string) meta.Caller {
	e.Helper()
	info, err := e.Service.NewSession(e.ctx, name)
	e.must(err)
	return meta.Caller{Session: info.ID}
}

// write opens the volume for writing.
func (e *env) write(c meta.Caller, epoch uint32, more meta.OpenFlags) (meta.Handle, error) {
	_, h, err := e.Service.OpenVolume(e.ctx, c, "disk", readWrite|more, epoch)
	return h, err
}

// testVolumeFence: each writer has a later generation than the one before, and has it only when all
// I/O servers refuse that one.
func testVolumeFence(e *env) {
	v := e.disk()
	a := e.client("a")
	_, r, err := e.Service.OpenVolume(e.ctx, a, "disk", meta.OpenRead, 0)
	if err != nil || r.Epoch != 0 || e.objects.look(v.Ino).fences != 0 {
		e.Fatalf("%v: who only reads has generation %d", err, r.Epoch)
	}
	var last uint32
	for range 3 {
		h, err := e.write(a, 0, 0)
		e.must(err)
		if h.Epoch <= last || e.objects.look(v.Ino).epoch != h.Epoch {
			e.Fatalf("generation %d after %d, and servers refuse what is below %d", h.Epoch, last,
				e.objects.look(v.Ino).epoch)
		}
		last = h.Epoch
		second, err := e.write(a, 0, 0) // the same client once more
		if err != nil || second.Epoch != last {
			e.Fatalf("%v: a second handle has generation %d, the first %d", err, second.Epoch, last)
		}
		renewed, err := e.Service.Renew(e.ctx, a, []uint64{h.ID})
		if err != nil || renewed[0].Epoch != last {
			e.Fatalf("%v: renewed as generation %d", err, renewed[0].Epoch)
		}
		e.must(e.Service.Close(e.ctx, a, meta.Closing{Handle: h.ID}))
		e.must(e.Service.Close(e.ctx, a, meta.Closing{Handle: second.ID}))
	}
	e.objects.Fail(errs.IO)
	_, err = e.write(a, 0, 0)
	if err == nil {
		e.Fatalf("granted, and no server was told")
	}
	e.objects.Fail(nil)
	b := e.client("b") // nothing is left of the one that failed
	h, err := e.write(b, 0, 0)
	if err != nil || h.Epoch <= last {
		e.Fatalf("%v: generation %d after %d", err, h.Epoch, last)
	}
	e.must(e.Service.Close(e.ctx, b, meta.Closing{Handle: h.ID}))
	e.objects.SetEpoch(v.Ino, h.Epoch+1000) // the metadata are older than the servers
	again, err := e.write(b, 0, 0)
	if err != nil || again.Epoch < h.Epoch+1000 || e.objects.look(v.Ino).epoch != again.Epoch {
		e.Fatalf("%v: generation %d, and servers knew %d", err, again.Epoch, h.Epoch+1000)
	}
	_, err = e.write(b, 0, meta.OpenTruncate)
	e.want(errs.Invalid, err, "a volume is not truncated")
	_, _, err = e.Service.OpenVolume(e.ctx, b, "disk", meta.OpenRead|meta.OpenShared, 0)
	e.want(errs.Invalid, err, "only writers share")
}

// testVolumeTakeOver: a writer that was silent for its lease is taken over from at once, and does
// not get the volume back by what it had.
func testVolumeTakeOver(e *env) {
	e.disk()
	a, b := e.client("a"), e.client("b")
	first, err := e.write(a, 0, 0)
	e.must(err)
	for range 2 {
		e.clock.advance(lease/2 + time.Second)
		e.must(e.Service.KeepAlive(e.ctx, b.Session))
		e.must(e.Service.KeepAlive(e.ctx, e.session))
	}
	e.eventually("the session is ended", func() bool { return e.ended(a.Session) })
	second, err := e.write(b, 0, 0)
	if err != nil || second.Epoch <= first.Epoch {
		e.Fatalf("%v: generation %d after %d", err, second.Epoch, first.Epoch)
	}
	again := e.client("a")
	for range 2 { // while the other one has it, and when nobody has it any more
		_, err = e.write(again, first.Epoch, 0)
		e.want(errs.Fenced, err, "a deposed writer comes back")
		if second.ID != 0 {
			e.must(e.Service.Close(e.ctx, b, meta.Closing{Handle: second.ID}))
			second.ID = 0
		}
	}
	_, err = e.write(again, 0, 0) // as anybody else it may
	e.must(err)
}

// testVolumeRestart: after a restart of the service the writer claims its handle, as what it was.
func testVolumeRestart(e *env) {
	v := e.disk()
	a := e.client("a")
	h, err := e.write(a, 0, 0)
	e.must(err)
	e.restart()
	claim := meta.Claimed{Handle: h.ID, Ino: v.Ino, Flags: readWrite, Epoch: h.Epoch + 1}
	life := e.life()
	got, err := e.Service.Claim(e.ctx, a.Session, life, []meta.Claimed{claim}, false)
	if err != nil || !got[0].Gone {
		e.Fatalf("%v: another generation's handle was claimed: %+v", err, got)
	}
	claim.Epoch = h.Epoch
	got, err = e.Service.Claim(e.ctx, a.Session, life, []meta.Claimed{claim}, true)
	if err != nil || got[0].Gone {
		e.Fatalf("%v: %+v", err, got)
	}
	renewed, err := e.Service.Renew(e.ctx, a, []uint64{h.ID})
	if err != nil || renewed[0].Epoch != h.Epoch {
		e.Fatalf("%v: generation %d, and before %d", err, renewed[0].Epoch, h.Epoch)
	}
}

// renewed is the generation that a handle has when its capabilities are renewed; 0: it has lost it.
func (e *env) renewed(session uint64, h meta.Handle) uint32 {
	e.Helper()
	list, err := e.Service.Renew(e.ctx, meta.Caller{Session: session}, []uint64{h.ID})
	e.must(err)
	if len(list[0].Caps) == 0 {
		return 0
	}
	return list[0].Epoch
}

// joined opens the volume for writing with others, and checks that it is one of them: nothing of
// earlier generations is taken any more, and those who are there go on by renewing.
func (e *env) joined(c meta.Caller, epoch uint32, others map[uint64]meta.Handle) meta.Handle {
	e.Helper()
	var last uint32
	for who, h := range others {
		last = max(last, e.renewed(who, h))
	}
	h, err := e.write(c, epoch, meta.OpenShared)
	e.must(err)
	if h.Epoch <= last || e.objects.look(h.Attr.Ino).epoch != h.Epoch {
		e.Fatalf("generation %d behind %d, and servers refuse what is below %d", h.Epoch, last,
			e.objects.look(h.Attr.Ino).epoch)
	}
	for who, other := range others {
		if now := e.renewed(who, other); now != h.Epoch {
			e.Fatalf("of those who were there one has generation %d, and it is %d", now, h.Epoch)
		}
	}
	others[c.Session] = h
	return h
}

// testVolumeShared: several clients write when all of them ask for it. Each that comes begins a
// generation, in which the others go on.
func testVolumeShared(e *env) {
	e.disk()
	a, b, c := e.client("a"), e.client("b"), e.client("c")
	all := map[uint64]meta.Handle{}
	first := e.joined(a, 0, all)
	second := e.joined(b, 0, all)
	list, err := e.Service.ListVolumes(e.ctx, e.root(), "disk", 1)
	if err != nil || !list[0].Shared || list[0].Epoch != second.Epoch ||
		list[0].First != first.Epoch {
		e.Fatalf("%v: %+v", err, list)
	}
	_, err = e.write(c, 0, 0)
	e.want(errs.Busy, err, "alone beside who share")
	e.must(e.Service.Close(e.ctx, a, meta.Closing{Handle: first.ID}))
	e.must(e.Service.Close(e.ctx, b, meta.Closing{Handle: second.ID}))
	alone, err := e.write(c, 0, 0)
	if err != nil || alone.Epoch <= second.Epoch {
		e.Fatalf("%v: generation %d after %d", err, alone.Epoch, second.Epoch)
	}
	_, err = e.write(a, 0, meta.OpenShared)
	e.want(errs.Busy, err, "shared beside one who does not")
	e.must(e.Service.Close(e.ctx, c, meta.Closing{Handle: alone.ID}))
	third, err := e.write(b, 0, meta.OpenShared)
	if err != nil || third.Epoch <= alone.Epoch {
		e.Fatalf("%v: generation %d after %d", err, third.Epoch, alone.Epoch)
	}
	_, err = e.write(a, first.Epoch, meta.OpenShared)
	e.want(errs.Fenced, err, "one of another group comes back")
}

// testVolumeRejoin: who has lost its session, or was there before the service was restarted, is one
// of those who share a volume by any generation of theirs; not by one that no I/O server takes.
func testVolumeRejoin(e *env) {
	v := e.disk()
	all := map[uint64]meta.Handle{}
	a, b := e.client("a"), e.client("b")
	first := e.joined(a, 0, all)
	second := e.joined(b, 0, all)
	e.must(e.Service.EndSession(e.ctx, a.Session))
	delete(all, a.Session)
	a = e.client("a")
	back := e.joined(a, first.Epoch, all)
	e.restart()
	life := e.life()
	for session, w := range map[uint64]meta.Claimed{
		a.Session: {Handle: back.ID, Ino: v.Ino, Flags: readWrite, Epoch: back.Epoch},
		b.Session: {Handle: second.ID, Ino: v.Ino, Flags: readWrite, Epoch: second.Epoch},
	} {
		got, err := e.Service.Claim(e.ctx, session, life, []meta.Claimed{w}, true)
		if err != nil || got[0].Gone {
			e.Fatalf("%v: of generation %d: %+v", err, w.Epoch, got)
		}
	}
	_, err := e.Service.Claim(e.ctx, e.session, life, nil, true)
	e.must(err)
	third := e.joined(e.client("c"), 0, all)
	if third.Epoch > back.Epoch+8 {
		e.Fatalf("generation %d after %d: nothing has asked for a jump", third.Epoch, back.Epoch)
	}
	_, err = e.write(e.client("d"), third.Epoch+1, meta.OpenShared)
	e.want(errs.Fenced, err, "a generation that there was not")
	forced, err := e.Service.HandOver(e.ctx, b, "disk", true)
	if err != nil || forced.First <= third.Epoch || forced.Shared {
		e.Fatalf("%v: %+v after generation %d", err, forced, third.Epoch)
	}
	for c, h := range all {
		if now := e.renewed(c, h); now != 0 {
			e.Fatalf("one of those who were deposed has generation %d", now)
		}
	}
	_, err = e.write(a, third.Epoch, meta.OpenShared)
	e.want(errs.Fenced, err, "one that was deposed")
	clear(all)
	e.joined(a, 0, all)
}

// testVolumeJoinFails: who cannot keep all earlier generations off has not joined, and is in
// nobody's way; one that another one overtakes meanwhile has that one's generation.
func testVolumeJoinFails(e *env) {
	v := e.disk()
	all := map[uint64]meta.Handle{}
	a, b, c := e.client("a"), e.client("b"), e.client("c")
	first := e.joined(a, 0, all)
	e.objects.Fail(errs.IO)
	if _, err := e.write(b, 0, meta.OpenShared); err == nil {
		e.Fatalf("granted, and no server was told")
	}
	e.objects.Fail(nil)
	if now := e.renewed(a.Session, first); now <= first.Epoch {
		e.Fatalf("generation %d after %d, and servers may refuse that", now, first.Epoch)
	}
	e.joined(b, 0, all)
	asked, err := e.Service.HandOver(e.ctx, b, "disk", false)
	if err != nil || !asked.Asked {
		e.Fatalf("%v: %+v", err, asked)
	}
	var far meta.Handle
	e.objects.BeforeFence(func() { far, err = e.write(c, 0, meta.OpenShared) })
	d := e.client("d")
	near := e.joined(d, 0, all)
	if err != nil || far.Epoch != near.Epoch || near.Epoch > first.Epoch+8 {
		e.Fatalf("%v: generations %d and %d", err, near.Epoch, far.Epoch)
	}
	all[c.Session] = far
	now, err := e.Service.ListVolumes(e.ctx, e.root(), "disk", 1)
	if err != nil || !now[0].Asked || now[0].First != first.Epoch {
		e.Fatalf("%v: they were asked to hand over, and one has joined: %+v", err, now)
	}
	e.objects.SetEpoch(v.Ino, near.Epoch+1000) // the metadata are older than the servers
	if last := e.joined(e.client("e"), 0, all); last.Epoch < near.Epoch+1000 {
		e.Fatalf("generation %d, and servers knew %d", last.Epoch, near.Epoch+1000)
	}
}

// await waits for a change of the volume.
func (e *env) await(c meta.Caller, seen meta.Volume) meta.Volume {
	e.Helper()
	v, err := e.Service.AwaitVolume(e.ctx, c, "disk", seen.State(), meta.VolumeAwaitMax)
	e.must(err)
	return v
}

// testVolumeHandOver: a writer is told that it is to give the volume up; one that is not asked
// loses it, and is refused at the I/O servers before that is answered.
func testVolumeHandOver(e *env) {
	v := e.disk()
	a, b := e.client("a"), e.client("b")
	free, err := e.Service.HandOver(e.ctx, b, "disk", false)
	if err != nil || free.Writer != "" || free.Asked {
		e.Fatalf("%v: nobody writes: %+v", err, free)
	}
	first, err := e.write(a, 0, 0)
	e.must(err)
	held := e.await(a, meta.Volume{})
	if held.Writer != "a" || held.Asked || held.Epoch != first.Epoch {
		e.Fatalf("%+v", held)
	}
	over, _ := e.background(func() error {
		if now := e.await(a, held); !now.Asked {
			e.Errorf("woken without a reason: %+v", now)
		}
		return e.Service.Close(e.ctx, a, meta.Closing{Handle: first.ID})
	})
	asked, err := e.Service.HandOver(e.ctx, b, "disk", false)
	if err != nil || !asked.Asked && asked.Writer != "" {
		e.Fatalf("%v: %+v", err, asked)
	}
	for now := asked; now.Writer != ""; {
		now = e.await(b, now)
	}
	e.must(over())
	second, err := e.write(b, 0, 0)
	e.must(err)
	e.notAsked()
	forced, err := e.Service.HandOver(e.ctx, a, "disk", true)
	if err != nil || forced.Writer != "" || forced.Epoch <= second.Epoch ||
		e.objects.look(v.Ino).epoch != forced.Epoch {
		e.Fatalf("%v: %+v after generation %d", err, forced, second.Epoch)
	}
	_, err = e.write(b, second.Epoch, 0)
	e.want(errs.Fenced, err, "a writer that was deposed")
	renewed, err := e.Service.Renew(e.ctx, b, []uint64{second.ID})
	if err != nil || len(renewed[0].Caps) != 0 {
		e.Fatalf("%v: a deposed writer's rights are renewed", err)
	}
	_, err = e.Service.HandOver(e.ctx, a, "nothing", false)
	e.want(errs.NotFound, err, "handover of no volume")
	e.must(e.Service.RemoveVolume(e.ctx, e.root(), "disk"))
	_, err = e.Service.AwaitVolume(e.ctx, a, "disk", meta.VolumeState{}, time.Second)
	e.want(errs.NotFound, err, "a change of no volume")
}

// notAsked checks that nobody is asked to give the volume up.
func (e *env) notAsked() {
	e.Helper()
	all, err := e.Service.ListVolumes(e.ctx, e.root(), "disk", 1)
	if err != nil || all[0].Asked {
		e.Fatalf("%v: %+v", err, all)
	}
}

// testVolumeResize: it grows while somebody writes, and shrinks only when that is meant and nobody
// does.
func testVolumeResize(e *env) {
	v := e.disk()
	a := e.client("a")
	h, err := e.write(a, 0, 0)
	e.must(err)
	grown, err := e.Service.ResizeVolume(e.ctx, e.root(), "disk", 3<<20, false)
	if err != nil || grown.Size != 3<<20 || e.attr(v.Ino).Size != 3<<20 {
		e.Fatalf("%v: %+v", err, grown)
	}
	if now := e.await(a, v); now.Size != 3<<20 {
		e.Fatalf("its writer hears of %d bytes", now.Size)
	}
	e.objects.Write(v.Ino, 3<<20)
	for _, c := range []struct {
		size   int64
		shrink bool
		want   errs.Kind
	}{{1 << 20, false, errs.Invalid}, {1 << 20, true, errs.Busy}, {0, true, errs.Invalid},
		{-1, true, errs.Invalid}, {layout.FileSizeMax + 1, false, errs.TooBig}} {
		_, err = e.Service.ResizeVolume(e.ctx, e.root(), "disk", c.size, c.shrink)
		e.want(c.want, err, "resize to what cannot be")
	}
	e.must(e.Service.Close(e.ctx, a, meta.Closing{Handle: h.ID}))
	cut, err := e.Service.ResizeVolume(e.ctx, e.root(), "disk", 1<<20, true)
	if err != nil || cut.Size != 1<<20 || e.objects.look(v.Ino).size != 1<<20 {
		e.Fatalf("%v: %+v, and the servers have %d bytes", err, cut, e.objects.look(v.Ino).size)
	}
	e.restart()
	all, err := e.Service.ListVolumes(e.ctx, e.root(), "disk", 1)
	if err != nil || all[0].Size != 1<<20 || all[0].Epoch != h.Epoch {
		e.Fatalf("%v: after a restart %+v", err, all)
	}
}
