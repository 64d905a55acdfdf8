package client

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestAccessQueue: what is noted is told once, with what was known before the first access; what is
// set meanwhile is not overwritten; what was told is remembered for a while.
func TestAccessQueue(t *testing.T) {
	var q accessQueue
	q.token = make(chan struct{}, 1)
	at := func(sec int64) meta.Time { return meta.Time{Sec: sec} }
	shown := func(atime int64) int64 {
		a := meta.Attr{Ino: 1, Atime: at(atime)}
		q.overlay(&a)
		return a.Atime.Sec
	}
	if q.take() != nil || shown(5) != 5 {
		t.Fatal("something is there")
	}
	q.note(meta.Access{Ino: 1, Was: at(5), At: at(10)})
	q.note(meta.Access{Ino: 1, Was: at(10), At: at(11)})
	if shown(5) != 11 || shown(4) != 4 || shown(12) != 12 {
		t.Fatalf("shown as %d, %d, %d", shown(5), shown(4), shown(12))
	}
	list := q.take()
	if len(list) != 1 || list[0] != (meta.Access{Ino: 1, Was: at(5), At: at(11)}) {
		t.Fatalf("%+v", list)
	}
	if q.take() != nil {
		t.Fatal("told twice at once")
	}
	q.ended(list, false)
	if list = q.take(); len(list) != 1 {
		t.Fatalf("%+v: what could not be told is to be told again", list)
	}
	q.note(meta.Access{Ino: 1, Was: at(11), At: at(20)}) // read again while it is told
	q.ended(list, true)
	if list = q.take(); len(list) != 1 || list[0].Was != at(11) || list[0].At != at(20) {
		t.Fatalf("%+v", list)
	}
	done := make(chan error)
	go func() { done <- q.forget(t.Context(), 1) }()
	select {
	case <-done:
		t.Fatal("a time is set while an older one is being told")
	case <-time.After(20 * time.Millisecond):
	}
	q.ended(list, true)
	must(t, <-done)
	if shown(11) != 11 || q.take() != nil {
		t.Fatal("what was forgotten is shown, or told")
	}
}

// TestAccessesAreBounded: more inodes than are remembered do no harm.
func TestAccessesAreBounded(t *testing.T) {
	var q accessQueue
	q.token = make(chan struct{}, 1)
	for i := range 2 * accessesMax {
		q.note(meta.Access{Ino: meta.Ino(i + 1), At: meta.Time{Sec: 1}})
	}
	if len(q.all) != accessesMax || q.untold != accessesMax {
		t.Fatalf("%d are remembered, %d to be told", len(q.all), q.untold)
	}
	told := 0
	for list := q.take(); list != nil; list = q.take() {
		if len(list) > meta.AccessMax {
			t.Fatalf("%d at once", len(list))
		}
		told += len(list)
		q.ended(list, true)
	}
	if told != accessesMax || q.untold != 0 {
		t.Fatalf("%d of %d were told", told, accessesMax)
	}
}

// TestAccessed: who reads a file on behalf of programs says so. It is shown at once, by what is
// cached too, told when the client ends, and relative only once after a change.
func TestAccessed(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	listened(t, fs)
	ctx := t.Context()
	f, err := fs.Create(ctx, "/f")
	must(t, err)
	write(t, f, []byte("x"), 0)
	first, err := fs.Stat(ctx, "/f")
	must(t, err)
	if !f.Accessed(true) || f.Accessed(true) {
		t.Fatal("not noted once")
	}
	after, err := fs.Stat(ctx, "/f")
	must(t, err)
	if !after.Atime.After(first.Atime) || after.Ctime != first.Ctime || after.Mtime != first.Mtime {
		t.Fatalf("%+v after %+v", after, first)
	}
	if !f.Accessed(false) {
		t.Fatal("not noted where each is to be")
	}
	write(t, f, []byte("y"), 0)
	if !f.Accessed(true) {
		t.Fatal("not noted after a write that was not told")
	}
	must(t, f.Close(ctx))
	must(t, fs.Mkdir(ctx, "/d", 0o755))
	d, err := fs.Stat(ctx, "/d")
	must(t, err)
	fs.AccessedIno(d.Ino, true)
	listed, err := fs.Stat(ctx, "/d")
	must(t, err)
	if !listed.Atime.After(d.Atime) {
		t.Fatalf("%v after %v", listed.Atime, d.Atime)
	}
	want, err := fs.Stat(ctx, "/f")
	must(t, err)
	fs.tellAccessed(ctx)
	got, err := fs.svc.GetAttr(ctx, meta.Caller{}, f.Ino())
	if err != nil || got.Atime != want.Atime {
		t.Fatalf("the service has %v, not %v: %v", got.Atime, want.Atime, err)
	}
}

// TestAccessWithAnotherClock: what was read after a change has a later time of access, though the
// clock of who has changed it is an hour ahead, and is not noted again and again because of that.
func TestAccessWithAnotherClock(t *testing.T) {
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	c := newCluster(t, 1, store.Options{Clock: ahead})
	fs := c.client(Options{})
	ctx := t.Context()
	f, err := fs.Create(ctx, "/f")
	must(t, err)
	before, err := f.Stat(ctx)
	must(t, err)
	if !f.Accessed(true) || f.Accessed(true) {
		t.Fatal("not noted once")
	}
	after, err := f.Stat(ctx)
	must(t, err)
	if !after.Atime.After(before.Ctime) || after.Ctime != before.Ctime {
		t.Fatalf("read at %v, changed at %v before", after.Atime, before.Ctime)
	}
	must(t, f.Close(ctx))
}
