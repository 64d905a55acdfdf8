package pebblekv

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// flipsMax is how many positions of one file are tried; SLUICE_SOAK tries all of them.
const flipsMax = 120

// TestAFlippedBitIsNoticed flips one bit of one file of a store that was killed, or closed, at many
// positions of each file. Either everything that was synced is there, or somebody is told: Open, or
// the reader of a damaged block.
func TestAFlippedBitIsNoticed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SLUICE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for _, c := range []struct {
		name string
		end  func(s *Store, fs *vfs.MemFS) *vfs.MemFS
	}{
		{"killed", func(s *Store, fs *vfs.MemFS) *vfs.MemFS {
			after := copyOf(t, fs)
			mustClose(t, s)
			return after
		}},
		{"power cut", func(s *Store, fs *vfs.MemFS) *vfs.MemFS {
			if err := s.guard.marks.flush(); err != nil { // as it does by itself within a second
				t.Fatal(err)
			}
			after := fs.CrashClone(vfs.CrashCloneCfg{})
			mustClose(t, s)
			return after
		}},
		{"closed", func(s *Store, fs *vfs.MemFS) *vfs.MemFS {
			mustClose(t, s)
			return fs
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, want := vfs.NewCrashableMem(), map[string]string{}
			s := mustOpen(t, Options{Dir: "store", FS: fs})
			fillForDamage(t, s, want)
			left := c.end(s, fs)
			if err := opensWith(copyOf(t, left), want); err != nil {
				t.Fatalf("undamaged: %v", err)
			}
			names, err := left.List("store")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				flipEach(t, rng, left, name, want)
			}
		})
	}
}

// fillForDamage leaves tables, a manifest with several edits and a log with synced commits.
func fillForDamage(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	for i := range 48 {
		key, value := fmt.Sprintf("k%02d", i%40), fmt.Sprintf("value %d %s", i, strings.Repeat("x", i))
		txn := kv.Txn{ReqID: kv.ReqID{1, byte(i)}, Sync: true,
			Puts: []kv.Put{{Key: []byte(key), Value: []byte(value)}}}
		if _, err := s.Commit(context.Background(), &txn); err != nil {
			t.Fatal(err)
		}
		want[key] = value
		if i == 12 || i == 24 {
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func copyOf(t testing.TB, from vfs.FS) *vfs.MemFS {
	to := vfs.NewCrashableMem()
	if _, err := vfs.Clone(from, to, "store", "store"); err != nil {
		t.Fatal(err)
	}
	return to
}

// opensWith opens the store and demands all of want; the error is what a user is told.
func opensWith(fs vfs.FS, want map[string]string) error {
	s, err := Open(Options{Dir: "store", FS: fs})
	if err != nil {
		return err
	}
	snap := s.Snapshot()
	var told error
	var lost []string
	for key, value := range want {
		got, _, err := snap.Get([]byte(key))
		if err != nil {
			told = err
		} else if string(got) != value {
			lost = append(lost, fmt.Sprintf("%s is %q", key, got))
		}
	}
	if err := snap.Scan(nil, nil, func(_, _ []byte, _ kv.Version) bool { return true }); err != nil {
		told = err
	}
	_ = snap.Close()
	_ = s.Close() // a damaged table may keep it from writing
	if len(lost) > 0 {
		return fmt.Errorf("%w: %v", errSilent, lost)
	}
	return told
}

var errSilent = fmt.Errorf("lost in silence")

// flipEach damages one file at many places, one at a time.
func flipEach(t *testing.T, rng *rand.Rand, left *vfs.MemFS, name string, want map[string]string) {
	path := left.PathJoin("store", name)
	data := readAll(t, left, path)
	positions := rng.Perm(len(data))
	if os.Getenv("SLUICE_SOAK") == "" {
		positions = positions[:min(len(positions), flipsMax)]
	}
	type flip struct{ at, bit int }
	var flips []flip
	for _, at := range positions {
		flips = append(flips, flip{at, rng.IntN(8)})
	}
	// The end of a table has no checksum of its own.
	if strings.HasSuffix(name, tableSuffix) && len(data) >= footerBytes {
		for i := range 8 * footerBytes {
			flips = append(flips, flip{len(data) - footerBytes + i/8, i % 8})
		}
	}
	told := 0
	for _, f := range flips {
		at, bit := f.at, f.bit
		fs := copyOf(t, left)
		bad := append([]byte(nil), data...)
		bad[at] ^= 1 << bit
		writeAll(t, fs, path, bad)
		err := opensWith(fs, want)
		if strings.Contains(fmt.Sprint(err), errSilent.Error()) {
			t.Fatalf("%s, byte %d of %d, bit %d: %v", name, at, len(data), bit, err)
		}
		if k := errs.KindOf(err); err != nil && k != errs.Corrupt {
			t.Fatalf("%s, byte %d of %d, bit %d is told as %v: %v", name, at, len(data), bit, k, err)
		}
		if err != nil {
			told++
		}
	}
	t.Logf("%s: %d bytes, %d of %d flips told", name, len(data), told, len(flips))
}

func readAll(t testing.TB, fs vfs.FS, path string) []byte {
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeAll(t testing.TB, fs vfs.FS, path string, data []byte) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

// FuzzFooter: whatever a table ends with, only a footer of our own passes.
func FuzzFooter(f *testing.F) {
	good := make([]byte, footerBytes)
	copy(good, []byte{tableSums, 10, 20, 30, 40})
	good[footerVersion] = tableVersion
	copy(good[footerBytes-len(tableMagic):], tableMagic)
	f.Add(good, uint64(1000))
	f.Add(good, uint64(10))
	f.Add(good[1:], uint64(1000))
	f.Fuzz(func(t *testing.T, b []byte, size uint64) {
		if checkFooter(b, size) != nil {
			return
		}
		if b[0] != tableSums || b[footerVersion] != tableVersion ||
			!strings.HasSuffix(string(b), tableMagic) {
			t.Fatalf("accepted %x", b)
		}
	})
}
