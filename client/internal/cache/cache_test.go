package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func leased(ino meta.Ino, typ meta.Type, serial uint64) meta.Attr {
	return meta.Attr{Ino: ino, Type: typ, Mode: 0o700, UID: 5, Lease: meta.LeaseRead, Serial: serial}
}

// TestRights: one client serves several users.
func TestRights(t *testing.T) {
	c := New(Options{})
	c.Extend(time.Now().Add(time.Hour))
	f := meta.Found{Dir: leased(1, meta.Directory, 1), Present: true, Attr: leased(2, meta.Regular, 2)}
	c.PutFound(c.Begin(), 1, "a", &f)
	owner, other := meta.Cred{UID: 5}, meta.Cred{UID: 6}
	if a, err, known := c.Lookup(&owner, 1, "a", true); !known || err != nil || a.Ino != 2 {
		t.Errorf("the owner finds %v, %v, %v", a.Ino, err, known)
	}
	if _, err, known := c.Lookup(&other, 1, "a", true); !known || errs.KindOf(err) != errs.Access {
		t.Errorf("another user: %v, %v", err, known)
	}
	if _, err, known := c.Lookup(&owner, 2, "a", true); !known || errs.KindOf(err) != errs.NotDir {
		t.Errorf("in a file: %v, %v", err, known)
	}
	listed(c, 1, 3, []meta.Entry{{Name: "a", Ino: 2, Type: meta.Regular, Cookie: 2}})
	if page, known := c.Page(&owner, 1, 0, 10, true); !known || len(page) != 1 {
		t.Errorf("the owner lists %v, %v", page, known)
	}
	if _, known := c.Page(&other, 1, 0, 10, true); known {
		t.Error("another user lists the directory")
	}
	if _, err, known := c.Lookup(&owner, 1, "b", true); !known || errs.KindOf(err) != errs.NotFound {
		t.Errorf("what is not in a whole listing: %v, %v", err, known)
	}
	for _, name := range []string{"..", "a/b", "a\x00", strings.Repeat("n", meta.NameMax+1)} {
		if _, err, known := c.Lookup(&owner, 1, name, true); known {
			t.Errorf("what cannot be a name: %v", err)
		}
	}
}

// TestBounded: memory stays within its bound whatever comes, and what is used stays.
func TestBounded(t *testing.T) {
	const most = 256 << 10
	c := New(Options{Bytes: most})
	c.Extend(time.Now().Add(time.Hour))
	hot := leased(1, meta.Directory, 1)
	c.PutAttr(c.Begin(), &hot)
	for i := range 20000 {
		a := leased(meta.Ino(10+i), meta.Regular, 2)
		a.Small, a.Size = true, 100
		c.PutData(c.Begin(), &a, make([]byte, 100))
		absent := meta.Found{Dir: leased(2, meta.Directory, 2)}
		c.PutFound(c.Begin(), 2, fmt.Sprint("absent ", i), &absent)
		if _, ok := c.Attr(1); !ok {
			t.Fatalf("what is used all the time was forgotten after %d others", i)
		}
		if c.bytes > most {
			t.Fatalf("%d bytes, at most %d", c.bytes, most)
		}
	}
	var sum int64
	for _, n := range c.nodes {
		sum += n.weigh()
	}
	if sum != c.bytes {
		t.Errorf("the account says %d bytes, it is %d", c.bytes, sum)
	}
	listed(c, 1, 9, manyEntries(5000))
	if c.bytes > most {
		t.Errorf("%d bytes after a large directory, at most %d", c.bytes, most)
	}
}

func manyEntries(n int) (page []meta.Entry) {
	for i := range n {
		page = append(page, meta.Entry{Name: fmt.Sprint("entry ", i), Ino: meta.Ino(i + 9),
			Type: meta.Regular, Cookie: uint64(i + 9)})
	}
	return page
}

// TestForgetting: answers that are on their way while more is changed than can be remembered are
// not taken in.
func TestForgetting(t *testing.T) {
	c := New(Options{})
	c.Extend(time.Now().Add(time.Hour))
	old := c.Begin()
	c.Recall(7)
	for i := range 3 * recentMax {
		c.Recall(meta.Ino(100 + i))
	}
	a := leased(7, meta.Regular, 1)
	if c.PutAttr(old, &a); c.Held(7) {
		t.Error("an answer that was recalled long ago was taken in")
	}
	if c.PutAttr(c.Begin(), &a); !c.Held(7) {
		t.Error("a fresh answer was not taken in")
	}
	if n := len(c.recent.young) + len(c.recent.old); n > 2*recentMax {
		t.Errorf("%d changes are remembered", n)
	}
}

// listed takes in a whole directory.
func listed(c *Cache, dir meta.Ino, serial uint64, page []meta.Entry) {
	c.PutScan(c.Begin(), &meta.Scan{},
		&meta.Scanned{Dir: leased(dir, meta.Directory, serial), Entries: page, End: true})
}

// TestPageWithoutALease: a page is a listing only if the directory's lease came with it.
func TestPageWithoutALease(t *testing.T) {
	c := New(Options{})
	c.Extend(time.Now().Add(time.Hour))
	dir := leased(1, meta.Directory, 1)
	c.PutAttr(c.Begin(), &dir)
	dir.Lease = meta.LeaseNone
	c.PutScan(c.Begin(), &meta.Scan{}, &meta.Scanned{Dir: dir, End: true})
	if page, known := c.Page(&meta.Cred{}, 1, 0, 10, false); known {
		t.Errorf("the directory is taken for %v", page)
	}
}

// TestListingIsWanted: a listing is wanted when it is worth its price, and less and less often
// where it comes to nothing.
func TestListingIsWanted(t *testing.T) {
	c := New(Options{})
	c.Extend(time.Now().Add(time.Hour))
	for _, one := range []struct {
		dir   meta.Ino
		names int64
		want  []int // after how many absent names
	}{
		{1, 0, []int{2, 6, 14}}, {2, 640, []int{12, 36}}, {3, ListMax + 1, nil},
	} {
		var got []int
		for i := range 40 {
			f := meta.Found{Dir: leased(one.dir, meta.Directory, 1)}
			f.Dir.Size = one.names
			if c.PutFound(c.Begin(), one.dir, fmt.Sprint("absent ", i), &f) {
				got = append(got, i+1)
			}
		}
		if len(got) > len(one.want) {
			got = got[:len(one.want)]
		}
		if !slices.Equal(got, one.want) {
			t.Errorf("of %d names: after %v, want %v", one.names, got, one.want)
		}
	}
	listed(c, 1, 2, nil)
	f := meta.Found{Dir: leased(1, meta.Directory, 1)}
	for i := range 1000 {
		if c.PutFound(c.Begin(), 1, fmt.Sprint("late ", i), &f) {
			t.Fatal("a directory that is known whole is to be listed")
		}
	}
}

// TestMovedAnother: a rename moves what its name stands for then, which need not be what it stood
// for when somebody looked. What it has moved as expected is known afterwards, data included.
func TestMovedAnother(t *testing.T) {
	for _, looked := range []meta.Ino{2, 3} {
		c := New(Options{})
		c.Extend(time.Now().Add(time.Hour))
		for _, ino := range []meta.Ino{3, 2} {
			a := leased(ino, meta.Regular, uint64(ino))
			a.Small, a.Size = true, 4
			f := meta.Found{Dir: leased(1, meta.Directory, uint64(ino)), Present: true, Attr: a,
				Data: []byte("data")}
			c.PutFound(c.Begin(), 1, "a", &f)
		}
		absent := meta.Found{Dir: leased(1, meta.Directory, 9)}
		c.PutFound(c.Begin(), 1, "b", &absent)
		x := c.Change().Name(1, "a").Name(1, "b").Inode(looked)
		x.End(Outcome{At: meta.Time{Sec: 77}, Moved: looked, Names: []Named{{Dir: 1, Name: "a"},
			{Dir: 1, Name: "b", Ino: looked, Type: meta.Regular}}})
		a, data, known := c.Data(looked)
		right := looked == 2
		if known != right || right && (a.Ctime.Sec != 77 || string(data) != "data") {
			t.Errorf("a name that stood for 2 was moved, %d was expected: %v, %v, %q", looked, known,
				a.Ctime, data)
		}
		if d, known := c.Attr(1); !known || d.Mtime.Sec != 77 {
			t.Errorf("the directory is known: %v, changed at %v", known, d.Mtime)
		}
	}
}
