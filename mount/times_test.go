package mount

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

func statx(t *testing.T, path string) (st unix.Statx_t) {
	t.Helper()
	must(t, unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW,
		unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st))
	return st
}

// TestFarTimes: a mount takes and shows every time that a program can set, and another mount and
// the library see the same.
func TestFarTimes(t *testing.T) {
	c := newCluster(t, 1)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	lib := c.client()
	p := filepath.Join(a, "f")
	must(t, os.WriteFile(p, []byte("x"), 0o644))
	must(t, os.Mkdir(filepath.Join(a, "d"), 0o755))
	for _, name := range []string{"f", "d"} {
		for _, at := range []unix.Timespec{
			{Sec: time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), Nsec: 1},
			{Sec: time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), Nsec: 999_999_999},
			{Sec: time.Date(2262, 4, 12, 0, 0, 0, 0, time.UTC).Unix()}, {Sec: -1, Nsec: 7},
			{Sec: 1<<40 + 1, Nsec: 5}, {Sec: -1 << 40, Nsec: 5}, {Sec: math.MinInt32 - 1},
		} {
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(a, name), []unix.Timespec{at, at}, 0))
			for _, dir := range []string{a, b} {
				st := statx(t, filepath.Join(dir, name))
				if st.Mtime.Sec != at.Sec || int64(st.Mtime.Nsec) != at.Nsec || st.Atime != st.Mtime {
					t.Errorf("%s: set to %v, shown as %v and %v", name, at, st.Atime, st.Mtime)
				}
			}
			got, err := lib.Stat(t.Context(), name)
			if want := (meta.Time{Sec: at.Sec, Nsec: uint32(at.Nsec)}); err != nil || got.Mtime != want ||
				got.Atime != want {
				t.Errorf("%s: set to %v, %v and %v by the library, %v", name, want, got.Atime, got.Mtime, err)
			}
		}
	}
	// A write to what has a time ahead is one of now, before the service is told and afterwards.
	must(t, os.Chtimes(p, time.Time{}, time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)))
	before := time.Now().Add(-time.Second)
	f := open(t, p, os.O_WRONLY)
	_, err := f.WriteString("y")
	must(t, err)
	recent := func(what string) {
		t.Helper()
		at := statx(t, p).Mtime
		if m := time.Unix(at.Sec, int64(at.Nsec)); m.Before(before) || m.After(time.Now()) {
			t.Errorf("mtime is %v %s", m, what)
		}
	}
	recent("after a write")
	must(t, f.Close())
	recent("after the close")
}

// TestBirthTime: the time of birth is told by statx(2), the same by every mount and the library,
// whatever is done to the file.
func TestBirthTime(t *testing.T) {
	c := newCluster(t, 1)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	before := time.Now().Add(-time.Second)
	p := filepath.Join(a, "f")
	must(t, os.WriteFile(p, []byte("x"), 0o644))
	born := statx(t, p)
	at := time.Unix(born.Btime.Sec, int64(born.Btime.Nsec))
	if born.Mask&unix.STATX_BTIME == 0 || at.Before(before) || at.After(time.Now()) {
		t.Fatalf("born at %v, mask %#x", at, born.Mask)
	}
	must(t, os.Chtimes(p, time.Unix(1, 0), time.Unix(2, 0)))
	must(t, os.Rename(p, p+"2"))
	must(t, os.Truncate(p+"2", 100_000))
	for _, dir := range []string{a, b} {
		if st := statx(t, filepath.Join(dir, "f2")); st.Btime != born.Btime || st.Size != 100_000 ||
			st.Nlink != 1 || st.Mode != unix.S_IFREG|0o644 || st.Ino != born.Ino || st.Uid != born.Uid {
			t.Errorf("%+v after %+v", st, born)
		}
	}
	got, err := c.client().Stat(t.Context(), "/f2")
	if err != nil || got.Btime.Time().UnixNano() != at.UnixNano() {
		t.Errorf("by the library: %v, %v", got.Btime, err)
	}
}

// counted counts what a client tells of accesses, and what it hears of leases.
type counted struct {
	meta.Service
	calls, inodes, recalls atomic.Int64
}

func (c *counted) Accessed(ctx context.Context, u meta.Caller, list []meta.Access) error {
	c.calls.Add(1)
	c.inodes.Add(int64(len(list)))
	return c.Service.Accessed(ctx, u, list)
}

func (c *counted) Listen(ctx context.Context, l meta.Listening) (meta.Heard, error) {
	h, err := c.Service.Listen(ctx, l)
	c.recalls.Add(int64(len(h.Recalls)))
	return h, err
}

// TestAccessesAreToldLate: reading many files is told in few requests, in the background; whoever
// reads sees it at once, others when it was told, and nobody has a lease recalled because of it.
func TestAccessesAreToldLate(t *testing.T) {
	const files = 300
	c := newCluster(t, 1)
	svc := &counted{Service: c.meta}
	fs, err := client.New(svc, c.data, client.Options{WaitMax: 5 * time.Second})
	must(t, err)
	t.Cleanup(func() { must(t, fs.Close()) })
	dir := t.TempDir()
	m, err := Mount(t.Context(), fs, dir, Options{})
	must(t, err)
	t.Cleanup(func() { must(t, m.Unmount()) })
	other := &counted{Service: c.meta}
	lib, err := client.New(other, c.data, client.Options{WaitMax: 5 * time.Second})
	must(t, err)
	t.Cleanup(func() { must(t, lib.Close()) })
	for i := range files {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("data"), 0o644))
	}
	before := make([]meta.Time, files)
	for i := range files { // with leases, where there are any
		a, err := lib.Stat(t.Context(), fmt.Sprint(i))
		for ; err == nil && a.Writers; a, err = lib.Stat(t.Context(), fmt.Sprint(i)) {
			time.Sleep(time.Millisecond) // until the service knows that nobody writes it any more
		}
		must(t, err)
		before[i] = a.Atime
	}
	other.recalls.Store(0)
	for i := range files {
		p := filepath.Join(dir, fmt.Sprint(i))
		equalFile(t, p, []byte("data"))
		st := statx(t, p)
		if at := (meta.Time{Sec: st.Atime.Sec, Nsec: st.Atime.Nsec}); !at.After(before[i]) {
			t.Fatalf("file %d: atime %v, %v before it was read", i, at, before[i])
		}
	}
	root := fs.Root()
	for i := range files {
		want := statx(t, filepath.Join(dir, fmt.Sprint(i))).Atime
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			a, err := c.meta.Lookup(t.Context(), meta.Caller{}, root, fmt.Sprint(i))
			must(t, err)
			if a.Atime == (meta.Time{Sec: want.Sec, Nsec: want.Nsec}) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("file %d: the service has %v, not %v", i, a.Atime, want)
			}
		}
	}
	if calls, inodes := svc.calls.Load(), svc.inodes.Load(); calls > files/3 || inodes < files {
		t.Errorf("%d requests told of %d inodes", calls, inodes)
	}
	if n := other.recalls.Load(); n > 0 {
		t.Errorf("%d leases of another client were recalled", n)
	}
}

// TestAtimeThatIsSet: who puts the time of access back after reading, as tar(1) can, has it so.
func TestAtimeThatIsSet(t *testing.T) {
	c := newCluster(t, 1)
	dir := c.mount(Options{}).Dir()
	p := filepath.Join(dir, "f")
	was := time.Unix(1_000_000_000, 7)
	for range 5 {
		must(t, os.WriteFile(p, []byte("data"), 0o644))
		must(t, os.Chtimes(p, was, time.Now()))
		equalFile(t, p, []byte("data"))
		if st := statx(t, p); st.Atime.Sec == was.Unix() {
			t.Fatal("reading it has not changed the time of access")
		}
		time.Sleep(300 * time.Millisecond) // so that it is told in some rounds and not in others
		must(t, os.Chtimes(p, was, time.Time{}))
		time.Sleep(time.Second)
		a, err := c.meta.Lookup(t.Context(), meta.Caller{}, meta.RootIno, "f")
		must(t, err)
		st := statx(t, p)
		if a.Atime != meta.TimeOf(was) || st.Atime.Sec != was.Unix() || st.Atime.Nsec != 7 {
			t.Fatalf("atime %v at the service, %v here", a.Atime, st.Atime)
		}
	}
}

// TestParseAtime: what String writes is read again, and so are the words of mount(8).
func TestParseAtime(t *testing.T) {
	for _, a := range []Atime{AtimeRelative, AtimeStrict, AtimeNone} {
		if got, err := ParseAtime(a.String()); err != nil || got != a {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	for s, want := range map[string]Atime{"relatime": AtimeRelative, "strictatime": AtimeStrict,
		"noatime": AtimeNone} {
		if got, err := ParseAtime(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	if _, err := ParseAtime("sometimes"); err == nil {
		t.Error("anything goes")
	}
	c := newCluster(t, 1)
	if _, err := Mount(t.Context(), c.client(), t.TempDir(), Options{Atime: 3}); err == nil {
		t.Error("a mount with an unknown mode")
	}
}
