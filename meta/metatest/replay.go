package metatest

import (
	"encoding/binary"

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
			return plain(s.Rename(ctx, c, dir, "linked", dir, "renamed", 0))
		}},
		{"exchange", func(c meta.Caller) (any, error) {
			return plain(s.Rename(ctx, c, dir, "renamed", dir, "sub", meta.RenameExchange))
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
			return plain(s.Remove(ctx, c, dir, "created", false))
		}},
		{"rmdir", func(c meta.Caller) (any, error) {
			return plain(s.Remove(ctx, c, dir, "renamed", true))
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
			v, h, err := s.OpenVolume(ctx, c, "disk", meta.OpenRead)
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
	e.Restart(e)
	again, err := do(meta.Directory)
	if err != nil || again.Ino != first.Ino {
		e.Fatalf("%v: inode %d, want %d", err, again.Ino, first.Ino)
	}
}
