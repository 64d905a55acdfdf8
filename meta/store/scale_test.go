package store_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// scale is how many files the large directory has; a million where there is time.
func scale() int {
	if os.Getenv("SLUICE_SOAK") != "" {
		return 1_000_000
	}
	return 20_000
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestALargeDirectory checks a directory of many files and removes it: neither needs memory for it.
func TestALargeDirectory(t *testing.T) {
	n := scale()
	engine, err := pebblekv.Open(pebblekv.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	s, err := store.New(t.Context(), engine, store.Options{Objects: newSizes(), TreeRate: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := s.Make(t.Context(), meta.Caller{}, meta.RootIno, "d",
		meta.NewFile{Type: meta.Directory, Mode: 0o755})
	must(err)
	for i := range n {
		_, err := s.Make(t.Context(), meta.Caller{}, dir.Ino, fmt.Sprint("file", i),
			meta.NewFile{Type: meta.Fifo})
		must(err)
	}
	before, peak, begun := heap(), int64(0), time.Now()
	for step := uint64(0); ; step++ {
		p, err := s.Check(t.Context(), meta.Caller{}, meta.CheckStep{Run: 1, Step: step, Max: 8192})
		must(err)
		if len(p.Findings) > 0 {
			t.Fatalf("%+v", p.Findings)
		}
		if step%8 == 0 {
			peak = max(peak, heap())
		}
		if p.End {
			t.Logf("%d records were checked in %v", p.Looked, time.Since(begun))
			break
		}
	}
	begun = time.Now()
	must(s.RemoveTree(t.Context(), meta.Caller{}, meta.RootIno, "d"))
	named := time.Since(begun)
	for files := int64(n); files > 1; time.Sleep(50 * time.Millisecond) {
		peak = max(peak, heap())
		st, err := s.StatFS(t.Context(), meta.RootIno)
		must(err)
		files = st.Files
	}
	t.Logf("the name of %d files went in %v, all of them in %v; %d bytes of heap more than before", n,
		named, time.Since(begun), peak-before)
	// The sums are 768 KiB, a page of a check some hundred KiB; the engine has memtables of its own.
	if peak-before > 48<<20 {
		t.Errorf("%d bytes of heap more than before", peak-before)
	}
	verify(t, s)
}
