package capi

import (
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/seg"
)

func wantErrno(t *testing.T, what string, err error, no syscall.Errno) {
	t.Helper()
	if err == nil || Errno(err) != no {
		t.Errorf("%s: %v, want %v", what, err, no)
	}
}

func TestReadOptions(t *testing.T) {
	s := newSpace(4096)
	w := s.writer()
	cred, name := w.text("/etc/cred"), w.text("prog")
	at := w.at
	w.u32(OptionsBytes).u32(flagTrustLocal).u64(uint64(cred)).u64(0).u64(0).u64(0).u64(uint64(name)).
		u64(1 << 26).u64(2 << 20).u64(3 << 20).u32(1500).u32(0)
	if w.at-at != OptionsBytes {
		t.Fatalf("%d bytes", w.at-at)
	}
	got, err := readOptions(s, at)
	if err != nil {
		t.Fatal(err)
	}
	want := options{trustLocal: true, credential: "/etc/cred", name: "prog", buffers: 1 << 26,
		retain: 2 << 20, pinned: 3 << 20, wait: 1500 * time.Millisecond}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Error(diff)
	}
	if got, err := readOptions(s, 0); err != nil || got != (options{}) {
		t.Errorf("no options: %v, %v", got, err)
	}
	_, err = readOptions(s, at+4)
	wantErrno(t, "another size", err, syscall.EINVAL)
	native.PutUint32(s.bytes[4090:], OptionsBytes)
	_, err = readOptions(s, s.base+4090)
	wantErrno(t, "half of it", err, syscall.EFAULT)
}

func TestLayoutThereAndBack(t *testing.T) {
	s := newSpace(4096)
	s.writer().u32(LayoutBytes)
	want := layout.Policy{Unit: 1 << 20, Width: 3, Pool: "fast"}
	if err := writeLayout(s, s.base, want); err != nil {
		t.Fatal(err)
	}
	if got, err := readLayout(s, s.base); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	for i := range poolBytes {
		s.bytes[16+i] = 'x'
	}
	_, err := readLayout(s, s.base)
	wantErrno(t, "a name without an end", err, syscall.EINVAL)
}

func TestReadAccess(t *testing.T) {
	s := newSpace(1 << 16)
	w := s.writer()
	pieces := w.at
	w.i64(10).i64(5).i64(0).i64(3)
	dims := w.at
	w.i64(2).i64(100).i64(3).i64(10)
	list := w.at
	w.u32(accessList).u32(2).u64(uint64(pieces)).i64(1000).i64(0)
	vector := w.at
	w.u32(accessVector).u32(2).u64(uint64(dims)).i64(7).i64(4)
	a, err := readAccess(s, list, 1<<40)
	if err != nil || a.Len() != 8 || a.Span() != (seg.Piece{Off: 1000, Len: 15}) {
		t.Errorf("a list: %v, %v", a, err)
	}
	a, err = readAccess(s, vector, 1<<40)
	if err != nil || a.Len() != 24 || a.Span() != (seg.Piece{Off: 7, Len: 124}) {
		t.Errorf("a vector: %v, %v", a, err)
	}
	_, err = readAccess(s, vector, 100)
	wantErrno(t, "behind the end", err, syscall.EINVAL)
}

func TestReadAccessRefuses(t *testing.T) {
	for _, c := range []struct {
		name       string
		kind, n    uint32
		one, other int64 // of a piece or a dim
		off, block int64
		no         syscall.Errno
	}{
		{"a kind", 7, 0, 0, 0, 0, 0, syscall.EINVAL},
		{"many pieces", accessList, piecesMax + 1, 0, 1, 0, 0, syscall.E2BIG},
		{"pieces that are not there", accessList, 4096, 0, 1, 0, 0, syscall.EFAULT},
		{"a negative length", accessList, 1, 0, -1, 0, 0, syscall.EINVAL},
		{"a negative offset", accessList, 1, -1, 1, 0, 0, syscall.EINVAL},
		{"an offset that overflows", accessList, 1, math.MaxInt64, 1, math.MaxInt64, 0, syscall.EINVAL},
		{"an offset that underflows", accessList, 1, math.MinInt64, 1, math.MinInt64, 0, syscall.EINVAL},
		{"a deep vector", accessVector, seg.MaxDims + 1, 1, 1, 0, 1, syscall.EINVAL},
		{"a negative stride", accessVector, 1, 2, -1, 10, 1, syscall.EINVAL},
		{"a negative block", accessVector, 1, 2, 1, 10, -1, syscall.EINVAL},
		{"a billion blocks", accessVector, 1, 1 << 30, 8, 0, 8, syscall.E2BIG},
	} {
		s := newSpace(4096)
		w := s.writer()
		parts := w.at
		w.i64(c.one).i64(c.other)
		at := w.at
		w.u32(c.kind).u32(c.n).u64(uint64(parts)).i64(c.off).i64(c.block)
		_, err := readAccess(s, at, layout.FileSizeMax)
		wantErrno(t, c.name, err, c.no)
	}
}

func TestText(t *testing.T) {
	s := newSpace(3 * pageBytes)
	long := strings.Repeat("a", pageBytes+100)
	w := s.writer()
	w.at += pageBytes / 2 // it goes over the end of a page
	at := w.text(long)
	if got, ok, err := text(s, at); got != long || !ok || err != nil {
		t.Errorf("%d bytes, %v, %v", len(got), ok, err)
	}
	for i := range s.bytes {
		s.bytes[i] = 'x'
	}
	_, _, err := text(s, s.base)
	wantErrno(t, "a text that is too long", err, syscall.ENAMETOOLONG)
	_, _, err = text(s, s.base+2*pageBytes)
	wantErrno(t, "a text that leaves memory", err, syscall.EFAULT)
	if _, ok, err := text(s, 0); ok || err != nil {
		t.Errorf("no text: %v, %v", ok, err)
	}
}

func TestStatAndDirent(t *testing.T) {
	s := newSpace(4096)
	a := meta.Attr{Ino: 9, Type: meta.Symlink, Mode: 0o777, Size: 5, Nlink: 2, UID: 3, GID: 4,
		DataVersion: 6, Mtime: meta.Time{Sec: 10, Nsec: 11}}
	e := meta.Entry{Name: "name", Attr: &a}
	if err := writeDirent(s, s.base, &e); err != nil {
		t.Fatal(err)
	}
	f := fields{s.bytes}
	if ino, size, space, change := f.u64(), f.i64(), f.i64(), f.u64(); ino != 9 || size != 5 ||
		space != blockBytes || change != 6 {
		t.Errorf("ino %d, size %d, space %d, change %d", ino, size, space, change)
	}
	if mode, nlink, uid, gid := f.u32(), f.u32(), f.u32(), f.u32(); mode != syscall.S_IFLNK|0o777 ||
		nlink != 2 || uid != 3 || gid != 4 {
		t.Errorf("mode %o, nlink %d, uid %d, gid %d", mode, nlink, uid, gid)
	}
	if name := string(s.bytes[StatBytes : StatBytes+5]); name != "name\x00" {
		t.Errorf("name %q", name)
	}
	wantErrno(t, "no place", writeDirent(s, 0, &e), syscall.EFAULT)
}

// FuzzStructs reads every structure from memory that holds anything: whatever lies there, and
// wherever it points, the reader returns and what it returns keeps the limits.
func FuzzStructs(f *testing.F) {
	s := newSpace(512)
	w := s.writer()
	w.u32(RequestBytes).u32(opReadList)
	f.Add(s.bytes, uint16(0))
	w = s.writer()
	w.u32(accessVector).u32(2).u64(uint64(s.base + 64)).i64(0).i64(8)
	w.at = s.base + 64
	w.i64(4).i64(64).i64(2).i64(16)
	f.Add(s.bytes, uint16(0))
	w = s.writer()
	w.u32(HintsBytes).u32(1).u64(uint64(s.base + 128))
	f.Add(s.bytes, uint16(8))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		s := &fakeSpace{base: 0x10000, bytes: data}
		addr := s.base + uintptr(at)
		if a, err := readAccess(s, addr, layout.FileSizeMax); err == nil {
			if a.Pieces() > piecesMax || a.Span().End() > layout.FileSizeMax || a.Len() < 0 {
				t.Errorf("access %+v", a)
			}
		}
		if base, p, err := readMemory(s, addr); err == nil && p.at(0).Len() > 0 && base == 0 {
			t.Error("memory without a base")
		}
		if p, err := readHints(s, addr); err == nil && len(p) > parentsMax {
			t.Errorf("%d parents", len(p))
		}
		if bufs, err := readIovecs(s, addr, int64(at)%2048); err == nil {
			var sum uint64
			for _, b := range bufs {
				sum += b.n
			}
			if sum > bytesMax {
				t.Errorf("buffers of %d bytes", sum)
			}
		}
		if p, err := readLayout(s, addr); err == nil && p.Validate() != nil {
			t.Errorf("layout %+v", p)
		}
		_, _ = readOptions(s, addr)
		_, _ = readRequest(s, addr)
		_, _ = readTime(s, addr)
		_, _ = readEnvironment(s, addr)
		_, _, _ = text(s, addr)
		lib := New(s)
		if tr, err := lib.readTransfer(addr, addr+MemoryBytes, 0); err == nil {
			var n int64
			for _, b := range tr.bufs {
				n += int64(len(b))
			}
			if tr.Memory.Len() != tr.File.Len() || tr.Memory.Span().End() > n {
				t.Errorf("%d bytes of memory for %+v and %+v", n, tr.Memory, tr.File)
			}
		}
	})
}
