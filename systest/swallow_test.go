package systest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestFullIsNeverSwallowed: where a quota, or the disk, is full, programs hear of it when they
// write, sync or close. What was written without a word is there, also for another mount.
func TestFullIsNeverSwallowed(t *testing.T) {
	t.Parallel()
	t.Run("quota", func(t *testing.T) {
		t.Parallel()
		c := startCluster(t, clusterOptions{iods: 2, mount: true})
		dir := filepath.Join(c.mnt, "q")
		must(t, os.Mkdir(dir, 0o755))
		c.sluice(t, "quota", "set", "/q", "--bytes", "12M")
		neverSwallowed(t, c, "q", syscall.EDQUOT)
	})
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		d := newDisk(t, 500<<20)
		c := startCluster(t, clusterOptions{iods: 2, mount: true, dir: filepath.Join(d.dir, "c")})
		must(t, os.Mkdir(filepath.Join(c.mnt, "d"), 0o755))
		d.fill(160 << 20) // of which stores leave some to others
		neverSwallowed(t, c, "d", syscall.ENOSPC)
	})
}

// neverSwallowed writes files of all sizes in all ways until many have failed, and reads the others
// by another mount.
func neverSwallowed(t *testing.T, c *cluster, folder string, want syscall.Errno) {
	t.Helper()
	sizes := []int{3000, 16 << 10, 3 << 20, 100_000, 17_000, 700_000}
	pieces := []int{5000, 1 << 20, 64 << 10, 512}
	written := map[string][]byte{}
	failed := map[string]int{}
	for i := 0; len(failed) == 0 || failed["all"] < 24; i++ {
		if i > 4000 {
			t.Fatalf("after %d files it is not full", i)
		}
		data := record(uint64(i), i, (sizes[i%len(sizes)]+i%3*8)&^7)
		name := filepath.Join(folder, fmt.Sprintf("f%04d", i))
		path := filepath.Join(c.mnt, name)
		where, err := writeInPieces(path, data, pieces[i%len(pieces)], i%3 == 0)
		if err == nil {
			written[name] = data
			continue
		}
		if !errors.Is(err, want) {
			t.Fatalf("%s of %s: %v, want %v", where, name, err, want)
		}
		failed["all"]++
		failed[where]++
		if failed["all"]%3 != 0 { // the rest stays, so that the last bytes are used, too
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d files were written, others failed in: %v", len(written), failed)
	other := c.startMount(t)
	for name, data := range written {
		for _, mnt := range []string{other, c.mnt} {
			got, err := os.ReadFile(filepath.Join(mnt, name))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s in %s: %d of %d bytes (%v), and its writer heard of nothing: %s", name, mnt,
					len(got), len(data), err, difference(got, data))
			}
		}
	}
}

// writeInPieces writes a new file and tells which step has failed first.
func writeInPieces(path string, data []byte, piece int, sync bool) (where string, err error) {
	f, err := os.Create(path)
	if err != nil {
		return "open", err
	}
	for rest := data; len(rest) > 0 && err == nil; rest = rest[min(piece, len(rest)):] {
		where = "write"
		_, err = f.Write(rest[:min(piece, len(rest))])
	}
	if sync && err == nil {
		where, err = "sync", f.Sync()
	}
	if e := f.Close(); err == nil {
		where, err = "close", e
	}
	return where, err
}

// difference tells where bytes are not what they should be.
func difference(got, want []byte) string {
	first, last, zeroes := -1, -1, true
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			if first < 0 {
				first = i
			}
			last, zeroes = i, zeroes && got[i] == 0
		}
	}
	return fmt.Sprintf("from %d to %d, only zeroes: %v", first, last, zeroes)
}
