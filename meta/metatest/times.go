package metatest

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// timeCases are about the times of inodes.
func timeCases() []testCase {
	return []testCase{
		{"FarTimes", testFarTimes},
		{"Birth", testBirth},
		{"ChangeTimes", testChangeTimes},
		{"Accessed", testAccessed},
		{"AccessedRelative", testAccessedRelative},
		{"AccessedRecallsNothing", testAccessedRecallsNothing},
	}
}

func (e *env) setTimes(ino meta.Ino, atime, mtime meta.Time) {
	e.Helper()
	_, err := e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetAtime|meta.SetMtime,
		meta.Attr{Atime: atime, Mtime: mtime})
	e.must(err)
}

// testFarTimes: times hold every second that there is, with its nanoseconds, in files, directories
// and links, over a restart.
func testFarTimes(e *env) {
	inos := []meta.Ino{e.mkfile(meta.RootIno, "f"), e.mkdir(meta.RootIno, "d"),
		e.mustMake(meta.RootIno, "l", meta.NewFile{Type: meta.Symlink, Target: "f"}).Ino}
	times := []meta.Time{
		{Sec: 16725225600, Nsec: 1},            // 2500
		{Sec: -11676096000, Nsec: 999_999_999}, // 1600
		{Sec: -1, Nsec: 500_000_000},           // just before 1970
		{Sec: 1<<34 - 1}, {Sec: math.MaxInt64, Nsec: 999_999_999}, {Sec: math.MinInt64},
	}
	for i, at := range times {
		other := times[(i+1)%len(times)]
		for _, ino := range inos {
			e.setTimes(ino, at, other)
			if a := e.attr(ino); a.Atime != at || a.Mtime != other {
				e.Fatalf("%v and %v became %v and %v", at, other, a.Atime, a.Mtime)
			}
		}
		e.restart()
		for _, ino := range inos {
			if a := e.attr(ino); a.Atime != at || a.Mtime != other {
				e.Fatalf("%v and %v became %v and %v by a restart", at, other, a.Atime, a.Mtime)
			}
		}
	}
	// What is written to a file whose time is ahead was written now.
	h := e.open(inos[0], meta.OpenWrite)
	e.setTimes(inos[0], times[0], times[0])
	now := meta.TimeOf(e.clock.read())
	w := told(inos[0], 10, h.Attr.TruncSeq, now.UnixNano())
	a, err := e.Service.Commit(e.ctx, e.root(), w, false)
	if err != nil || a.Mtime != now || a.Atime != times[0] {
		e.Fatalf("%v: mtime %v, atime %v after a write at %v", err, a.Mtime, a.Atime, now)
	}
	e.close(h)
}

// testBirth: the time of birth is that of making, whatever happens to the inode.
func testBirth(e *env) {
	for _, f := range []meta.NewFile{{Type: meta.Regular, Mode: 0o644}, {Type: meta.Directory},
		{Type: meta.Symlink, Target: "x"}, {Type: meta.Fifo}} {
		name := fmt.Sprint("n", f.Type)
		before := meta.TimeOf(e.clock.read())
		made := e.mustMake(meta.RootIno, name, f)
		if !made.Btime.After(before) || made.Btime != made.Ctime {
			e.Fatalf("born at %v, changed at %v, asked for at %v", made.Btime, made.Ctime, before)
		}
		e.setTimes(made.Ino, meta.Time{Sec: 1}, meta.Time{Sec: 2})
		e.must(e.rename(meta.RootIno, name, meta.RootIno, name+"moved", 0))
		e.restart()
		if a := e.attr(made.Ino); a.Btime != made.Btime || !a.Ctime.After(a.Btime) {
			e.Fatalf("born at %v, now at %v", made.Btime, a.Btime)
		}
		if f.Type == meta.Regular {
			h := e.open(made.Ino, meta.OpenWrite|meta.OpenTruncate)
			e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 5, h.Attr.TruncSeq, 1)))
			if a := e.attr(made.Ino); a.Btime != made.Btime {
				e.Fatalf("born at %v, now at %v", made.Btime, a.Btime)
			}
		}
	}
	if e.attr(meta.RootIno).Btime == (meta.Time{}) {
		e.Fatal("the root was never born")
	}
}

// stamp is which times of an inode an operation sets.
type stamp struct{ m, c bool }

// testChangeTimes: what POSIX says of each operation, for the inode and for the directories.
func testChangeTimes(e *env) {
	dir, other := e.mkdir(meta.RootIno, "d"), e.mkdir(meta.RootIno, "o")
	file := e.mkfile(dir, "f")
	c, s := e.root(), e.Service
	set := func(mask meta.SetMask, a meta.Attr) func() error {
		return func() error {
			_, err := s.SetAttr(e.ctx, c, file, mask, a)
			return err
		}
	}
	both, ctime, none := stamp{true, true}, stamp{c: true}, stamp{}
	for _, x := range []struct {
		what             string
		do               func() error
		file, dir, other stamp
	}{
		{"chmod", set(meta.SetMode, meta.Attr{Mode: 0o600}), ctime, none, none},
		{"chown", set(meta.SetUID, meta.Attr{UID: alice}), ctime, none, none},
		{"utimes of atime", set(meta.SetAtime, meta.Attr{}), ctime, none, none},
		{"utimes of mtime", set(meta.SetMtime, meta.Attr{}), both, none, none},
		{"truncate", set(meta.SetSize, meta.Attr{Size: 5}), both, none, none},
		{"truncate to the same size", set(meta.SetSize, meta.Attr{Size: 5}), both, none, none},
		{"setxattr", func() error {
			return s.SetXattr(e.ctx, c, file, "user.x", []byte("1"), false, false)
		}, ctime, none, none},
		{"removexattr", func() error { return s.RemoveXattr(e.ctx, c, file, "user.x") },
			ctime, none, none},
		{"link", func() error {
			_, err := s.Link(e.ctx, c, file, other, "l")
			return err
		}, ctime, none, both},
		{"unlink", func() error { return e.remove(other, "l") }, ctime, none, both},
		{"rename", func() error { return e.rename(dir, "f", other, "f", 0) }, ctime, both, both},
		{"rename back", func() error { return e.rename(other, "f", dir, "f", 0) }, ctime, both, both},
		{"lookup", func() error {
			_, err := e.lookup(dir, "f")
			return err
		}, none, none, none},
		{"open and close", func() error {
			e.close(e.open(file, meta.OpenRead))
			return nil
		}, none, none, none},
		{"make in it", func() error {
			e.mkfile(other, "new")
			return nil
		}, none, none, both},
	} {
		was := [...]meta.Attr{e.attr(file), e.attr(dir), e.attr(other)}
		e.must(x.do())
		for i, want := range [...]stamp{x.file, x.dir, x.other} {
			is := e.attr(was[i].Ino)
			got := stamp{is.Mtime != was[i].Mtime, is.Ctime != was[i].Ctime}
			if got != want || is.Btime != was[i].Btime {
				e.Errorf("%s, inode %d of file, dir, other: %+v changed, want %+v", x.what, i, got, want)
			}
		}
	}
}

func (e *env) accessed(c meta.Caller, list ...meta.Access) {
	e.Helper()
	e.must(e.Service.Accessed(e.ctx, c, list))
}

// testAccessed: times of access go forward, by whoever may read, and are not put over what
// somebody has set meanwhile; nothing else changes.
func testAccessed(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	inos := []meta.Ino{e.mkfile(dir, "f"), dir,
		e.mustMake(dir, "l", meta.NewFile{Type: meta.Symlink, Target: "f"}).Ino}
	for _, ino := range inos {
		was := e.attr(ino)
		at := meta.TimeOf(e.clock.read())
		x := meta.Access{Ino: ino, Was: was.Atime, At: at}
		e.accessed(e.root(), meta.Access{Ino: 999_999, At: at}, x, x)
		is := e.attr(ino)
		if is.Atime != at || is.Mtime != was.Mtime || is.Ctime != was.Ctime ||
			is.DataVersion != was.DataVersion {
			e.Fatalf("%+v after %+v", is, was)
		}
		e.accessed(e.root(), meta.Access{Ino: ino, Was: was.Atime, At: meta.Time{Sec: at.Sec - 1}})
		if is := e.attr(ino); is.Atime != at {
			e.Fatalf("an access from before it brought %v back to %v", at, is.Atime)
		}
		e.setTimes(ino, meta.Time{Sec: 7}, meta.Time{Sec: 7})
		e.accessed(e.root(), meta.Access{Ino: ino, Was: at, At: meta.Time{Sec: at.Sec + 1}})
		if is := e.attr(ino); is.Atime.Sec != 7 {
			e.Fatalf("an access from before it was set has changed it to %v", is.Atime)
		}
		later := meta.Time{Sec: at.Sec + 2, Nsec: 3}
		e.accessed(e.root(), meta.Access{Ino: ino, Was: meta.Time{Sec: math.MinInt64}, At: later})
		e.restart()
		if is := e.attr(ino); is.Atime != later {
			e.Fatalf("atime %v after a restart, want %v", is.Atime, later)
		}
	}
	_, err := e.Service.SetAttr(e.ctx, e.root(), inos[0], meta.SetMode, meta.Attr{Mode: 0o600})
	e.must(err)
	was := e.attr(inos[0])
	e.accessed(e.user(bob), meta.Access{Ino: inos[0], Was: was.Atime, At: meta.Time{Sec: 1 << 33}})
	if is := e.attr(inos[0]); is.Atime != was.Atime {
		e.Fatal("somebody who may not read it has read it")
	}
	err = e.Service.Accessed(e.ctx, e.root(), make([]meta.Access, meta.AccessMax+1))
	e.want(errs.Invalid, err, "too many accesses")
}

// testAccessedRelative: an access counts only if there was none since the last change, or for a
// day. Many at once are told in one request.
func testAccessedRelative(e *env) {
	var list []meta.Access
	never := meta.Time{Sec: math.MinInt64}
	read := func(ino meta.Ino, at meta.Time) meta.Time {
		e.Helper()
		e.accessed(e.root(), meta.Access{Ino: ino, Was: never, At: at, Relative: true})
		return e.attr(ino).Atime
	}
	for _, ino := range []meta.Ino{e.mkfile(meta.RootIno, "f"), e.mkdir(meta.RootIno, "d")} {
		first := meta.TimeOf(e.clock.read())
		if got := read(ino, first); got != first {
			e.Fatalf("not noted at %v, but %v: what was made has not been read before", first, got)
		}
		soon := meta.Time{Sec: first.Sec + 24*3600 - 1, Nsec: first.Nsec}
		if got := read(ino, soon); got != first {
			e.Fatalf("noted at %v, within a day of %v", got, first)
		}
		late := meta.Time{Sec: first.Sec + 24*3600, Nsec: first.Nsec}
		if got := read(ino, late); got != late {
			e.Fatalf("%v: not noted a day later", got)
		}
		e.clock.advance(48 * 3600 * 1e9)
		e.must(e.keepOwn())
		_, err := e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetMode, meta.Attr{Mode: 0o755})
		e.must(err)
		changed := e.attr(ino).Ctime
		after := meta.Time{Sec: changed.Sec, Nsec: changed.Nsec + 1}
		if got := read(ino, after); got != after {
			e.Fatalf("%v: not noted after a change", got)
		}
	}
	for i := range meta.AccessMax / 4 {
		a := e.mustMake(meta.RootIno, fmt.Sprint(i), meta.NewFile{Type: meta.Fifo})
		list = append(list, meta.Access{Ino: a.Ino, Was: a.Atime, At: meta.Time{Sec: a.Atime.Sec + 1}})
	}
	e.accessed(e.root(), list...)
	for _, x := range list {
		if a := e.attr(x.Ino); a.Atime != x.At {
			e.Fatalf("inode %d of %d: atime %v, want %v", x.Ino, len(list), a.Atime, x.At)
		}
	}
}

// testAccessedRecallsNothing: who holds a lease is not asked because others read.
func testAccessedRecallsNothing(e *env) {
	file := e.mkfile(meta.RootIno, "f")
	l := e.listen()
	held := l.find(meta.RootIno, "f")
	if held.Attr.Lease != meta.LeaseRead {
		e.Fatalf("no lease: %+v", held.Attr)
	}
	e.accessed(e.root(), meta.Access{Ino: file, Was: held.Attr.Atime, At: meta.Time{Sec: 1 << 33}})
	if h := l.hear(0); len(h.Recalls) > 0 || !h.Extended {
		e.Fatalf("%+v", h)
	}
	if a := e.attr(file); a.Atime.Sec != 1<<33 {
		e.Fatalf("atime %v", a.Atime)
	}
}

// testTimeSetWhileWritten: a time that was set stays whatever writers tell later of what they wrote
// before, and goes with what is written after it.
func testTimeSetWhileWritten(e *env) {
	h, err := e.create(meta.RootIno, "f", meta.OpenWrite)
	e.must(err)
	ino, set := h.Attr.Ino, meta.UnixTime(1000, 1)
	now := h.Attr.Mtime
	is := func(what string, want meta.Time) {
		e.Helper()
		if a := e.attr(ino); a.Mtime != want {
			e.Fatalf("%s: %v, want %v", what, a.Mtime, want)
		}
	}
	tell := func(age time.Duration, mtime meta.Time) {
		e.Helper()
		w := meta.Change{Ino: ino, Size: 5, Mtime: mtime, Age: age}
		_, err := e.Service.Commit(e.ctx, e.root(), w, false)
		e.must(err)
	}
	e.clock.advance(3 * time.Second)
	_, err = e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetMtime, meta.Attr{Mtime: set})
	e.must(err)
	e.clock.advance(time.Second)
	tell(2*time.Second, now)
	is("what was written before is told", set)
	if a := e.attr(ino); a.Size != 5 {
		e.Fatalf("it has %d bytes", a.Size)
	}
	tell(time.Second/2, now)
	is("it is written again", now)
	_, err = e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetMtime, meta.Attr{Mtime: set})
	e.must(err)
	tell(0, now)
	is("nobody says when it was written", now)
	_, err = e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetMtime, meta.Attr{Mtime: set})
	e.must(err)
	e.must(e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: h.ID, Dirty: true,
		Change: meta.Change{Ino: ino, Size: 5, Mtime: now, Age: time.Second}}))
	is("what was written before is told with the closing", set)
}
