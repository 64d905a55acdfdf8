package filestore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
	"golang.org/x/sys/unix"
)

var one = stripe.ObjectID{File: 1, Gen: 1}

func write(s *Store, id stripe.ObjectID, p []byte, d stripe.Durability) error {
	return s.WriteAt(context.Background(), id, [][]byte{p}, 0, wire.Stamp{}, d)
}

func mustWrite(t testing.TB, s *Store, id stripe.ObjectID, p []byte) {
	t.Helper()
	if err := write(s, id, p, stripe.Durable); err != nil {
		t.Fatal(err)
	}
}

func TestFoldersThatAreRefused(t *testing.T) {
	put := func(name, content string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	const ident = `{"magic":"sluice stripe store","format":1,"engine":"filestore",` +
		`"store_id":"00112233445566778899aabbccddeeff","server_id":7}`
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string)
		want errs.Kind
		text string
	}{
		{"foreign", put("letters.txt", "dear"), errs.NotEmpty, "letters.txt"},
		{"newer", put(identityName, strings.Replace(ident, "1,", "2,", 1)), errs.Version, "newer"},
		{"other engine", put(identityName, strings.Replace(ident, "filestore", "log", 1)),
			errs.Version, "log"},
		{"other server", put(identityName, ident), errs.Invalid, "server 7"},
		{"garbage", put(identityName, "{"), errs.Corrupt, identityName},
		{"bad store id", put(identityName, strings.Replace(ident, "0011", "zz", 1)),
			errs.Corrupt, identityName},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			_, err := Open(Options{Dir: dir, ServerID: 3})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want kind %q and %q in the text", err, c.want, c.text)
			}
		})
	}
	if _, err := Open(Options{}); !errors.Is(err, errs.Invalid) {
		t.Fatalf("no folder: %v", err)
	}
}

func TestHalfMadeStoreIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"lock", "store.json.tmp", "fences"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, Options{Dir: dir})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSecondOpenerIsToldWhoHoldsIt(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	_, err := Open(Options{Dir: dir})
	if !errors.Is(err, errs.Busy) || !strings.Contains(err.Error(), "held by process") {
		t.Fatalf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, Options{Dir: dir})
	if !s.lock.wasClean {
		t.Fatal("a clean end is taken for a death")
	}
	s.Close()
}

// A failed write or sync stops the store for ever, by name; reading goes on.
func TestFailuresStick(t *testing.T) {
	for _, call := range []string{"pwritev", "fdatasync", "fsync", "header", "ftruncate", "unlink"} {
		t.Run(call, func(t *testing.T) {
			var armed bool
			s := mustOpen(t, Options{Dir: t.TempDir(), hook: func(c, _ string) error {
				if armed && c == call {
					return unix.EIO
				}
				return nil
			}})
			defer s.Close()
			ctx := context.Background()
			mustWrite(t, s, one, fill(100, 1))
			armed = true
			two := stripe.ObjectID{File: 2, Gen: 1}
			_ = write(s, two, fill(10, 2), stripe.Durable)
			_ = s.Truncate(ctx, one, 50, wire.Stamp{TruncSeq: 1})
			_ = s.Remove(ctx, two)
			armed = false
			for name, err := range map[string]error{
				"write":    write(s, one, fill(10, 3), stripe.Volatile),
				"sync":     s.Sync(ctx, one),
				"sync all": s.Sync(ctx, stripe.ObjectID{}),
				"truncate": s.Truncate(ctx, one, 5, wire.Stamp{TruncSeq: 2}),
				"remove":   s.Remove(ctx, one),
				"fence":    s.SetMinGeneration(ctx, 5, 5),
			} {
				if !errors.Is(err, errs.IO) || !strings.Contains(err.Error(), "objects") {
					t.Errorf("%s: got %v, want an i/o error that names the file", name, err)
				}
			}
			if err := s.ReadAt(ctx, one, [][]byte{make([]byte, 10)}, 0); err != nil {
				t.Errorf("reading: %v", err)
			}
		})
	}
}

func TestNoRoomDoesNotStick(t *testing.T) {
	full := false
	s := mustOpen(t, Options{Dir: t.TempDir(), hook: func(c, _ string) error {
		if full && (c == "pwritev" || c == "create") {
			return unix.ENOSPC
		}
		return nil
	}})
	defer s.Close()
	mustWrite(t, s, one, fill(100, 1))
	full = true
	for _, id := range []stripe.ObjectID{one, {File: 2}} {
		if err := write(s, id, fill(10, 2), stripe.Volatile); !errors.Is(err, errs.NoSpace) {
			t.Fatalf("got %v, want no space", err)
		}
	}
	full = false
	mustWrite(t, s, one, fill(100, 3))
}

// A size that the file system cannot hold is refused, and the object is what it was.
func TestTruncateBeyondTheFileSystem(t *testing.T) {
	s := mustOpen(t, Options{Dir: t.TempDir(), hook: func(c, _ string) error {
		if c == "ftruncate" {
			return unix.EFBIG
		}
		return nil
	}})
	defer s.Close()
	ctx := context.Background()
	mustWrite(t, s, one, fill(100, 1))
	for _, id := range []stripe.ObjectID{one, {File: 2}} {
		before, _ := s.Stat(ctx, id)
		err := s.Truncate(ctx, id, 1<<50, wire.Stamp{TruncSeq: 4})
		if !errors.Is(err, errs.TooBig) {
			t.Fatalf("got %v, want too big", err)
		}
		if after, _ := s.Stat(ctx, id); after.Size != before.Size || after.TruncSeq != 0 {
			t.Fatalf("the object became %+v", after)
		}
	}
	mustWrite(t, s, one, fill(100, 2))
}

// What was never completed is absent, and its bytes are stably gone before it gets a header.
func TestHusk(t *testing.T) {
	h := header{id: one}
	for name, husk := range map[string][]byte{
		"empty": {}, "short": h.encode()[:100],
		"no header": append(make([]byte, headerBytes), 9, 9, 9),
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			s := mustOpen(t, Options{Dir: t.TempDir(), hook: func(c, _ string) error {
				calls = append(calls, c)
				return nil
			}})
			defer s.Close()
			path := s.pathOf(one)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, husk, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx := context.Background()
			if in, err := s.Stat(ctx, one); err != nil || in != (stripe.Info{ID: one}) {
				t.Fatalf("a husk is %+v, %v", in, err)
			}
			err := s.List(ctx, func(in stripe.Info) bool {
				t.Errorf("a husk is listed: %+v", in)
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			mustWrite(t, s, one, fill(2, 5))
			got := strings.Join(calls, " ")
			if !strings.Contains(got, "create ftruncate fdatasync header pwritev") {
				t.Fatalf("calls: %s", got)
			}
			p := make([]byte, 4)
			err = s.ReadAt(ctx, one, [][]byte{p}, 0)
			if err != nil || !bytes.Equal(p, []byte{5, 5, 0, 0}) {
				t.Fatalf("read %v, %v", p, err)
			}
		})
	}
}

func TestDamagedHeader(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	ctx := context.Background()
	mustWrite(t, s, one, fill(100, 1))
	mustWrite(t, s, stripe.ObjectID{File: 2}, fill(100, 1))
	path := s.pathOf(one)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[25] ^= 1
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, Options{Dir: dir})
	defer s.Close()
	if err := s.ReadAt(ctx, one, [][]byte{{0}}, 0); !errors.Is(err, errs.Corrupt) {
		t.Fatalf("got %v, want corrupt", err)
	}
	seen := 0
	err = s.List(ctx, func(stripe.Info) bool { seen++; return true })
	if !errors.Is(err, errs.Corrupt) || seen != 1 {
		t.Fatalf("List: %v after %d objects", err, seen)
	}
	if err := s.Remove(ctx, one); err != nil {
		t.Fatalf("removing it: %v", err)
	}
	mustWrite(t, s, one, fill(10, 2))
}

func TestOpenFilesAreBounded(t *testing.T) {
	s := mustOpen(t, Options{Dir: t.TempDir(), OpenFiles: 5})
	defer s.Close()
	for i := range 100 {
		id := stripe.ObjectID{File: uint64(i + 1)}
		if err := write(s, id, fill(10, byte(i)), stripe.Volatile); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.table.all); n > 6 {
		t.Fatalf("%d objects are open, want at most 5 and the one in use", n)
	}
}

// Many writers of one object share syncs, and every one of them is covered by a later one.
func TestSyncsAreShared(t *testing.T) {
	var mu sync.Mutex
	syncs := 0
	s := mustOpen(t, Options{Dir: t.TempDir(), hook: func(c, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if c == "fdatasync" {
			syncs++
		}
		return nil
	}})
	defer s.Close()
	mustWrite(t, s, one, fill(10, 1))
	const writers, rounds = 16, 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range rounds {
				if err := write(s, one, fill(10, 1), stripe.Durable); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if syncs >= writers*rounds {
		t.Fatalf("%d durable writes took %d syncs", writers*rounds, syncs)
	}
	t.Logf("%d durable writes, %d syncs", writers*rounds, syncs)
}
