package metatest

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

// aclCases are about access control lists, and about who is checked where.
var aclCases = []testCase{
	{"AccessLists", testAccessLists},
	{"AccessListRefusals", testAccessListRefusals},
	{"AccessListRights", testAccessListRights},
	{"DefaultLists", testDefaultLists},
	{"Umask", testUmask},
	{"ListsSurviveRestart", testListsSurviveRestart},
	{"Checked", testChecked},
	{"ManyGroups", testManyGroups},
	{"OwnersOfAll", testOwnersOfAll},
	{"FileCapabilities", testFileCapabilities},
	{"Whiteouts", testWhiteouts},
	{"Parents", testParents},
}

// acl is a list that is sound.
func (e *env) acl(text string) acl.List {
	e.Helper()
	l, err := acl.ParseText(text)
	e.must(err)
	return l
}

// setACL gives an inode a list as root.
func (e *env) setACL(ino meta.Ino, name, text string) {
	e.Helper()
	e.must(e.Service.SetXattr(e.ctx, e.root(), ino, name, []byte(e.acl(text)), false, false))
}

// testAccessLists: a list and a mode are two views of one thing.
func testAccessLists(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	f := e.owned(meta.RootIno, "f", meta.Regular, 0o2640)
	_, err := s.GetXattr(ctx, c, f, acl.Access)
	e.want(errs.NoData, err, "a list that nobody has set")
	before := e.attr(f)
	const text = "u::rw-,u:1001:rwx,g::r--,m::r-x,o::--x"
	e.setACL(f, acl.Access, text)
	a := e.attr(f)
	if a.Mode != 0o2651 || a.ACL != e.acl(text) || !a.Ctime.After(before.Ctime) || a.Default != "" {
		e.Fatalf("mode %o, list %s", a.Mode, a.ACL)
	}
	v, err := s.GetXattr(ctx, e.user(bob), f, acl.Access)
	if err != nil || acl.List(v) != a.ACL {
		e.Fatalf("%v: %q", err, v)
	}
	names, err := s.ListXattr(ctx, c, f)
	if e.must(err); !slices.Contains(names, acl.Access) || slices.Contains(names, acl.Default) {
		e.Fatalf("names %q", names)
	}
	a, err = s.SetAttr(ctx, c, f, meta.SetMode, meta.Attr{Mode: 0o4727})
	e.must(err)
	if a.Mode != 0o4727 || a.ACL != e.acl("u::rwx,u:1001:rwx,g::r--,m::-w-,o::rwx") {
		e.Fatalf("chmod made it %o, list %s", a.Mode, a.ACL)
	}
	// A list that says no more than the mode is not kept; removing one leaves the mode.
	e.setACL(f, acl.Access, "u::rw-,g::r--,o::---")
	if a := e.attr(f); a.Mode != 0o4640 || a.ACL != "" {
		e.Fatalf("mode %o, list %s", a.Mode, a.ACL)
	}
	e.setACL(f, acl.Access, text)
	e.must(s.RemoveXattr(ctx, c, f, acl.Access))
	e.must(s.RemoveXattr(ctx, c, f, acl.Access))
	if a := e.attr(f); a.Mode != 0o4651 || a.ACL != "" {
		e.Fatalf("after its removal mode %o, list %s", a.Mode, a.ACL)
	}
	e.setACL(f, acl.Access, text)
	e.must(s.SetXattr(ctx, c, f, acl.Access, nil, false, false)) // nothing in it
	if a := e.attr(f); a.ACL != "" {
		e.Fatalf("an empty list is %s", a.ACL)
	}
}

func testAccessListRefusals(e *env) {
	s, ctx := e.Service, e.ctx
	f := e.owned(meta.RootIno, "f", meta.Regular, 0o2666)
	link := e.mustMake(meta.RootIno, "l", meta.NewFile{Type: meta.Symlink, Target: "f"}).Ino
	good := []byte(e.acl("u::rw-,u:1001:rwx,g::r--,m::r-x,o::---"))
	for _, c := range []struct {
		what, name      string
		c               meta.Caller
		ino             meta.Ino
		value           []byte
		create, replace bool
		want            errs.Kind
	}{
		{"by who may write", acl.Access, e.user(bob), f, good, false, false, errs.Perm},
		{"of a link", acl.Access, e.root(), link, good, false, false, errs.Unsupported},
		{"default of a file", acl.Default, e.root(), f, good, false, false, errs.Access},
		{"that is none", acl.Access, e.root(), f, good[:20], false, false, errs.Invalid},
		{"of another version", acl.Access, e.root(), f, []byte{1, 0, 0, 0}, false, false,
			errs.Unsupported},
		{"too long", acl.Access, e.root(), f, make([]byte, acl.BytesMax+8), false, false, errs.TooBig},
		{"to replace none", acl.Access, e.root(), f, good, false, true, errs.NoData},
		{"by the owner", acl.Access, e.user(alice), f, good, true, false, errs.OK},
		{"to create a second", acl.Access, e.root(), f, good, true, false, errs.Exists},
	} {
		err := s.SetXattr(ctx, c.c, c.ino, c.name, c.value, c.create, c.replace)
		e.want(c.want, err, "a list "+c.what)
	}
	if a := e.attr(f); a.Mode != 0o650 {
		e.Fatalf("mode %o: an owner outside of the group keeps set-group-id", a.Mode)
	}
	e.want(errs.Perm, s.RemoveXattr(ctx, e.user(bob), f, acl.Access), "a list removed by another")
	_, err := s.GetXattr(ctx, e.root(), link, acl.Access)
	e.want(errs.Unsupported, err, "the list of a link")
	_, err = s.GetXattr(ctx, e.root(), f, acl.Default)
	e.want(errs.NoData, err, "the default list of a file")
}

// testAccessListRights: what a list gives is what can be done.
func testAccessListRights(e *env) {
	for bits := uint32(0); bits < 8; bits++ {
		rights := []string{"---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx"}[bits]
		for _, w := range []struct {
			name, list string
			c          meta.Caller
		}{
			{"user", "u::---,u:1001:" + rights + ",g::---,m::rwx,o::---", e.user(bob, staff)},
			{"group", "u::---,g::---,g:77:" + rights + ",m::rwx,o::---", e.user(bob, staff, 77)},
			{"mask", "u::---,u:1001:rwx,g::---,m::" + rights + ",o::---", e.user(bob)},
			{"others", "u::---,u:1002:rwx,g::rwx,m::rwx,o::" + rights, e.user(bob)},
		} {
			dir := e.owned(meta.RootIno, "d"+rights+w.name, meta.Directory, 0o2700)
			file := e.owned(meta.RootIno, "f"+rights+w.name, meta.Regular, 0o700)
			e.mkfile(dir, "there")
			e.setACL(dir, acl.Access, w.list)
			e.setACL(file, acl.Access, w.list)
			e.tryAll(w.name+" with "+rights, w.c, dir, file, bits)
		}
	}
}

// testDefaultLists: what is made in a directory with a default list begins with it, whatever the
// user's mask says.
func testDefaultLists(e *env) {
	s, ctx, c := e.Service, e.ctx, e.user(alice, staff)
	dir := e.owned(meta.RootIno, "d", meta.Directory, 0o2755)
	const text = "u::rwx,u:1001:rwx,g::r-x,m::rwx,o::r-x"
	e.setACL(dir, acl.Default, text)
	if a := e.attr(dir); a.Mode != 0o2755 || a.ACL != "" || a.Default != e.acl(text) {
		e.Fatalf("the directory itself has changed: %o, %s", a.Mode, a.ACL)
	}
	f, err := s.Make(ctx, c, dir, "f",
		meta.NewFile{Type: meta.Regular, Mode: 0o664, Umask: 0o077})
	e.must(err)
	if f.Mode != 0o664 || f.Default != "" ||
		f.ACL != e.acl("u::rw-,u:1001:rwx,g::r-x,m::rw-,o::r--") {
		e.Fatalf("a file: %o, %s", f.Mode, f.ACL)
	}
	h, err := s.Create(ctx, c, dir, "h", meta.NewFile{Mode: 0o640, Umask: 0o077}, readWrite)
	e.must(err)
	if h.Attr.Mode != 0o640 || h.Attr.ACL != e.acl("u::rw-,u:1001:rwx,g::r-x,m::r--,o::---") {
		e.Fatalf("an opened file: %o, %s", h.Attr.Mode, h.Attr.ACL)
	}
	e.close(h)
	sub, err := s.Make(ctx, c, dir, "sub",
		meta.NewFile{Type: meta.Directory, Mode: 0o777, Umask: 0o022})
	e.must(err)
	if sub.Mode != 0o2775 || sub.ACL != e.acl("u::rwx,u:1001:rwx,g::r-x,m::rwx,o::r-x") ||
		sub.Default != e.acl(text) {
		e.Fatalf("a directory: %o, %s, %s", sub.Mode, sub.ACL, sub.Default)
	}
	link, err := s.Make(ctx, c, dir, "l", meta.NewFile{Type: meta.Symlink, Target: "f"})
	e.must(err)
	if link.Mode != 0o777 || link.ACL != "" {
		e.Fatalf("a link: %o, %s", link.Mode, link.ACL)
	}
	// A default list that is minimal is a mask for modes, and nothing else.
	e.setACL(dir, acl.Default, "u::rwx,g::r-x,o::---")
	g, err := s.Make(ctx, c, dir, "g", meta.NewFile{Type: meta.Regular, Mode: 0o666, Umask: 0o777})
	e.must(err)
	if g.Mode != 0o640 || g.ACL != "" {
		e.Fatalf("by a minimal list: %o, %s", g.Mode, g.ACL)
	}
	e.must(s.RemoveXattr(ctx, e.root(), dir, acl.Default))
	if a := e.attr(dir); a.Default != "" {
		e.Fatalf("the default list stays: %s", a.Default)
	}
}

func testUmask(e *env) {
	for _, typ := range []meta.Type{meta.Regular, meta.Directory, meta.Fifo} {
		a := e.mustMake(meta.RootIno, string(rune('a'+typ)),
			meta.NewFile{Type: typ, Mode: 0o1777, Umask: 0o027})
		if a.Mode != 0o1750 {
			e.Errorf("type %d has mode %o", typ, a.Mode)
		}
	}
	_, err := e.Service.Make(e.ctx, e.root(), meta.RootIno, "x",
		meta.NewFile{Type: meta.Fifo, Umask: 0o1000})
	e.want(errs.Invalid, err, "a mask with other bits")
}

func testListsSurviveRestart(e *env) {
	dir := e.owned(meta.RootIno, "d", meta.Directory, 0o700)
	const own, passed = "u::rwx,g::---,g:60:r-x,m::r-x,o::---", "u::rwx,u:5:r--,g::---,m::r--,o::---"
	e.setACL(dir, acl.Access, own)
	e.setACL(dir, acl.Default, passed)
	e.restart()
	if a := e.attr(dir); a.ACL != e.acl(own) || a.Default != e.acl(passed) {
		e.Fatalf("%s, %s", a.ACL, a.Default)
	}
}

// testChecked: what a kernel has allowed is done, and belongs to who asked; what is there already
// is opened only by who may.
func testChecked(e *env) {
	s, ctx, c := e.Service, e.ctx, e.user(bob)
	dir := e.owned(meta.RootIno, "d", meta.Directory, 0o2500)
	for _, typ := range []meta.Type{meta.Regular, meta.Directory, meta.BlockDevice} {
		f := meta.NewFile{Type: typ, Mode: 0o2775, Rdev: 5}
		name := string(rune('a' + typ))
		_, err := s.Make(ctx, c, dir, name, f)
		if k := errs.KindOf(err); k != errs.Access && k != errs.Perm {
			e.Fatalf("by somebody who may not: %v", err)
		}
		f.Checked = true
		a, err := s.Make(ctx, c, dir, name, f)
		e.must(err)
		if a.UID != bob || a.GID != staff || a.Mode != 0o2775 {
			e.Fatalf("%+v", a)
		}
		_, err = s.Make(ctx, c, dir, name, f)
		e.want(errs.Exists, err, "a second one")
	}
	nf := meta.NewFile{Mode: 0o600, Checked: true}
	h, err := s.Create(ctx, c, dir, "f", nf, readWrite|meta.OpenExclusive)
	e.must(err)
	e.close(h)
	_, err = s.Create(ctx, e.user(alice), dir, "f", nf, readWrite)
	e.want(errs.Access, err, "another's file that is there already")
}

// testManyGroups: Linux lets a process be in many groups.
func testManyGroups(e *env) {
	groups := make([]uint32, 2000)
	for i := range groups {
		groups[i] = uint32(10_000 + i)
	}
	dir := e.owned(meta.RootIno, "d", meta.Directory, 0o770)
	nf := meta.NewFile{Type: meta.Regular, Mode: 0o600}
	_, err := e.Service.Make(e.ctx, e.user(bob, groups...), dir, "f", nf)
	e.want(errs.Access, err, "without the group")
	_, err = e.Service.Make(e.ctx, e.user(bob, append(groups, staff)...), dir, "f", nf)
	e.must(err)
	_, err = e.Service.Make(e.ctx, e.user(bob, make([]uint32, meta.GroupsMax+1)...), dir, "g", nf)
	if err == nil {
		e.Fatal("more groups than there may be are taken")
	}
}

// testOwnersOfAll: a new owner takes privileges from everything but directories.
func testOwnersOfAll(e *env) {
	for _, c := range []struct {
		typ        meta.Type
		mode, want uint32
	}{
		{meta.Regular, 0o6555, 0o555}, {meta.Regular, 0o6545, 0o2545}, {meta.Fifo, 0o6555, 0o555},
		{meta.Socket, 0o6555, 0o555}, {meta.CharDevice, 0o6555, 0o555},
		{meta.BlockDevice, 0o6555, 0o555}, {meta.Directory, 0o6555, 0o6555},
	} {
		for _, mask := range []meta.SetMask{meta.SetUID, meta.SetGID, meta.SetUID | meta.SetGID} {
			ino := e.owned(meta.RootIno, "x", c.typ, c.mode)
			a, err := e.Service.SetAttr(e.ctx, e.root(), ino, mask, meta.Attr{UID: alice, GID: staff})
			e.must(err)
			if a.Mode != c.want {
				e.Errorf("type %d, mode %o, fields %d: %o, want %o", c.typ, c.mode, mask, a.Mode, c.want)
			}
			if c.typ == meta.Directory {
				e.must(e.rmdir(meta.RootIno, "x"))
			} else {
				e.must(e.remove(meta.RootIno, "x"))
			}
		}
	}
	// Who could not set the bit does not keep it either.
	ino := e.owned(meta.RootIno, "y", meta.Regular, 0o2644)
	a, err := e.Service.SetAttr(e.ctx, e.user(alice), ino, meta.SetGID, meta.Attr{GID: alice})
	e.must(err)
	if a.Mode != 0o644 {
		e.Errorf("an owner outside of the group leaves mode %o", a.Mode)
	}
}

// testFileCapabilities: a program whose content or owner has changed has no rights of its own.
func testFileCapabilities(e *env) {
	const name = "security.capability"
	for what, change := range map[string]func(ino meta.Ino) error{
		"chown": func(ino meta.Ino) error {
			_, err := e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetUID, meta.Attr{UID: bob})
			return err
		},
		"truncate": func(ino meta.Ino) error {
			_, err := e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetSize, meta.Attr{Size: 1})
			return err
		},
		"write": func(ino meta.Ino) error {
			h := e.open(ino, readWrite)
			return e.Service.Close(e.ctx, e.root(), wrote(h.ID, 10, h.Attr.TruncSeq, 1))
		},
		"open to truncate": func(ino meta.Ino) error {
			e.close(e.open(ino, readWrite|meta.OpenTruncate))
			return nil
		},
	} {
		ino := e.mkfile(meta.RootIno, what)
		e.must(e.Service.SetXattr(e.ctx, e.root(), ino, name, []byte{1}, false, false))
		e.must(e.Service.SetXattr(e.ctx, e.root(), ino, "user.x", []byte{1}, false, false))
		e.close(e.open(ino, readWrite))
		_, err := e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetMode, meta.Attr{Mode: 0o755})
		e.must(err)
		_, err = e.Service.GetXattr(e.ctx, e.root(), ino, name)
		e.want(errs.OK, err, "capabilities before "+what)
		e.must(change(ino))
		_, err = e.Service.GetXattr(e.ctx, e.root(), ino, name)
		e.want(errs.NoData, err, "capabilities after "+what)
		_, err = e.Service.GetXattr(e.ctx, e.root(), ino, "user.x")
		e.want(errs.OK, err, "another attribute after "+what)
	}
}

// testWhiteouts: a rename can leave a mark behind, and anybody can make one.
func testWhiteouts(e *env) {
	dir := e.owned(meta.RootIno, "d", meta.Directory, 0o777)
	_, err := e.Service.Make(e.ctx, e.user(bob), dir, "w", meta.NewFile{Type: meta.CharDevice})
	e.must(err)
	mark := func(name string) {
		e.Helper()
		a, err := e.lookup(dir, name)
		if err != nil || a.Type != meta.CharDevice || a.Rdev != 0 || a.Mode != 0 || a.Nlink != 1 {
			e.Fatalf("%s: %v, %+v", name, err, a)
		}
	}
	other := e.mkdir(meta.RootIno, "other")
	f, sub := e.mkfile(dir, "f"), e.mkdir(dir, "sub")
	e.must(e.rename(dir, "f", dir, "g", meta.RenameWhiteout))
	mark("f")
	e.must(e.rename(dir, "sub", other, "sub", meta.RenameWhiteout|meta.RenameNoReplace))
	mark("sub")
	e.must(e.rename(dir, "g", other, "w", 0))
	e.must(e.rename(other, "w", dir, "w", meta.RenameWhiteout)) // over another one
	if a, err := e.lookup(dir, "w"); err != nil || a.Ino != f {
		e.Fatalf("%v: %+v", err, a)
	}
	if a, err := e.lookup(other, "sub"); err != nil || a.Ino != sub || a.Parent != other {
		e.Fatalf("%v: %+v", err, a)
	}
	if n := len(e.names(dir)); n != 3 || e.attr(dir).Size != 3 || e.attr(dir).Nlink != 2 {
		e.Fatalf("%d names, %+v", n, e.attr(dir))
	}
	e.want(errs.Invalid, e.rename(dir, "f", dir, "w", meta.RenameWhiteout|meta.RenameExchange),
		"an exchange that leaves a mark")
}

// testParents: directories know where they are.
func testParents(e *env) {
	a, b := e.mkdir(meta.RootIno, "a"), e.mkdir(meta.RootIno, "b")
	sub := e.mustMake(a, "sub", meta.NewFile{Type: meta.Directory, Mode: 0o755})
	if sub.Parent != a || e.attr(meta.RootIno).Parent != meta.RootIno {
		e.Fatalf("parents %d and %d", sub.Parent, e.attr(meta.RootIno).Parent)
	}
	e.must(e.rename(a, "sub", b, "sub", 0))
	if got := e.attr(sub.Ino).Parent; got != b {
		e.Fatalf("parent %d, want %d", got, b)
	}
	if f := e.mustMake(a, "f", meta.NewFile{Type: meta.Regular}); f.Parent != 0 {
		e.Fatalf("a file has the parent %d", f.Parent)
	}
}
