package diskexport

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
	"github.com/sluice-storage/sluice/unifier"
)

// fresh makes a sparse file.
func fresh(tb testing.TB, size int64) string { return freshIn(tb, tb.TempDir(), size) }

// quick makes a sparse file where a sync takes no time, for tests that do not need a disk.
func quick(tb testing.TB, size int64) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "diskexport")
	if err != nil {
		return fresh(tb, size)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return freshIn(tb, dir, size)
}

func freshIn(tb testing.TB, in string, size int64) string {
	tb.Helper()
	dir, err := os.MkdirTemp(in, "export")
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(dir, "disk")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		tb.Fatal(err)
	}
	return path
}

// newHost makes a host with little memory, so that tests find out what happens without.
func newHost(tb testing.TB) *Host {
	h := New(Options{Cache: unifier.Config{MemoryBytes: 16 << 20}})
	tb.Cleanup(func() {
		if err := h.Close(); err != nil {
			tb.Errorf("Host.Close: %v", err)
		}
	})
	return h
}

func open(tb testing.TB, h *Host, s Spec) *Export {
	tb.Helper()
	e, err := h.Open(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// eachMode runs a test for every mode.
func eachMode(t *testing.T, test func(t *testing.T, m Mode)) {
	for m := range modesEnd {
		t.Run(m.String(), func(t *testing.T) { test(t, m) })
	}
}

func TestConformance(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		h := newHost(t)
		exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
			return open(tb, h, Spec{Paths: []string{fresh(tb, size)}, Mode: m})
		})
	})
}

// TestWithoutKernelHelp runs the suite as if the kernel lacked the optional calls.
func TestWithoutKernelHelp(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		h := newHost(t)
		exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
			e := open(tb, h, Spec{Paths: []string{quick(tb, size)}, Mode: m})
			e.d.noSync.Store(true)
			e.d.parts[0].noNowait.Store(true)
			e.d.parts[0].noStat.Store(true)
			if e.d.grain != 0 {
				e.d.grain = blockBytes // a disk with larger sectors
				e.d.whole = e.d.size / blockBytes * blockBytes
			}
			return e
		})
	})
}

func TestOneWriterAtATime(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		path := fresh(t, 8192)
		one, other := newHost(t), newHost(t)
		first := open(t, one, Spec{Paths: []string{path}, Mode: m})
		for _, ro := range []bool{false, true} {
			_, err := other.Open(t.Context(), Spec{Paths: []string{path}, ReadOnly: ro})
			if errs.KindOf(err) != errs.Busy || !strings.Contains(err.Error(), "process") {
				t.Errorf("second open with ReadOnly=%v beside a writer: %v, want Busy", ro, err)
			}
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		a := open(t, one, Spec{Paths: []string{path}, ReadOnly: true, Mode: m})
		b := open(t, other, Spec{Paths: []string{path}, ReadOnly: true})
		_, err := other.Open(t.Context(), Spec{Paths: []string{path}})
		if errs.KindOf(err) != errs.Busy {
			t.Errorf("writer beside readers: %v, want Busy", err)
		}
		a.Close()
		b.Close()
		open(t, other, Spec{Paths: []string{path}, Mode: m}).Close()
	})
}

// TestPlannedExportsFitEachOther: a reader that comes first leaves room for the writer, if that was
// planned, and a reader is not refused for a path that leads to the same file.
func TestPlannedExportsFitEachOther(t *testing.T) {
	path := fresh(t, 64<<10)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	reads := Spec{Paths: []string{link}, ReadOnly: true}
	writes := Spec{Paths: []string{path}, Mode: Cached}
	h := newHost(t)
	r := open(t, h, reads)
	if _, err := h.Open(t.Context(), writes); errs.KindOf(err) != errs.Busy {
		t.Errorf("a writer that nobody expected: %v", err)
	}
	r.Close()
	h.Plan(reads, writes)
	r, w := open(t, h, reads), open(t, h, writes)
	defer r.Close()
	defer w.Close()
	if r.d != w.d {
		t.Fatal("two disks")
	}
	if err := w.WriteAt(t.Context(), []byte("hello"), 100, false); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if err := r.ReadAt(t.Context(), got, 100); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := r.WriteAt(t.Context(), got, 0, false); errs.KindOf(err) != errs.ReadOnly {
		t.Errorf("the reader writes: %v", err)
	}
}

func TestReadOnlyRefusesChanges(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		e := open(t, newHost(t), Spec{Paths: []string{fresh(t, 8192)}, ReadOnly: true, Mode: m})
		defer e.Close()
		ctx := t.Context()
		for what, err := range map[string]error{
			"write": e.WriteAt(ctx, make([]byte, 1), 0, false),
			"fua":   e.WriteAt(ctx, make([]byte, 1), 0, true),
			"trim":  e.Trim(ctx, 0, 4096, false),
			"zero":  e.WriteZeroes(ctx, 0, 4096, nbd.ZeroFlags{}),
		} {
			if errs.KindOf(err) != errs.ReadOnly {
				t.Errorf("%s: %v, want ReadOnly", what, err)
			}
		}
		if err := e.Flush(ctx); err != nil {
			t.Errorf("flush: %v", err)
		}
		if err := e.ReadAt(ctx, make([]byte, 8192), 0); err != nil {
			t.Errorf("read: %v", err)
		}
	})
}

// TestFailedSyncStaysFailed: the kernel tells of lost data once; we must go on telling, through
// every export of the disk.
func TestFailedSyncStaysFailed(t *testing.T) {
	path := fresh(t, 64<<10)
	h := newHost(t)
	broken := open(t, h, Spec{Paths: []string{path}})
	defer broken.Close()
	if err := broken.d.breakDown(syscall.EIO); errs.KindOf(err) != errs.IO {
		t.Fatalf("first failure: %v", err)
	}
	eachMode(t, func(t *testing.T, m Mode) {
		e := open(t, h, Spec{Paths: []string{path}, Mode: m})
		defer e.Close()
		ctx := t.Context()
		for what, err := range map[string]error{
			"flush":         e.Flush(ctx),
			"second flush":  e.Flush(ctx),
			"fua write":     e.WriteAt(ctx, make([]byte, 512), 0, true),
			"odd fua write": e.WriteAt(ctx, make([]byte, 1), 1, true),
			"fua trim":      e.Trim(ctx, 0, 4096, true),
			"fua zero":      e.WriteZeroes(ctx, 0, 4096, nbd.ZeroFlags{FUA: true}),
		} {
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%s after a failed sync: %v", what, err)
			}
		}
		if err := e.WriteAt(ctx, make([]byte, 1), 0, false); err != nil {
			t.Errorf("a write that promises nothing: %v", err)
		}
	})
}

// TestShrunkFileIsAnError, not zeroes, and says where.
func TestShrunkFileIsAnError(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		const size = 1 << 20
		path := fresh(t, size)
		if err := os.WriteFile(path, bytes.Repeat([]byte{1}, size), 0o600); err != nil {
			t.Fatal(err)
		}
		e := open(t, newHost(t), Spec{Paths: []string{path}, Mode: m})
		defer e.Close()
		if err := os.Truncate(path, size/2); err != nil {
			t.Fatal(err)
		}
		err := e.ReadAt(t.Context(), make([]byte, size), 0)
		var at *nbd.OffsetError
		if errs.KindOf(err) != errs.IO || !errors.As(err, &at) || at.Off < size/2 {
			t.Errorf("read past the new end: %v, want IO with a place", err)
		}
		if e.ReadNow(make([]byte, size), 0) {
			t.Error("ReadNow past the new end succeeded")
		}
		exts, err := e.Map(t.Context(), size/2, size/2, 10, nil)
		if err != nil || len(exts) != 1 || exts[0].Zero {
			t.Errorf("what is missing is mapped as %v, %v", exts, err)
		}
	})
}

func TestWhatCannotBeServed(t *testing.T) {
	h := newHost(t)
	for path, want := range map[string]errs.Kind{
		"":                                    errs.Invalid,
		filepath.Join(t.TempDir(), "missing"): errs.NotFound,
		t.TempDir():                           errs.Invalid,
		os.DevNull:                            errs.Invalid,
	} {
		_, err := h.Open(t.Context(), Spec{Paths: []string{path}})
		if errs.KindOf(err) != want {
			t.Errorf("Open(%q): %v, want %v", path, err, want)
		}
	}
	if _, err := ParseMode("fast"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("a mode that there is not: %v", err)
	}
	for i, name := range Modes() {
		if m, err := ParseMode(name); err != nil || m != Mode(i) {
			t.Errorf("mode %s: %v, %v", name, m, err)
		}
	}
}

func TestMapShowsHoles(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		const size = 4 << 20
		e := open(t, newHost(t), Spec{Paths: []string{fresh(t, size)}, Mode: m})
		defer e.Close()
		ctx := t.Context()
		if err := e.WriteAt(ctx, bytes.Repeat([]byte{1}, 1<<20), 1<<20, false); err != nil {
			t.Fatal(err)
		}
		want := []nbd.Extent{
			{Len: 1 << 20, Hole: true, Zero: true}, {Len: 1 << 20},
			{Len: 2 << 20, Hole: true, Zero: true},
		}
		for range 2 { // the second time from what is remembered
			got, err := e.Map(ctx, 0, size, 10, nil)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("map %v, %v", got, err)
			}
		}
		if err := e.Trim(ctx, 1<<20, 1<<20, false); err != nil {
			t.Fatal(err)
		}
		got, err := e.Map(ctx, 0, size, 10, nil)
		if err != nil || len(got) != 1 || !got[0].Hole {
			t.Fatalf("map after trim %v, %v", got, err)
		}
	})
}
