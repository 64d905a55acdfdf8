package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/internal/activity"
)

// TestWatched: what programs do on a mount is seen, by kind, process and inode.
func TestWatched(t *testing.T) {
	m := newCluster(t, 2).mount(Options{})
	name := filepath.Join(m.Dir(), "f")
	f, err := os.Create(name)
	must(t, err)
	data := make([]byte, 300<<10)
	_, err = f.Write(data)
	must(t, err)
	must(t, f.Sync())
	if _, err := os.Stat(filepath.Join(m.Dir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var s activity.Snapshot
	m.Activity(&s)
	ops := map[string]activity.OpUse{}
	for _, op := range s.Ops {
		ops[op.Op] = op
	}
	for _, want := range []string{"create", "write", "fsync", "lookup"} {
		if ops[want].Count == 0 || ops[want].Sum == 0 || ops[want].Failed != 0 {
			t.Errorf("%s: %+v", want, ops[want])
		}
	}
	if s.Open != 1 || len(s.Running) != 0 {
		t.Errorf("%d open files, running %+v", s.Open, s.Running)
	}
	var mine, of uint64
	for _, u := range s.Clients {
		if u.ID == uint64(os.Getpid()) || u.ID != 0 {
			mine += u.Written
		}
	}
	for _, u := range s.Objects {
		if u.ID == uint64(m.bridge.ino(inoOf(t, f))) {
			of = u.Written
		}
	}
	if mine != uint64(len(data)) || of != uint64(len(data)) {
		t.Errorf("%d bytes by processes, %d to the file: %+v", mine, of, s)
	}
	must(t, f.Close())
	must(t, waitFor(func() bool { m.Activity(&s); return s.Open == 0 }))
}
