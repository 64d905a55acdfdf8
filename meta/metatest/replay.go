package metatest

import (
	"encoding/binary"
	"fmt"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// step is an operation that a client may repeat because it lost the answer.
type step struct {
	what string
	do   func(c meta.Caller) (answer any, err error)
}

// replaySteps is a history in which each operation, done a second time as a new one, would fail
// or do harm.
func replaySteps(e *env, dir meta.Ino) []step {
	s, ctx := e.Service, e.ctx
	file := meta.NewFile{Type: meta.Regular, Mode: 0o644}
	var made, open meta.Ino
	var handle uint64
	plain := func(err error) (any, error) { return nil, err }
	return []step{
		{"make", func(c meta.Caller) (any, error) {
			a, err := s.Make(ctx, c, dir, "made", file)
			made = a.Ino
			return a, err
		}},
		{"mkdir", func(c meta.Caller) (any, error) {
			return s.Make(ctx, c, dir, "sub", meta.NewFile{Type: meta.Directory, Mode: 0o755})
		}},
		{"link", func(c meta.Caller) (any, error) { return s.Link(ctx, c, made, dir, "linked") }},
		{"rename", func(c meta.Caller) (any, error) {
			return plain(Failed(s.Rename(ctx, c, dir, "linked", dir, "renamed", 0)))
		}},
		{"exchange", func(c meta.Caller) (any, error) {
			return plain(Failed(s.Rename(ctx, c, dir, "renamed", dir, "sub", meta.RenameExchange)))
		}},
		{"create", func(c meta.Caller) (any, error) {
			h, err := s.Create(ctx, c, dir, "created", file, meta.OpenWrite|meta.OpenExclusive)
			handle, open = h.ID, h.Attr.Ino
			return []any{h.ID, h.Attr}, err
		}},
		{"commit", func(c meta.Caller) (any, error) {
			return s.Commit(ctx, c, told(open, 100, 0, 1), true)
		}},
		{"append", func(c meta.Caller) (any, error) {
			off, a, err := s.Append(ctx, c, handle, 10)
			return []any{off, a}, err
		}},
		{"truncate", func(c meta.Caller) (any, error) {
			return s.SetAttr(ctx, c, open, meta.SetSize, meta.Attr{Size: 50})
		}},
		{"setxattr", func(c meta.Caller) (any, error) {
			return plain(s.SetXattr(ctx, c, open, "user.x", []byte("1"), true, false))
		}},
		{"removexattr", func(c meta.Caller) (any, error) {
			return plain(s.RemoveXattr(ctx, c, open, "user.x"))
		}},
		{"close", func(c meta.Caller) (any, error) {
			return plain(s.Close(ctx, c, wrote(handle, 60, 1, 1)))
		}},
		{"open", func(c meta.Caller) (any, error) {
			h, err := s.Open(ctx, c, open, meta.OpenWrite|meta.OpenTruncate)
			handle = h.ID
			return []any{h.ID, h.Attr}, err
		}},
		{"close clean", func(c meta.Caller) (any, error) {
			return plain(s.Close(ctx, c, meta.Closing{Handle: handle}))
		}},
		{"unlink", func(c meta.Caller) (any, error) {
			return plain(Failed(s.Remove(ctx, c, dir, "created", false)))
		}},
		{"rmdir", func(c meta.Caller) (any, error) {
			return plain(Failed(s.Remove(ctx, c, dir, "renamed", true)))
		}},
	}
}

// volumeSteps goes on with a volume.
func volumeSteps(e *env) []step {
	s, ctx := e.Service, e.ctx
	var handle uint64
	plain := func(err error) (any, error) { return nil, err }
	return []step{
		{"create volume", func(c meta.Caller) (any, error) {
			return s.CreateVolume(ctx, c, "disk", 100, meta.NewFile{})
		}},
		{"open volume", func(c meta.Caller) (any, error) {
			v, h, err := s.OpenVolume(ctx, c, "disk", meta.OpenRead, 0)
			handle = h.ID
			return []any{v, h.ID, h.Attr}, err
		}},
		{"close volume", func(c meta.Caller) (any, error) {
			return plain(s.Close(ctx, c, meta.Closing{Handle: handle}))
		}},
		{"remove volume", func(c meta.Caller) (any, error) {
			return plain(s.RemoveVolume(ctx, c, "disk"))
		}},
	}
}

func withID(c meta.Caller, id uint64) meta.Caller {
	binary.BigEndian.PutUint64(c.ReqID[:], id*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(c.ReqID[8:], id)
	return c
}

// testReplay does every operation twice under one id, and compares answers and what is left with a
// service that did each of them once.
func testReplay(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	for i, st := range append(replaySteps(e, dir), volumeSteps(e)...) {
		c := withID(e.root(), uint64(i)+1)
		first, err := st.do(c)
		if err != nil {
			e.Fatalf("%s: %v", st.what, err)
		}
		again, err := st.do(c)
		if err != nil {
			e.Fatalf("%s, repeated: %v", st.what, err)
		}
		if d := cmp.Diff(first, again); d != "" {
			e.Fatalf("%s is answered differently the second time: %s", st.what, d)
		}
	}
	if a := e.attr(dir); a.Size != 2 || a.Nlink != 2 {
		e.Fatalf("%d entries and %d links left, want 2 and 2", a.Size, a.Nlink)
	}
	made, err := e.lookup(dir, "made")
	if err != nil || made.Nlink != 2 || e.names(dir)["sub"] != made.Ino {
		e.Fatalf("%v: %+v", err, made)
	}
	_, err = e.Service.Make(e.ctx, withID(e.root(), 1000), dir, "made",
		meta.NewFile{Type: meta.Fifo})
	e.want(errs.Exists, err, "a refusal under an id of its own")
}

// testReplayAfterRestart loses the service between the operation and its repetition.
func testReplayAfterRestart(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	do := func(kind meta.Type) (meta.Attr, error) {
		return e.Service.Make(e.ctx, withID(e.root(), 5), dir, "x",
			meta.NewFile{Type: kind, Mode: 0o600})
	}
	first, err := do(meta.Directory)
	e.must(err)
	e.must(e.Service.Sync(e.ctx))
	e.restart()
	again, err := do(meta.Directory)
	if err != nil || again.Ino != first.Ino {
		e.Fatalf("%v: inode %d, want %d", err, again.Ino, first.Ino)
	}
}

// testReplayWhileNamesMove loses the answers of operations that make something. Before they are
// repeated somebody else renames or removes what they made, and gives the name to another: the
// repetition is about what was made the first time.
func testReplayWhileNamesMove(e *env) {
	for round, restart := range []bool{false, true} {
		dir := e.mkdir(meta.RootIno, fmt.Sprintf("d%d", round))
		makers := madeSteps(e, dir)
		first := make([]meta.Ino, len(makers))
		for i := range makers {
			var err error
			first[i], err = makers[i].do(withID(e.root(), uint64(100*round+i)+1))
			e.must(err)
			makers[i].elsewhere()
		}
		if restart {
			e.must(e.Service.Sync(e.ctx))
			e.Restart(e) // who waits for an answer has nothing to claim yet
			e.attr(dir)
		}
		before := e.names(dir)
		for i := range makers {
			again, err := makers[i].do(withID(e.root(), uint64(100*round+i)+1))
			if err != nil || again != first[i] {
				e.Errorf("%s, repeated (restart %v): inode %d, %v; the first time %d",
					makers[i].what, restart, again, err, first[i])
			}
		}
		if d := cmp.Diff(before, e.names(dir)); d != "" {
			e.Errorf("repetitions have changed the names: %s", d)
		}
		e.claim(e.session)
		e.must(e.Service.RemoveVolume(e.ctx, e.root(), "moving"))
	}
}

// maker makes something under a name; elsewhere takes the name away from it.
type maker struct {
	what      string
	do        func(c meta.Caller) (meta.Ino, error)
	elsewhere func()
}

func madeSteps(e *env, dir meta.Ino) []maker {
	file := meta.NewFile{Type: meta.Regular, Mode: 0o644}
	made := func(name string, f meta.NewFile) func(c meta.Caller) (meta.Ino, error) {
		return func(c meta.Caller) (meta.Ino, error) {
			a, err := e.Service.Make(e.ctx, c, dir, name, f)
			return a.Ino, err
		}
	}
	create := func(name string, flags meta.OpenFlags) func(c meta.Caller) (meta.Ino, error) {
		return func(c meta.Caller) (meta.Ino, error) {
			h, err := e.Service.Create(e.ctx, c, dir, name, file, flags|meta.OpenWrite)
			return h.Attr.Ino, err
		}
	}
	renamed := func(name string, again bool) func() {
		return func() {
			e.must(Failed(e.Service.Rename(e.ctx, e.root(), dir, name, dir, name+".old", 0)))
			if again {
				_, err := e.Service.Make(e.ctx, e.root(), dir, name, file)
				e.must(err)
			}
		}
	}
	removed := func(name string, isDir bool) func() {
		return func() { e.must(Failed(e.Service.Remove(e.ctx, e.root(), dir, name, isDir))) }
	}
	sub := meta.NewFile{Type: meta.Directory, Mode: 0o755}
	return []maker{
		{"make, renamed", made("a", file), renamed("a", true)},
		{"make, removed", made("b", file), removed("b", false)},
		{"mkdir, renamed", made("c", sub), renamed("c", true)},
		{"mkdir, removed", made("d", sub), removed("d", true)},
		{"symlink, removed", made("e", meta.NewFile{Type: meta.Symlink, Target: "x"}),
			removed("e", false)},
		{"create, renamed", create("f", meta.OpenExclusive), renamed("f", true)},
		{"create, removed", create("g", meta.OpenExclusive), removed("g", false)},
		{"create not exclusively, renamed", create("h", 0), renamed("h", true)},
		{"create volume, made again", func(c meta.Caller) (meta.Ino, error) {
			v, err := e.Service.CreateVolume(e.ctx, c, "moving", 100, meta.NewFile{})
			return v.Ino, err
		}, func() {
			e.must(e.Service.RemoveVolume(e.ctx, e.root(), "moving"))
			_, err := e.Service.CreateVolume(e.ctx, e.root(), "moving", 100, meta.NewFile{})
			e.must(err)
		}},
	}
}
