package pebblekv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

func mustOpen(tb testing.TB, opt Options) *Store {
	tb.Helper()
	s, err := Open(opt)
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	return s
}

func mustClose(tb testing.TB, s *Store) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Fatalf("Close: %v", err)
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for _, o := range []Options{
		{},
		{Dir: "x", CacheBytes: -1},
		{Dir: "x", MemtableBytes: 1000},
		{Dir: "x", ChangesBytes: -1},
	} {
		o.FS = vfs.NewMem()
		if _, err := Open(o); !errors.Is(err, errs.Invalid) {
			t.Errorf("Open(%+v): %v, want %v", o, err, errs.Invalid)
		}
	}
}

func TestOtherFormatsAreRefused(t *testing.T) {
	for _, format := range []uint32{formatVersion - 1, formatVersion + 1} {
		fs := vfs.NewMem()
		s := mustOpen(t, Options{Dir: "store", FS: fs})
		other := binary.BigEndian.AppendUint32(nil, format)
		if err := s.db.Set([]byte(keyFormat), other, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		_, err := Open(Options{Dir: "store", FS: fs})
		said := fmt.Sprintf("format %d", format)
		if !errors.Is(err, errs.Version) || !strings.Contains(err.Error(), said) {
			t.Fatalf("Open of a store of %s: %v", said, err)
		}
	}
}

func TestAStrangeDatabaseIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	db, err := pebble.Open("store", &pebble.Options{FS: fs, Logger: logger{guard: newGuard(fs)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set([]byte("some"), []byte("thing"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: "store", FS: fs}); !errors.Is(err, errs.Invalid) {
		t.Fatalf("Open of a strange database: %v", err)
	}
}

func TestADirectoryInUseSaysByWhom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := mustOpen(t, Options{Dir: dir})
	defer mustClose(t, s)
	_, err := Open(Options{Dir: dir})
	if !errors.Is(err, errs.Busy) || !strings.Contains(err.Error(), "this process") {
		t.Errorf("second Open in this process: %v", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildOpens$")
	cmd.Env = append(os.Environ(), "PEBBLEKV_CHILD_DIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	want := fmt.Sprintf("in use by process %d", os.Getpid())
	if !strings.Contains(string(out), want) {
		t.Errorf("another process is told %q, want %q", out, want)
	}
}

// TestChildOpens is the other process of the test above; by itself it has nothing to do.
func TestChildOpens(t *testing.T) {
	dir := os.Getenv("PEBBLEKV_CHILD_DIR")
	if dir == "" {
		return
	}
	_, err := Open(Options{Dir: dir})
	if !errors.Is(err, errs.Busy) {
		t.Fatalf("Open of a directory in use: %v", err)
	}
	fmt.Println(err)
}

func TestCloseRefusesOpenSnapshots(t *testing.T) {
	s := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem()})
	snap := s.Snapshot()
	if err := s.Close(); !errors.Is(err, errs.Busy) {
		t.Errorf("Close with a snapshot open: %v", err)
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
}

// TestNumbersAreSetAside lets the reserved numbers run out and crashes right after.
func TestNumbersAreSetAside(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, Options{Dir: "store", FS: fs})
	s.ceiling = 3 // as if so few had been set aside
	var last kv.Version
	for range 5 {
		r, err := s.Commit(context.Background(), &kv.Txn{})
		if err != nil {
			t.Fatal(err)
		}
		last = r.Version
	}
	if s.ceiling != 3+reserve {
		t.Errorf("ceiling %d after running out at 3", s.ceiling)
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	again := mustOpen(t, Options{Dir: "store", FS: after})
	defer mustClose(t, again)
	r, err := again.Commit(context.Background(), &kv.Txn{})
	if err != nil || r.Version <= last {
		t.Errorf("after a crash version %d (%v), %d was reached", r.Version, err, last)
	}
}

// TestCommitsWaitForMemtables: with flushes held up, commits wait in front of pebble, give up
// with their context, and go on when there is room.
func TestCommitsWaitForMemtables(t *testing.T) {
	s := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem()})
	defer mustClose(t, s)
	for s.queue.bytes < queuedMax*s.queue.size {
		s.queue.rotated()
	}
	ctx, cancel := context.WithCancel(context.Background())
	errc := make(chan error)
	go func() { _, err := s.Commit(ctx, &kv.Txn{}); errc <- err }()
	select {
	case err := <-errc:
		t.Fatalf("a commit did not wait: %v", err)
	default:
	}
	cancel()
	<-errc // the outcome is free once the context has ended
	go func() { _, err := s.Commit(context.Background(), &kv.Txn{}); errc <- err }()
	s.queue.flushed(100)
	if err := <-errc; err != nil {
		t.Errorf("a commit after the flush: %v", err)
	}
}

// TestMemtableCountFollowsPebble fills many memtables and demands that the count comes back to
// zero.
func TestMemtableCountFollowsPebble(t *testing.T) {
	s := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem()}) // starts small and doubles
	defer mustClose(t, s)
	for i := range 500 {
		t1 := kv.Txn{Puts: []kv.Put{{Key: fmt.Append(nil, i), Value: make([]byte, 64<<10)}}}
		if _, err := s.Commit(context.Background(), &t1); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if len(s.queue.full) != 0 || s.queue.bytes != 0 {
		t.Errorf("memtables of %d seem to wait after everything was written out", s.queue.full)
	}
	if n := s.db.Metrics().Flush.Count; n < 3 {
		t.Errorf("only %d flushes: the test fills too little", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(0, []byte{prefixReplay, 0, 0, 0, 0}, make([]byte, replayBytes))
	f.Add(7, []byte("r"), []byte{})
	f.Add(1<<20, []byte{prefixReplay, 0, 16, 0, 0}, make([]byte, versionBytes))
	f.Fuzz(func(t *testing.T, slot int, key, b []byte) {
		v, value, err := parseValue(b)
		if err == nil && (v == 0 || len(value)+versionBytes != len(b)) {
			t.Errorf("parseValue(%x) = %d, %x", b, v, value)
		}
		if _, err := parseVersion(b); (err == nil) != (len(b) == versionBytes) {
			t.Errorf("parseVersion(%x): %v", b, err)
		}
		if _, err := parseFormat(b); (err == nil) != (len(b) == 4) {
			t.Errorf("parseFormat(%x): %v", b, err)
		}
		_, _, err = parseReplay(slot, key, b)
		sound := len(key) == replayKey && len(b) == replayBytes && slot < kv.ReplayWindow
		if err == nil && !sound {
			t.Errorf("parseReplay(%d, %x, %x) accepts it", slot, key, b)
		}
	})
}
