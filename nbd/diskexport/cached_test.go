package diskexport

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/nbd"
)

// TestCached: what was just written is in memory; a hole that nobody has read is not; and the runs
// cover the range.
func TestCached(t *testing.T) {
	const size = 8<<20 + 100
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i)
	}
	path := fresh(t, 0)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	e := open(t, newHost(t), Spec{Paths: []string{path}})
	defer e.Close()
	var st unix.Cachestat_t
	if unix.Cachestat(uint(e.d.parts[0].file.Fd()), &unix.CachestatRange{Len: 4096}, &st, 0) != nil {
		t.Skip("this kernel does not tell what is cached")
	}
	runs, err := e.Contexts()[0].Status(t.Context(), 100, size-100, 50, nil)
	if err != nil || len(runs) < 2 || runs[0].Len != 1<<20-100 || runs[0].Flags != 3 ||
		runs[1].Flags != 0 {
		t.Fatalf("%v, %v", runs, err)
	}
	sum := int64(100)
	for _, r := range runs {
		sum += r.Len
	}
	if sum != size {
		t.Errorf("%v end at %d of %d", runs, sum, size)
	}
	if one, err := e.cached(t.Context(), 0, size, 1, nil); err != nil || len(one) != 1 {
		t.Errorf("at most one: %v, %v", one, err)
	}
	if err := e.Cache(t.Context(), 0, size); err != nil {
		t.Errorf("Cache: %v", err)
	}
}

// TestOurCacheTells: the same of what our own cache holds, and a client may have it filled.
func TestOurCacheTells(t *testing.T) {
	const size = 4 << 20
	e := open(t, newHost(t), Spec{Paths: []string{fresh(t, size)}, Mode: Cached})
	defer e.Close()
	told := func() []nbd.Status {
		runs, err := e.Contexts()[0].Status(t.Context(), 0, size, 50, nil)
		if err != nil {
			t.Fatal(err)
		}
		return runs
	}
	if runs := told(); len(runs) != 1 || runs[0].Flags != 0 {
		t.Errorf("nothing was read: %v", runs)
	}
	if err := e.Cache(t.Context(), 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if runs := told(); runs[0].Len < 1<<20 || runs[0].Flags != 3 {
		t.Errorf("the first was read: %v", runs)
	}
	if !e.ReadNow(make([]byte, 64<<10), 512<<10) {
		t.Error("what is cached is not at hand")
	}
}
