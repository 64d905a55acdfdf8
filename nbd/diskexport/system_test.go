package diskexport

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
)

func makeSparse(tb testing.TB, path string, size int64) {
	tb.Helper()
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		tb.Fatal(err)
	}
}

func removeAfter(tb testing.TB, e *Export, path string) {
	_ = e.Close() // what could not be written is told here as well
	if err := os.Remove(path); err != nil {
		tb.Error(err)
	}
}

// command runs a system tool, or skips where it cannot be used.
func command(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		tb.Skipf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// smallFS mounts a file system of 24 MiB.
func smallFS(tb testing.TB) string {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("only root can mount")
	}
	image, dir := fresh(tb, 24<<20), tb.TempDir()
	command(tb, "mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
	command(tb, "mount", "-o", "loop", image, dir)
	tb.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			tb.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// loopDevice makes a block device of a file.
func loopDevice(tb testing.TB, size int64, sector string) string {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("only root can make block devices")
	}
	dev := command(tb, "losetup", "--find", "--show", "--sector-size", sector, quick(tb, size))
	tb.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", dev).CombinedOutput(); err != nil {
			tb.Errorf("losetup -d: %v: %s", err, out)
		}
	})
	return dev
}

// TestBlockDevices runs the suite over block devices of both sector sizes. A device has a size of
// its own; the suite sees the first bytes of it.
func TestBlockDevices(t *testing.T) {
	for _, sector := range []string{"512", "4096"} {
		dev := loopDevice(t, 32<<20, sector)
		eachMode(t, func(t *testing.T, m Mode) {
			if m.caches() || (sector == "512") != (m == Page) {
				return // each way to the device once
			}
			h := newHost(t)
			t.Run(sector, func(t *testing.T) {
				exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
					e := open(tb, h, Spec{Paths: []string{dev}, Mode: m})
					if e.Size() != 32<<20 {
						tb.Fatalf("size %d", e.Size())
					}
					if min, _, _ := e.BlockSizes(); m != Page && sector == "4096" && min != 4096 {
						tb.Errorf("blocks of %d", min)
					}
					if err := e.WriteZeroes(tb.Context(), 0, e.Size(), nbd.ZeroFlags{}); err != nil {
						tb.Fatal(err)
					}
					return &cut{e, size}
				})
			})
		})
	}
}

// cut is the first bytes of an export.
type cut struct {
	*Export
	size int64
}

func (c *cut) Size() int64 { return c.size }

// TestDevicesAreExclusive: what is mounted, or served by another process, cannot be written.
func TestDevicesAreExclusive(t *testing.T) {
	dev := loopDevice(t, 32<<20, "512")
	one, other := newHost(t), newHost(t)
	e := open(t, one, Spec{Paths: []string{dev}, Mode: Direct})
	if _, err := other.Open(t.Context(), Spec{Paths: []string{dev}}); errs.KindOf(err) != errs.Busy {
		t.Errorf("a second writer: %v, want Busy", err)
	}
	e.Close()
	command(t, "mkfs.ext4", "-q", dev)
	dir := t.TempDir()
	command(t, "mount", dev, dir)
	for m := range modesEnd {
		_, err := one.Open(t.Context(), Spec{Paths: []string{dev}, Mode: m})
		if errs.KindOf(err) != errs.Busy {
			t.Errorf("%v, mounted: %v, want Busy", m, err)
		}
	}
	command(t, "umount", dir)
	open(t, one, Spec{Paths: []string{dev}}).Close()
}

// TestOnMemory runs the suite over files of a file system without a device.
func TestOnMemory(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		h := newHost(t)
		exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
			return open(tb, h, Spec{Paths: []string{quick(tb, size)}, Mode: m})
		})
	})
}
