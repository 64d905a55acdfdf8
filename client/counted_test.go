package client

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
	"github.com/sluice-storage/sluice/meta/store"
)

// counting is a service that counts what clients ask of it. Listening is not counted: it happens
// whether something is asked or not.
type counting struct {
	meta.Service

	mu      sync.Mutex
	calls   map[meta.Op]int
	scanned int // bytes of small files
}

func (c *counting) note(op meta.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[meta.Op]int{}
	}
	c.calls[op]++
}

// during runs fn and returns what was asked meanwhile.
func (c *counting) during(fn func()) map[string]int {
	c.mu.Lock()
	clear(c.calls)
	c.scanned = 0
	c.mu.Unlock()
	fn()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for op, n := range c.calls {
		out[op.String()] = n
	}
	return out
}

func (c *counting) Lookup(ctx context.Context, u meta.Caller, dir meta.Ino, name string) (
	meta.Attr, error) {
	c.note(meta.OpLookup)
	return c.Service.Lookup(ctx, u, dir, name)
}

func (c *counting) Find(ctx context.Context, u meta.Caller, dir meta.Ino, name string) (
	meta.Found, error) {
	c.note(meta.OpFind)
	return c.Service.Find(ctx, u, dir, name)
}

func (c *counting) Scan(ctx context.Context, u meta.Caller, dir meta.Ino, w meta.Scan) (
	meta.Scanned, error) {
	c.note(meta.OpScan)
	s, err := c.Service.Scan(ctx, u, dir, w)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range s.Entries {
		c.scanned += len(s.Entries[i].Data)
	}
	return s, err
}

func (c *counting) Make(ctx context.Context, u meta.Caller, dir meta.Ino, name string,
	f meta.NewFile) (meta.Attr, error) {
	c.note(meta.OpMake)
	return c.Service.Make(ctx, u, dir, name, f)
}

func (c *counting) Remove(ctx context.Context, u meta.Caller, dir meta.Ino, name string,
	isDir bool) (meta.Time, error) {
	c.note(meta.OpRemove)
	return c.Service.Remove(ctx, u, dir, name, isDir)
}

func (c *counting) Rename(ctx context.Context, u meta.Caller, dir meta.Ino, name string,
	newDir meta.Ino, newName string, flags meta.RenameFlags) (meta.Time, error) {
	c.note(meta.OpRename)
	return c.Service.Rename(ctx, u, dir, name, newDir, newName, flags)
}

func (c *counting) ReadDir(ctx context.Context, u meta.Caller, dir meta.Ino, cookie uint64, max int,
	withAttr bool) ([]meta.Entry, error) {
	c.note(meta.OpReadDir)
	return c.Service.ReadDir(ctx, u, dir, cookie, max, withAttr)
}

func (c *counting) ReadLink(ctx context.Context, u meta.Caller, ino meta.Ino) (string, error) {
	c.note(meta.OpReadLink)
	return c.Service.ReadLink(ctx, u, ino)
}

func (c *counting) GetAttr(ctx context.Context, u meta.Caller, ino meta.Ino) (meta.Attr, error) {
	c.note(meta.OpGetAttr)
	return c.Service.GetAttr(ctx, u, ino)
}

func (c *counting) SetAttr(ctx context.Context, u meta.Caller, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {
	c.note(meta.OpSetAttr)
	return c.Service.SetAttr(ctx, u, ino, mask, a)
}

func (c *counting) GetXattr(ctx context.Context, u meta.Caller, ino meta.Ino, name string) (
	[]byte, error) {
	c.note(meta.OpGetXattr)
	return c.Service.GetXattr(ctx, u, ino, name)
}

func (c *counting) Create(ctx context.Context, u meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {
	c.note(meta.OpCreate)
	return c.Service.Create(ctx, u, dir, name, f, flags)
}

func (c *counting) Open(ctx context.Context, u meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	c.note(meta.OpOpen)
	return c.Service.Open(ctx, u, ino, flags)
}

func (c *counting) Commit(ctx context.Context, u meta.Caller, w meta.Change, sync bool) (
	meta.Attr, error) {
	c.note(meta.OpCommit)
	return c.Service.Commit(ctx, u, w, sync)
}

func (c *counting) Close(ctx context.Context, u meta.Caller, w meta.Closing) error {
	c.note(meta.OpClose)
	return c.Service.Close(ctx, u, w)
}

func (c *counting) CloseMany(ctx context.Context, u meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	c.note(meta.OpCloseMany)
	return c.Service.CloseMany(ctx, u, list)
}

func (c *counting) ReadSmall(ctx context.Context, u meta.Caller, ino meta.Ino) (
	meta.Attr, meta.SmallData, error) {
	c.note(meta.OpReadSmall)
	return c.Service.ReadSmall(ctx, u, ino)
}

func (c *counting) MoveOut(ctx context.Context, u meta.Caller, w meta.Change, version uint64) (
	meta.Attr, error) {
	c.note(meta.OpMoveOut)
	return c.Service.MoveOut(ctx, u, w, version)
}

// lone is a client that has a service for itself, and has listened.
func lone(t *testing.T) (*cluster, *counting, *FS) {
	t.Helper()
	c := newCluster(t, 2, store.Options{})
	svc := &counting{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	t.Cleanup(func() { must(t, fs.Close()) })
	listened(t, fs)
	return c, svc, fs
}

// listened waits until a client has leases.
func listened(t testing.TB, fs *FS) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !fs.cache.Valid(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no leases are extended")
		}
	}
}

func wantCalls(t *testing.T, what string, got map[string]int, want map[string]int) {
	t.Helper()
	for op, n := range got {
		if n > want[op] {
			t.Errorf("%s: asked for %s %d times, at most %d", what, op, n, want[op])
		}
	}
}

// TestALoneClientRarelyAsks counts the requests of what programs do all the time.
func TestALoneClientRarelyAsks(t *testing.T) {
	ctx := context.Background()
	c, svc, fs := lone(t)
	must(t, fs.Mkdir(ctx, "/d", 0o755))
	data := make([]byte, 4<<10)
	stats := c.counted(iod.OpStat, func() {
		began := time.Now()
		calls := svc.during(func() {
			for i := range 100 {
				f, err := fs.OpenFile(ctx, fmt.Sprint("/d/", i), os.O_CREATE|os.O_WRONLY, 0o644)
				must(t, err)
				_, err = f.WriteAt(ctx, data, 0)
				must(t, err)
				a, err := f.Stat(ctx)
				if must(t, err); a.Size != int64(len(data)) {
					t.Fatalf("%d bytes", a.Size)
				}
				must(t, f.Close(ctx))
			}
			fs.flushEndings(ctx)
		})
		closings := 40
		if time.Since(began) > 50*time.Millisecond { // those of a millisecond are told together
			closings = 100
		}
		wantCalls(t, "100 files made, written and closed", calls,
			map[string]int{"create": 100, "closemany": closings, "find": 2, "getattr": 1})
	})
	if len(stats) > 0 {
		t.Errorf("I/O servers were asked: %v", stats)
	}
	afterwards(t, svc, fs, len(data))
}

// wantQuiet demands that what is known is not asked for again. On a busy machine the names may be
// told meanwhile, in the background, which makes one look necessary, but not a second one.
func wantQuiet(t *testing.T, what string, svc *counting, again func()) {
	t.Helper()
	for range 2 {
		if len(svc.during(again)) == 0 {
			return
		}
	}
	wantCalls(t, what, svc.during(again), nil)
}

// afterwards counts what is done with 100 files that this client has made.
func afterwards(t *testing.T, svc *counting, fs *FS, size int) {
	ctx := context.Background()
	var names int
	list := func() {
		must(t, fs.ReadDir(ctx, "/d", func(meta.Entry) error { names++; return nil }))
	}
	list()
	stat := func() {
		for i := range 100 {
			_, err := fs.Stat(ctx, fmt.Sprint("/d/", i))
			must(t, err)
		}
	}
	stat()
	absent := func() {
		if _, err := fs.Stat(ctx, "/d/absent"); errs.KindOf(err) != errs.NotFound {
			t.Fatal(err)
		}
	}
	absent()
	wantQuiet(t, "stat, again", svc, stat)
	wantQuiet(t, "an absent name, again", svc, absent)
	wantQuiet(t, "readdir, again", svc, list)
	must(t, fs.SyncNames(ctx)) // so that the service knows of the file
	wantCalls(t, "an attribute that is not there", svc.during(func() {
		a, err := fs.Stat(ctx, "/d/1")
		must(t, err)
		_, err = fs.GetXattr(ctx, meta.Cred{}, a.Ino, "security.capability")
		if errs.KindOf(err) != errs.NoData {
			t.Errorf("security.capability: %v", err)
		}
		for _, name := range []string{acl.Access, acl.Default} {
			_, err = fs.GetXattr(ctx, meta.Cred{}, a.Ino, name)
			_, says := svc.Service.GetXattr(ctx, meta.Caller{}, a.Ino, name)
			if errs.KindOf(err) != errs.KindOf(says) {
				t.Errorf("%s: %v, the service says %v", name, err, says)
			}
		}
	}), nil)
	wantCalls(t, "100 small files opened, read and closed", svc.during(func() {
		for i := range 100 {
			f, err := fs.Open(ctx, fmt.Sprint("/d/", i))
			must(t, err)
			got := make([]byte, size)
			if n, err := f.ReadAt(ctx, got, 0); n != size || err != nil {
				t.Fatal(n, err)
			}
			must(t, f.Close(ctx))
		}
	}), nil)
	wantCalls(t, "a rename", svc.during(func() { must(t, fs.Rename(ctx, "/d/1", "/d/renamed")) }),
		map[string]int{"rename": 1, "find": 1})
	wantCalls(t, "10 names removed", svc.during(func() {
		for i := range 10 {
			must(t, fs.Remove(ctx, fmt.Sprint("/d/", 10+i)))
		}
	}), map[string]int{"remove": 10})
	wantCalls(t, "the names after that", svc.during(func() {
		absent()
		if _, err := fs.Stat(ctx, "/d/11"); errs.KindOf(err) != errs.NotFound {
			t.Error(err)
		}
		names = 0
		if list(); names != 90 {
			t.Errorf("%d names", names)
		}
	}), map[string]int{"scan": 1, "getattr": 1})
}

// TestWriterKnowsItsFile: the only writer of a file of any size asks nobody how long it is, but
// once after the file has moved out.
func TestWriterKnowsItsFile(t *testing.T) {
	ctx := context.Background()
	c, svc, fs := lone(t)
	f, err := fs.Create(ctx, "/large")
	must(t, err)
	_, err = f.WriteAt(ctx, make([]byte, 3*meta.SmallMax), 0)
	must(t, err)
	asked := c.counted(iod.OpStat, func() {
		wantCalls(t, "stat of an open file", svc.during(func() {
			for i := range 10 {
				_, err := f.WriteAt(ctx, make([]byte, 1000), int64(3*meta.SmallMax+1000*i))
				must(t, err)
				a, err := fs.Stat(ctx, "/large")
				if must(t, err); a.Size != int64(3*meta.SmallMax+1000*(i+1)) {
					t.Fatalf("%d bytes after %d writes", a.Size, i+1)
				}
			}
		}), map[string]int{"getattr": 1, "find": 1}) // the first one, after the file has moved out
	})
	for server, n := range asked {
		if n > 1 {
			t.Errorf("I/O server %d was asked %d times", server, n)
		}
	}
	must(t, f.Close(ctx))
}

// TestAbsentNames: who makes files looks for each of them before. That costs nothing in a directory
// that this client has made, and little in another one that is not large.
func TestAbsentNames(t *testing.T) {
	ctx := context.Background()
	c, svc, fs := lone(t)
	other := c.client(Options{Cred: &meta.Cred{}})
	must(t, other.Mkdir(ctx, "/few", 0o777))
	must(t, other.Mkdir(ctx, "/many", 0o777))
	for i := range 200 {
		touch(t, other, fmt.Sprint("/many/old", i))
	}
	touch(t, other, "/few/old")
	fs.flushEndings(ctx)
	must(t, fs.Mkdir(ctx, "/own", 0o755))
	for dir, want := range map[string]map[string]int{
		"/own":  {},
		"/few":  {"find": 3, "scan": 1}, // the directory itself, and two names
		"/many": {"find": 6, "scan": 1}, // one more for 64 names
	} {
		who := other
		if dir == "/own" { // who else looks at it takes it away
			who = fs
		}
		at, err := who.Stat(ctx, dir)
		must(t, err)
		d := at.Ino
		absent := func(name string) {
			if _, err := fs.Lookup(ctx, meta.Cred{}, d, name); errs.KindOf(err) != errs.NotFound {
				t.Fatalf("%s/%s: %v", dir, name, err)
			}
		}
		want["create"], want["closemany"] = 100, 100
		wantCalls(t, "100 files in "+dir, svc.during(func() {
			for i := range 100 {
				name := fmt.Sprint("new", i)
				absent(name)
				f, err := fs.CreateIno(ctx, meta.Cred{}, d, name, meta.NewFile{Mode: 0o644}, meta.OpenWrite)
				must(t, err)
				must(t, f.Close(ctx))
				if a, err := fs.Lookup(ctx, meta.Cred{}, d, name); err != nil || a.Ino != f.Ino() {
					t.Fatal(a.Ino, err)
				}
			}
		}), want)
		// What another client makes is found.
		touch(t, other, dir+"/other")
		_, err = fs.Lookup(ctx, meta.Cred{}, d, "other")
		must(t, err)
		absent("more")
	}
}
