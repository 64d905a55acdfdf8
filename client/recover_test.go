package client

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/journal"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// muffled is a service whose answers to what is told later get lost, after it was done or before.
type muffled struct {
	meta.Service
	done, undone atomic.Bool

	ids [][16]byte // of requests; of one test's goroutine at a time
}

func (s *muffled) TellMany(ctx context.Context, c meta.Caller, epoch uint64, list []meta.Deferred) (
	[]meta.Settled, error) {
	s.ids = append(s.ids, c.ReqID)
	if s.undone.Load() {
		return nil, errs.New(errs.MaybeDone, "test", "", nil)
	}
	out, err := s.Service.TellMany(ctx, c, epoch, list)
	if s.done.Load() {
		return nil, errs.New(errs.MaybeDone, "test", "", nil)
	}
	return out, err
}

// lives are the lives of a client: one process after the other, with the same journal.
type lives struct {
	t    *testing.T
	c    *cluster
	mem  []byte
	dead []uint64 // sessions
	svc  *muffled
	fs   *FS
}

func newLives(t *testing.T, opt store.Options, bytes int) *lives {
	t.Helper()
	l := &lives{t: t, c: newCluster(t, 2, opt), mem: make([]byte, bytes)}
	must(t, l.start())
	t.Cleanup(func() {
		if l.fs != nil {
			l.svc.done.Store(false)
			l.svc.undone.Store(false)
			_ = l.fs.Close()
		}
	})
	must(t, l.fs.Mkdir(context.Background(), "/d", 0o755))
	l.hold()
	return l
}

// start begins a life.
func (l *lives) start() error {
	j, err := journal.Open(l.mem)
	must(l.t, err)
	svc := &muffled{Service: l.c.service()}
	fs, err := New(svc, l.c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}, Identity: "mount",
		Succeeds: l.dead, Journal: j, WaitMax: time.Minute})
	if err != nil {
		return err
	}
	listened(l.t, fs)
	l.svc, l.fs = svc, fs
	return nil
}

// hold waits until names in /d are made by the client itself.
func (l *lives) hold() {
	l.t.Helper()
	ctx := context.Background()
	must(l.t, l.fs.ReadDir(ctx, "/d", func(meta.Entry) error { return nil }))
	for i, was := 0, l.fs.Deferred().Made; l.fs.Deferred().Made == was; i++ {
		if i == 10000 {
			l.t.Fatal("the directory is not held")
		}
		writeAll(l.t, l.fs, "/d/.try", "")
		must(l.t, l.fs.Remove(ctx, "/d/.try"))
		time.Sleep(time.Millisecond)
	}
	numbered(l.t, l.fs)
	must(l.t, l.fs.SyncNames(ctx))
}

// kill ends a life: what is told by then is not heard of, or does not arrive.
func (l *lives) kill() {
	l.t.Helper()
	l.dead = append(l.dead, die(l.t, l.fs))
	l.fs = nil
}

// next is kill, and another life.
func (l *lives) next() {
	l.t.Helper()
	l.kill()
	must(l.t, l.start())
	must(l.t, l.fs.EndSuccession(context.Background()))
	l.dead = nil
	if j, err := journal.Open(l.mem); err != nil || len(j.Records()) != 0 || j.Damaged() != 0 {
		l.t.Fatalf("%v: %d records are left in the journal", err, len(j.Records()))
	}
}

// tree is what another client sees below a directory.
func (l *lives) tree(dir string) map[string]string {
	l.t.Helper()
	ctx := context.Background()
	other := l.c.client(Options{Cred: &meta.Cred{}})
	all := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		var inner []string
		must(l.t, other.ReadDir(ctx, dir, func(e meta.Entry) error {
			path := dir + "/" + e.Name
			switch e.Type {
			case meta.Directory:
				all[path] = "dir"
				inner = append(inner, path)
			case meta.Symlink:
				all[path] = "link"
			default:
				all[path] = "file "
			}
			return nil
		}))
		for _, path := range inner {
			walk(path)
		}
	}
	walk(dir)
	for path, what := range all {
		switch what {
		case "file ":
			all[path] += contentOf(l.t, other, path)
		case "link":
			to, err := other.Readlink(ctx, path)
			must(l.t, err)
			all[path] += " " + to
		}
	}
	must(l.t, other.Close())
	return all
}

// all makes one of everything, and returns what should be there.
func (l *lives) all() (want map[string]string, open *File) {
	l.t.Helper()
	ctx := context.Background()
	fs := l.fs
	writeAll(l.t, fs, "/d/file", "data")
	writeAll(l.t, fs, "/d/large", string(pattern(meta.SmallMax, 3)))
	writeAll(l.t, fs, "/d/empty", "")
	must(l.t, fs.Mkdir(ctx, "/d/sub", 0o700))
	must(l.t, fs.Symlink(ctx, "to", "/d/sub/link"))
	writeAll(l.t, fs, "/d/sub/file", "more")
	open, err := fs.OpenFile(ctx, "/d/sub/open", os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	must(l.t, err)
	writeAll(l.t, fs, "/d/void", "nothing")
	must(l.t, fs.Remove(ctx, "/d/void"))
	must(l.t, fs.Mkdir(ctx, "/d/gone", 0o755))
	must(l.t, fs.Remove(ctx, "/d/gone"))
	return map[string]string{"/d/file": "file data", "/d/empty": "file ", "/d/sub": "dir",
		"/d/large":    "file " + string(pattern(meta.SmallMax, 3)),
		"/d/sub/link": "link to", "/d/sub/file": "file more", "/d/sub/open": "file "}, open
}

func (l *lives) sees(want map[string]string) {
	l.t.Helper()
	got := l.tree("/d")
	for path := range want {
		if have, ok := got[path]; have != want[path] {
			l.t.Errorf("%s is %.20q of %d bytes, %v, want %.20q of %d", path, have, len(have), ok,
				want[path], len(want[path]))
		}
		delete(got, path)
	}
	if len(got) > 0 {
		l.t.Errorf("there should not be %q", slices.Sorted(maps.Keys(got)))
	}
	if l.t.Failed() {
		l.t.FailNow()
	}
}

// TestJournalTold: what a killed client had not told is there, also what it had open, and what it
// had removed before is not.
func TestJournalTold(t *testing.T) {
	ctx := context.Background()
	l := newLives(t, withLongLeases(store.Options{}), JournalBytes)
	l.svc.undone.Store(true)
	before, err := l.fs.Stat(ctx, "/d")
	must(t, err)
	want, open := l.all()
	was, err := l.fs.Stat(ctx, "/d/file")
	must(t, err)
	count := uint64(l.fs.Deferred().Untold)
	l.next()
	if n := l.fs.Deferred(); n.Inherited != count || n.Lost != 0 || n.Untold != 0 {
		t.Fatalf("%+v, want %d", n, count)
	}
	if !l.fs.Rescued(was.Ino) || l.fs.Rescued(open.Ino()) {
		t.Error("it is not known which data was rescued")
	}
	f, err := l.fs.OpenIno(ctx, meta.Cred{}, open.Ino(), meta.OpenRead|meta.OpenWrite)
	must(t, err)
	must(t, f.Inherit(ctx, true))
	must(t, f.Close(ctx))
	is, err := l.fs.Stat(ctx, "/d/file")
	if must(t, err); !sameAttr(was, is) {
		t.Errorf("%+v\n%+v", was, is)
	}
	if a, err := l.fs.Stat(ctx, "/d"); err != nil || !a.Mtime.After(before.Mtime) {
		t.Errorf("%+v, %v", a, err)
	}
	l.sees(want)
}

// TestJournalAnswerLost: the message that was under way is sent again under its request id, by as
// many processes as it takes, and is done once.
func TestJournalAnswerLost(t *testing.T) {
	for _, done := range []bool{true, false} {
		l := newLives(t, withLongLeases(store.Options{}), JournalBytes)
		l.svc.ids = nil
		l.svc.done.Store(done)
		l.svc.undone.Store(!done)
		want, _ := l.all()
		short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		if err := l.fs.SyncNames(short); err == nil {
			t.Fatal("it was told")
		}
		cancel()
		l.kill()
		first := l.svc.ids[0]
		if slices.ContainsFunc(l.svc.ids, func(id [16]byte) bool { return id != first }) {
			t.Fatal("a message was sent again as another one")
		}
		for range 2 { // these do not hear of it, either
			j, err := journal.Open(l.mem)
			must(t, err)
			svc := &muffled{Service: l.c.service()}
			svc.done.Store(done)
			svc.undone.Store(!done)
			_, err = New(svc, l.c, Options{Identity: "mount", Succeeds: l.dead, Journal: j,
				WaitMax: 20 * time.Millisecond})
			if err == nil || len(svc.ids) == 0 || svc.ids[0] != first {
				t.Fatalf("%v, %d requests", err, len(svc.ids))
			}
		}
		must(t, l.start())
		if n := l.fs.Deferred(); n.Lost != 0 || n.Inherited == 0 || l.svc.ids[0] != first {
			t.Fatalf("%+v", n)
		}
		l.sees(want)
		must(t, l.fs.Close())
	}
}

// TestJournalFenced: when somebody else has waited for the leases of the dead what it had not told
// is lost, and that is said.
func TestJournalFenced(t *testing.T) {
	ctx := context.Background()
	l := newLives(t, store.Options{Lease: 2 * time.Second, LeaseTime: 200 * time.Millisecond},
		JournalBytes)
	l.svc.undone.Store(true)
	writeAll(t, l.fs, "/d/f", "data")
	must(t, l.fs.Mkdir(ctx, "/d/sub", 0o755))
	count := uint64(l.fs.Deferred().Untold)
	if count < 2 {
		t.Skip("the leases were over before")
	}
	l.kill()
	l.sees(map[string]string{}) // it waits until the lease is over
	must(t, l.start())
	if n := l.fs.Deferred(); n.Lost != count || n.Inherited != 0 || n.Untold != 0 {
		t.Fatalf("%+v, want %d to be lost", n, count)
	}
	if err := l.fs.SyncNames(ctx); errs.KindOf(err) != errs.IO {
		t.Fatalf("nobody hears of it: %v", err)
	}
	must(t, l.fs.SyncNames(ctx))
	l.sees(map[string]string{})
}

// TestJournalFull: with no room in the journal the service is asked, and nothing is lost.
func TestJournalFull(t *testing.T) {
	ctx := context.Background()
	l := newLives(t, withLongLeases(store.Options{}), (1+journalReserve+10)*journal.UnitBytes)
	want := map[string]string{}
	hold := &tells{Service: l.svc.Service}
	l.svc.Service = hold
	release := hold.hold()
	defer release()
	made := l.fs.Deferred().Made
	for i := 0; l.fs.deferral.mayNoteLocked(""); i++ {
		path := fmt.Sprint("/d/", i)
		writeAll(t, l.fs, path, "data")
		want[path] = "file data"
	}
	if n := l.fs.Deferred(); n.Made-made < 3 || int(n.Made-made) != len(want) {
		t.Fatalf("%d names were made, %+v", len(want), n)
	}
	release()
	for i := range 200 { // the journal is full, or just emptied
		path := fmt.Sprint("/d/more", i)
		writeAll(t, l.fs, path, string(pattern(2000, byte(i))))
		if want[path] = "file " + string(pattern(2000, byte(i))); i%3 == 0 {
			must(t, l.fs.Remove(ctx, path))
			delete(want, path)
		}
	}
	must(t, l.fs.HandOver(ctx)) // data of files that had no room there dies with the process
	l.next()
	l.sees(want)
}

// TestJournalRandom: clients that are killed again and again, with and without answers being lost,
// do at random what is done without the service. All that had returned is there.
func TestJournalRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	l := newLives(t, withLongLeases(store.Options{}), JournalBytes)
	want := map[string]string{}
	for life := range 12 {
		l.hold()
		for i, n := 0, r.IntN(150); i < n; i++ {
			if i == n*2/3 && life%3 < 2 { // from here on it hears nothing, or nobody hears it
				must(t, l.fs.HandOver(context.Background()))
				l.svc.done.Store(life%3 == 0)
				l.svc.undone.Store(life%3 == 1)
			}
			l.step(r, fmt.Sprint(life, "-", i), want)
		}
		if life%3 == 2 { // what was told as open, and was closed, is told a moment later
			must(t, l.fs.HandOver(context.Background()))
		}
		l.next()
		l.sees(want)
	}
	if n := l.fs.Deferred(); n.Lost != 0 {
		t.Fatalf("%+v", n)
	}
}

// holds tells whether names in a directory are made without the service.
func (l *lives) holds(path string) bool {
	a, err := l.fs.Lstat(context.Background(), path)
	must(l.t, err)
	return l.fs.holdsDir(a.Ino)
}

// toldOpen tells whether a file that was closed was open in the message that is under way.
func (l *lives) toldOpen(ino meta.Ino) bool {
	n := l.fs.peek(ino)
	return n != nil && l.fs.endings.has(n, l.fs.sess.Load().id)
}

// step does something in one of a few directories.
func (l *lives) step(r *rand.Rand, id string, want map[string]string) {
	l.t.Helper()
	ctx := context.Background()
	alone := l.svc.done.Load() || l.svc.undone.Load() // only what needs no answer
	dirs, others := []string{"/d"}, []string{}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if want[path] == "dir" {
			if !alone || l.holds(path) {
				dirs = append(dirs, path)
			}
		} else {
			others = append(others, path)
		}
	}
	path := dirs[r.IntN(len(dirs))] + "/" + id
	switch n := r.IntN(10); {
	case n < 4:
		data := string(pattern(r.IntN(3000), byte(r.IntN(100))))
		f, err := l.fs.OpenFile(ctx, path, os.O_CREATE|os.O_WRONLY, 0o644)
		must(l.t, err)
		_, err = f.WriteAt(ctx, []byte(data), 0)
		must(l.t, err)
		must(l.t, f.Close(ctx))
		if want[path] = "file " + data; alone && l.toldOpen(f.Ino()) {
			want[path] = "file " // what was written to it dies with the process
		}
	case n == 4 && len(dirs) < 20:
		must(l.t, l.fs.Mkdir(ctx, path, 0o755))
		want[path] = "dir"
	case n == 5:
		must(l.t, l.fs.Symlink(ctx, id, path))
		want[path] = "link " + id
	case n == 6:
		_, err := l.fs.OpenFile(ctx, path, os.O_CREATE|os.O_RDWR, 0o644)
		must(l.t, err)
		want[path] = "file "
	case len(others) > 0 && !alone:
		path = others[r.IntN(len(others))]
		must(l.t, l.fs.Remove(ctx, path))
		delete(want, path)
	}
}
