package client

import (
	"context"
	"runtime/debug"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// TestWhatAClosingTells: what a client knows of a file that it has written and closed is what the
// service knows, whatever else it has done to the file before the closing was told.
func TestWhatAClosingTells(t *testing.T) {
	ctx := context.Background()
	for name, one := range map[string]struct {
		before, after func(fs *FS, ino meta.Ino) error // the handle is closed
		known         bool
	}{
		"nothing": {known: true},
		"a link": {known: true, before: func(fs *FS, _ meta.Ino) error {
			return fs.Link(ctx, "/f", "/g")
		}},
		"a name taken away": {before: func(fs *FS, _ meta.Ino) error {
			if err := fs.Link(ctx, "/f", "/g"); err != nil {
				return err
			}
			return fs.Remove(ctx, "/f")
		}},
		"an attribute": {before: func(fs *FS, ino meta.Ino) error {
			return fs.SetXattr(ctx, meta.Cred{}, ino, "user.x", []byte("value"), false, false)
		}},
		"another name": {after: func(fs *FS, _ meta.Ino) error { return fs.Rename(ctx, "/f", "/h") }},
		"a mode": {known: true, after: func(fs *FS, ino meta.Ino) error {
			_, err := fs.SetAttr(ctx, meta.Cred{}, ino, meta.SetMode, meta.Attr{Mode: 0o600})
			return err
		}},
		"a time to come": {before: func(fs *FS, ino meta.Ino) error {
			_, err := fs.SetAttr(ctx, meta.Cred{}, ino, meta.SetMtime,
				meta.Attr{Mtime: meta.Time{Sec: 1 << 40}})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, svc, fs := lone(t)
			f, err := fs.Create(ctx, "/f")
			must(t, err)
			write(t, f, []byte("first"), 0)
			if one.before != nil {
				must(t, one.before(fs, f.Ino()))
			}
			write(t, f, []byte("last"), 0)
			must(t, fs.endings.round.take(ctx)) // until then nothing is told
			must(t, f.Close(ctx))
			if one.after != nil {
				must(t, one.after(fs, f.Ino()))
			}
			fs.endings.round.giveBack()
			fs.flushEndings(ctx)
			var got meta.Attr
			asked := svc.during(func() {
				got, err = fs.GetAttr(ctx, meta.Cred{}, f.Ino())
				must(t, err)
			})
			if one.known && len(asked) > 0 {
				t.Errorf("asked for %v", asked)
			}
			want, err := c.meta.GetAttr(ctx, meta.Caller{}, f.Ino())
			must(t, err)
			if got.Nlink != want.Nlink || got.Xattrs != want.Xattrs || got.Mode != want.Mode ||
				got.Mtime != want.Mtime || got.Ctime != want.Ctime || got.Size != want.Size ||
				got.DataVersion != want.DataVersion {
				t.Errorf("it is taken for\n%+v, it is\n%+v", got, want)
			}
		})
	}
}

// TestOvertakenAnswer: an answer from before a change of this client does not bring back what there
// was before.
func TestOvertakenAnswer(t *testing.T) {
	ctx := context.Background()
	_, _, fs := lone(t)
	f := createSmall(t, fs, "f", 1)
	old, err := fs.askAttr(ctx, meta.Cred{}, f.Ino())
	must(t, err)
	_, err = fs.SetAttr(ctx, meta.Cred{}, f.Ino(), meta.SetMode, meta.Attr{Mode: 0o600})
	must(t, err)
	for name, hear := range map[string]func(){
		"heard": func() { f.node.hear(&old) }, "learned": func() { f.node.learn(&old) },
	} {
		if hear(); f.Attr().Mode != 0o600 {
			t.Errorf("%s: mode %o", name, f.Attr().Mode)
		}
	}
	must(t, f.Close(ctx))
}

// TestFirstAttribute: who has set the first extended attribute of a file can read it.
func TestFirstAttribute(t *testing.T) {
	ctx := context.Background()
	_, _, fs := lone(t)
	touch(t, fs, "/f")
	a, err := fs.Stat(ctx, "/f")
	must(t, err)
	must(t, fs.SetXattr(ctx, meta.Cred{}, a.Ino, "security.x", []byte("value"), false, false))
	got, err := fs.GetXattr(ctx, meta.Cred{}, a.Ino, "security.x")
	if err != nil || string(got) != "value" {
		t.Errorf("%q, %v", got, err)
	}
}

// mute is a context that nobody shall listen to: that has its price in a mount.
type mute struct {
	context.Context
	t *testing.T
}

func (m mute) Done() <-chan struct{} {
	m.t.Helper()
	m.t.Errorf("somebody listens to the context of what is answered from memory:\n%s", debug.Stack())
	return m.Context.Done()
}

// TestNobodyWaitsForWhatIsKnown: what this client knows it answers without getting ready to wait.
func TestNobodyWaitsForWhatIsKnown(t *testing.T) {
	ctx := context.Background()
	_, svc, fs := lone(t)
	must(t, fs.Mkdir(ctx, "/d", 0o755))
	f, err := fs.Create(ctx, "/d/f")
	must(t, err)
	d, err := fs.Stat(ctx, "/d")
	must(t, err)
	cred, quiet := meta.Cred{}, mute{ctx, t}
	must(t, newTurn().take(quiet))
	wantCalls(t, "what is known", svc.during(func() {
		data := make([]byte, 1000)
		to, err := f.Room(quiet, 0, 1000)
		if must(t, err); to != 1000 {
			t.Fatalf("room up to %d", to)
		}
		_, err = f.WriteAt(quiet, data, 0)
		must(t, err)
		_, err = f.ReadAt(quiet, data, 0)
		must(t, err)
		_, err = fs.GetAttr(quiet, cred, f.Ino())
		must(t, err)
		_, err = fs.Lookup(quiet, cred, d.Ino, "f")
		must(t, err)
		if _, err = fs.Lookup(quiet, cred, d.Ino, "absent"); errs.KindOf(err) != errs.NotFound {
			t.Error(err)
		}
		must(t, f.Commit(quiet))
		must(t, f.Close(quiet))
		r, err := fs.OpenIno(quiet, cred, f.Ino(), meta.OpenRead)
		must(t, err)
		_, err = r.ReadAt(quiet, data, 0)
		must(t, err)
		must(t, r.Close(quiet))
	}), map[string]int{"closemany": 1})
}
