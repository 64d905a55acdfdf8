package pebblekv

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// TestSalvageKeepsAllButTheDamaged flips a bit in the middle of the log and demands everything but
// the commit that was there; with the manifest damaged it refuses.
func TestSalvageKeepsAllButTheDamaged(t *testing.T) {
	fs, want := vfs.NewCrashableMem(), map[string]string{}
	s := mustOpen(t, Options{Dir: "store", FS: fs})
	fillForDamage(t, s, want)
	left := copyOf(t, fs)
	mustClose(t, s)
	for _, c := range []struct {
		name string
		lost int
		kind errs.Kind
	}{{"000006.log", 1, errs.OK}, {"MANIFEST-000001", 0, errs.Corrupt}} {
		bad := copyOf(t, left)
		path := bad.PathJoin("store", c.name)
		data := readAll(t, bad, path)
		data[len(data)/2] ^= 4
		writeAll(t, bad, path, data)
		said := 0
		err := Salvage(Options{Dir: "store", FS: bad}, "fresh", func(string) { said++ })
		if errs.KindOf(err) != c.kind || said == 0 {
			t.Fatalf("%s: %v, %d words", c.name, err, said)
		}
		if err != nil {
			continue
		}
		again := mustOpen(t, Options{Dir: "fresh", FS: bad})
		snap := again.Snapshot()
		lost := 0
		for key, value := range want {
			if got, _, err := snap.Get([]byte(key)); err != nil || string(got) != value {
				lost++
			}
		}
		if lost > c.lost {
			t.Errorf("%s: %d of %d values are lost", c.name, lost, len(want))
		}
		_ = snap.Close()
		if v := mustCommitIn(t, again); v <= 48 {
			t.Errorf("version %d is used twice", v)
		}
		mustClose(t, again)
	}
}

func mustCommitIn(t *testing.T, s *Store) kv.Version {
	r, err := s.Commit(t.Context(), &kv.Txn{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Version
}
