package fileexport

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
)

func fresh(tb testing.TB, size int64) string {
	tb.Helper()
	dir, err := os.MkdirTemp(tb.TempDir(), "export")
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

func open(tb testing.TB, opts Options) *File {
	tb.Helper()
	f, err := Open(opts)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func TestConformance(t *testing.T) {
	exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
		return open(tb, Options{Path: fresh(tb, size)})
	})
}

// TestWithoutKernelHelp runs the suite as if the file system lacked the optional calls.
func TestWithoutKernelHelp(t *testing.T) {
	exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
		f := open(tb, Options{Path: fresh(tb, size)})
		f.noDsync.Store(true)
		f.noNowait.Store(true)
		return f
	})
}

func TestOneWriterAtATime(t *testing.T) {
	path := fresh(t, 4096)
	first := open(t, Options{Path: path})
	for _, ro := range []bool{false, true} {
		if _, err := Open(Options{Path: path, ReadOnly: ro}); errs.KindOf(err) != errs.Busy {
			t.Errorf("second open with ReadOnly=%v beside a writer: %v, want Busy", ro, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	a := open(t, Options{Path: path, ReadOnly: true})
	b := open(t, Options{Path: path, ReadOnly: true})
	if _, err := Open(Options{Path: path}); errs.KindOf(err) != errs.Busy {
		t.Errorf("writer beside readers: %v, want Busy", err)
	}
	a.Close()
	b.Close()
	open(t, Options{Path: path}).Close()
}

func TestReadOnlyRefusesChanges(t *testing.T) {
	f := open(t, Options{Path: fresh(t, 4096), ReadOnly: true})
	defer f.Close()
	ctx := t.Context()
	for what, err := range map[string]error{
		"write": f.WriteAt(ctx, make([]byte, 1), 0, false),
		"fua":   f.WriteAt(ctx, make([]byte, 1), 0, true),
		"trim":  f.Trim(ctx, 0, 4096, false),
		"zero":  f.WriteZeroes(ctx, 0, 4096, nbd.ZeroFlags{}),
	} {
		if errs.KindOf(err) != errs.ReadOnly {
			t.Errorf("%s: %v, want ReadOnly", what, err)
		}
	}
	if err := f.Flush(ctx); err != nil {
		t.Errorf("flush: %v", err)
	}
}

// TestFailedSyncStaysFailed: the kernel tells of lost data once; we must go on telling.
func TestFailedSyncStaysFailed(t *testing.T) {
	f := open(t, Options{Path: fresh(t, 4096)})
	defer f.Close()
	ctx := t.Context()
	if err := f.breakDown(syscall.EIO); errs.KindOf(err) != errs.IO {
		t.Fatalf("first failure: %v", err)
	}
	for what, err := range map[string]error{
		"flush":        f.Flush(ctx),
		"second flush": f.Flush(ctx),
		"fua write":    f.WriteAt(ctx, make([]byte, 1), 0, true),
		"fua trim":     f.Trim(ctx, 0, 4096, true),
		"fua zero":     f.WriteZeroes(ctx, 0, 4096, nbd.ZeroFlags{FUA: true}),
	} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s after a failed sync: %v", what, err)
		}
	}
	if err := f.WriteAt(ctx, make([]byte, 1), 0, false); err != nil {
		t.Errorf("a write that promises nothing: %v", err)
	}
}

// TestSyncFailuresAreKept takes the descriptor away for one call: a sync that fails then must be
// remembered when it would succeed again, a write that fails must not.
func TestSyncFailuresAreKept(t *testing.T) {
	ctx := t.Context()
	lose := func(f *File, call func() error) error {
		fd := f.fd
		f.fd = -1
		defer func() { f.fd = fd }()
		return call()
	}
	f := open(t, Options{Path: fresh(t, 4096)})
	defer f.Close()
	for _, fua := range []bool{false, true} {
		err := lose(f, func() error { return f.WriteAt(ctx, []byte{1}, 0, fua) })
		if errs.KindOf(err) != errs.Closed {
			t.Errorf("write without a file, fua=%v: %v", fua, err)
		}
	}
	if err := f.Flush(ctx); err != nil {
		t.Errorf("flush after a write that failed: %v", err)
	}
	if err := lose(f, func() error { return f.Flush(ctx) }); err == nil {
		t.Fatal("flush without a file succeeded")
	}
	if err := f.Flush(ctx); errs.KindOf(err) != errs.Closed {
		t.Errorf("flush after a flush that failed: %v", err)
	}
}

func TestShrunkFileIsAnError(t *testing.T) {
	path := fresh(t, 8192)
	f := open(t, Options{Path: path})
	defer f.Close()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := f.ReadAt(t.Context(), make([]byte, 8192), 0); errs.KindOf(err) != errs.IO {
		t.Errorf("read past the new end: %v, want IO", err)
	}
	exts, err := f.Map(t.Context(), 4096, 4096, 10, nil)
	if err != nil || len(exts) != 1 || exts[0].Zero {
		t.Errorf("what is missing is mapped as %v, %v", exts, err)
	}
	if f.ReadNow(make([]byte, 8192), 0) {
		t.Error("ReadNow past the new end succeeded")
	}
}

func TestWhatCannotBeServed(t *testing.T) {
	for path, want := range map[string]errs.Kind{
		"":                                    errs.Invalid,
		filepath.Join(t.TempDir(), "missing"): errs.NotFound,
		t.TempDir():                           errs.Invalid,
		os.DevNull:                            errs.Invalid,
	} {
		if _, err := Open(Options{Path: path}); errs.KindOf(err) != want {
			t.Errorf("Open(%q): %v, want %v", path, err, want)
		}
	}
}

func TestMapShowsHoles(t *testing.T) {
	const size = 4 << 20
	f := open(t, Options{Path: fresh(t, size)})
	defer f.Close()
	ctx := t.Context()
	if err := f.WriteAt(ctx, make([]byte, 1<<20), 1<<20, true); err != nil {
		t.Fatal(err)
	}
	want := []nbd.Extent{
		{Len: 1 << 20, Hole: true, Zero: true}, {Len: 1 << 20},
		{Len: 2 << 20, Hole: true, Zero: true},
	}
	for range 2 { // the second time from what is remembered
		got, err := f.Map(ctx, 0, size, 10, nil)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("map %v, %v", got, err)
		}
	}
	if err := f.Trim(ctx, 1<<20, 1<<20, false); err != nil {
		t.Fatal(err)
	}
	got, err := f.Map(ctx, 0, size, 10, nil)
	if err != nil || len(got) != 1 || !got[0].Hole {
		t.Fatalf("map after trim %v, %v", got, err)
	}
}
