package metatest

import (
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// testPermissions makes a directory and a file of alice's and group staff with every digit as
// mode, and lets alice, somebody of staff, and a stranger try everything.
func testPermissions(e *env) {
	who := []struct {
		name  string
		c     meta.Caller
		shift uint
	}{
		{"owner", e.user(alice), 6}, {"group", e.user(bob, staff), 3}, {"other", e.user(bob), 0},
	}
	for bits := uint32(0); bits < 8; bits++ {
		for _, w := range who {
			mode := bits << w.shift
			dir := e.owned(meta.RootIno, fmt.Sprint("d", bits, w.name), meta.Directory, mode|0o2000)
			file := e.owned(meta.RootIno, fmt.Sprint("f", bits, w.name), meta.Regular, mode)
			e.mkfile(dir, "there")
			e.tryAll(fmt.Sprintf("%s with %o", w.name, bits), w.c, dir, file, bits)
		}
	}
}

// owned makes an inode of alice and staff.
func (e *env) owned(dir meta.Ino, name string, typ meta.Type, mode uint32) meta.Ino {
	e.Helper()
	ino := e.mustMake(dir, name, meta.NewFile{Type: typ, Mode: 0o700}).Ino
	mask := meta.SetUID | meta.SetGID
	_, err := e.Service.SetAttr(e.ctx, e.root(), ino, mask, meta.Attr{UID: alice, GID: staff})
	e.must(err)
	_, err = e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetMode, meta.Attr{Mode: mode})
	e.must(err)
	return ino
}

func (e *env) tryAll(what string, c meta.Caller, dir, file meta.Ino, bits uint32) {
	e.Helper()
	need := func(want uint32) errs.Kind {
		if bits&want == want {
			return errs.OK
		}
		return errs.Access
	}
	s, ctx := e.Service, e.ctx
	_, err := s.Lookup(ctx, c, dir, "there")
	e.want(need(1), err, what+": lookup")
	_, err = s.ReadDir(ctx, c, dir, 0, 10, false)
	e.want(need(4), err, what+": readdir")
	_, err = s.Make(ctx, c, dir, "made", meta.NewFile{Type: meta.Regular, Mode: 0o600})
	e.want(need(3), err, what+": make")
	_, err = s.Link(ctx, c, file, dir, "linked")
	e.want(need(3), err, what+": link")
	e.want(need(3), Failed(s.Rename(ctx, c, dir, "there", dir, "moved", 0)), what+": rename")
	name := "there"
	if bits&3 == 3 {
		name = "moved"
	}
	e.want(need(3), Failed(s.Remove(ctx, c, dir, name, false)), what+": remove")
	h, err := s.Open(ctx, c, file, meta.OpenRead)
	e.want(need(4), err, what+": open for reading")
	if err == nil {
		e.close(h)
	}
	h, err = s.Open(ctx, c, file, meta.OpenWrite)
	e.want(need(2), err, what+": open for writing")
	if err == nil {
		e.close(h)
	}
	_, err = s.SetAttr(ctx, c, file, meta.SetSize, meta.Attr{})
	e.want(need(2), err, what+": truncate")
	_, err = s.GetAttr(ctx, c, file)
	e.want(errs.OK, err, what+": stat")
	e.want(need(2), s.SetXattr(ctx, c, file, "user.x", nil, false, false), what+": setxattr")
}

func testSticky(e *env) {
	tmp := e.mustMake(meta.RootIno, "tmp", meta.NewFile{Type: meta.Directory, Mode: 0o1777}).Ino
	mk := func(c meta.Caller, name string) {
		e.Helper()
		_, err := e.Service.Make(e.ctx, c, tmp, name, meta.NewFile{Type: meta.Regular, Mode: 0o666})
		e.must(err)
	}
	mk(e.user(alice), "alices")
	mk(e.user(bob), "bobs")
	bobs := e.user(bob)
	e.want(errs.Perm, Failed(e.Service.Remove(e.ctx, bobs, tmp, "alices", false)), "remove another's")
	e.want(errs.Perm, Failed(e.Service.Rename(e.ctx, bobs, tmp, "alices", tmp, "x", 0)),
		"rename another's")
	e.want(errs.Perm, Failed(e.Service.Rename(e.ctx, bobs, tmp, "bobs", tmp, "alices", 0)),
		"replace another's")
	e.must(Failed(e.Service.Rename(e.ctx, bobs, tmp, "bobs", tmp, "still-bobs", 0)))
	e.must(Failed(e.Service.Remove(e.ctx, e.user(alice), tmp, "alices", false)))
	e.must(e.remove(tmp, "still-bobs"))
	// The owner of the directory may do it.
	_, err := e.Service.SetAttr(e.ctx, e.root(), tmp, meta.SetUID, meta.Attr{UID: alice})
	e.must(err)
	mk(bobs, "bobs")
	e.must(Failed(e.Service.Remove(e.ctx, e.user(alice), tmp, "bobs", false)))
}

func testSetGIDDirectory(e *env) {
	dir := e.owned(meta.RootIno, "shared", meta.Directory, 0o2777)
	c := e.user(bob)
	f, err := e.Service.Make(e.ctx, c, dir, "f", meta.NewFile{Type: meta.Regular, Mode: 0o644})
	e.must(err)
	d, err := e.Service.Make(e.ctx, c, dir, "d", meta.NewFile{Type: meta.Directory, Mode: 0o755})
	e.must(err)
	x, err := e.Service.Make(e.ctx, c, dir, "x", meta.NewFile{Type: meta.Regular, Mode: 0o2755})
	e.must(err)
	if f.UID != bob || f.GID != staff || d.GID != staff || d.Mode != 0o2755 {
		e.Fatalf("group is not inherited: %+v %+v", f, d)
	}
	if x.Mode != 0o755 {
		e.Fatalf("somebody outside made a program of group staff: mode %o", x.Mode)
	}
	plain, err := e.Service.Make(e.ctx, e.user(bob, staff), dir, "y",
		meta.NewFile{Type: meta.Regular, Mode: 0o2755})
	if err != nil || plain.Mode != 0o2755 {
		e.Fatalf("%v: mode %o", err, plain.Mode)
	}
}
