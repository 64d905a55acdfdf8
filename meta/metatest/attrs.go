package metatest

import (
	"fmt"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

func testSetAttr(e *env) {
	f := e.mkfile(meta.RootIno, "f")
	before := e.attr(f)
	seven, eight := meta.UnixTime(0, 7), meta.UnixTime(0, 8)
	a, err := e.Service.SetAttr(e.ctx, e.root(), f,
		meta.SetMode|meta.SetUID|meta.SetGID|meta.SetAtime|meta.SetMtime,
		meta.Attr{Mode: 0o600, UID: alice, GID: staff, Atime: seven, Mtime: eight, Size: 99})
	e.must(err)
	if a.Mode != 0o600 || a.UID != alice || a.GID != staff || a.Atime != seven || a.Mtime != eight ||
		a.Size != 0 || !a.Ctime.After(before.Ctime) || a.DataVersion != before.DataVersion {
		e.Fatalf("got %+v", a)
	}
	now, err := e.Service.SetAttr(e.ctx, e.root(), f, meta.SetAtimeNow|meta.SetMtimeNow,
		meta.Attr{})
	e.must(err)
	if !now.Atime.After(a.Ctime) || !now.Mtime.After(a.Ctime) {
		e.Fatalf("times are not the service's: %+v", now)
	}
	same, err := e.Service.SetAttr(e.ctx, e.root(), f, 0, meta.Attr{Mode: 0o777})
	if err != nil || same.Mode != 0o600 {
		e.Fatalf("%v: an empty mask changed something: %+v", err, same)
	}
	dir := e.mkdir(meta.RootIno, "d")
	fifo := e.mustMake(meta.RootIno, "p", meta.NewFile{Type: meta.Fifo}).Ino
	link := e.mustMake(meta.RootIno, "l", meta.NewFile{Type: meta.Symlink, Target: "f"}).Ino
	for _, c := range []struct {
		what string
		ino  meta.Ino
		mask meta.SetMask
		a    meta.Attr
		want errs.Kind
	}{
		{"nothing", 999_999, meta.SetMode, meta.Attr{}, errs.NotFound},
		{"size of a directory", dir, meta.SetSize, meta.Attr{}, errs.IsDir},
		{"size of a pipe", fifo, meta.SetSize, meta.Attr{}, errs.Invalid},
		{"negative size", f, meta.SetSize, meta.Attr{Size: -1}, errs.Invalid},
		{"huge size", f, meta.SetSize, meta.Attr{Size: layout.FileSizeMax + 1}, errs.TooBig},
		{"odd mode", f, meta.SetMode, meta.Attr{Mode: 0o10000}, errs.Invalid},
		{"mode of a symlink", link, meta.SetMode, meta.Attr{}, errs.Unsupported},
		{"unknown field", f, 1 << 15, meta.Attr{}, errs.Invalid},
	} {
		_, err := e.Service.SetAttr(e.ctx, e.root(), c.ino, c.mask, c.a)
		e.want(c.want, err, c.what)
	}
}

func testSetAttrRights(e *env) {
	f := e.owned(meta.RootIno, "f", meta.Regular, 0o644)
	g := e.owned(meta.RootIno, "g", meta.Regular, 0o666)
	owner, member := e.user(alice, staff), e.user(bob, staff)
	for _, c := range []struct {
		what string
		c    meta.Caller
		ino  meta.Ino
		mask meta.SetMask
		a    meta.Attr
		want errs.Kind
	}{
		{"chmod by another", member, f, meta.SetMode, meta.Attr{Mode: 0o777}, errs.Perm},
		{"chmod by the owner", owner, f, meta.SetMode, meta.Attr{Mode: 0o640}, errs.OK},
		{"give away", owner, f, meta.SetUID, meta.Attr{UID: bob}, errs.Perm},
		{"give to myself", owner, f, meta.SetUID, meta.Attr{UID: alice}, errs.OK},
		{"take", member, f, meta.SetUID, meta.Attr{UID: bob}, errs.Perm},
		{"to a group of mine", owner, f, meta.SetGID, meta.Attr{GID: alice}, errs.OK},
		{"back", owner, f, meta.SetGID, meta.Attr{GID: staff}, errs.OK},
		{"to another group", owner, f, meta.SetGID, meta.Attr{GID: bob}, errs.Perm},
		{"group by another", member, f, meta.SetGID, meta.Attr{GID: staff}, errs.Perm},
		{"utimes by another", e.user(bob), g, meta.SetMtime, meta.Attr{}, errs.Perm},
		{"touch by who may write", e.user(bob), g, meta.SetMtimeNow, meta.Attr{}, errs.OK},
		{"touch by who may not", e.user(bob), f, meta.SetMtimeNow, meta.Attr{}, errs.Access},
		{"utimes by the owner", owner, f, meta.SetMtime, meta.Attr{Mtime: meta.Time{Sec: 1}}, errs.OK},
	} {
		_, err := e.Service.SetAttr(e.ctx, c.c, c.ino, c.mask, c.a)
		e.want(c.want, err, c.what)
	}
	// Who has it open for writing may truncate it, whatever the mode says by now.
	h, err := e.Service.Open(e.ctx, owner, f, meta.OpenWrite)
	e.must(err)
	_, err = e.Service.SetAttr(e.ctx, e.root(), f, meta.SetMode, meta.Attr{Mode: 0})
	e.must(err)
	_, err = e.Service.SetAttr(e.ctx, owner, f, meta.SetSize, meta.Attr{Size: 3})
	e.must(err)
	_, err = e.Service.SetAttr(e.ctx, member, f, meta.SetSize, meta.Attr{Size: 3})
	e.want(errs.Access, err, "truncation by another user of the same client")
	e.close(h)
}

func testPrivileges(e *env) {
	mode := func(c meta.Caller, start uint32, do func(ino meta.Ino, c meta.Caller)) uint32 {
		e.Helper()
		f := e.owned(meta.RootIno, "x", meta.Regular, start)
		do(f, c)
		got := e.attr(f).Mode
		e.must(e.remove(meta.RootIno, "x"))
		return got
	}
	set := func(mask meta.SetMask, a meta.Attr) func(meta.Ino, meta.Caller) {
		return func(ino meta.Ino, c meta.Caller) {
			e.Helper()
			_, err := e.Service.SetAttr(e.ctx, c, ino, mask, a)
			e.must(err)
		}
	}
	write := func(ino meta.Ino, c meta.Caller) {
		e.Helper()
		h, err := e.Service.Open(e.ctx, c, ino, meta.OpenWrite)
		e.must(err)
		e.must(e.Service.Close(e.ctx, c, wrote(h.ID, 10, h.Attr.TruncSeq, 1)))
	}
	owner := e.user(alice, staff)
	for _, c := range []struct {
		what      string
		got, want uint32
	}{
		{"chown by root", mode(e.root(), 0o6755, set(meta.SetUID, meta.Attr{UID: bob})), 0o755},
		{"chown, not executable", mode(e.root(), 0o6644,
			set(meta.SetUID, meta.Attr{UID: bob})), 0o2644},
		{"truncate", mode(owner, 0o6755, set(meta.SetSize, meta.Attr{Size: 1})), 0o755},
		{"truncate by root", mode(e.root(), 0o6755, set(meta.SetSize, meta.Attr{Size: 1})), 0o6755},
		{"write", mode(owner, 0o6755, write), 0o755},
		{"write by root", mode(e.root(), 0o6755, write), 0o6755},
		{"chmod from outside the group", mode(e.user(alice), 0o755,
			set(meta.SetMode, meta.Attr{Mode: 0o2755})), 0o755},
		{"chmod from inside", mode(owner, 0o755,
			set(meta.SetMode, meta.Attr{Mode: 0o2755})), 0o2755},
	} {
		if c.got != c.want {
			e.Errorf("%s: mode %o, want %o", c.what, c.got, c.want)
		}
	}
}

func testXattrs(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	f := e.mkfile(meta.RootIno, "f")
	big := make([]byte, meta.XattrValue)
	big[5] = 5
	for name, value := range map[string][]byte{
		"user.a": []byte("1"), "user.empty": {}, "trusted.b": []byte("2"),
		"security.c": []byte("3"), "user.big": big,
	} {
		e.want(errs.NoData, s.SetXattr(ctx, c, f, name, value, false, true), "replace nothing")
		e.must(s.SetXattr(ctx, c, f, name, value, true, false))
		e.want(errs.Exists, s.SetXattr(ctx, c, f, name, value, true, false), "create what is there")
		got, err := s.GetXattr(ctx, c, f, name)
		if err != nil || !slices.Equal(got, value) {
			e.Fatalf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	names, err := s.ListXattr(ctx, c, f)
	slices.Sort(names)
	want := []string{"security.c", "trusted.b", "user.a", "user.big", "user.empty"}
	if err != nil || !slices.Equal(names, want) {
		e.Fatalf("%v: %q", err, names)
	}
	names, err = s.ListXattr(ctx, e.user(alice), f)
	if err != nil || len(names) != 4 {
		e.Fatalf("a user sees trusted attributes: %q %v", names, err)
	}
	before := e.attr(f).Ctime
	e.must(s.SetXattr(ctx, c, f, "user.a", []byte("other"), false, true))
	if got, err := s.GetXattr(ctx, c, f, "user.a"); err != nil || string(got) != "other" {
		e.Fatalf("%q %v", got, err)
	}
	if !e.attr(f).Ctime.After(before) {
		e.Fatal("ctime does not move")
	}
	e.must(s.RemoveXattr(ctx, c, f, "user.a"))
	e.want(errs.NoData, s.RemoveXattr(ctx, c, f, "user.a"), "remove twice")
	_, err = s.GetXattr(ctx, c, f, "user.a")
	e.want(errs.NoData, err, "removed attribute")
	e.must(e.remove(meta.RootIno, "f"))
	_, err = s.GetXattr(ctx, c, f, "user.big")
	e.want(errs.NotFound, err, "attribute of a removed file")
}

func testXattrRefusals(e *env) {
	s, ctx := e.Service, e.ctx
	f := e.owned(meta.RootIno, "f", meta.Regular, 0o644)
	pipe := e.mustMake(meta.RootIno, "p", meta.NewFile{Type: meta.Fifo, Mode: 0o777}).Ino
	long := "user." + string(make([]byte, meta.XattrName))
	for _, c := range []struct {
		what, name string
		c          meta.Caller
		ino        meta.Ino
		value      int
		want       errs.Kind
	}{
		{"by a stranger", "user.x", e.user(bob), f, 1, errs.Access},
		{"trusted by a user", "trusted.x", e.user(alice), f, 1, errs.Perm},
		{"security by a user", "security.x", e.user(alice), f, 1, errs.Perm},
		{"access control list", "system.posix_acl_access", e.root(), f, 1, errs.Invalid},
		{"unknown name space", "other.x", e.root(), f, 1, errs.Unsupported},
		{"no name", "user.", e.root(), f, 1, errs.Invalid},
		{"long name", long, e.root(), f, 1, errs.OutOfRange},
		{"long value", "user.x", e.root(), f, meta.XattrValue + 1, errs.TooBig},
		{"user attribute of a pipe", "user.x", e.root(), pipe, 1, errs.Perm},
		{"no inode", "user.x", e.root(), 999_999, 1, errs.NotFound},
	} {
		err := s.SetXattr(ctx, c.c, c.ino, c.name, make([]byte, c.value), false, false)
		e.want(c.want, err, c.what)
	}
	_, err := s.GetXattr(ctx, e.user(alice), f, "trusted.x")
	e.want(errs.NoData, err, "trusted attribute read by a user")
	// The names together must fit listxattr(2).
	pad := string(slices.Repeat([]byte("n"), 240))
	for i := 0; ; i++ {
		err := s.SetXattr(ctx, e.root(), f, fmt.Sprint("user.", pad, i), nil, false, false)
		if err != nil {
			e.want(errs.NoSpace, err, "one name too many")
			if i < 200 {
				e.Fatalf("only %d names fit", i)
			}
			return
		}
	}
}
