package client

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// tree makes directories with small files, by a client that is gone afterwards, and returns one
// that knows nothing of them.
func tree(t *testing.T, dirs, files int) (*cluster, *counting, *FS) {
	t.Helper()
	ctx := context.Background()
	c, svc, fs := lone(t)
	maker := c.client(Options{Cred: &meta.Cred{}})
	for d := range dirs {
		dir := fmt.Sprint("/d", d)
		must(t, maker.Mkdir(ctx, dir, 0o755))
		for i := range files {
			f, err := maker.Create(ctx, fmt.Sprint(dir, "/f", i))
			must(t, err)
			write(t, f, bytesOf(d, i), 0)
			must(t, f.Close(ctx))
		}
	}
	must(t, maker.Close())
	return c, svc, fs
}

func bytesOf(d, i int) []byte { return fmt.Appendf(nil, "%d/%d %*d", d, i, 1000+i, 0) }

// readOne reads a file and compares it.
func readOne(t *testing.T, fs *FS, d, i int) {
	t.Helper()
	ctx := context.Background()
	f, err := fs.Open(ctx, fmt.Sprintf("/d%d/f%d", d, i))
	must(t, err)
	got, want := make([]byte, 4096), bytesOf(d, i)
	n, _ := f.ReadAt(ctx, got, 0)
	if string(got[:n]) != string(want) {
		t.Fatalf("/d%d/f%d has %q, want %q", d, i, got[:n], want)
	}
	must(t, f.Close(ctx))
}

// names lists a directory with attributes, as ls -l and find do.
func names(t *testing.T, fs *FS, dir string) (count int) {
	t.Helper()
	must(t, fs.ReadDir(context.Background(), dir, func(e meta.Entry) error {
		if e.Attr == nil || e.Attr.Ino != e.Ino {
			t.Errorf("%s/%s: %+v", dir, e.Name, e.Attr)
		}
		count++
		return nil
	}))
	return count
}

func sum(calls map[string]int) (n int) {
	for _, c := range calls {
		n += c
	}
	return n
}

// TestReadingATree: who lists directories and reads what is in them, as tar, cp -r and grep -r do,
// waits for one request or two in each of them, and for less than one in five of the files.
func TestReadingATree(t *testing.T) {
	_, svc, fs := tree(t, 20, 12)
	calls := svc.during(func() {
		names(t, fs, "/")
		for d := range 20 {
			if n := names(t, fs, fmt.Sprint("/d", d)); n != 12 {
				t.Fatalf("%d names", n)
			}
			for i := range 12 {
				readOne(t, fs, d, i)
			}
		}
		fs.flushEndings(context.Background())
	})
	if n := sum(calls); n > 20+20 {
		t.Errorf("240 files in 20 directories were read by %d requests: %v", n, calls)
	}
	t.Logf("%d requests: %v", sum(calls), calls)
}

// TestWalkingATree: who lists one directory after the other, as find does, waits for one request
// for several of them, and gets no data of files. Others see what is fetched ahead change.
func TestWalkingATree(t *testing.T) {
	c, svc, fs := tree(t, 60, 5)
	calls := svc.during(func() {
		names(t, fs, "/")
		for d := range 60 {
			if n := names(t, fs, fmt.Sprint("/d", d)); n != 5 {
				t.Fatalf("%d names in %d", n, d)
			}
		}
	})
	if svc.scanned > 0 || sum(calls) > 15 {
		t.Errorf("60 directories were listed by %v, with %d bytes", calls, svc.scanned)
	}
	other := c.client(Options{Cred: &meta.Cred{}})
	must(t, other.Mkdir(context.Background(), "/d59/new", 0o755))
	if n := names(t, fs, "/d59"); n != 6 {
		t.Errorf("%d names where another client has made one more", n)
	}
}

// TestWalkingInVain: who lists a few directories only, again and again, is not brought all that lie
// beside them.
func TestWalkingInVain(t *testing.T) {
	_, _, fs := tree(t, 600, 1)
	names(t, fs, "/")
	for d := 0; d < 600; d += 3 { // of three that come one is listed
		names(t, fs, fmt.Sprint("/d", d))
	}
	if n := fs.cache.Ahead(); n > 300 {
		t.Errorf("%d directories were fetched that nobody has listed", n)
	}
}

// TestListingFetchesNoData: who only lists, as find and ls -l do, gets no data of files, and one
// request brings a directory.
func TestListingFetchesNoData(t *testing.T) {
	_, svc, fs := tree(t, 20, 12)
	calls := svc.during(func() {
		for d := range 20 {
			names(t, fs, fmt.Sprint("/d", d))
			for i := range 12 {
				_, err := fs.Stat(context.Background(), fmt.Sprintf("/d%d/f%d", d, i))
				must(t, err)
			}
		}
	})
	if svc.scanned > 0 || calls["scan"] > 23 || sum(calls) > 20+24 {
		t.Errorf("%d bytes, %v", svc.scanned, calls)
	}
}

// TestReadingEnds: when programs only list again, data is fetched for a few more directories at
// most.
func TestReadingEnds(t *testing.T) {
	_, svc, fs := tree(t, 60, 4)
	for d := range 10 {
		names(t, fs, fmt.Sprint("/d", d))
		for i := range 4 {
			readOne(t, fs, d, i)
		}
	}
	svc.during(func() {
		for d := 10; d < 60; d++ {
			names(t, fs, fmt.Sprint("/d", d))
		}
	})
	if most := 14 * 4 * len(bytesOf(1, 9)); svc.scanned > most {
		t.Errorf("%d bytes of files that nobody reads were fetched, more than %d", svc.scanned, most)
	}
}

// TestReadingInOrder: files of a directory that are read in the order of a listing, or of their
// names, are fetched ahead. Of those that are read here and there few others are.
func TestReadingInOrder(t *testing.T) {
	const files = 400
	sorted := make([]int, files)
	for i := range sorted {
		sorted[i] = i
	}
	listed := slices.Clone(sorted)
	slices.SortFunc(sorted, func(a, b int) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	for order, one := range map[string]struct {
		files    []int
		requests int // at most
		bytes    int // that are fetched for each that is read, at most
	}{
		"of the listing": {listed, 25, 2},
		"of names":       {sorted, 25, 2},
		"none":           {rand.New(rand.NewPCG(1, 2)).Perm(files)[:60], 2*60 + 10, 9},
	} {
		t.Run(order, func(t *testing.T) {
			_, svc, fs := tree(t, 1, files)
			names(t, fs, "/d0")
			read := 0
			calls := svc.during(func() {
				for _, i := range one.files {
					readOne(t, fs, 0, i)
					read += len(bytesOf(0, i))
				}
				fs.flushEndings(context.Background())
			})
			if sum(calls) > one.requests || svc.scanned > one.bytes*read {
				t.Errorf("%d bytes were read, %d fetched ahead, by %v", read, svc.scanned, calls)
			}
			t.Logf("%d bytes were read, %d fetched ahead, by %v", read, svc.scanned, calls)
		})
	}
}

// TestLookingUpInOrder: names that are looked up one after the other in a directory that nobody has
// listed are found out many at a time; a few here and there are not.
func TestLookingUpInOrder(t *testing.T) {
	const files = 600
	ctx := context.Background()
	for order, one := range map[string]struct {
		files    []int
		requests int
	}{
		"made": {slices.Collect(xrange(files)), 20},
		"none": {rand.New(rand.NewPCG(3, 4)).Perm(files)[:50], 2*50 + 10},
	} {
		t.Run(order, func(t *testing.T) {
			_, svc, fs := tree(t, 1, files)
			d, err := fs.Stat(ctx, "/d0")
			must(t, err)
			calls := svc.during(func() {
				for _, i := range one.files {
					a, err := fs.Lookup(ctx, meta.Cred{}, d.Ino, fmt.Sprint("f", i))
					if must(t, err); a.Size != int64(len(bytesOf(0, i))) {
						t.Fatalf("f%d has %d bytes", i, a.Size)
					}
				}
			})
			if sum(calls) > one.requests || svc.scanned > 0 {
				t.Errorf("%d bytes, %v", svc.scanned, calls)
			}
			t.Log(calls)
		})
	}
}

func xrange(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// TestRecallDuringAScan: what another client changes while a page is on its way is not taken from
// that page.
func TestRecallDuringAScan(t *testing.T) {
	ctx := context.Background()
	c, svc, _ := tree(t, 1, 10)
	slow := &pausing{Service: svc.Service}
	fs, err := New(slow, c, Options{Cred: &meta.Cred{}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	other := c.client(Options{Cred: &meta.Cred{}})
	slow.behind = func() {
		slow.behind = nil
		w, err := other.OpenFile(ctx, "/d0/f3", os.O_WRONLY|os.O_TRUNC, 0)
		must(t, err)
		write(t, w, []byte("new"), 0)
		must(t, w.Close(ctx))
		must(t, other.Rename(ctx, "/d0/f4", "/d0/g4"))
	}
	names(t, fs, "/d0")
	if slow.behind != nil {
		t.Fatal("nothing was scanned")
	}
	a, err := fs.Stat(ctx, "/d0/f3")
	if must(t, err); a.Size != 3 {
		t.Errorf("f3 has %d bytes", a.Size)
	}
	for name, want := range map[string]errs.Kind{"f4": errs.NotFound, "g4": errs.OK} {
		if _, err := fs.Stat(ctx, "/d0/"+name); errs.KindOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := fs.Open(ctx, "/d0/f3")
	must(t, err)
	got := make([]byte, 10)
	n, _ := f.ReadAt(ctx, got, 0)
	if string(got[:n]) != "new" {
		t.Errorf("%q", got[:n])
	}
	must(t, f.Close(ctx))
}

// pausing is a service whose answers to Scan take their time.
type pausing struct {
	meta.Service
	behind func()
}

func (p *pausing) Scan(ctx context.Context, c meta.Caller, dir meta.Ino, w meta.Scan) (
	meta.Scanned, error) {
	s, err := p.Service.Scan(ctx, c, dir, w)
	if p.behind != nil {
		p.behind()
	}
	return s, err
}
