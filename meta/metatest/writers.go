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

// testVolumeShared: several clients write when all of them ask for it, in one generation.
func testVolumeShared(e *env) {
	e.disk()
	a, b, c := e.client("a"), e.client("b"), e.client("c")
	first, err := e.write(a, 0, meta.OpenShared)
	e.must(err)
	second, err := e.write(b, 0, meta.OpenShared)
	if err != nil || second.Epoch != first.Epoch {
		e.Fatalf("%v: generations %d and %d", err, first.Epoch, second.Epoch)
	}
	all, err := e.Service.ListVolumes(e.ctx, e.root(), "disk", 1)
	if err != nil || !all[0].Shared || all[0].Epoch != first.Epoch {
		e.Fatalf("%v: %+v", err, all)
	}
	_, err = e.write(c, 0, 0)
	e.want(errs.Busy, err, "alone beside who share")
	e.must(e.Service.Close(e.ctx, a, meta.Closing{Handle: first.ID}))
	e.must(e.Service.Close(e.ctx, b, meta.Closing{Handle: second.ID}))
	alone, err := e.write(c, 0, 0)
	if err != nil || alone.Epoch <= first.Epoch {
		e.Fatalf("%v: generation %d after %d", err, alone.Epoch, first.Epoch)
	}
	_, err = e.write(a, 0, meta.OpenShared)
	e.want(errs.Busy, err, "shared beside one who does not")
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
