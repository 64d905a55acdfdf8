package metatest

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// deferredCases are about what a session does by itself in directories that it holds alone.
var deferredCases = []testCase{
	{"SoleDirectory", testSoleDirectory},
	{"SoleIsSimple", testSoleIsSimple},
	{"TellMany", testTellMany},
	{"TellManyInOrder", testTellManyInOrder},
	{"TellManyRefusals", testTellManyRefusals},
	{"TellManyRepeated", testTellManyRepeated},
	{"TellManyQuota", testTellManyQuota},
	{"TellManyFenced", testTellManyFenced},
	{"TellManyWithoutServers", testTellManyWithoutServers},
	{"TellManyAfterRestart", testTellManyAfterRestart},
	{"LookersWait", testLookersWait},
}

// teller is a listener with a directory of its own, and numbers.
type teller struct {
	*listener
	dir  meta.Attr
	next meta.Ino
	end  meta.Ino
	ids  uint64
	at   int64
}

func (e *env) teller(name string) *teller {
	e.Helper()
	t := &teller{listener: e.listen(), at: 1_900_000_000}
	var err error
	t.dir, err = e.Service.Make(e.ctx, t.c, meta.RootIno, name, soleDir)
	if e.must(err); t.dir.Lease != meta.LeaseSole {
		e.Fatalf("%+v", t.dir)
	}
	t.ids = uint64(t.dir.Ino) << 32
	t.numbers()
	return t
}

var soleDir = meta.NewFile{Type: meta.Directory, Mode: 0o755, Sole: true}

func (t *teller) numbers() {
	t.Helper()
	first, n, err := t.Service.Numbers(t.ctx, t.c, 2*meta.TellMax)
	if t.must(err); n == 0 || first <= t.dir.Ino {
		t.Fatalf("%d numbers from %d", n, first)
	}
	t.next, t.end = first, first+meta.Ino(n)
}

func (t *teller) now() meta.Time {
	t.at++
	return meta.Time{Sec: t.at, Nsec: 5}
}

// make is something that is made in a directory.
func (t *teller) make(dir meta.Ino, name string, typ meta.Type) meta.Deferred {
	t.next++
	w := meta.Deferred{Kind: meta.DeferMake, Dir: dir, Name: name, Ino: t.next - 1, At: t.now(),
		File: meta.NewFile{Type: typ, Mode: 0o640}, UID: alice, GID: staff}
	switch typ {
	case meta.Symlink:
		w.File.Target = "target of " + name
	case meta.Regular:
		w.Gen = uint32(t.next)
	}
	return w
}

// file is a file that was written and closed.
func (t *teller) file(dir meta.Ino, name, data string) meta.Deferred {
	w := t.make(dir, name, meta.Regular)
	w.Dirty = true
	w.Change = meta.Change{Ino: w.Ino, Size: int64(len(data)), Mtime: t.now(), Epoch: t.epoch,
		Whole: true, Data: []byte(data)}
	return w
}

func (t *teller) gone(w *meta.Deferred) meta.Deferred {
	return meta.Deferred{Kind: meta.DeferRemove, Dir: w.Dir, Name: w.Name, Ino: w.Ino, At: t.now(),
		File: meta.NewFile{Type: w.File.Type}}
}

// tell tells a list and returns what came of it.
func (t *teller) tell(list ...meta.Deferred) []meta.Settled {
	t.Helper()
	t.ids++
	out, err := t.Service.TellMany(t.ctx, withID(t.c, t.ids), t.epoch, list)
	t.must(err)
	return out
}

func (t *teller) mustTell(list ...meta.Deferred) []meta.Settled {
	t.Helper()
	out := t.tell(list...)
	for i := range out {
		if out[i].Kind != errs.OK {
			t.Fatalf("%d, %s: %v", i, list[i].Name, out[i].Kind)
		}
	}
	return out
}

// testSoleDirectory: who makes a directory may have it alone. Others wait until it has given that
// back, and own questions do not take it away.
func testSoleDirectory(e *env) {
	t := e.teller("d")
	if f := t.find(t.dir.Ino, "x"); f.Present {
		e.Fatalf("%+v", f)
	}
	over, done := e.background(func() error {
		_, err := e.lookup(t.dir.Ino, "x")
		return err
	})
	r := t.recalled(t.dir.Ino)
	w := t.make(t.dir.Ino, "x", meta.Fifo)
	t.mustTell(w)
	if done() {
		e.Fatal("nobody has waited for the holder")
	}
	t.hear(0, r)
	e.must(over())
	_, err := e.Service.TellMany(e.ctx, withID(t.c, 1), t.epoch,
		[]meta.Deferred{t.make(t.dir.Ino, "y", meta.Fifo)})
	e.want(errs.Fenced, err, "without the lease")
	plain, err := e.Service.Make(e.ctx, t.c, meta.RootIno, "plain",
		meta.NewFile{Type: meta.Directory, Mode: 0o755})
	if err != nil || plain.Lease != meta.LeaseRead {
		e.Fatalf("not asked for: %v %+v", err, plain)
	}
	c := t.c
	c.Leases = false
	if plain, err = e.Service.Make(e.ctx, c, meta.RootIno, "p2", soleDir); plain.Lease != 0 {
		e.Fatalf("without leases: %v %+v", err, plain)
	}
}

// testSoleIsSimple: a directory that passes something on is not held alone.
func testSoleIsSimple(e *env) {
	l := e.listen()
	mk := func(dir meta.Ino, name string, f meta.NewFile) meta.Attr {
		a, err := e.Service.Make(e.ctx, l.c, dir, name, f)
		e.must(err)
		return a
	}
	group := soleDir
	group.Mode |= 0o2000
	if a := mk(meta.RootIno, "group", group); a.Lease == meta.LeaseSole {
		e.Fatalf("%+v", a)
	}
	wide := soleDir
	wide.Width = 2
	if a := mk(meta.RootIno, "wide", wide); a.Lease == meta.LeaseSole {
		e.Fatalf("%+v", a)
	}
	d := mk(meta.RootIno, "d", soleDir)
	l.ownQuota(d.Ino, 100)
	if a := mk(d.Ino, "counted", soleDir); a.Lease == meta.LeaseSole {
		e.Fatalf("%+v", a)
	}
}

// ownQuota sets a quota as a session that holds the directory alone.
func (t *listener) ownQuota(dir meta.Ino, inodes int64) {
	t.Helper()
	_, err := t.Service.SetQuota(t.ctx, t.c, dir, meta.Usage{Inodes: inodes})
	t.must(err)
	for stop := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		q, err := t.Service.GetQuota(t.ctx, t.c, dir)
		if t.must(err); !q.Counting {
			return
		}
		if time.Now().After(stop) {
			t.Fatal("the tree is not counted")
		}
	}
}

// testTellMany: what is told is as if it had been made, by the session's own words.
func testTellMany(e *env) {
	t := e.teller("d")
	d := t.dir.Ino
	sub, link, pipe := t.make(d, "sub", meta.Directory), t.make(d, "link", meta.Symlink),
		t.make(d, "pipe", meta.Fifo)
	file, empty := t.file(sub.Ino, "file", "some data"), t.make(sub.Ino, "empty", meta.Regular)
	open := t.make(d, "open", meta.Regular)
	open.Open, open.Handle = readWrite, 4711
	out := t.mustTell(sub, link, pipe, file, empty, open)
	for i, want := range []meta.LeaseMode{meta.LeaseSole, meta.LeaseRead, meta.LeaseRead,
		meta.LeaseRead, meta.LeaseRead, meta.LeaseWrite} {
		if out[i].Lease != want || out[i].Serial == 0 {
			e.Fatalf("%d: %+v", i, out[i])
		}
	}
	for _, w := range []*meta.Deferred{&sub, &link, &pipe, &file, &empty, &open} {
		f := t.find(w.Dir, w.Name)
		a := f.Attr
		if !f.Present || a.Ino != w.Ino || a.Type != w.File.Type || a.UID != alice || a.GID != staff ||
			a.Btime != w.At || a.Atime != w.At || f.Target != w.File.Target || f.Cookie != uint64(w.Ino) {
			e.Fatalf("%s: %+v", w.Name, f)
		}
		if a.Type == meta.Regular && (!a.Small || a.Gen != w.Gen) {
			e.Fatalf("%s: %+v", w.Name, f)
		}
	}
	f := t.find(sub.Ino, "file")
	if string(f.Data) != "some data" || f.Attr.DataVersion != 1 || f.Attr.Mtime != file.Change.Mtime ||
		f.Attr.Ctime != file.Change.Mtime || f.Attr.Writers {
		e.Fatalf("%+v", f)
	}
	if a := t.find(d, "open").Attr; !a.Writers || a.DataVersion != 0 {
		e.Fatalf("%+v", a)
	}
	if a := t.attrOf(d); a.Size != 4 || a.Nlink != 3 || a.Mtime != open.At {
		e.Fatalf("%+v, want a time of %v", a, open.At)
	}
	if a := t.attrOf(sub.Ino); a.Size != 2 || a.Parent != d || a.Mtime != empty.At {
		e.Fatalf("%+v", a)
	}
	w := meta.Closing{Handle: 4711, Dirty: true, Change: meta.Change{Ino: open.Ino, Size: 3,
		Mtime: t.now(), Epoch: t.epoch, Whole: true, Data: []byte("abc")}}
	e.must(e.Service.Close(e.ctx, t.c, w))
	if f := t.find(d, "open"); string(f.Data) != "abc" || f.Attr.Writers {
		e.Fatalf("%+v", f)
	}
}

func (t *teller) attrOf(ino meta.Ino) meta.Attr {
	t.Helper()
	a, err := t.Service.GetAttr(t.ctx, t.c, ino)
	t.must(err)
	return a
}

// testTellManyInOrder: names come and go, in one list, which is longer than what one commit takes.
func testTellManyInOrder(e *env) {
	t := e.teller("d")
	var list []meta.Deferred
	var left []string
	dir := t.dir.Ino
	for i := range 100 {
		w := t.file(dir, fmt.Sprint("f", i%7), fmt.Sprint(i))
		list = append(list, w)
		if i%7 == 6 || i < 93 {
			list = append(list, t.gone(&w))
		} else {
			left = append(left, w.Name)
		}
		if i%10 == 0 {
			sub := t.make(dir, fmt.Sprint("sub", i), meta.Directory)
			in := t.make(sub.Ino, "in", meta.Fifo)
			list = append(list, sub, in, t.gone(&in), t.gone(&sub))
		}
	}
	touch := meta.Deferred{Kind: meta.DeferTouch, Dir: dir, At: t.now()}
	t.mustTell(append(list, touch)...)
	var names []string
	page, err := e.Service.ReadDir(e.ctx, t.c, dir, 0, 100, false)
	e.must(err)
	for _, n := range page {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	if slices.Sort(left); !slices.Equal(names, left) {
		e.Fatalf("%v, want %v", names, left)
	}
	if a := t.attrOf(dir); a.Size != int64(len(left)) || a.Nlink != 2 || a.Mtime != touch.At {
		e.Fatalf("%+v", a)
	}
}

// testTellManyRefusals: what cannot be done is refused by itself, and changes nothing.
func testTellManyRefusals(e *env) {
	t := e.teller("d")
	d := t.dir.Ino
	there := t.make(d, "there", meta.Directory)
	t.mustTell(there, t.make(there.Ino, "x", meta.Fifo))
	again, foreign, taken := t.make(d, "there", meta.Fifo), t.make(d, "foreign", meta.Fifo),
		t.make(d, "taken", meta.Fifo)
	foreign.Ino, taken.Ino = t.end+5, there.Ino
	slash, dots := t.make(d, "a/b", meta.Fifo), t.make(d, "..", meta.Fifo)
	orphan := t.make(again.Ino, "orphan", meta.Fifo)
	absent := t.gone(&again)
	absent.Name = "absent"
	last := t.make(d, "last", meta.Fifo)
	list := []meta.Deferred{again, foreign, taken, slash, dots, t.gone(&again), absent, t.gone(&there),
		last}
	want := []errs.Kind{errs.Exists, errs.Invalid, errs.Invalid, errs.Invalid, errs.Invalid,
		errs.NotFound, errs.NotFound, errs.NotEmpty, errs.OK}
	for i, s := range t.tell(list...) {
		if s.Kind != want[i] {
			e.Errorf("%d, %s: %v, want %v", i, list[i].Name, s.Kind, want[i])
		}
	}
	if a := t.attrOf(d); a.Size != 2 || a.Nlink != 3 {
		e.Fatalf("%+v", a)
	}
	bad := t.make(d, "bad", meta.Fifo)
	bad.Ino = there.Ino
	if out := t.tell(bad, t.make(bad.Ino, "y", meta.Fifo)); out[0].Kind == errs.OK {
		e.Fatalf("%+v", out)
	}
	_, err := e.Service.TellMany(e.ctx, withID(t.c, 9), t.epoch, []meta.Deferred{orphan})
	e.want(errs.Fenced, err, "in a directory that is not there")
	_, err = e.Service.TellMany(e.ctx, t.c, t.epoch, make([]meta.Deferred, meta.TellMax+1))
	if err == nil {
		e.Fatal("too many")
	}
}

// testTellManyRepeated: a list that is told again is not done again.
func testTellManyRepeated(e *env) {
	t := e.teller("d")
	d := t.dir.Ino
	var list []meta.Deferred
	for i := range 30 {
		list = append(list, t.file(d, fmt.Sprint(i), "x"))
	}
	open := t.make(d, "open", meta.Regular)
	open.Open, open.Handle = meta.OpenRead|meta.OpenWrite, 77
	list = append(list, open, t.gone(&list[3]), t.make(d, "1", meta.Fifo),
		t.make(d, "s", meta.Directory))
	c := withID(t.c, 12)
	first, err := e.Service.TellMany(e.ctx, c, t.epoch, list)
	e.must(err)
	second, err := e.Service.TellMany(e.ctx, c, t.epoch, list)
	e.must(err)
	for i := range list {
		ok := list[i].Name != "1" || list[i].File.Type != meta.Fifo
		if (first[i].Kind == errs.OK) != ok || (second[i].Kind == errs.OK) != ok ||
			first[i].Lease != second[i].Lease && list[i].Ino != list[3].Ino {
			e.Fatalf("%d, %s: %+v, %+v", i, list[i].Name, first[i], second[i])
		}
	}
	if a := t.attrOf(d); a.Size != 31 {
		e.Fatalf("%+v", a)
	}
	e.must(e.Service.Close(e.ctx, t.c, meta.Closing{Handle: 77}))
}

// testTellManyQuota: a limit refuses what is beyond it, and nothing else.
func testTellManyQuota(e *env) {
	t := e.teller("d")
	d := t.dir.Ino
	t.ownQuota(d, 12) // the directory itself counts
	var list []meta.Deferred
	for i := range 20 {
		list = append(list, t.make(d, fmt.Sprint(i), meta.Fifo))
	}
	n := 0
	for i, s := range t.tell(list...) {
		switch s.Kind {
		case errs.OK:
			n++
		case errs.Quota:
		default:
			e.Fatalf("%d: %v", i, s.Kind)
		}
	}
	if a := t.attrOf(d); n != 11 || a.Size != 11 {
		e.Fatalf("%d made, %+v", n, a)
	}
}

// testTellManyFenced: who did not answer in time has lost what it did not tell.
func testTellManyFenced(e *env) {
	t := e.teller("d")
	list := []meta.Deferred{t.make(t.dir.Ino, "a", meta.Fifo), t.make(t.dir.Ino, "b", meta.Fifo)}
	over, _ := e.background(func() error {
		_, err := e.lookup(t.dir.Ino, "a")
		return err
	})
	t.recalled(t.dir.Ino)
	e.clock.advance(leaseTime + time.Second)
	e.want(errs.NotFound, over(), "what was not told")
	_, err := e.Service.TellMany(e.ctx, withID(t.c, 5), t.epoch, list)
	e.want(errs.Fenced, err, "too late")
	if got := e.list(t.dir.Ino, 10); len(got) != 0 {
		e.Fatalf("%+v", got)
	}
}

// testTellManyWithoutServers: what cannot be done now is told again, and nothing is done twice.
func testTellManyWithoutServers(e *env) {
	t := e.teller("d")
	var list []meta.Deferred
	for i := range 20 {
		list = append(list, t.make(t.dir.Ino, fmt.Sprint("pipe", i), meta.Fifo))
	}
	list = append(list, t.file(t.dir.Ino, "file", "data"))
	e.clock.advance(meta.HeartbeatMax + time.Second)
	c := withID(t.c, 91)
	_, err := e.Service.TellMany(e.ctx, c, t.epoch, list)
	e.want(errs.Again, err, "a file without I/O servers")
	e.joinAll()
	out, err := e.Service.TellMany(e.ctx, c, t.epoch, list)
	e.must(err)
	for i := range out {
		if out[i].Kind != errs.OK || out[i].Lease == meta.LeaseNone {
			e.Fatalf("%d: %+v", i, out[i])
		}
	}
	if a := t.attrOf(t.dir.Ino); a.Size != 21 {
		e.Fatalf("%+v", a)
	}
}

// testTellManyAfterRestart: before it claims a session tells what it has done in the last life;
// nobody looks into its directories meanwhile.
func testTellManyAfterRestart(e *env) {
	t := e.teller("d")
	done := t.file(t.dir.Ino, "done", "before")
	sub := t.make(t.dir.Ino, "sub", meta.Directory)
	c := withID(t.c, 31)
	_, err := e.Service.TellMany(e.ctx, c, t.epoch, []meta.Deferred{done, sub})
	e.must(err)
	open := t.make(sub.Ino, "open", meta.Regular)
	open.Open, open.Handle = readWrite, 78
	file := t.file(t.dir.Ino, "file", "later")
	e.must(e.Service.Sync(e.ctx))
	e.restart()
	look, looked := e.background(func() error {
		_, err := e.lookup(t.dir.Ino, "file")
		return err
	})
	if time.Sleep(20 * time.Millisecond); looked() {
		e.Fatal("somebody has looked into a directory that was held alone")
	}
	again, err := e.Service.TellMany(e.ctx, c, t.epoch, []meta.Deferred{done, sub})
	if e.must(err); again[0].Kind != errs.OK || again[1].Kind != errs.OK {
		e.Fatalf("%+v", again)
	}
	out, err := e.Service.TellMany(e.ctx, withID(t.c, 32), t.epoch, []meta.Deferred{open, file})
	if e.must(err); out[0].Kind != errs.OK || out[1].Kind != errs.OK || out[0].Lease != 0 {
		e.Fatalf("%+v", out)
	}
	before := t.epoch
	e.claim(t.c.Session, meta.Claimed{Handle: 78, Ino: open.Ino, Flags: readWrite, UID: alice})
	e.must(look())
	_, err = e.Service.TellMany(e.ctx, withID(t.c, 33), before,
		[]meta.Deferred{t.make(t.dir.Ino, "late", meta.Fifo)})
	e.want(errs.Fenced, err, "after the claim")
	e.must(e.Service.Close(e.ctx, t.c, meta.Closing{Handle: 78}))
	if f := t.find(t.dir.Ino, "file"); string(f.Data) != "later" {
		e.Fatalf("%+v", f)
	}
}

// testLookersWait: whoever could see, or miss, what was not told waits for it.
func testLookersWait(e *env) {
	s, c := e.Service, e.root()
	for i, look := range []func(dir meta.Ino, name string) error{
		func(dir meta.Ino, _ string) error { _, err := s.Find(e.ctx, c, dir, "x"); return err },
		func(dir meta.Ino, _ string) error { _, err := s.ReadDir(e.ctx, c, dir, 0, 9, true); return err },
		func(dir meta.Ino, _ string) error {
			_, err := s.Scan(e.ctx, c, dir, meta.Scan{Max: 9})
			return err
		},
		func(dir meta.Ino, _ string) error { _, err := s.GetAttr(e.ctx, c, dir); return err },
		func(_ meta.Ino, name string) error { _, err := e.lookup(meta.RootIno, name); return err },
		func(dir meta.Ino, _ string) error { _, err := e.create(dir, "y", meta.OpenWrite); return err },
		func(dir meta.Ino, _ string) error { return e.remove(dir, "x") },
		func(dir meta.Ino, _ string) error { return e.rename(dir, "x", meta.RootIno, "x", 0) },
		func(_ meta.Ino, name string) error {
			if err := e.rmdir(meta.RootIno, name); errs.KindOf(err) != errs.NotEmpty {
				return fmt.Errorf("rmdir: %v", err)
			}
			return nil
		},
		func(_ meta.Ino, name string) error { return s.RemoveTree(e.ctx, c, meta.RootIno, name) },
	} {
		name := fmt.Sprint("d", i)
		t := e.teller(name)
		over, done := e.background(func() error { return look(t.dir.Ino, name) })
		r := t.recalled(t.dir.Ino)
		if time.Sleep(time.Millisecond); done() {
			e.Fatalf("%d has not waited", i)
		}
		t.mustTell(t.make(t.dir.Ino, "x", meta.Fifo))
		for t.hear(0, r); !done(); { // what was made is known to its maker, too
			for _, r := range t.hear(time.Millisecond).Recalls {
				t.hear(0, r)
			}
		}
		if err := over(); err != nil {
			e.Fatalf("%d: %v", i, err)
		}
		e.must(s.EndSession(e.ctx, t.c.Session))
	}
}
