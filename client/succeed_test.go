package client

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// mortal makes a client of a name, which takes over from those before it. It is ended by die, or by
// the test.
func mortal(t *testing.T, c *cluster, before ...uint64) *FS {
	t.Helper()
	fs, err := New(c.service(), c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000},
		Identity: "mount", Succeeds: before})
	must(t, err)
	return fs
}

// die ends a client as a kill of its process does: it tells nobody, and nothing more of it comes.
func die(t *testing.T, fs *FS) uint64 {
	t.Helper()
	fs.stop()
	fs.workers.Wait()
	fs.behind.Close()
	if fs.down != nil {
		must(t, fs.down())
	}
	return fs.SessionID()
}

// TestSuccession: a client opens again what a dead one had open: a file that it was about to write,
// whose length nobody has told, one without a name, and one that it has locked. Nobody waits for
// leases of the dead one, or gets its locks; what is not opened again is closed.
func TestSuccession(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 2, withLongLeases(store.Options{}))
	other := c.client(Options{})
	dead := mortal(t, c)
	f, gone := create(t, dead, "f", 2), create(t, dead, "gone", 2)
	data := pattern(5000, 1)
	write(t, f, data, 0)
	write(t, gone, data, 0)
	must(t, dead.Remove(ctx, "/gone"))
	lock := meta.Lock{Ino: f.Ino(), Kind: meta.LockRange, Type: meta.LockExclusive, Owner: 7, End: 9}
	must(t, dead.Lock(ctx, lock, false))
	id := die(t, dead)

	began := time.Now()
	fs := mortal(t, c, id)
	defer func() { must(t, fs.Close()) }()
	if !fs.Succeeded() || fs.SessionID() == id {
		t.Fatal("the session was not taken over")
	}
	again := func(ino meta.Ino) *File {
		g, err := fs.OpenIno(ctx, meta.Cred{}, ino, meta.OpenRead|meta.OpenWrite)
		must(t, err)
		must(t, g.Inherit(ctx, true))
		if got := contents(t, g); !bytes.Equal(got, data) {
			t.Fatalf("inode %d has %d other bytes", ino, len(got))
		}
		return g
	}
	g, unnamed := again(f.Ino()), again(gone.Ino())
	must(t, fs.EndSuccession(ctx))
	if list := fs.LockedBy(f.Ino(), meta.LockRange); len(list) != 1 || list[0] != 7 {
		t.Fatalf("locked by %v", list)
	}
	theirs := lock
	theirs.Owner = 8
	if err := other.Lock(ctx, theirs, false); errs.KindOf(err) != errs.Busy {
		t.Fatalf("another client's lock: %v", err)
	}
	if a, err := other.Lstat(ctx, "/f"); err != nil || a.Size != int64(len(data)) {
		t.Fatalf("another client sees %d bytes, %v", a.Size, err)
	}
	must(t, g.Close(ctx))
	must(t, unnamed.Close(ctx))
	if took := time.Since(began); took > longLease/2 {
		t.Fatalf("somebody has waited for the dead: %v", took)
	}
	if err := fs.svc.Succeed(ctx, meta.Caller{Session: fs.SessionID()}, id, true); errs.KindOf(
		err) != errs.NotFound {
		t.Fatalf("the old session: %v", err)
	}
}

// TestSuccessionTooLate: a session that is not there any more had locks that others may have had
// since; that is said, and files can be opened all the same.
func TestSuccessionTooLate(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	dead := mortal(t, c)
	f := create(t, dead, "f", 1)
	write(t, f, []byte("data"), 0)
	must(t, f.Sync(ctx))
	id := die(t, dead)
	must(t, c.meta.EndSession(ctx, id))
	fs := mortal(t, c, id)
	defer func() { must(t, fs.Close()) }()
	if fs.Succeeded() {
		t.Fatal("it is not known that the session was gone")
	}
	g, err := fs.OpenIno(ctx, meta.Cred{}, f.Ino(), meta.OpenRead|meta.OpenWrite)
	must(t, err)
	must(t, g.Inherit(ctx, true))
	must(t, fs.EndSuccession(ctx))
	g.LoseLocks()
	if _, err := g.ReadAt(ctx, make([]byte, 4), 0); err == nil {
		t.Fatal("a handle whose locks are lost is read from")
	}
	must(t, g.Close(ctx))
}

// TestSuccessionOfStrangers: nobody succeeds a client of another name.
func TestSuccessionOfStrangers(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	stranger := c.client(Options{Identity: "stranger"})
	_, err := New(c.service(), c, Options{Identity: "mount", Succeeds: []uint64{stranger.SessionID()}})
	if err == nil {
		t.Fatal("the session of another client was taken")
	}
	must(t, stranger.Mkdir(context.Background(), "/d", 0o755))
}

// TestHandOver: a client that hands over leaves nothing that only it knows: data of small files,
// lengths, handles. What is unsaved is known before.
func TestHandOver(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 2, withLongLeases(store.Options{}))
	old := mortal(t, c)
	listened(t, old)
	small, large := createSmall(t, old, "small", 1), create(t, old, "large", 2)
	write(t, small, []byte("small data"), 0)
	write(t, large, pattern(9000, 3), 0)
	if !old.Unsaved(small.Ino()) || old.Unsaved(large.Ino()) || old.Unsaved(12345) {
		t.Fatal("only the small file is nowhere else")
	}
	must(t, old.HandOver(ctx))
	must(t, old.HandOver(ctx))
	if old.Unsaved(small.Ino()) {
		t.Fatal("it is nowhere else still")
	}
	id := die(t, old)
	fs := mortal(t, c, id)
	defer func() { must(t, fs.Close()) }()
	for ino, want := range map[meta.Ino][]byte{small.Ino(): []byte("small data"),
		large.Ino(): pattern(9000, 3)} {
		g, err := fs.OpenIno(ctx, meta.Cred{}, ino, meta.OpenRead|meta.OpenWrite)
		must(t, err)
		must(t, g.Inherit(ctx, false))
		if got := contents(t, g); !bytes.Equal(got, want) {
			t.Errorf("inode %d has %d other bytes", ino, len(got))
		}
		must(t, g.Sync(ctx))
		must(t, g.Close(ctx))
	}
	must(t, fs.EndSuccession(ctx))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	f := createSmall(t, fs, "more", 1)
	write(t, f, []byte("x"), 0)
	if err := fs.HandOver(ended); err == nil && fs.Unsaved(f.Ino()) {
		t.Fatal("it is said to be handed over")
	}
	must(t, f.Close(ctx))
}

// TestSessionIsTold: whoever must succeed this client hears of a session that takes the place of
// one that was lost.
func TestSessionIsTold(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	first := fs.SessionID()
	told := make(chan uint64, 8)
	fs.OnSession(func(id uint64) { told <- id })
	must(t, c.meta.EndSession(ctx, first))
	must(t, fs.Mkdir(ctx, "/d", 0o755))
	select {
	case id := <-told:
		if id == first || id != fs.SessionID() {
			t.Fatalf("session %d is told, it is %d, and was %d", id, fs.SessionID(), first)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody is told")
	}
}
