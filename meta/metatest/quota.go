package metatest

import (
	"fmt"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// quotaCases are the tests of meta.Quotas.
var quotaCases = []testCase{
	{"Quota", testQuota},
	{"QuotaRefusals", testQuotaRefusals},
	{"QuotaOfWriters", testQuotaOfWriters},
	{"QuotaMoves", testQuotaMoves},
	{"QuotaOfAnExistingTree", testQuotaOfTree},
	{"QuotaPages", testQuotaPages},
	{"RaceQuota", testRaceQuota},
	{"QuotaRandom", testQuotaRandom},
}

// setQuota sets the limits of a tree and waits until it is counted.
func (e *env) setQuota(dir meta.Ino, bytes, inodes int64) meta.Quota {
	e.Helper()
	_, err := e.Service.SetQuota(e.ctx, e.root(), dir, meta.Usage{Bytes: bytes, Inodes: inodes})
	e.must(err)
	return e.counted(dir)
}

// counted waits until the tree is counted.
func (e *env) counted(dir meta.Ino) (q meta.Quota) {
	e.Helper()
	e.eventually("the tree is counted", func() bool {
		q = e.quota(dir)
		return !q.Counting
	})
	return q
}

func (e *env) quota(ino meta.Ino) meta.Quota {
	e.Helper()
	q, err := e.Service.GetQuota(e.ctx, e.root(), ino)
	e.must(err)
	return q
}

// uses fails the test unless the tree of an inode has so much in use.
func (e *env) uses(ino meta.Ino, bytes, inodes int64) {
	e.Helper()
	if q := e.quota(ino); q.Used != (meta.Usage{Bytes: bytes, Inodes: inodes}) {
		e.Fatalf("%+v, and %d bytes and %d inodes are used", q, bytes, inodes)
	}
}

func (e *env) setSize(ino meta.Ino, size int64) error {
	_, err := e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetSize, meta.Attr{Size: size})
	return err
}

func (e *env) tryMake(dir meta.Ino, name string, typ meta.Type) error {
	f := meta.NewFile{Type: typ, Mode: 0o644}
	if typ == meta.Symlink {
		f.Target = "target"
	}
	_, err := e.Service.Make(e.ctx, e.root(), dir, name, f)
	return err
}

// testQuota: what counts, that limits are exact, and that removing makes room again.
func testQuota(e *env) {
	d := e.mkdir(meta.RootIno, "d")
	q := e.setQuota(d, 1000, 4)
	want := meta.Quota{ID: q.ID, Dir: d, Path: "/d", Limit: meta.Usage{Bytes: 1000, Inodes: 4},
		Used: meta.Usage{Inodes: 1}}
	if q != want || q.ID == 0 {
		e.Fatalf("%+v, want %+v", q, want)
	}
	sub := e.mkdir(d, "sub")
	f := e.mkfile(sub, "f")
	e.must(e.tryMake(d, "l", meta.Symlink))
	e.uses(f, 0, 4)
	for _, typ := range []meta.Type{meta.Regular, meta.Directory, meta.Symlink, meta.Fifo} {
		e.want(errs.Quota, e.tryMake(sub, "x", typ), "one inode too many")
	}
	_, err := e.create(sub, "x", meta.OpenWrite)
	e.want(errs.Quota, err, "one file too many")
	e.must(e.tryMake(meta.RootIno, "outside", meta.Regular))
	_, err = e.Service.Link(e.ctx, e.root(), f, d, "again") // no inode more
	e.must(err)
	e.must(e.remove(d, "l"))
	g := e.mkfile(d, "g")
	e.uses(d, 0, 4)

	e.want(errs.Quota, e.setSize(f, 1001), "a byte too many")
	e.must(e.setSize(f, 1000))
	e.want(errs.Quota, e.setSize(g, 1), "a byte too many in another file")
	e.must(e.setSize(f, 600))
	e.must(e.setSize(g, 400))
	e.uses(d, 1000, 4)
	st, err := e.Service.StatFS(e.ctx, sub)
	e.must(err)
	if st.Total != 1000 || st.Free != 0 || st.Files != 4 || st.FilesMax != 4 {
		e.Fatalf("room of the tree: %+v", st)
	}
	if st, err = e.Service.StatFS(e.ctx, meta.RootIno); err != nil || st.Total != 3000 {
		e.Fatalf("room outside: %+v, %v", st, err)
	}
	e.restart()
	e.uses(g, 1000, 4)
	e.must(e.remove(d, "g"))
	e.must(e.remove(d, "again"))
	e.uses(d, 600, 3)
	e.setQuota(d, 100, 1) // below what is there: nothing grows any more, all may become less
	e.want(errs.Quota, e.setSize(f, 601), "above the new limit")
	e.want(errs.Quota, e.tryMake(d, "x", meta.Regular), "above the new limit")
	e.must(e.setSize(f, 599))
	e.must(e.remove(sub, "f"))
	e.uses(d, 0, 2)
	e.must(e.rmdir(d, "sub"))
	e.must(e.rmdir(meta.RootIno, "d"))
	if all, err := e.Service.ListQuotas(e.ctx, e.root(), 0, 9); err != nil || len(all) != 0 {
		e.Fatalf("the directory is gone, and its quota is there: %+v, %v", all, err)
	}
}

// testQuotaRefusals: who may set quotas, and where.
func testQuotaRefusals(e *env) {
	d := e.mkdir(meta.RootIno, "d")
	sub := e.mkdir(e.mkdir(d, "mid"), "sub")
	f := e.mkfile(d, "f")
	set := func(c meta.Caller, dir meta.Ino, u meta.Usage) error {
		_, err := e.Service.SetQuota(e.ctx, c, dir, u)
		return err
	}
	some := meta.Usage{Bytes: 10}
	e.want(errs.Perm, set(e.user(alice), d, some), "a user")
	e.want(errs.NotDir, set(e.root(), f, some), "a file")
	e.want(errs.Invalid, set(e.root(), d, meta.Usage{Inodes: -1}), "a negative limit")
	e.want(errs.NotFound, set(e.root(), 1<<40, some), "no inode")
	_, err := e.Service.GetQuota(e.ctx, e.root(), d)
	e.want(errs.NoData, err, "no quota")
	e.want(errs.NoData, e.Service.RemoveQuota(e.ctx, e.root(), d), "no quota")

	e.setQuota(d, 10, 0)
	e.want(errs.Exists, set(e.root(), sub, some), "within another tree")
	e.want(errs.NoData, e.Service.RemoveQuota(e.ctx, e.root(), sub), "not the top")
	e.want(errs.Perm, e.Service.RemoveQuota(e.ctx, e.user(alice), d), "a user")
	e.must(e.Service.RemoveQuota(e.ctx, e.root(), d))
	e.must(e.setSize(f, 11))
	_, err = e.Service.GetQuota(e.ctx, e.root(), f)
	e.want(errs.NoData, err, "removed")
	e.setQuota(sub, 0, 5)
	e.want(errs.Exists, set(e.root(), d, some), "around another tree")
	e.must(e.Service.RemoveQuota(e.ctx, e.root(), sub))
	e.setQuota(d, 0, 0) // counts only
	e.uses(f, 11, 4)
	e.must(e.Service.RemoveQuota(e.ctx, e.root(), d))
	e.setQuota(meta.RootIno, 0, 0)
	if q := e.quota(f); q.Path != "/" || q.Used != (meta.Usage{Bytes: 11, Inodes: 5}) {
		e.Fatalf("the whole file system: %+v", q)
	}
}

// testQuotaOfWriters: what is promised to writers counts, and all of them together stay below the
// limit; what they did not need is given back.
func testQuotaOfWriters(e *env) {
	const limit = 64 << 20
	d := e.mkdir(meta.RootIno, "d")
	e.setQuota(d, limit, 0)
	h, err := e.create(d, "f", meta.OpenWrite)
	e.must(err)
	if !h.Bounded || h.GrowTo <= 0 || h.GrowTo > limit/16 {
		e.Fatalf("%+v", h)
	}
	e.uses(d, h.GrowTo, 2)
	grow := func(ino meta.Ino, end int64) (int64, error) {
		return e.Service.Grow(e.ctx, e.root(), ino, end)
	}
	to, err := grow(h.Attr.Ino, h.GrowTo)
	if err != nil || to != h.GrowTo {
		e.Fatalf("what is promised already: %d, %v", to, err)
	}
	to, err = grow(h.Attr.Ino, 1<<20)
	if err != nil || to < 1<<20 || to > limit {
		e.Fatalf("%d, %v", to, err)
	}
	e.uses(d, to, 2)
	other, err := e.create(d, "g", meta.OpenWrite)
	e.must(err)
	most, err := grow(other.Attr.Ino, 2*limit) // less than asked for
	if err != nil || most != limit-to {
		e.Fatalf("%d is left beside %d, %v", most, to, err)
	}
	_, err = grow(h.Attr.Ino, to+1)
	e.want(errs.Quota, err, "all is promised")
	renewed, err := e.Service.Renew(e.ctx, e.root(), []uint64{h.ID})
	if err != nil || !renewed[0].Bounded || renewed[0].GrowTo != to {
		e.Fatalf("%+v, %v", renewed, err)
	}
	e.objects.Write(other.Attr.Ino, 5000)
	e.must(e.Service.Close(e.ctx, e.root(), wrote(other.ID, 5000, other.Attr.TruncSeq, 1)))
	e.uses(d, to+5000, 3)
	_, err = grow(other.Attr.Ino, 9000)
	e.want(errs.Closed, err, "nobody writes it")
	e.must(e.setSize(h.Attr.Ino, 0)) // a truncation gives back, too
	e.uses(d, 5000, 3)

	// What was written is counted, whatever the limit is.
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 2*limit, h.Attr.TruncSeq+1, 1)))
	e.uses(d, 2*limit+5000, 3)
	h = e.open(h.Attr.Ino, meta.OpenWrite)
	if !h.Bounded || h.GrowTo != 2*limit {
		e.Fatalf("beyond the limit: %+v", h)
	}
	e.close(h)
	e.must(e.remove(d, "f"))
	e.uses(d, 5000, 2)
	free, err := e.create(meta.RootIno, "outside", meta.OpenWrite)
	e.must(err)
	to, err = grow(free.Attr.Ino, 1<<40)
	if free.Bounded || err != nil || to != meta.NoBound {
		e.Fatalf("outside: %+v, %d, %v", free, to, err)
	}
}

// testQuotaMoves: what may go from tree to tree, and that it takes its usage along.
func testQuotaMoves(e *env) {
	a, b, out := e.mkdir(meta.RootIno, "a"), e.mkdir(meta.RootIno, "b"), e.mkdir(meta.RootIno, "o")
	e.setQuota(a, 1000, 10)
	e.setQuota(b, 500, 3)
	f := e.mkfile(a, "f")
	e.must(e.setSize(f, 400))
	e.must(e.rename(a, "f", b, "f", 0))
	e.uses(a, 0, 1)
	e.uses(f, 400, 2)
	g := e.mkfile(a, "g")
	e.must(e.setSize(g, 101))
	e.want(errs.Quota, e.rename(a, "g", b, "g", 0), "too long for the other tree")
	e.must(e.rename(a, "g", b, "f", 0)) // in the place of f
	e.uses(b, 101, 2)
	e.must(e.rename(b, "f", out, "f", 0))
	e.uses(b, 0, 1)
	if _, err := e.Service.GetQuota(e.ctx, e.root(), g); errs.KindOf(err) != errs.NoData {
		e.Fatalf("outside: %v", err)
	}
	e.must(e.rename(out, "f", a, "f", 0))
	x := e.mkfile(b, "x")
	e.must(e.setSize(x, 7))
	e.must(e.rename(a, "f", b, "x", meta.RenameExchange))
	e.uses(a, 7, 2)
	e.uses(b, 101, 2)

	_, err := e.Service.Link(e.ctx, e.root(), x, b, "l")
	e.want(errs.CrossDevice, err, "a second name in another tree")
	_, err = e.Service.Link(e.ctx, e.root(), x, out, "l")
	e.want(errs.CrossDevice, err, "a second name in no tree")
	_, err = e.Service.Link(e.ctx, e.root(), x, a, "l")
	e.must(err)
	e.want(errs.CrossDevice, e.rename(a, "l", b, "l", 0), "a file with two names")

	dir := e.mkdir(a, "dir")
	e.must(e.rename(a, "dir", b, "dir", 0)) // it is empty
	e.uses(b, 101, 3)
	e.must(e.rename(b, "dir", a, "dir", 0))
	sub := e.mkfile(dir, "sub")
	e.want(errs.CrossDevice, e.rename(a, "dir", b, "dir", 0), "a directory with contents")
	e.want(errs.CrossDevice, e.rename(a, "dir", out, "dir", 0), "a directory with contents")
	e.uses(sub, 7, 4)

	// A tree may move where there is none, but not into another one.
	e.want(errs.CrossDevice, e.rename(meta.RootIno, "b", a, "b", 0), "a tree into another")
	e.must(e.rename(meta.RootIno, "b", out, "b", 0))
	if q := e.quota(b); q.Path != "/o/b" || q.Used != (meta.Usage{Bytes: 101, Inodes: 2}) {
		e.Fatalf("%+v", q)
	}
	e.want(errs.CrossDevice, e.rename(meta.RootIno, "o", a, "o", 0), "what holds a tree into another")
	e.mkdir(meta.RootIno, "p")
	e.must(e.rename(out, "b", meta.RootIno, "p", 0)) // in the place of another name
	if q := e.quota(b); q.Path != "/p" {
		e.Fatalf("%+v", q)
	}
}

// testQuotaOfTree: a tree that is there is counted, with all that is made meanwhile, and whoever
// ends in the middle.
func testQuotaOfTree(e *env) {
	top := e.mkdir(meta.RootIno, "top")
	var dirs []meta.Ino
	for i := range 5 {
		dirs = append(dirs, e.mkdir(top, fmt.Sprint("d", i)))
		for k := range 40 {
			e.must(e.setSize(e.mkfile(dirs[i], fmt.Sprint("f", k)), 10))
		}
	}
	f := e.mkfile(dirs[0], "linked")
	_, err := e.Service.Link(e.ctx, e.root(), f, dirs[1], "again")
	e.must(err)
	_, err = e.Service.SetQuota(e.ctx, e.root(), top, meta.Usage{Inodes: 1000})
	e.must(err)
	for i := range 5 {
		e.must(e.tryMake(dirs[i], "new", meta.Fifo))
		e.must(e.remove(dirs[i], "f7"))
		e.must(e.setSize(e.names(dirs[i])["f8"], 25))
		if i == 2 {
			e.restart()
		}
		k := fmt.Sprint("m", i)
		e.must(e.rename(dirs[i], "f9", dirs[(i+1)%5], k, 0))
	}
	e.counted(top)
	e.uses(dirs[4], 5*(39*10+15), 1+5+5*39+1+5)
	e.must(e.Service.RemoveQuota(e.ctx, e.root(), top))
	e.setQuota(dirs[3], 0, 0) // inodes that belonged to a quota that is gone
	e.uses(dirs[3], 39*10+15, 1+39+1)
	e.setQuota(dirs[3], 1000, 0)
	e.want(errs.Quota, e.setSize(e.names(dirs[3])["f1"], 1000), "counted and limited")
}

func testQuotaPages(e *env) {
	var want []uint64
	for i := range 7 {
		want = append(want, e.setQuota(e.mkdir(meta.RootIno, fmt.Sprint("d", i)), 1, 1).ID)
	}
	var got []uint64
	for after := uint64(0); ; after = got[len(got)-1] {
		page, err := e.Service.ListQuotas(e.ctx, e.user(alice), after, 3)
		e.must(err)
		if len(page) == 0 {
			break
		}
		for _, q := range page {
			if got = append(got, q.ID); q.Path != fmt.Sprint("/d", len(got)-1) {
				e.Fatalf("%+v", q)
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		e.Fatalf("%v, want %v", got, want)
	}
	_, err := e.Service.ListQuotas(e.ctx, e.root(), 0, 0)
	e.want(errs.Invalid, err, "a page of none")
}

// testRaceQuota: limits are reached exactly, however many reach them at the same time.
func testRaceQuota(e *env) {
	const writers, limit = 6, 60
	d := e.mkdir(meta.RootIno, "d")
	e.setQuota(d, 1000, limit+1)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for k := 0; ; k++ {
				a, err := e.Service.Make(e.ctx, e.root(), d, fmt.Sprintf("%d.%d", i, k),
					meta.NewFile{Type: meta.Regular, Mode: 0o644})
				if errs.KindOf(err) == errs.Quota {
					return
				}
				if err == nil {
					err = e.setSize(a.Ino, 30)
				}
				if err != nil && errs.KindOf(err) != errs.Quota {
					e.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	e.uses(d, 1000/30*30, limit+1)
	if n := len(e.names(d)); n != limit {
		e.Fatalf("%d files in a tree for %d", n, limit)
	}
}
