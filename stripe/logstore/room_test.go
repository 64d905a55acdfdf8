package logstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/wire"
)

// thinOptions is a store with a small log on a device.
func thinOptions(dev device.Device, reserve int64) Options {
	return Options{Devices: []device.Device{dev}, LogBytes: logBytesMin, ReserveBytes: reserve,
		Logger: quiet()}
}

func openThin(t *testing.T, dev device.Device, reserve int64) *Store {
	t.Helper()
	s, err := Open(thinOptions(dev, reserve))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func makeThin(t *testing.T, dev device.Device, reserve int64) *Store {
	t.Helper()
	if _, err := Create(thinOptions(dev, reserve)); err != nil {
		t.Fatal(err)
	}
	return openThin(t, dev, reserve)
}

// fillUp writes MiB after MiB until there is no space, and tells how many went in.
func fillUp(t *testing.T, s *Store, id stripe.ObjectID) (n int64) {
	t.Helper()
	for {
		p := bytes.Repeat([]byte{byte(n) + 1}, 1<<20)
		err := s.WriteAt(context.Background(), id, [][]byte{p}, n<<20, wire.Stamp{}, stripe.Durable)
		if errs.KindOf(err) == errs.NoSpace {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// TestReserveIsLeftAndSpaceIsGivenBack: two members fill a file system and leave the reserve to
// others; what is removed is the file system's again.
func TestReserveIsLeftAndSpaceIsGivenBack(t *testing.T) {
	const total, reserve = 96 << 20, 16 << 20
	fs := devicetest.NewFileSystem(total)
	a := makeThin(t, devicetest.NewThin("a", total, fs), reserve)
	b := makeThin(t, devicetest.NewThin("b", total, fs), reserve)
	empty := fs.Free()
	na, nb := fillUp(t, a, faultID), fillUp(t, b, faultID)
	// A table that grows takes a little more.
	if free := fs.Free(); free < reserve/2-1<<20 || free > reserve {
		t.Errorf("after filling %d bytes are free, of a reserve of %d", free, reserve)
	}
	if (na+nb)<<20 < (total-reserve)*3/4 {
		t.Errorf("%d and %d MiB went in", na, nb)
	}
	sp, err := a.Space()
	if err != nil || sp.Free > 4<<20 || sp.Total > total-reserve {
		t.Errorf("a full store has room %+v, %v", sp, err)
	}
	for i, s := range []*Store{a, b} {
		if err := s.Remove(context.Background(), faultID); err != nil {
			t.Fatal(err)
		}
		s.members[0].giveBack()
		s.members[0].giveBack() // what was not needed since the last time
		sp, err := s.Space()
		if err != nil || sp.Free-sp.Shared > 8<<20 {
			t.Errorf("store %d keeps %+v, %v", i, sp, err)
		}
	}
	if free := fs.Free(); free < empty-16<<20 {
		t.Errorf("%d bytes were free at first, %d are after all was removed", empty, free)
	}
	data := bytes.Repeat([]byte("again"), 1<<18)
	put(t, b, faultID, 0, data, stripe.Durable)
	if got, err := get(b, faultID, 0, len(data)); err != nil || !bytes.Equal(got, data) {
		t.Fatal("space that was given back does not hold data again:", err)
	}
}

// TestReserveIsNotRoom: a store that has said that it is full does not say that it has room again
// because it takes some of the reserve, a step at a time: it would be given new files.
func TestReserveIsNotRoom(t *testing.T) {
	const total, reserve, piece = 96 << 20, 16 << 20, 256 << 10
	s := makeThin(t, devicetest.NewThin("a", total, devicetest.NewFileSystem(total)), reserve)
	p, full := bytes.Repeat([]byte("x"), piece), 0
	for off := int64(0); ; off += piece {
		err := s.WriteAt(context.Background(), faultID, [][]byte{p}, off, wire.Stamp{}, stripe.Durable)
		if errs.KindOf(err) == errs.NoSpace {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sp, err := s.Space()
		switch {
		case err != nil:
			t.Fatal(err)
		case sp.Free == 0:
			full++
		case full > 0 && sp.Free > 1<<20:
			t.Fatalf("%d bytes are free after %d pieces that went into the reserve", sp.Free, full)
		}
	}
	if full == 0 {
		t.Error("it never was full")
	}
}

// TestWhatIsFreeCanBeReserved: all that a store says to be free can be given to one object, but for
// less than half a MiB: df tells it, and programs believe it.
func TestWhatIsFreeCanBeReserved(t *testing.T) {
	const total, reserve = 4 << 30, 64 << 20
	s := makeThin(t, devicetest.NewThin("a", total, devicetest.NewFileSystem(total)), reserve)
	sp, err := s.Space()
	if err != nil || sp.Free < (total-reserve)*99/100 {
		t.Fatalf("%+v, %v", sp, err)
	}
	all := stripe.Reservation{Len: sp.Free - 500<<10}
	if _, _, err := s.Reserve(context.Background(), faultID, all, wire.Stamp{}); err != nil {
		t.Fatalf("%d bytes are free, and there is no room for %d: %v", sp.Free, all.Len, err)
	}
}

// TestFullFileSystem: on a file system that others have filled to the last byte a store opens,
// overwrites, cuts and removes; when there is room again it grows without being opened anew.
func TestFullFileSystem(t *testing.T) {
	const total = 96 << 20
	fs := devicetest.NewFileSystem(total)
	dev := devicetest.NewThin("a", total, fs)
	s := makeThin(t, dev, 0)
	data := bytes.Repeat([]byte("sluice"), 1<<19)
	put(t, s, faultID, 0, data, stripe.Durable)
	other := stripe.ObjectID{File: 9, Gen: 1}
	put(t, s, other, 0, data, stripe.Durable)
	s.Abandon() // as a kill does: the log is to be replayed on a full disk
	foreign := fs.Free()
	fs.Use(foreign)
	s = openThin(t, dev, 0)
	put(t, s, faultID, 70_000, data[:200_000], stripe.Durable)
	copy(data[70_000:], data[:200_000])
	ctx := context.Background()
	cut := wire.Stamp{TruncSeq: 1}
	if err := s.Truncate(ctx, faultID, 1_000_001, cut); err != nil {
		t.Fatal("truncating on a full file system:", err)
	}
	if got, err := get(s, faultID, 0, 1_000_001); err != nil || !bytes.Equal(got, data[:1_000_001]) {
		t.Fatal("bytes differ:", err)
	}
	if err := s.Remove(ctx, other); err != nil {
		t.Fatal("removing on a full file system:", err)
	}
	s.members[0].giveBack()
	fs.Use(-foreign)
	if n := fillUp(t, s, other); n < 40 {
		t.Errorf("with room again %d MiB went in", n)
	}
}

// TestAllocatorKeepsAccount: whatever is taken, freed, backed and unbacked in whatever order, the
// numbers agree with the bits, and nothing is handed out that has no space.
func TestAllocatorKeepsAccount(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	a := newAllocator(1000)
	a.limit = a.clusters
	var mine []uint32
	for range 3000 {
		switch rnd.IntN(4) {
		case 0:
			from, to := a.findBare(1 + rnd.Uint32N(100))
			a.back(from, to)
		case 1:
			n := len(mine)
			mine, _ = a.take(mine, 1+rnd.IntN(60))
			for _, c := range mine[n:] {
				if !a.isBacked(c) {
					t.Fatalf("cluster %d was handed out without space", c)
				}
			}
		case 2:
			for range min(len(mine), rnd.IntN(60)) {
				i := rnd.IntN(len(mine))
				a.release(mine[i])
				mine[i] = mine[len(mine)-1]
				mine = mine[:len(mine)-1]
			}
		case 3:
			from, to := a.unback(rnd.Uint32N(a.clusters+1), 1+rnd.Uint32N(80))
			for c := from; c < to; c++ {
				a.release(c)
			}
		}
		checkAccount(t, a, len(mine))
	}
}

func checkAccount(t *testing.T, a *allocator, used int) {
	t.Helper()
	var free, bare, inUse uint32
	for c := range a.clusters {
		switch {
		case a.inUse(c) && !a.isBacked(c):
			t.Fatalf("cluster %d is in use without space", c)
		case a.inUse(c):
			inUse++
		case a.isBacked(c):
			free++
		}
		if !a.isBacked(c) {
			bare++
		}
	}
	if free != a.free || bare != a.bare || int(inUse) != used {
		t.Fatalf("%d free (%d counted), %d bare (%d), %d in use (%d)", free, a.free, bare, a.bare,
			inUse, used)
	}
}

// TestFolderGivesSpaceBack: the file system itself sees that the space is free.
func TestFolderGivesSpaceBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	p := PathOptions{Paths: []string{dir}, Make: true, Bytes: 256 << 20, LogBytes: 1 << 20,
		ReserveBytes: -1, Logger: quiet()}
	s, err := OpenPaths(p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	blocks := func() int64 {
		st, err := os.Stat(filepath.Join(dir, blocksName))
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Blocks * 512
	}
	for i := range int64(48) {
		put(t, s, faultID, i<<20, bytes.Repeat([]byte{1}, 1<<20), stripe.Volatile)
	}
	if blocks() < 48<<20 {
		t.Skipf("a file of 48 MiB takes %d bytes here", blocks())
	}
	if err := s.Remove(context.Background(), faultID); err != nil {
		t.Fatal(err)
	}
	s.members[0].giveBack()
	s.members[0].giveBack()
	if n := blocks(); n > 16<<20 {
		t.Errorf("an empty store takes %d bytes", n)
	}
	put(t, s, faultID, 0, []byte("small"), stripe.Durable)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenPaths(p); err != nil {
		t.Fatal(err)
	}
	if n := blocks(); n > 6<<20 {
		t.Errorf("a store of one small object takes %d bytes after a restart", n)
	}
	if got, err := get(s, faultID, 0, 5); err != nil || string(got) != "small" {
		t.Errorf("read %q, %v", got, err)
	}
}

// slowReserve is a device of which one Reserve waits.
type slowReserve struct {
	device.Device
	before        atomic.Int32 // so many come before it
	entered, open chan struct{}
}

func (d *slowReserve) Reserve(off, length int64) error {
	if d.before.Add(-1) == -1 {
		close(d.entered)
		<-d.open
	}
	return d.Device.Reserve(off, length)
}

// TestWhoGrowsForOthersToo: two writes find no slot, or no free cluster, at the same moment. The
// first takes all that the device has left; the second, which comes too late for that, finds what
// the first has brought.
func TestWhoGrowsForOthersToo(t *testing.T) {
	for before := range int32(4) {
		d := &slowReserve{Device: device.NewMemory("memory", 16<<20),
			entered: make(chan struct{}), open: make(chan struct{})}
		d.before.Store(1 << 20) // none while the store is made
		r := newRig(t, Options{LogBytes: 1 << 20}, func() []device.Device { return []device.Device{d} })
		done := make(chan error, 2)
		write := func(file uint64) {
			done <- r.WriteAt(context.Background(), stripe.ObjectID{File: file},
				[][]byte{alignedBytes(blockBytes)}, 0, wire.Stamp{}, stripe.Durable)
		}
		d.before.Store(before)
		go write(1)
		select {
		case <-d.entered:
		case err := <-done: // there are not so many
			done <- err
		}
		go write(2)
		time.Sleep(100 * time.Millisecond) // until it waits for the first
		close(d.open)
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("%d: %v", before, err)
			}
		}
		_ = r.Close()
	}
}
