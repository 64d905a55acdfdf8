package metatest

import (
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// holdCases are about directories that a session asks for.
var holdCases = []testCase{
	{"Hold", testHold},
	{"HoldRefused", testHoldRefused},
	{"HoldFiles", testHoldFiles},
	{"HeldFilesAreVisited", testHeldFilesAreVisited},
	{"HoldAfterRestart", testHoldAfterRestart},
	{"TellManyRepeatedGone", testTellManyRepeatedGone},
}

// filled is a directory with files of which a listener has leases.
func (l *listener) filled(name string, n int) (dir meta.Attr, files []meta.Ino) {
	l.Helper()
	dir, err := l.Service.Make(l.ctx, l.root(), meta.RootIno, name,
		meta.NewFile{Type: meta.Directory, Mode: 0o755})
	l.must(err)
	for i := range n {
		_, err := l.Service.Make(l.ctx, l.root(), dir.Ino, fmt.Sprint("f", i),
			meta.NewFile{Type: meta.Regular, Mode: 0o644})
		l.must(err)
	}
	all, _ := l.scan(dir.Ino, meta.Scan{Max: 100, Attrs: true})
	for _, e := range all {
		if e.Attr.Lease == meta.LeaseNone {
			l.Fatalf("%s came without a lease", e.Name)
		}
		files = append(files, e.Ino)
	}
	return dir, files
}

// hold asks, and returns which files are granted.
func (l *listener) hold(dir meta.Ino, want meta.LeaseMode, files ...meta.Ino) (own []bool) {
	l.Helper()
	out, err := l.Service.Hold(l.ctx, l.c, dir, files)
	if l.must(err); len(out) != 1+len(files) || out[0].Lease != want ||
		want == meta.LeaseSole && out[0].Serial == 0 {
		l.Fatalf("%+v", out)
	}
	for _, s := range out[1:] {
		own = append(own, s.Lease == meta.LeaseWrite)
	}
	return own
}

// holder is a listener that tells what it has done in a directory that was there.
func (e *env) holder(name string, n int) (*teller, []meta.Ino) {
	e.Helper()
	t := &teller{listener: e.listen(), at: 1_900_000_000}
	var files []meta.Ino
	t.dir, files = t.filled(name, n)
	t.ids = uint64(t.dir.Ino) << 32
	t.numbers()
	return t, files
}

// testHold: in a directory that is held things are made and removed, and told; others wait.
func testHold(e *env) {
	t, files := e.holder("d", 2)
	if own := t.hold(t.dir.Ino, meta.LeaseSole, files...); !own[0] || !own[1] {
		e.Fatalf("%v", own)
	}
	t.mustTell(t.make(t.dir.Ino, "new", meta.Fifo), meta.Deferred{Kind: meta.DeferRemove,
		Dir: t.dir.Ino, Name: "f0", Ino: files[0], At: t.now(),
		File: meta.NewFile{Type: meta.Regular}})
	over, done := e.background(func() error {
		_, err := e.lookup(t.dir.Ino, "f1")
		return err
	})
	r := t.recalled(t.dir.Ino)
	if done() {
		e.Fatal("nobody has waited for the holder")
	}
	t.mustTell(meta.Deferred{Kind: meta.DeferRemove, Dir: t.dir.Ino, Name: "f1", Ino: files[1],
		At: t.now(), File: meta.NewFile{Type: meta.Regular}})
	t.hear(0, r)
	e.want(errs.NotFound, over(), "what was removed")
	if got := e.list(t.dir.Ino, 10); len(got) != 1 || got[0].Name != "new" {
		e.Fatalf("%+v", got)
	}
}

// testHoldRefused: not what passes something on, or is not there, or is no directory, or was taken
// from somebody a moment ago; and not without leases.
func testHoldRefused(e *env) {
	l := e.listen()
	group, err := e.Service.Make(e.ctx, e.root(), meta.RootIno, "group",
		meta.NewFile{Type: meta.Directory, Mode: 0o2755})
	e.must(err)
	l.hold(group.Ino, meta.LeaseNone)
	_, err = e.Service.Hold(e.ctx, l.c, 1<<40, nil)
	e.want(errs.NotFound, err, "nothing")
	file, err := e.Service.Make(e.ctx, e.root(), meta.RootIno, "f", meta.NewFile{Type: meta.Regular})
	e.must(err)
	_, err = e.Service.Hold(e.ctx, l.c, file.Ino, nil)
	e.want(errs.NotDir, err, "a file")
	_, err = e.Service.Hold(e.ctx, l.c, meta.RootIno, make([]meta.Ino, meta.HoldMax+1))
	if err == nil {
		e.Fatal("too many files")
	}
	dir, _ := l.filled("d", 1)
	c := l.c
	c.Leases = false
	if out, err := e.Service.Hold(e.ctx, c, dir.Ino, nil); err != nil || out[0].Lease != 0 {
		e.Fatalf("without leases: %v %+v", err, out)
	}
	other := e.listen()
	other.find(dir.Ino, "f0")
	over, _ := e.background(func() error {
		out, err := e.Service.Hold(e.ctx, l.c, dir.Ino, nil)
		if err == nil && out[0].Lease != meta.LeaseSole {
			err = fmt.Errorf("%+v", out)
		}
		return err
	})
	other.hear(0, other.recalled(dir.Ino))
	e.must(over())
	other.hold(dir.Ino, meta.LeaseNone) // it is disputed
	e.clock.advance(3 * time.Second)
	over, _ = e.background(func() error {
		out, err := e.Service.Hold(e.ctx, other.c, dir.Ino, nil)
		if err == nil && out[0].Lease != meta.LeaseSole {
			err = fmt.Errorf("%+v", out)
		}
		return err
	})
	l.hear(0, l.recalled(dir.Ino))
	e.must(over())
}

// testHoldFiles: a file is granted that nobody else has a lease on, or has open.
func testHoldFiles(e *env) {
	l, other := e.listen(), e.listen()
	dir, files := l.filled("d", 4)
	if _, err := e.Service.GetAttr(e.ctx, other.c, files[1]); err != nil {
		e.Fatal(err)
	}
	h, err := e.Service.Open(e.ctx, e.root(), files[2], meta.OpenRead)
	e.must(err)
	own := l.hold(dir.Ino, meta.LeaseSole, append(files, 1<<40)...)
	if fmt.Sprint(own) != "[true false false true false]" {
		e.Fatalf("%v", own)
	}
	e.must(e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: h.ID}))
	if own = l.hold(dir.Ino, meta.LeaseSole, files...); fmt.Sprint(own) != "[true false true true]" {
		e.Fatalf("later: %v", own)
	}
}

// testHeldFilesAreVisited: whoever looks at a file that was granted has that recalled.
func testHeldFilesAreVisited(e *env) {
	s, c := e.Service, e.root()
	for i, look := range []func(ino meta.Ino) error{
		func(ino meta.Ino) error { _, err := s.GetAttr(e.ctx, c, ino); return err },
		func(ino meta.Ino) error { _, err := s.Open(e.ctx, c, ino, meta.OpenRead); return err },
		func(ino meta.Ino) error { _, err := s.Open(e.ctx, c, ino, meta.OpenWrite); return err },
		func(ino meta.Ino) error { _, err := s.Link(e.ctx, c, ino, meta.RootIno, "link"); return err },
	} {
		t, files := e.holder(fmt.Sprint("d", i), 1)
		t.hold(t.dir.Ino, meta.LeaseSole, files...)
		over, done := e.background(func() error { return look(files[0]) })
		r := t.recalled(files[0])
		if done() {
			e.Fatalf("%d has not waited", i)
		}
		t.mustTell(meta.Deferred{Kind: meta.DeferRemove, Dir: t.dir.Ino, Name: "f0", Ino: files[0],
			At: t.now(), File: meta.NewFile{Type: meta.Regular}})
		for t.hear(0, r); !done(); {
			for _, r := range t.hear(time.Millisecond).Recalls {
				t.hear(0, r)
			}
		}
		err, opens := over(), i == 1 || i == 2 // who opens it at that time may have it without a name
		if k := errs.KindOf(err); k != errs.NotFound && k != errs.Stale && !(opens && k == errs.OK) {
			e.Fatalf("%d: %v", i, err)
		}
		e.must(s.EndSession(e.ctx, t.c.Session))
	}
}

// testHoldAfterRestart: what was done in a directory that was asked for is told the next life,
// before anybody looks there.
func testHoldAfterRestart(e *env) {
	t, files := e.holder("d", 1)
	t.hold(t.dir.Ino, meta.LeaseSole, files...)
	before := t.epoch
	e.must(e.Service.Sync(e.ctx))
	e.restart()
	over, done := e.background(func() error {
		_, err := e.lookup(t.dir.Ino, "f0")
		return err
	})
	if time.Sleep(2 * time.Millisecond); done() {
		e.Fatal("nobody has waited for the holder")
	}
	out, err := e.Service.TellMany(e.ctx, withID(t.c, 7), before, []meta.Deferred{{
		Kind: meta.DeferRemove, Dir: t.dir.Ino, Name: "f0", Ino: files[0], At: t.now(),
		File: meta.NewFile{Type: meta.Regular}}})
	if err != nil || out[0].Kind != errs.OK {
		e.Fatalf("%+v %v", out, err)
	}
	e.claim(t.c.Session)
	e.want(errs.NotFound, over(), "what was removed")
}

// testTellManyRepeatedGone: a list is told again that has removed the very directory that it is
// about: it is not refused because nobody holds that any more.
func testTellManyRepeatedGone(e *env) {
	t := e.teller("d")
	sub := t.make(t.dir.Ino, "sub", meta.Directory)
	sub.File.Mode = 0o755
	if out := t.mustTell(sub); out[0].Lease != meta.LeaseSole {
		e.Fatalf("%+v", out)
	}
	file := t.file(sub.Ino, "f", "data")
	list := []meta.Deferred{file, t.gone(&file), t.gone(&sub)}
	c := withID(t.c, 4711)
	for i := range 2 {
		out, err := e.Service.TellMany(e.ctx, c, t.epoch, list)
		e.must(err)
		for j := range out {
			if out[j].Kind != errs.OK {
				e.Fatalf("time %d, operation %d: %v", i, j, out[j].Kind)
			}
		}
	}
	if got, _ := t.scan(t.dir.Ino, meta.Scan{Max: 10}); len(got) != 0 {
		e.Fatalf("%+v", got)
	}
}
