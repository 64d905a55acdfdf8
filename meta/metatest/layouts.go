package metatest

import (
	"fmt"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

func layoutCases() []testCase {
	return []testCase{
		{"LayoutInherited", testLayoutInherited},
		{"LayoutRefusals", testLayoutRefusals},
		{"LayoutOfFiles", testLayoutOfFiles},
		{"LayoutOfOpenFiles", testLayoutOfOpenFiles},
		{"LayoutAttributes", testLayoutAttributes},
		{"LayoutCopied", testLayoutCopied},
		{"Pools", testPools},
		{"PoolRefusals", testPoolRefusals},
		{"PoolsOfFiles", testPoolsOfFiles},
		{"FullServers", testFullServers},
	}
}

// placedAs checks the policy of an inode, and how many servers a file has in units of what size.
func (e *env) placedAs(ino meta.Ino, policy layout.Policy, unit int64, width int) meta.Placed {
	e.Helper()
	p, err := e.Service.GetLayout(e.ctx, e.user(bob), ino)
	e.must(err)
	if p.Policy != policy || p.Layout.Unit != unit || p.Layout.Width() != width {
		e.Fatalf("%+v, want %+v in units of %d over %d", p, policy, unit, width)
	}
	return p
}

func (e *env) setLayout(ino meta.Ino, p layout.Policy) {
	e.Helper()
	e.must(e.Service.SetLayout(e.ctx, e.root(), ino, p))
}

// testLayoutInherited: what is made in a directory begins with its policy, the nearest one counts,
// and what is there stays as it is.
func testLayoutInherited(e *env) {
	const kb = 1 << 10
	dir := e.mkdir(meta.RootIno, "d")
	before, below := e.mkfile(dir, "before"), e.mkdir(dir, "below")
	e.placedAs(dir, layout.Policy{}, 0, 0)
	first := layout.Policy{Unit: 128 * kb, Width: 2}
	ctime := e.attr(dir).Ctime
	e.setLayout(dir, first)
	if !e.attr(dir).Ctime.After(ctime) {
		e.Error("ctime does not move")
	}
	e.placedAs(before, layout.Policy{}, layout.UnitDefault, 3)
	e.placedAs(e.mkfile(below, "f"), layout.Policy{}, layout.UnitDefault, 3)
	e.placedAs(e.mkfile(dir, "f"), first, 128*kb, 2)
	sub := e.mkdir(dir, "sub")
	e.placedAs(sub, first, 0, 0)
	inSub := e.mkfile(sub, "f")
	e.placedAs(inSub, first, 128*kb, 2)

	e.setLayout(sub, layout.Policy{Unit: 256 * kb})
	e.placedAs(e.mkfile(sub, "g"), layout.Policy{Unit: 256 * kb}, 256*kb, 3)
	e.setLayout(dir, layout.Policy{Width: layout.WidthAll})
	e.placedAs(e.mkfile(dir, "all"), layout.Policy{Width: layout.WidthAll}, layout.UnitDefault, 3)
	e.placedAs(e.mkfile(sub, "h"), layout.Policy{Unit: 256 * kb}, 256*kb, 3)

	one := e.mustMake(sub, "one", meta.NewFile{Type: meta.Regular, Mode: 0o644, Width: 1})
	e.placedAs(one.Ino, layout.Policy{Unit: 256 * kb, Width: 1}, 256*kb, 1)
	made := e.mustMake(sub, "made", meta.NewFile{Type: meta.Directory, Mode: 0o755, Width: 2})
	e.placedAs(made.Ino, layout.Policy{Unit: 256 * kb, Width: 2}, 0, 0)

	e.must(e.rename(sub, "h", dir, "moved", 0))
	e.restart()
	e.placedAs(inSub, first, 128*kb, 2)
	e.placedAs(made.Ino, layout.Policy{Unit: 256 * kb, Width: 2}, 0, 0)
	e.setLayout(sub, layout.Policy{})
	e.placedAs(e.mkfile(sub, "i"), layout.Policy{}, layout.UnitDefault, 3)
	h, err := e.Service.Create(e.ctx, e.root(), made.Ino, "c", meta.NewFile{}, readWrite)
	if err != nil || h.Attr.Layout.Width() != 2 || h.Attr.Layout.Unit != 256*kb ||
		len(h.Caps) != 2 {
		e.Fatalf("%v: %+v", err, h)
	}
}

func testLayoutRefusals(e *env) {
	s, ctx := e.Service, e.ctx
	dir := e.owned(meta.RootIno, "d", meta.Directory, 0o755)
	for _, p := range []layout.Policy{
		{Unit: 5}, {Unit: 96 << 10}, {Unit: 32 << 20}, {Unit: -1 << 20}, {Width: -1}, {Width: 4},
		{Width: layout.WidthMax + 1}, {Pool: "not-there"}, {Pool: "a b"},
		{Pool: "x23456789x123456789x123456789x123456789x123456789x123456789x1234"},
	} {
		e.want(errs.Invalid, s.SetLayout(ctx, e.root(), dir, p), fmt.Sprintf("%+v", p))
	}
	e.want(errs.Access, s.SetLayout(ctx, e.user(bob), dir, layout.Policy{Width: 1}), "by a stranger")
	e.must(s.SetLayout(ctx, e.user(alice), dir, layout.Policy{Width: 1}))
	e.want(errs.NotFound, s.SetLayout(ctx, e.root(), 12345, layout.Policy{Width: 1}), "of nothing")
	_, err := s.GetLayout(ctx, e.root(), 12345)
	e.want(errs.NotFound, err, "of nothing")
	fifo := e.mustMake(dir, "fifo", meta.NewFile{Type: meta.Fifo}).Ino
	e.want(errs.Invalid, s.SetLayout(ctx, e.root(), fifo, layout.Policy{Width: 1}), "of a fifo")
	_, err = s.GetLayout(ctx, e.root(), fifo)
	e.want(errs.Invalid, err, "of a fifo")
	_, err = s.Make(ctx, e.root(), dir, "x", meta.NewFile{Type: meta.Regular, Pool: "not-there"})
	e.want(errs.Invalid, err, "a file in no pool")
	_, err = s.Make(ctx, e.root(), dir, "x", meta.NewFile{Type: meta.Directory, Width: 4})
	e.want(errs.Invalid, err, "a directory wider than the cluster")
}

// testLayoutOfFiles: a file can be striped anew until something is written to it.
func testLayoutOfFiles(e *env) {
	s, ctx := e.Service, e.ctx
	f := e.mkfile(meta.RootIno, "f")
	was := e.attr(f)
	e.setLayout(f, layout.Policy{Width: 1, Unit: 64 << 10})
	a := e.attr(f)
	if a.Layout.Width() != 1 || a.Layout.Unit != 64<<10 || a.Layout.Version <= was.Layout.Version ||
		!a.Ctime.After(was.Ctime) {
		e.Fatalf("%+v, was %+v", a.Layout, was.Layout)
	}
	e.setLayout(f, layout.Policy{Width: 2})
	e.placedAs(f, layout.Policy{Width: 2}, layout.UnitDefault, 2)

	h := e.open(f, readWrite)
	e.must(s.Close(ctx, e.root(), wrote(h.ID, 10, h.Attr.TruncSeq, 1)))
	e.want(errs.NotEmpty, s.SetLayout(ctx, e.root(), f, layout.Policy{Width: 1}), "a file with data")
	e.setLayout(f, layout.Policy{Width: 2}) // as it is
	_, err := s.SetAttr(ctx, e.root(), f, meta.SetSize, meta.Attr{})
	e.must(err)
	e.want(errs.NotEmpty, s.SetLayout(ctx, e.root(), f, layout.Policy{Width: 1}), "that had data")
	e.placedAs(f, layout.Policy{Width: 2}, layout.UnitDefault, 2)

	l := e.listen()
	small := l.createSmall("small")
	_, err = s.Commit(ctx, l.c, l.whole(&small.Attr, "data"), false)
	e.must(err)
	e.want(errs.NotEmpty, s.SetLayout(ctx, l.c, small.Attr.Ino, layout.Policy{Width: 1}),
		"a small file with data")
}

// testLayoutOfOpenFiles: who has a new file open may have it striped anew, and renews its handles;
// nobody else has it open then.
func testLayoutOfOpenFiles(e *env) {
	s, ctx := e.Service, e.ctx
	c := meta.Caller{Session: e.newSession(), Leases: true} // never listens, so that it gets none
	h, err := s.Create(ctx, c, meta.RootIno, "f", meta.NewFile{Mode: 0o644}, readWrite)
	e.must(err)
	ino := h.Attr.Ino
	reader, err := s.Open(ctx, c, ino, meta.OpenRead)
	e.must(err)
	e.must(s.SetLayout(ctx, c, ino, layout.Policy{Width: 1}))
	renewed, err := s.Renew(ctx, c, []uint64{h.ID, reader.ID})
	e.must(err)
	for _, r := range renewed {
		if len(r.Caps) != 1 || r.Attr.Layout.Width() != 1 ||
			r.Attr.Layout.Version <= h.Attr.Layout.Version {
			e.Fatalf("%+v", r)
		}
	}
	other, err := s.Open(ctx, e.root(), ino, meta.OpenRead)
	e.must(err)
	if other.Attr.Layout.Width() != 1 {
		e.Fatalf("%+v", other.Attr.Layout)
	}
	e.want(errs.Busy, s.SetLayout(ctx, c, ino, layout.Policy{Width: 2}), "open by another client")
	e.close(other)
	e.must(s.SetLayout(ctx, c, ino, layout.Policy{Width: 2}))
	e.must(s.Close(ctx, c, meta.Closing{Handle: reader.ID}))
	e.want(errs.Busy, s.SetLayout(ctx, e.root(), ino, layout.Policy{Width: 3}), "open by a writer")
	e.must(s.Close(ctx, c, meta.Closing{Handle: h.ID}))
	e.setLayout(ino, layout.Policy{Width: 3})
	e.must(e.remove(meta.RootIno, "f"))
}

// attrIs checks the value of an attribute; "" stands for none.
func (e *env) attrIs(ino meta.Ino, name, want string) {
	e.Helper()
	got, err := e.Service.GetXattr(e.ctx, e.root(), ino, name)
	if want == "" && errs.KindOf(err) == errs.NoData {
		return
	}
	if err != nil || string(got) != want {
		e.Errorf("%s is %q, %v, want %q", name, got, err, want)
	}
}

func (e *env) attrsAre(ino meta.Ino, want ...string) {
	e.Helper()
	names, err := e.Service.ListXattr(e.ctx, e.root(), ino)
	if err != nil || !slices.Equal(names, want) {
		e.Errorf("attributes %q, %v, want %q", names, err, want)
	}
}

// testLayoutAttributes: policies are extended attributes, too.
func testLayoutAttributes(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	set := func(ino meta.Ino, name, value string) error {
		return s.SetXattr(ctx, c, ino, name, []byte(value), false, false)
	}
	dir := e.mkdir(meta.RootIno, "d")
	e.attrIs(dir, layout.AttrUnit, "default")
	e.attrIs(dir, layout.AttrAll, "default")
	e.attrsAre(dir)
	e.want(errs.NoData, s.SetXattr(ctx, c, dir, layout.AttrUnit, []byte("1M"), false, true),
		"replace what is not set")
	e.must(s.SetXattr(ctx, c, dir, layout.AttrUnit, []byte("256K"), true, false))
	e.want(errs.Exists, s.SetXattr(ctx, c, dir, layout.AttrUnit, []byte("1M"), true, false),
		"create what is set")
	e.must(set(dir, layout.AttrWidth, "2"))
	e.attrsAre(dir, layout.AttrUnit, layout.AttrWidth)
	e.attrIs(dir, layout.AttrAll, "unit=256K width=2")
	e.must(set(dir, layout.AttrAll, "width=all"))
	e.attrIs(dir, layout.AttrUnit, "default")
	e.must(set(dir, layout.AttrUnit, "65536"))
	for _, bad := range []struct{ name, value string }{
		{layout.AttrUnit, "3M"}, {layout.AttrWidth, "4"}, {layout.AttrWidth, "0"},
		{layout.AttrPool, "not-there"}, {layout.AttrPool, ""}, {layout.AttrAll, "units=1"},
	} {
		e.want(errs.Invalid, set(dir, bad.name, bad.value), bad.name+" "+bad.value)
	}
	f := e.mkfile(dir, "f")
	e.attrIs(f, layout.AttrUnit, "64K")
	e.attrIs(f, layout.AttrWidth, "3")
	e.attrIs(f, layout.AttrPool, "default")
	e.attrsAre(f, layout.AttrAll)
	e.must(set(f, layout.AttrWidth, "1"))
	e.attrIs(f, layout.AttrAll, "unit=64K width=1")
	e.must(s.RemoveXattr(ctx, c, f, layout.AttrUnit))
	e.want(errs.NoData, s.RemoveXattr(ctx, c, f, layout.AttrUnit), "twice")
	e.attrIs(f, layout.AttrUnit, "1M")
	if a := e.attr(f); a.Layout.Width() != 1 || a.Xattrs {
		e.Errorf("%+v", a)
	}
	e.must(s.RemoveXattr(ctx, c, dir, layout.AttrAll))
	e.attrsAre(dir)
	e.attrsAre(e.mkfile(dir, "plain"))
	stranger := s.SetXattr(ctx, e.user(bob), dir, layout.AttrWidth, []byte("1"), false, false)
	e.want(errs.Access, stranger, "by a stranger")
	fifo := e.mustMake(dir, "fifo", meta.NewFile{Type: meta.Fifo}).Ino
	e.attrIs(fifo, layout.AttrUnit, "")
	e.want(errs.Perm, set(fifo, layout.AttrUnit, "1M"), "of a fifo")
}

// testLayoutCopied: a program that copies data first and attributes then meets no error, and a copy
// of the copy is striped as the original was meant to be.
func testLayoutCopied(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	f := e.mkfile(meta.RootIno, "copy")
	h := e.open(f, readWrite)
	e.must(s.Close(ctx, c, wrote(h.ID, 10, h.Attr.TruncSeq, 1)))
	all := func(value string) error {
		return s.SetXattr(ctx, c, f, layout.AttrAll, []byte(value), false, false)
	}
	e.must(all("unit=64K width=1"))
	e.must(all("unit=64K width=1"))
	e.placedAs(f, layout.Policy{Unit: 64 << 10, Width: 1}, layout.UnitDefault, 3)
	e.attrIs(f, layout.AttrAll, "unit=64K width=1")
	e.attrIs(f, layout.AttrUnit, "1M")
	e.must(all("width=200 pool=of-another-cluster"))
	e.attrIs(f, layout.AttrAll, "width=200")
	e.want(errs.Invalid, all("width=many"), "what means nothing")
	strict := s.SetXattr(ctx, c, f, layout.AttrWidth, []byte("2"), false, false)
	e.want(errs.NotEmpty, strict, "the width of a file with data")
	e.must(s.RemoveXattr(ctx, c, f, layout.AttrAll))
	e.attrsAre(f)
	e.placedAs(f, layout.Policy{}, layout.UnitDefault, 3)
}

func testPools(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	all := func(want ...meta.Pool) {
		e.Helper()
		got, err := s.ListPools(ctx, e.user(bob))
		same := func(a, b meta.Pool) bool {
			return a.Name == b.Name && a.ID == b.ID && slices.Equal(a.Servers, b.Servers)
		}
		if err != nil || !slices.EqualFunc(got, want, same) {
			e.Fatalf("%v: %+v, want %+v", err, got, want)
		}
	}
	all()
	slow, err := s.CreatePool(ctx, c, "slow", []uint32{3, 1, 3})
	if err != nil || slow.ID == 0 || !slices.Equal(slow.Servers, []uint32{1, 3}) {
		e.Fatalf("%v: %+v", err, slow)
	}
	fast, err := s.CreatePool(ctx, c, "fast", nil)
	e.must(err)
	all(fast, slow)
	fast, err = s.ChangePool(ctx, c, "fast", []uint32{2, 1}, nil)
	if err != nil || !slices.Equal(fast.Servers, []uint32{1, 2}) {
		e.Fatalf("%v: %+v", err, fast)
	}
	fast, err = s.ChangePool(ctx, c, "fast", []uint32{3}, []uint32{1, 77})
	if err != nil || !slices.Equal(fast.Servers, []uint32{2, 3}) {
		e.Fatalf("%v: %+v", err, fast)
	}
	e.restart()
	s = e.Service
	all(fast, slow)
	e.must(s.RemovePool(ctx, c, "slow"))
	all(fast)
	again, err := s.CreatePool(ctx, c, "slow", []uint32{1})
	if err != nil || again.ID == slow.ID {
		e.Fatalf("%v: %+v", err, again)
	}
	e.restart()
	s = e.Service
	all(fast, again)
}

func testPoolRefusals(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	_, err := s.CreatePool(ctx, c, "p", []uint32{1})
	e.must(err)
	_, err = s.CreatePool(ctx, c, "p", nil)
	e.want(errs.Exists, err, "a pool twice")
	_, err = s.CreatePool(ctx, c, "q", []uint32{4})
	e.want(errs.Invalid, err, "a server that is not there")
	_, err = s.ChangePool(ctx, c, "p", []uint32{4}, nil)
	e.want(errs.Invalid, err, "a server that is not there")
	for _, name := range []string{"", "all", "default", "a/b", "-x"} {
		_, err = s.CreatePool(ctx, c, name, nil)
		e.want(errs.Invalid, err, "the name "+name)
	}
	_, err = s.ChangePool(ctx, c, "q", nil, nil)
	e.want(errs.NotFound, err, "a pool that is not there")
	e.want(errs.NotFound, s.RemovePool(ctx, c, "q"), "a pool that is not there")
	_, err = s.CreatePool(ctx, e.user(alice), "q", nil)
	e.want(errs.Perm, err, "by a user")
	_, err = s.ChangePool(ctx, e.user(alice), "p", nil, []uint32{1})
	e.want(errs.Perm, err, "by a user")
	e.want(errs.Perm, s.RemovePool(ctx, e.user(alice), "p"), "by a user")
	for i := range meta.PoolsMax - 1 {
		_, err = s.CreatePool(ctx, c, fmt.Sprint("p", i), nil)
		e.must(err)
	}
	_, err = s.CreatePool(ctx, c, "q", nil)
	e.want(errs.NoSpace, err, "one pool too many")
	many := make([]uint32, meta.PoolServersMax+1)
	_, err = s.ChangePool(ctx, c, "p", many, nil)
	e.want(errs.Invalid, err, "too many servers")
}

// testPoolsOfFiles: files of a pool lie on its servers, and have the room that these have.
func testPoolsOfFiles(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	_, err := s.CreatePool(ctx, c, "fast", []uint32{2, 3})
	e.must(err)
	dir := e.mkdir(meta.RootIno, "d")
	e.setLayout(dir, layout.Policy{Pool: "fast"})
	e.want(errs.Invalid, s.SetLayout(ctx, c, dir, layout.Policy{Pool: "fast", Width: 3}),
		"wider than the pool")
	for i := range 5 {
		p := e.placedAs(e.mkfile(dir, fmt.Sprint(i)), layout.Policy{Pool: "fast"}, layout.UnitDefault, 2)
		if slices.Contains(p.Layout.Servers, 1) {
			e.Fatalf("%+v", p)
		}
	}
	f := e.mkfile(meta.RootIno, "f")
	e.setLayout(f, layout.Policy{Pool: "fast", Width: 1})
	e.placedAs(f, layout.Policy{Pool: "fast", Width: 1}, layout.UnitDefault, 1)
	e.attrIs(f, layout.AttrPool, "fast")
	v, err := s.CreateVolume(ctx, c, "v", 1<<20, meta.NewFile{Pool: "fast"})
	if err != nil || v.Layout.Width() != 2 || slices.Contains(v.Layout.Servers, 1) {
		e.Fatalf("%v: %+v", err, v)
	}
	room := func(ino meta.Ino, want int64) {
		e.Helper()
		if st, err := s.StatFS(ctx, ino); err != nil || st.Total != want || st.Free != want/2 {
			e.Fatalf("%v: %+v, want %d", err, st, want)
		}
	}
	room(meta.RootIno, 3000)
	room(dir, 2000)
	_, err = s.ChangePool(ctx, c, "fast", nil, []uint32{2, 3})
	e.must(err)
	_, err = s.Make(ctx, c, dir, "x", meta.NewFile{Type: meta.Regular})
	e.want(errs.Again, err, "a file in a pool without servers")
	e.placedAs(f, layout.Policy{Pool: "fast", Width: 1}, layout.UnitDefault, 1)

	e.must(s.RemovePool(ctx, c, "fast"))
	_, err = s.CreatePool(ctx, c, "fast", []uint32{1}) // another one
	e.must(err)
	e.placedAs(dir, layout.Policy{}, 0, 0)
	e.placedAs(e.mkfile(dir, "y"), layout.Policy{}, layout.UnitDefault, 3)
	room(dir, 3000)
}

// joinWith is join with room.
func (e *env) joinWith(id uint32, total, free int64) {
	e.Helper()
	s := meta.Server{ID: id, Addr: "host:1", StoreID: 100 + uint64(id), Total: total, Free: free}
	e.must(e.Service.Join(e.ctx, s, meta.SignJoin(e.key.ServerKey(id), &s)))
}

// testFullServers: a server without room gets no new files, and has nothing free for them, unless
// all are full: whether there is room then is for those to find out who write.
func testFullServers(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	const gb = 1 << 30
	for id := range uint32(3) {
		e.joinWith(id+1, 100*gb, 50*gb)
	}
	e.joinWith(2, 100*gb, gb)
	dir := e.mkdir(meta.RootIno, "d")
	e.setLayout(dir, layout.Policy{Width: 3})
	for i := range 20 {
		for _, in := range []meta.Ino{meta.RootIno, dir} {
			a := e.mustMake(in, fmt.Sprint("f", i), meta.NewFile{Type: meta.Regular})
			if a.Layout.Width() != 2 || slices.Contains(a.Layout.Servers, 2) {
				e.Fatalf("%+v", a.Layout)
			}
		}
	}
	if st, err := s.StatFS(ctx, meta.RootIno); err != nil || st.Total != 300*gb || st.Free != 100*gb {
		e.Fatalf("%v: %+v", err, st)
	}
	_, err := s.Make(ctx, c, meta.RootIno, "x", meta.NewFile{Type: meta.Regular, Width: 3})
	e.want(errs.NoSpace, err, "exactly three servers")
	e.joinWith(1, 100*gb, 0)
	e.joinWith(3, 100*gb, 0)
	a := e.mustMake(meta.RootIno, "one", meta.NewFile{Type: meta.Regular})
	if st, err := s.StatFS(ctx, meta.RootIno); err != nil || st.Free != 0 || a.Layout.Width() != 3 {
		e.Fatalf("%v: %+v, %+v", err, st, a.Layout)
	}
	e.joinWith(2, 100*gb, 60*gb)
	if a = e.mustMake(meta.RootIno, "y", meta.NewFile{Type: meta.Regular}); a.Layout.Width() != 1 ||
		a.Layout.Servers[0] != 2 {
		e.Fatalf("%+v", a.Layout)
	}
}
