package metatest

import (
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

func testVolumes(e *env) {
	s, ctx := e.Service, e.ctx
	alices := e.user(alice)
	v, err := s.CreateVolume(ctx, alices, "disk", 1<<30, meta.NewFile{})
	if err != nil || v.Name != "disk" || v.Size != 1<<30 || v.Created == 0 ||
		v.Layout.Validate() != nil {
		e.Fatalf("%v: %+v", err, v)
	}
	_, err = s.CreateVolume(ctx, alices, "disk", 1<<30, meta.NewFile{})
	e.want(errs.Exists, err, "second volume of the name")
	for _, size := range []int64{0, -1} {
		_, err = s.CreateVolume(ctx, alices, "x", size, meta.NewFile{})
		e.want(errs.Invalid, err, "volume of no size")
	}
	_, err = s.CreateVolume(ctx, alices, "x", layout.FileSizeMax+1, meta.NewFile{})
	e.want(errs.TooBig, err, "volume of more than the limit")
	_, err = s.CreateVolume(ctx, alices, "a/b", 1, meta.NewFile{})
	e.want(errs.Invalid, err, "volume with a slash")
	if n := len(e.names(meta.RootIno)); n != 0 {
		e.Fatalf("the volume is among the files: %d names", n)
	}
	e.restart()
	s = e.Service
	all, err := s.ListVolumes(ctx, e.root(), "", 9)
	if err != nil || len(all) != 1 || all[0].Ino != v.Ino || !all[0].Layout.Equal(&v.Layout) {
		e.Fatalf("%v: %+v", err, all)
	}
	e.openVolume(v)
	e.want(errs.Perm, s.RemoveVolume(ctx, e.user(bob), "disk"), "remove another's volume")
	e.must(s.RemoveVolume(ctx, alices, "disk"))
	e.want(errs.NotFound, s.RemoveVolume(ctx, alices, "disk"), "remove twice")
	e.eventually("its objects are removed", func() bool { return e.objects.look(v.Ino).removed })
}

// testVolumePages: however many volumes there are, a page of them has a bound, and the pages
// together name each of them once, in order.
func testVolumePages(e *env) {
	const n = meta.VolumePageMax + 20
	for i := range n {
		_, err := e.Service.CreateVolume(e.ctx, e.root(), fmt.Sprintf("v%04d", (i*7)%n), 1<<20,
			meta.NewFile{})
		e.must(err)
	}
	for _, max := range []int{100, meta.VolumePageMax, 1 << 30} {
		next := 0
		for from := ""; ; {
			page, err := e.Service.ListVolumes(e.ctx, e.root(), from, max)
			e.must(err)
			if len(page) == 0 {
				break
			}
			if len(page) > min(max, meta.VolumePageMax) {
				e.Fatalf("a page of %d volumes has %d", max, len(page))
			}
			for i := range page {
				if want := fmt.Sprintf("v%04d", next); page[i].Name != want {
					e.Fatalf("volume %d is %s", next, page[i].Name)
				}
				next++
			}
			from = meta.NextVolume(page[len(page)-1].Name)
		}
		if next != n {
			e.Fatalf("%d of %d volumes are listed", next, n)
		}
	}
	page, err := e.Service.ListVolumes(e.ctx, e.root(), "v0007", 1)
	if err != nil || len(page) != 1 || page[0].Name != "v0007" {
		e.Fatalf("%v: %+v", err, page)
	}
	_, err = e.Service.ListVolumes(e.ctx, e.root(), "", 0)
	e.want(errs.Invalid, err, "a page without room")
}

// openVolume opens alice's volume and tries what its fixed size forbids.
func (e *env) openVolume(v meta.Volume) {
	e.Helper()
	s, ctx, alices := e.Service, e.ctx, e.user(alice)
	_, _, err := s.OpenVolume(ctx, e.user(bob), "disk", meta.OpenRead, 0)
	e.want(errs.Access, err, "open of another's volume")
	_, err = s.HandOver(ctx, e.user(bob), "disk", false)
	e.want(errs.Access, err, "handover of another's volume")
	_, err = s.ResizeVolume(ctx, e.user(bob), "disk", 2*v.Size, false)
	e.want(errs.Access, err, "resize of another's volume")
	_, _, err = s.OpenVolume(ctx, alices, "nothing", meta.OpenRead, 0)
	e.want(errs.NotFound, err, "open of no volume")
	opened, h, err := s.OpenVolume(ctx, alices, "disk", readWrite, 0)
	if err != nil || opened.Ino != v.Ino || h.Attr.Size != v.Size ||
		len(h.Caps) != v.Layout.Width() {
		e.Fatalf("%v: %+v %+v", err, opened, h)
	}
	e.objects.Write(v.Ino, 2*v.Size)
	a, err := s.Commit(ctx, alices, told(v.Ino, 2*v.Size, 0, 1), true)
	if err != nil || a.Size != v.Size || e.attr(v.Ino).Size != v.Size {
		e.Fatalf("%v: the volume grew: %+v", err, a)
	}
	_, err = s.SetAttr(ctx, alices, v.Ino, meta.SetSize, meta.Attr{})
	e.want(errs.Perm, err, "truncate a volume")
	_, err = s.Link(ctx, e.root(), v.Ino, meta.RootIno, "disk")
	e.want(errs.Perm, err, "a name for a volume")
	e.want(errs.Busy, s.RemoveVolume(ctx, alices, "disk"), "remove an open volume")
	e.close(h)
}

// testVolumeWriter: one client writes to a volume, whatever becomes of its sessions, until it has
// closed it, or is known to be dead, or cannot write any more.
func testVolumeWriter(e *env) {
	_, err := e.Service.CreateVolume(e.ctx, e.root(), "disk", 1<<20, meta.NewFile{Mode: 0o600})
	e.must(err)
	caller := func(client string) meta.Caller {
		info, err := e.Service.NewSession(e.ctx, client)
		e.must(err)
		return meta.Caller{Session: info.ID}
	}
	open := func(c meta.Caller, flags meta.OpenFlags) (meta.Handle, error) {
		_, h, err := e.Service.OpenVolume(e.ctx, c, "disk", flags, 0)
		return h, err
	}
	writer := func(want string) {
		e.Helper()
		all, err := e.Service.ListVolumes(e.ctx, e.root(), "disk", 1)
		if err != nil || len(all) != 1 || all[0].Writer != want {
			e.Fatalf("%v: %+v, want it to be written by %q", err, all, want)
		}
	}
	a, b := caller("a"), caller("b")
	first, err := open(a, readWrite)
	e.must(err)
	writer("a")
	_, err = open(b, readWrite)
	e.want(errs.Busy, err, "a second writer")
	_, err = e.Service.Open(e.ctx, b, first.Attr.Ino, readWrite)
	e.want(errs.Busy, err, "a second writer, by number")
	_, err = open(b, meta.OpenRead)
	e.must(err)
	second, err := open(a, readWrite)
	e.must(err)
	e.must(e.Service.Close(e.ctx, a, meta.Closing{Handle: first.ID}))
	_, err = open(b, readWrite)
	e.want(errs.Busy, err, "a writer beside a second handle of the first")
	e.must(e.Service.Close(e.ctx, a, meta.Closing{Handle: second.ID}))
	writer("")

	// A client that lost its session goes on in the next one.
	third, err := open(a, readWrite)
	e.must(err)
	for range 2 { // in two steps, so that nobody else is silent for too long
		e.clock.advance(lease/2 + time.Second)
		e.must(e.Service.KeepAlive(e.ctx, b.Session))
		e.must(e.Service.KeepAlive(e.ctx, e.session))
	}
	e.eventually("the session is ended", func() bool { return e.ended(a.Session) })
	again := caller("a")
	_, h, err := e.Service.OpenVolume(e.ctx, again, "disk", readWrite, third.Epoch)
	if err != nil || h.Epoch != third.Epoch {
		e.Fatalf("%v: it was generation %d, and is %d in its next session", err, third.Epoch, h.Epoch)
	}
	_, err = open(b, readWrite)
	e.want(errs.Busy, err, "a second writer, after a lost session")

	// Known to be dead, it is waited for no longer than a living one may be silent.
	e.clock.advance(lease/2 + time.Second)
	e.must(e.Service.KeepAlive(e.ctx, b.Session))
	e.must(e.Service.KeepAlive(e.ctx, e.session))
	e.must(e.Service.EndClient(e.ctx, "a"))
	e.must(e.Service.EndClient(e.ctx, "nobody"))
	e.want(errs.Stale, e.Service.KeepAlive(e.ctx, again.Session), "a session of a dead client")
	e.eventually("the volume is free", func() bool {
		_, err = open(b, readWrite)
		return errs.KindOf(err) != errs.Busy
	})
	e.must(err)
	writer("b")
}

func testServers(e *env) {
	all, err := e.Service.Servers(e.ctx)
	e.must(err)
	if len(all) != 3 || all[0].ID != 1 || !all[2].Up || all[0].StoreID != 101 {
		e.Fatalf("%+v", all)
	}
	st, err := e.Service.StatFS(e.ctx, meta.RootIno)
	if err != nil || st.Total != 3000 || st.Free != 1500 || st.Files < 1 {
		e.Fatalf("%v: %+v", err, st)
	}
	s := meta.Server{ID: 1, Addr: "elsewhere:1", StoreID: 101, Total: 1, Free: 1}
	mac := meta.SignJoin(e.key.ServerKey(1), &s)
	forged := mac
	forged[9] ^= 1
	e.want(errs.Forged, e.Service.Join(e.ctx, s, forged), "join with a wrong mac")
	other := s
	other.Addr = "evil:1"
	e.want(errs.Forged, e.Service.Join(e.ctx, other, mac), "join with a changed address")
	e.must(e.Service.Join(e.ctx, s, mac))
	s.StoreID++
	e.want(errs.Exists, e.Service.Join(e.ctx, s, meta.SignJoin(e.key.ServerKey(1), &s)),
		"join with another store")
	e.restart()
	e.clock.advance(11 * time.Second)
	e.must(e.join(2))
	all, err = e.Service.Servers(e.ctx)
	if err != nil || len(all) != 3 || all[0].Up || !all[1].Up || all[0].Addr != "elsewhere:1" {
		e.Fatalf("%v: %+v", err, all)
	}
	if st, err := e.Service.StatFS(e.ctx, meta.RootIno); err != nil || st.Total != 1000 {
		e.Fatalf("%v: room of servers that are down counts: %+v", err, st)
	}
}

func testLayout(e *env) {
	first := map[uint32]int{}
	for i := range 30 {
		a := e.mustMake(meta.RootIno, fmt.Sprint("f", i), meta.NewFile{Type: meta.Regular})
		if a.Layout.Unit != layout.UnitDefault || a.Layout.Width() != 3 {
			e.Fatalf("%+v", a.Layout)
		}
		first[a.Layout.Servers[0]]++
	}
	if len(first) != 3 {
		e.Fatalf("first stripes are on %v", first)
	}
	a := e.mustMake(meta.RootIno, "one", meta.NewFile{Type: meta.Regular, Width: 1, Unit: 128 << 10})
	if a.Layout.Width() != 1 || a.Layout.Unit != 128<<10 {
		e.Fatalf("%+v", a.Layout)
	}
	for _, c := range []struct {
		f    meta.NewFile
		want errs.Kind
	}{
		{meta.NewFile{Type: meta.Regular, Unit: 5}, errs.Invalid},
		{meta.NewFile{Type: meta.Regular, Width: -1}, errs.Invalid},
		{meta.NewFile{Type: meta.Regular, Width: 1000}, errs.Invalid},
		{meta.NewFile{Type: meta.Regular, Width: 4}, errs.Again},
	} {
		_, err := e.Service.Make(e.ctx, e.root(), meta.RootIno, "x", c.f)
		e.want(c.want, err, "layout that cannot be")
	}
	e.clock.advance(11 * time.Second)
	_, err := e.Service.Make(e.ctx, e.root(), meta.RootIno, "x", meta.NewFile{Type: meta.Regular})
	e.want(errs.Again, err, "a file without servers")
	e.mkdir(meta.RootIno, "d") // needs none
	e.must(e.join(2))
	got := e.mustMake(meta.RootIno, "x", meta.NewFile{Type: meta.Regular}).Layout
	if got.Width() != 1 || got.Servers[0] != 2 {
		e.Fatalf("%+v", got)
	}
}
