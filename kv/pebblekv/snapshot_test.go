package pebblekv

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/kv"
)

// TestSnapshotsShareAView: until something is committed one view of pebble's serves all snapshots;
// an old one is closed with its last user, and keeps nothing behind that.
func TestSnapshotsShareAView(t *testing.T) {
	s := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem()})
	defer mustClose(t, s)
	views := func() int { return s.db.Metrics().Snapshots.Count }
	put := func(value string) {
		t.Helper()
		_, err := s.Commit(t.Context(), &kv.Txn{Puts: []kv.Put{{Key: key("k"), Value: []byte(value)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	sees := func(snap kv.Snapshot, want string) {
		t.Helper()
		if got, _, err := snap.Get(key("k")); err != nil || string(got) != want {
			t.Fatalf("sees %q, not %q: %v", got, want, err)
		}
	}
	put("1")
	a, b := s.Snapshot(), s.Snapshot()
	if n := views(); n != 1 || a.Version() != b.Version() {
		t.Fatalf("%d views for two snapshots, of versions %d and %d", n, a.Version(), b.Version())
	}
	put("2")
	c := s.Snapshot()
	sees(a, "1")
	sees(c, "2")
	if n := views(); n != 2 || c.Version() <= a.Version() {
		t.Fatalf("%d views for two versions, %d and %d", n, a.Version(), c.Version())
	}
	for _, snap := range []kv.Snapshot{a, c} {
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sees(b, "1")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := views(); n != 1 {
		t.Fatalf("%d views when nobody looks; the last one is kept for the next", n)
	}
	put("3")
	if n := views(); n != 0 {
		t.Fatalf("%d views are kept over a commit", n)
	}
}
