package client

import (
	"bytes"
	"context"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/objects"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// onceWritten has do done at the first write to an I/O server.
func (c *cluster) onceWritten(do func() error) {
	done := false
	c.setHook(func(k call) error {
		if k.op != iod.OpWrite || done {
			return nil
		}
		done = true
		return do()
	})
}

// TestSpillingFileIsClaimed: a service that is restarted while a small file moves out hears that
// I/O servers may have some of it.
func TestSpillingFileIsClaimed(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	seq := f.node.sequence()
	var claimed meta.Claimed
	c.onceWritten(func() error {
		claimed = f.node.claim(1, meta.OpenWrite, 0)
		return nil
	})
	must(t, fs.moveOut(context.Background(), f))
	if claimed.Spilled != meta.SpilledUnder(seq) {
		t.Errorf("it is claimed with %d, want %d", claimed.Spilled, meta.SpilledUnder(seq))
	}
	if s := f.node.claim(1, meta.OpenWrite, 0).Spilled; s != 0 {
		t.Errorf("when it has moved out it is claimed with %d", s)
	}
	must(t, f.Close(context.Background()))
}

// TestCutWhileMovingOut: a client empties a small file that it is just moving out. What it had to
// tell before is not told when the move-out fails.
func TestCutWhileMovingOut(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	c.onceWritten(func() error {
		g, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenWrite|meta.OpenTruncate)
		if err == nil {
			err = g.Close(ctx)
		}
		must(t, err)
		return errs.New(errs.NoSpace, "double", "", nil)
	})
	must(t, f.node.telling.take(ctx))
	err := fs.moveOutOnce(ctx, ctx, f)
	f.node.telling.giveBack()
	if errs.KindOf(err) != errs.NoSpace {
		t.Fatal(err)
	}
	if f.node.untold() {
		t.Error("there is something to tell of a file that was emptied")
	}
	must(t, f.Close(ctx))
}

// spilledCut is a service that keeps in mind how it was asked for a new length, and may refuse it.
// What is to be cut at the I/O servers, too, is.
type spilledCut struct {
	moveless
	data    *objects.Objects
	masks   []meta.SetMask
	refuses error
	opened  func()
}

func (s *spilledCut) SetAttr(ctx context.Context, c meta.Caller, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {
	s.masks = append(s.masks, mask)
	if s.refuses != nil {
		return meta.Attr{}, s.refuses
	}
	got, err := s.moveless.SetAttr(ctx, c, ino, mask, a)
	if err == nil && mask&meta.SetSpilled != 0 {
		err = s.data.Truncate(ctx, meta.FileRef{Ino: ino, Gen: got.Gen, TruncSeq: got.TruncSeq,
			Layout: got.Layout}, a.Size)
	}
	return got, err
}

func (s *spilledCut) Open(ctx context.Context, c meta.Caller, ino meta.Ino,
	flags meta.OpenFlags) (meta.Handle, error) {
	h, err := s.moveless.Open(ctx, c, ino, flags)
	if err == nil && flags&meta.OpenTruncate != 0 && s.opened != nil {
		s.opened()
	}
	return h, err
}

// spilledFile is a small file of a thousand bytes that could not move out, and is told.
func spilledFile(t *testing.T) (*spilledCut, *FS, *File) {
	t.Helper()
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	svc := &spilledCut{moveless: moveless{Service: c.service()}, data: objects.New(c, c.key, nil)}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, pattern(1000, 1), 0)
	svc.on.Store(true)
	if err := fs.moveOut(ctx, f); err == nil {
		t.Fatal("it has moved out")
	}
	svc.on.Store(false)
	must(t, f.Sync(ctx))
	return svc, fs, f
}

// TestSpilledFileIsCutByItsWriter: a client that has left something of a small file at the I/O
// servers has it cut there when it cuts the file, once.
func TestSpilledFileIsCutByItsWriter(t *testing.T) {
	ctx, cred := context.Background(), meta.Cred{UID: 1000, GID: 1000}
	rw := meta.OpenRead | meta.OpenWrite | meta.OpenTruncate
	for name, cut := range map[string]func(fs *FS, f *File) (*File, error){
		"cut":  func(_ *FS, f *File) (*File, error) { return f, f.Truncate(ctx, 0) },
		"open": func(fs *FS, f *File) (*File, error) { return fs.OpenIno(ctx, cred, f.Ino(), rw) },
		"create": func(fs *FS, _ *File) (*File, error) {
			return fs.CreateIno(ctx, cred, fs.root, "f", meta.NewFile{Mode: 0o644}, rw)
		},
	} {
		t.Run(name, func(t *testing.T) {
			svc, fs, f := spilledFile(t)
			for range 2 {
				g, err := cut(fs, f)
				must(t, err)
				if got := contents(t, g); len(got) != 0 {
					t.Errorf("%d bytes are left", len(got))
				}
				write(t, g, []byte("again"), 0)
			}
			if len(svc.masks) == 0 || svc.masks[0] != meta.SetSize|meta.SetSpilled {
				t.Errorf("asked with %#x", svc.masks)
			}
			for _, m := range svc.masks[min(1, len(svc.masks)):] {
				if m&meta.SetSpilled != 0 {
					t.Errorf("asked with %#x", svc.masks)
				}
			}
			must(t, f.Sync(ctx))
		})
	}
}

// TestSpilledFileIsNotCut: who empties a file with an opening fails where what it has left at the
// I/O servers cannot be cut, and leaves no handle.
func TestSpilledFileIsNotCut(t *testing.T) {
	ctx := context.Background()
	svc, fs, f := spilledFile(t)
	svc.refuses = errs.New(errs.Disconnected, "double", "", nil)
	_, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenWrite|meta.OpenTruncate)
	if errs.KindOf(err) != errs.Disconnected {
		t.Errorf("opened, %v", err)
	}
	if n := len(f.node.opened(0)); n != 1 {
		t.Errorf("%d handles are open", n)
	}
	if f.node.halfOut() != meta.SpilledUnder(f.node.sequence()) {
		t.Error("who has the file next is not kept from what was left")
	}
	svc.refuses = nil
	g, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenWrite|meta.OpenTruncate)
	must(t, err)
	if n := len(svc.masks); n != 2 || svc.masks[1]&meta.SetSpilled == 0 {
		t.Errorf("asked with %#x", svc.masks)
	}
	must(t, g.Close(ctx))
	must(t, f.Close(ctx))
}

// TestSpilledBehindACut: a file that was left half moved out is emptied by an opening, and moves
// out before that has returned. What was left does not come back.
func TestSpilledBehindACut(t *testing.T) {
	ctx := context.Background()
	svc, fs, f := spilledFile(t)
	svc.opened = func() {
		_, err := fs.askAttr(ctx, *fs.opts.Cred, f.Ino())
		must(t, err)
		write(t, f, []byte("a"), 0)
		must(t, fs.moveOut(ctx, f))
	}
	g, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenWrite|meta.OpenTruncate)
	must(t, err)
	write(t, f, []byte("z"), 99)
	want := make([]byte, 100)
	want[0], want[99] = 'a', 'z'
	if got := contents(t, f); !bytes.Equal(got, want) {
		t.Errorf("the file has %x", got)
	}
	must(t, g.Close(ctx))
	must(t, f.Close(ctx))
}
