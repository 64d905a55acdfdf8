package systest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// disk is a small file system of its own, made with a test and gone with it: an ext4 image on a
// loop device.
type disk struct {
	t   *testing.T
	dir string // where it is mounted
}

// newDisk makes one. Tests that need it are skipped where nobody may mount.
func newDisk(t *testing.T, bytes int64) *disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a disk")
	}
	for _, tool := range []string{"mkfs.ext4", "losetup"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, bytes))
	// Without blocks for root, and with room for many small files.
	run(t, "", "mkfs.ext4", "-q", "-m", "0", "-i", "4096", image)
	out, err := exec.Command("losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Skipf("no loop device: %v", err)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", loop).Run() })
	if err := unix.Mount(loop, dir, "ext4", 0, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		err := unix.Unmount(dir, 0)
		for end := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond) // processes that were ended may still be at it
			err = unix.Unmount(dir, 0)
		}
		if err != nil {
			t.Errorf("the disk stays mounted: %v", err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return &disk{t: t, dir: dir}
}

// free is how many bytes the disk can still give.
func (d *disk) free() int64 {
	d.t.Helper()
	var st unix.Statfs_t
	must(d.t, unix.Statfs(d.dir, &st))
	return int64(st.Bavail) * st.Bsize
}

func (d *disk) foreign() string { return filepath.Join(d.dir, "foreign") }

// fill takes space with an ordinary file until at most leave bytes are free. It goes on where the
// last fill has ended.
func (d *disk) fill(leave int64) {
	d.t.Helper()
	f, err := os.OpenFile(d.foreign(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(d.t, err)
	defer f.Close()
	st, err := f.Stat()
	must(d.t, err)
	for at := st.Size(); d.free() > leave; {
		n := max(min(d.free()-leave, 16<<20)&^4095, 4096)
		err := unix.Fallocate(int(f.Fd()), 0, at, n)
		for ; errors.Is(err, unix.ENOSPC) && n > 4096; err = unix.Fallocate(int(f.Fd()), 0, at, n) {
			n = n / 2 &^ 4095
		}
		if errors.Is(err, unix.ENOSPC) {
			return // the last blocks are the file system's own
		}
		must(d.t, err)
		at += n
	}
}

// empty gives back what fill has taken.
func (d *disk) empty() {
	d.t.Helper()
	if err := os.Remove(d.foreign()); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
}

// df is what a program sees of the file system at a path.
func df(t *testing.T, path string) (total, free int64) {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(path, &st))
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize
}

// writeUntilFull writes a file until there is no space and tells how much went in. Only ENOSPC may
// be said, by whatever says it.
func writeUntilFull(t *testing.T, name string) (n int64) {
	t.Helper()
	f, err := os.Create(name)
	must(t, err)
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for err == nil {
		var k int
		k, err = f.Write(block)
		n += int64(k)
	}
	for _, e := range []error{err, f.Close()} {
		if e != nil && !errors.Is(e, syscall.ENOSPC) {
			t.Fatalf("a full file system is reported as %v", e)
		}
	}
	return n
}

// small is the content of a small file.
func small(i int) []byte { return []byte(strings.Repeat("file "+strconv.Itoa(i)+"\n", 300)) }
