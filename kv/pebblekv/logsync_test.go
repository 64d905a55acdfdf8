package pebblekv

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/kv"
)

// slowDisk holds up syncs of logs while it is told to.
type slowDisk struct {
	vfs.FS
	held  atomic.Pointer[chan struct{}] // nil: syncs are quick
	syncs atomic.Int64
}

func (d *slowDisk) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &slowLog{File: f, disk: d}, nil
}

func (d *slowDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return d.wrap(name, f, err)
}

func (d *slowDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(from, to, c)
	return d.wrap(to, f, err)
}

type slowLog struct {
	vfs.File
	disk *slowDisk
}

func (f *slowLog) SyncData() error {
	f.disk.syncs.Add(1)
	if held := f.disk.held.Load(); held != nil {
		<-*held
	}
	return f.File.SyncData()
}

// TestUnsyncedCommitsDoNotWaitForTheDisk: while a synced commit waits for a slow disk others go on;
// the synced ones that come meanwhile share the next sync.
func TestUnsyncedCommitsDoNotWaitForTheDisk(t *testing.T) {
	disk := &slowDisk{FS: vfs.NewMem()}
	s := mustOpen(t, Options{Dir: "store", FS: disk})
	defer mustClose(t, s)
	mustCommitIn(t, s)
	before := disk.syncs.Load()
	held := make(chan struct{})
	disk.held.Store(&held)
	var synced sync.WaitGroup
	var done atomic.Int64
	commit := func(name string) {
		synced.Go(func() {
			txn := &kv.Txn{Puts: []kv.Put{{Key: []byte(name)}}, Sync: true}
			if _, err := s.Commit(context.Background(), txn); err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}
	commit("first")
	for disk.syncs.Load() == before { // it is in the disk's hands
		mustCommitIn(t, s)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		commit(name)
	}
	for range 100 {
		mustCommitIn(t, s)
	}
	for _, name := range []string{"a", "b", "c", "d"} { // visible, and not acknowledged
		for !has(s, name) {
			mustCommitIn(t, s)
		}
	}
	if n := done.Load(); n != 0 {
		t.Errorf("%d synced commits were acknowledged before the disk was", n)
	}
	disk.held.Store(nil)
	close(held)
	synced.Wait()
	if n := disk.syncs.Load() - before; n > 5 {
		t.Errorf("%d syncs for 5 commits", n)
	}
}

func has(s *Store, key string) bool {
	snap := s.Snapshot()
	defer snap.Close()
	_, v, _ := snap.Get([]byte(key))
	return v != 0
}
