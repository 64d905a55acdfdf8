package systest

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// flip is one bit of one file that was, or will be, inverted.
type flip struct {
	path string
	at   int64
	bit  int
}

func (f flip) String() string { return fmt.Sprintf("%s, byte %d, bit %d", f.path, f.at, f.bit) }

// do inverts the bit in place. Doing it twice undoes it.
func (f flip) do(t testing.TB) {
	t.Helper()
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var b [1]byte
	if _, err := file.ReadAt(b[:], f.at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << f.bit
	if _, err := file.WriteAt(b[:], f.at); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
}

// randomFlip chooses a bit among the first limit bytes of a file; 0: of all of them. ok is false
// for a file without any.
func randomFlip(t testing.TB, rng *rand.Rand, path string, limit int64) (f flip, ok bool) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	size := info.Size()
	if limit > 0 {
		size = min(size, limit)
	}
	if size == 0 {
		return f, false
	}
	return flip{path: path, at: rng.Int64N(size), bit: rng.IntN(8)}, true
}

// damageableFiles lists the files below a cluster's folder that hold something.
func damageableFiles(t testing.TB, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// alignedBytes is memory for O_DIRECT.
func alignedBytes(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}
