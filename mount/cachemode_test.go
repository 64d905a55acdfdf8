package mount

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

var cacheModes = []CacheMode{CacheStrict, CacheCloseToOpen, CacheWriteback}

func eachMode(t *testing.T, test func(t *testing.T, mode CacheMode)) {
	for _, mode := range cacheModes {
		t.Run(string(mode), func(t *testing.T) { test(t, mode) })
	}
}

// TestCloseToOpenInEachMode: who opens a file after it was closed elsewhere sees all of it, whether
// it has grown, was cut, was overwritten, or replaced; with its length, and in mapped memory.
func TestCloseToOpenInEachMode(t *testing.T) {
	eachMode(t, func(t *testing.T, mode CacheMode) {
		c := newCluster(t, 2)
		var names [2]string
		for i := range names {
			names[i] = filepath.Join(c.mount(Options{Cache: mode}).Dir(), "f")
		}
		sizes := []int{100, 70 << 10, 5000, 300 << 10, 300 << 10, 0, 20 << 10, 19 << 10, 8}
		for i, size := range sizes {
			want := pattern(size, byte(i+1))
			by, other := names[i%2], names[1-i%2]
			if i%4 == 3 {
				must(t, os.WriteFile(by+".new", want, 0o644))
				must(t, os.Rename(by+".new", by))
			} else {
				must(t, os.WriteFile(by, want, 0o644))
			}
			for _, p := range []string{other, by} {
				equalFile(t, p, want)
				equalMapped(t, p, want)
			}
		}
	})
}

func equalMapped(t *testing.T, path string, want []byte) {
	t.Helper()
	if len(want) == 0 {
		return
	}
	local := filepath.Join(t.TempDir(), "want")
	must(t, os.WriteFile(local, want, 0o600))
	runMapHelper(t, path, "equal", mapWantEnv+"="+local)
}

// mapEqual compares mapped memory with another file.
func mapEqual(t *testing.T, path, other string) {
	want, err := os.ReadFile(other)
	must(t, err)
	f := open(t, path, os.O_RDONLY)
	m, err := unix.Mmap(int(f.Fd()), 0, len(want), unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	if !bytes.Equal(m, want) {
		t.Errorf("%s: mapped memory has other bytes", path)
	}
	must(t, unix.Munmap(m))
	must(t, f.Close())
}

const besideSize = 200 << 10

// TestMappedWritesInEachMode: what is written to mapped memory is in the file, here at once after
// msync, elsewhere when the file is closed; with writes by write(2) beside it.
func TestMappedWritesInEachMode(t *testing.T) {
	eachMode(t, func(t *testing.T, mode CacheMode) {
		c := newCluster(t, 2)
		p := filepath.Join(c.mount(Options{Cache: mode}).Dir(), "f")
		other := filepath.Join(c.mount(Options{Cache: mode}).Dir(), "f")
		want := pattern(besideSize, 1)
		must(t, os.WriteFile(p, want, 0o644))
		runMapHelper(t, p, "beside")
		copy(want[5000:], "mapped")
		copy(want[90<<10:], "written")
		equalFile(t, other, want)
	})
}

func mapBeside(t *testing.T, path string) {
	want := pattern(besideSize, 1)
	f := open(t, path, os.O_RDWR)
	m, err := unix.Mmap(int(f.Fd()), 0, besideSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	copy(m[5000:], "mapped")
	copy(want[5000:], "mapped")
	must(t, unix.Msync(m, unix.MS_SYNC))
	_, err = f.WriteAt([]byte("written"), 90<<10)
	must(t, err)
	copy(want[90<<10:], "written")
	got := make([]byte, besideSize)
	_, err = f.ReadAt(got, 0)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("read(2) has other bytes")
	}
	if !bytes.Equal(m, want) {
		t.Error("mapped memory has other bytes")
	}
	must(t, unix.Munmap(m))
	must(t, f.Sync())
	must(t, f.Close())
}

// TestStrict: what was written is seen at once by who has the file open elsewhere, large or small.
func TestStrict(t *testing.T) {
	c := newCluster(t, 2)
	a := c.mount(Options{Cache: CacheStrict}).Dir()
	b := c.mount(Options{Cache: CacheStrict}).Dir()
	for _, size := range []int{100, 100 << 10} {
		must(t, os.WriteFile(filepath.Join(a, "f"), pattern(size, 9), 0o644))
		w := open(t, filepath.Join(a, "f"), os.O_RDWR)
		r := open(t, filepath.Join(b, "f"), os.O_RDWR)
		for i := range 20 {
			by, other := w, r
			if i%2 == 1 {
				by, other = r, w
			}
			text := []byte{byte(i), 'x', byte(i)}
			off := int64(i * size / 30)
			_, err := by.WriteAt(text, off)
			must(t, err)
			got := make([]byte, 3)
			_, err = other.ReadAt(got, off)
			must(t, err)
			if !bytes.Equal(got, text) {
				t.Fatalf("%d bytes, round %d: %v was written, %v is read", size, i, text, got)
			}
		}
		must(t, w.Close())
		must(t, r.Close())
	}
}

// TestWritebackIsWrittenByTheKernel: small writes stay in its pages, and are there after fsync.
func TestWritebackIsWrittenByTheKernel(t *testing.T) {
	c := newCluster(t, 2)
	m := c.mount(Options{Cache: CacheWriteback})
	f := open(t, filepath.Join(m.Dir(), "f"), os.O_CREATE|os.O_RDWR)
	want := pattern(300<<10, 3)
	for off := 0; off < len(want); off += 1000 {
		_, err := f.WriteAt(want[off:min(off+1000, len(want))], int64(off))
		must(t, err)
	}
	must(t, f.Sync())
	equalFile(t, filepath.Join(c.mount(Options{}).Dir(), "f"), want)
	st, err := f.Stat()
	if err != nil || st.Size() != int64(len(want)) {
		t.Errorf("%v, %v", st, err)
	}
	must(t, f.Close())
}

func TestCacheModeIsChecked(t *testing.T) {
	if (&Options{Cache: "lax"}).Cache.validate() == nil {
		t.Error("a mode that is none is taken")
	}
}
