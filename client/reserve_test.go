package client

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
)

// shrink gives a server a store of so many bytes. It must be empty.
func (c *cluster) shrink(id uint32, bytes int64) {
	c.t.Helper()
	s, err := memstore.New(memstore.Options{MaxBytes: bytes})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores[id] = s
}

// free is what a server's store has left.
func (c *cluster) free(id uint32) int64 {
	c.t.Helper()
	c.mu.Lock()
	s := c.stores[id]
	c.mu.Unlock()
	sp, err := s.Space()
	if err != nil {
		c.t.Fatal(err)
	}
	return sp.Free
}

func open(t *testing.T, fs *FS, name string) *File {
	t.Helper()
	f, err := fs.OpenFile(t.Context(), name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close(context.Background()) })
	return f
}

// TestReserveGrowsAndKeeps: what is reserved counts for other clients, too, in length and space.
func TestReserveGrowsAndKeeps(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	a, b := c.client(Options{}), c.client(Options{})
	f := open(t, a, "/f")
	if _, err := f.WriteAt(t.Context(), []byte("small"), 0); err != nil {
		t.Fatal(err)
	}
	check := func(size, space int64) {
		t.Helper()
		for _, fs := range []*FS{a, b} {
			got, err := fs.GetAttr(t.Context(), meta.Cred{}, f.Ino())
			if err != nil || got.Size != size || !got.Holes || got.Allocated != space {
				t.Errorf("size %d, holes %v, space %d, want %d, %d, %v", got.Size, got.Holes,
					got.Allocated, size, space, err)
			}
		}
	}
	if err := f.Reserve(t.Context(), 1<<20, 3<<20, true); err != nil {
		t.Fatal(err)
	}
	check(5, 3<<20+16<<10)
	if err := f.Reserve(t.Context(), 0, 2<<20+100, false); err != nil {
		t.Fatal(err)
	}
	check(2<<20+100, 4<<20)
	got := make([]byte, 2<<20+100)
	if _, err := f.ReadAt(t.Context(), got, 0); err != nil || string(got[:5]) != "small" ||
		len(bytes.Trim(got[5:], "\x00")) > 0 {
		t.Errorf("read %q, %v", got[:10], err)
	}
	x, err := f.Map(t.Context(), 0, 1<<40)
	if err != nil || len(x) != 2 || x[0].Hole || !x[1].Reserved {
		t.Errorf("the map is %+v, %v", x, err)
	}
	if _, err := f.WriteAt(t.Context(), bytes.Repeat([]byte("x"), 1<<20), 1<<20); err != nil {
		t.Fatal(err)
	}
	check(2<<20+100, 4<<20)
	if err := f.ZeroRange(t.Context(), 3, 3<<20, false); err != nil {
		t.Fatal(err)
	}
	check(3<<20+3, 4<<20)
	got = make([]byte, 3<<20+3)
	if _, err := f.ReadAt(t.Context(), got, 0); err != nil || string(got[:3]) != "sma" ||
		len(bytes.Trim(got[3:], "\x00")) > 0 {
		t.Errorf("read %q, %v", got[:10], err)
	}
	if err := f.Punch(t.Context(), 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	check(3<<20+3, 3<<20)
	if err := f.Truncate(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][2]int64{{-1, 5}, {0, 0}, {5, -1}} {
		if err := f.Reserve(t.Context(), bad[0], bad[1], false); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestReserveLeavesNothingBehind: where one server has no room, the others give back what they
// gave, and the file is as it was; what was reserved before stays.
func TestReserveLeavesNothingBehind(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	c.shrink(2, 1<<20)
	fs := c.client(Options{})
	f := open(t, fs, "/f")
	data := bytes.Repeat([]byte("y"), 300<<10)
	if _, err := f.WriteAt(t.Context(), data, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Reserve(t.Context(), 1<<20, 256<<10, true); err != nil {
		t.Fatal(err)
	}
	before := [3]int64{c.free(1), c.free(2), c.free(3)}
	for _, do := range []func() error{
		func() error { return f.Reserve(t.Context(), 100, 30<<20, false) },
		func() error { return f.Reserve(t.Context(), 100, 30<<20, true) },
		func() error { return f.ZeroRange(t.Context(), 100, 30<<20, false) },
	} {
		if err := do(); errs.KindOf(err) != errs.NoSpace {
			t.Errorf("it was said %v", err)
		}
		if after := [3]int64{c.free(1), c.free(2), c.free(3)}; after != before {
			t.Errorf("%v bytes were free, now %v", before, after)
		}
		got := make([]byte, len(data))
		n, err := f.ReadAt(t.Context(), got, 0)
		if err != nil || n != len(data) || !bytes.Equal(got, data) || f.Size() != int64(n) {
			t.Errorf("read %d of %d, %v", n, f.Size(), err)
		}
	}
	var held int64
	for s := range uint32(3) {
		info, err := c.Stat(t.Context(), f.target(f.grant.Load(), 0, int(s)))
		if err != nil {
			t.Fatal(err)
		}
		held += info.Allocated
	}
	if held < 556<<10 {
		t.Errorf("%d bytes are left of what was written and reserved before", held)
	}
}

// TestReserveInsideQuotas: what is reserved counts as if it were written.
func TestReserveInsideQuotas(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	root := c.client(Options{Cred: &meta.Cred{}})
	if err := root.Mkdir(t.Context(), "/q", 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := root.SetQuota(t.Context(), "/q", meta.Usage{Bytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	f := open(t, root, "/q/f")
	for _, keep := range []bool{false, true} {
		if err := f.Reserve(t.Context(), 0, 2<<20, keep); errs.KindOf(err) != errs.Quota {
			t.Errorf("more than the quota: %v", err)
		}
		if n := f.Size(); n != 0 {
			t.Errorf("the file has %d bytes", n)
		}
	}
	if err := f.Reserve(t.Context(), 0, 1<<20, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(t.Context(), make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	q, err := root.Quota(t.Context(), "/q")
	if err != nil || q.Used.Bytes != 1<<20 {
		t.Errorf("%+v, %v", q, err)
	}
}

// TestReserveMeetsTruncation: a reservation that was cut meanwhile is made anew, whole.
func TestReserveMeetsTruncation(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	a, b := c.client(Options{}), c.client(Options{})
	f := open(t, a, "/f")
	if _, err := f.WriteAt(t.Context(), make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := false
	c.setHook(func(k call) error {
		if k.op == iod.OpReserve && k.server == 2 && !cut {
			cut = true
			c.setHook(nil)
			if err := b.Truncate(context.Background(), "/f", 100); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err := f.Reserve(t.Context(), 0, 4<<20, false); err != nil {
		t.Fatal(err)
	}
	attr, err := b.Stat(t.Context(), "/f")
	if err != nil || !cut || attr.Size != 4<<20 || attr.Allocated != 4<<20 {
		t.Errorf("cut %v, size %d, space %d, %v", cut, attr.Size, attr.Allocated, err)
	}
}

// TestCopyRangeAgreesWithCopying: random copies between two files and inside of one, with holes and
// reserved space, against the same in memory.
func TestCopyRangeAgreesWithCopying(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	fs := c.client(Options{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	files := [2]*File{open(t, fs, "/a"), open(t, fs, "/b")}
	var want [2][]byte
	grow := func(i int, n int64) {
		if n > int64(len(want[i])) {
			want[i] = append(want[i], make([]byte, n-int64(len(want[i])))...)
		}
	}
	some := func() (off, n int64) {
		off, n = rnd.Int64N(2<<20), 1+rnd.Int64N(600<<10)
		if rnd.IntN(2) == 0 {
			off, n = off&^65535, n&^65535+65536
		}
		return off, n
	}
	for range 150 {
		i := rnd.IntN(2)
		off, n := some()
		switch rnd.IntN(6) {
		case 0:
			p := bytes.Repeat([]byte{byte(1 + rnd.IntN(255))}, int(n))
			if _, err := files[i].WriteAt(t.Context(), p, off); err != nil {
				t.Fatal(err)
			}
			grow(i, off+n)
			copy(want[i][off:], p)
		case 1:
			if err := files[i].Punch(t.Context(), off, n); err != nil {
				t.Fatal(err)
			}
			if off < int64(len(want[i])) {
				clear(want[i][off:min(off+n, int64(len(want[i])))])
			}
		case 2:
			if err := files[i].Reserve(t.Context(), off, n, true); err != nil {
				t.Fatal(err)
			}
		default:
			k, to := rnd.IntN(2), rnd.Int64N(3<<20)
			expect := min(n, max(int64(len(want[i]))-off, 0))
			got, err := files[i].CopyRange(t.Context(), off, files[k], to, n)
			if i == k && max(to-off, off-to) < n {
				if errs.KindOf(err) != errs.Invalid {
					t.Fatalf("an overlap: %v", err)
				}
				continue
			}
			if err != nil || got != expect {
				t.Fatalf("copied %d of %d, %v", got, expect, err)
			}
			if got > 0 {
				grow(k, to+got)
				copy(want[k][to:], bytes.Clone(want[i][off:off+got]))
			}
		}
		for i, f := range files {
			got := make([]byte, len(want[i])+10)
			n, _ := f.ReadAt(t.Context(), got, 0)
			if n != len(want[i]) || !bytes.Equal(got[:n], want[i]) {
				t.Fatalf("file %d differs: %d bytes, want %d", i, n, len(want[i]))
			}
		}
	}
}

// TestCopyRangeKeepsHoles and copies nothing of them.
func TestCopyRangeKeepsHoles(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	fs := c.client(Options{})
	a, b := open(t, fs, "/a"), open(t, fs, "/b")
	if _, err := a.WriteAt(t.Context(), bytes.Repeat([]byte("d"), 100<<10), 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := a.Truncate(t.Context(), 64<<20); err != nil {
		t.Fatal(err)
	}
	n, err := a.CopyRange(t.Context(), 0, b, 0, 1<<40)
	if err != nil || n != 64<<20 {
		t.Fatalf("%d, %v", n, err)
	}
	attr, err := b.Stat(t.Context())
	if err != nil || attr.Size != 64<<20 || attr.Allocated > 256<<10 {
		t.Errorf("size %d, space %d, %v", attr.Size, attr.Allocated, err)
	}
	x, err := b.Map(t.Context(), 0, 64<<20)
	if err != nil || len(x) < 3 || !x[0].Hole || x[1].Hole || x[1].Off != 8<<20 ||
		!(stripe.Extent{Hole: true}).Same(x[2]) {
		t.Errorf("%+v, %v", x, err)
	}
}
