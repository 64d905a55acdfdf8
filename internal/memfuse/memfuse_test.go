package memfuse

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestMemoryKeepsBytes writes, reads at an odd place, truncates and overwrites a file through the
// kernel.
func TestMemoryKeepsBytes(t *testing.T) {
	dir := t.TempDir()
	unmount, err := Mount(dir)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	defer unmount()
	rng := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, 5<<20+777)
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	path := filepath.Join(dir, "data")
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read back %d bytes of %d, %v", len(got), len(want), err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	part := make([]byte, 2<<20)
	if _, err := f.ReadAt(part, 1<<20-5); err != nil || !bytes.Equal(part, want[1<<20-5:][:2<<20]) {
		t.Fatalf("read across chunks: %v", err)
	}
	if err := f.Truncate(100); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(200); err != nil {
		t.Fatal(err)
	}
	got, err = os.ReadFile(path)
	if err != nil || !bytes.Equal(got, append(want[:100:100], make([]byte, 100)...)) {
		t.Fatalf("truncated: %d bytes, %v", len(got), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatalf("removed file: %v", err)
	}
}
