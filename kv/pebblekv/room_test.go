package pebblekv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
)

// awaitCommit commits as soon as the store takes it.
func awaitCommit(t *testing.T, s *pebblekv.Store, txn kv.Txn) kv.Version {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		r, err := s.Commit(context.Background(), &txn)
		if err == nil {
			return r.Version
		}
		if !errors.Is(err, errs.NoSpace) || time.Now().After(deadline) {
			t.Fatalf("the store does not recover: %v", err)
		}
	}
}

// TestRecoveryUnderLoad: while writers and readers go on, the disk is full and has room again,
// several times. Whatever was acknowledged is there at the end, in the same process.
func TestRecoveryUnderLoad(t *testing.T) {
	disk := vfs.NewCrashableMem()
	f := &fault{kinds: writes(), err: syscall.ENOSPC}
	s, err := pebblekv.Open(pebblekv.Options{Dir: "store", FS: errorfs.Wrap(disk, f),
		MemtableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	acked := make([]map[string]kv.Version, 4)
	for w := range acked {
		acked[w] = map[string]kv.Version{}
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				key := fmt.Sprintf("w%d-%06d", w, i)
				txn := kv.Txn{Puts: []kv.Put{{Key: []byte(key), Value: make([]byte, 4<<10)}}, Sync: i%8 == 0}
				r, err := s.Commit(context.Background(), &txn)
				switch {
				case err == nil:
					acked[w][key] = r.Version
				case !errors.Is(err, errs.NoSpace):
					t.Errorf("Commit: %v", err)
					return
				default:
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			snap := s.Snapshot()
			time.Sleep(time.Millisecond)
			if _, _, err := snap.Get([]byte("w0-000000")); err != nil {
				t.Errorf("a reader is told: %v", err)
			}
			snap.Close()
		}
	})
	for i := range 3 {
		time.Sleep(50 * time.Millisecond)
		f.set(true)
		for s.Health() == nil {
			time.Sleep(time.Millisecond)
		}
		f.set(false)
		awaitCommit(t, s, kv.Txn{Puts: puts(fmt.Sprint("round", i), "1")})
	}
	stop.Store(true)
	wg.Wait()
	all := 0
	for _, m := range acked {
		all += len(m)
		checkKeys(t, s, m)
	}
	t.Logf("%d commits", all)
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestOpenWithoutRoom: a store opens on a full disk, for reading, and takes commits as soon as
// there is room.
func TestOpenWithoutRoom(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s, err := pebblekv.Open(pebblekv.Options{Dir: "store", FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	v := mustCommit(t, s, kv.Txn{Puts: puts("first", "1"), Sync: true})
	crashed := disk.CrashClone(vfs.CrashCloneCfg{}) // its log is to be replayed
	_ = s.Close()
	f := &fault{kinds: writes(), err: syscall.ENOSPC, on: true}
	s, err = pebblekv.Open(pebblekv.Options{Dir: "store", FS: errorfs.Wrap(crashed, f)})
	if err != nil {
		t.Fatal("Open on a full disk:", err)
	}
	checkReadOnly(t, s, errs.NoSpace)
	if err := s.Health(); !errors.Is(err, errs.NoSpace) {
		t.Errorf("Health: %v", err)
	}
	f.set(false)
	second := awaitCommit(t, s, kv.Txn{Puts: puts("second", "1"), Sync: true})
	checkKeys(t, s, map[string]kv.Version{"first": v, "second": second})
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// smallDisk says how much room it has: what the test says, and the ballast that was given up.
type smallDisk struct {
	vfs.FS
	avail atomic.Int64
}

const (
	diskTotal   = 1 << 30
	diskReserve = 32 << 20
)

func (d *smallDisk) ballast(t *testing.T) (pieces int64) {
	t.Helper()
	names, err := d.List("store")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, "ballast-") {
			pieces++
		}
	}
	return pieces
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(d.avail.Load()), TotalBytes: diskTotal}, nil
}

func (d *smallDisk) Remove(name string) error {
	err := d.FS.Remove(name)
	if err == nil && strings.Contains(name, "ballast-") {
		d.avail.Add(diskReserve / 4)
	}
	return err
}

// TestRoomIsKeptForRemoval: below the mark only transactions that make room are admitted, and on a
// full disk they get the ballast; with room again everything goes on and the ballast is back.
func TestRoomIsKeptForRemoval(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	disk.avail.Store(diskTotal / 2)
	s, err := pebblekv.Open(pebblekv.Options{Dir: "store", FS: disk, ReserveBytes: diskReserve})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := disk.ballast(t); n != 4 {
		t.Fatalf("%d pieces of ballast", n)
	}
	ctx := context.Background()
	mustCommit(t, s, kv.Txn{Puts: puts("a", "1")})
	for _, avail := range []int64{diskReserve/2 - 1, 0} {
		disk.avail.Store(avail)
		time.Sleep(20 * time.Millisecond) // a look at the room is believed for a moment
		_, err := s.Commit(ctx, &kv.Txn{Puts: puts("b", "1")})
		if !errors.Is(err, errs.NoSpace) || !errors.Is(s.Health(), errs.NoSpace) {
			t.Errorf("with %d bytes left: %v, health %v", avail, err, s.Health())
		}
		if n := disk.ballast(t); n != 4 {
			t.Errorf("%d pieces of ballast with %d bytes left", n, avail)
		}
		mustCommit(t, s, kv.Txn{Deletes: [][]byte{[]byte("a")}, MakesRoom: true})
	}
	if n := disk.ballast(t); n != 3 {
		t.Errorf("%d pieces of ballast after a removal on a full disk", n)
	}
	disk.avail.Store(diskTotal / 2)
	awaitCommit(t, s, kv.Txn{Puts: puts("b", "1")})
	for deadline := time.Now().Add(time.Minute); disk.ballast(t) != 4; {
		if time.Now().After(deadline) {
			t.Fatal("the ballast does not come back")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Health(); err != nil {
		t.Errorf("Health: %v", err)
	}
}
