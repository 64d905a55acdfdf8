package mount

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// Mapped files are used by a process of their own: a page fault stops a thread without the Go
// scheduler's knowledge, and a process that serves its own page faults can so stop as a whole.
const (
	mapPathEnv = "SLUICE_MAP_PATH"
	mapModeEnv = "SLUICE_MAP_MODE"
	mapWantEnv = "SLUICE_MAP_WANT"
)

// TestMapHelper is that process.
func TestMapHelper(t *testing.T) {
	path := os.Getenv(mapPathEnv)
	if path == "" {
		t.Skip("is started by other tests")
	}
	switch mode := os.Getenv(mapModeEnv); mode {
	case "shared":
		mapShared(t, path)
	case "fail":
		m, f := mapFile(t, path, 1<<20)
		copy(m, pattern(1<<20, 1))
		if err := unix.Msync(m, unix.MS_SYNC); err == nil {
			t.Error("msync hid that the disk is full")
		}
		must(t, unix.Munmap(m))
		must(t, f.Close())
	case "equal":
		mapEqual(t, path, os.Getenv(mapWantEnv))
	case "beside":
		mapBeside(t, path)
	default:
		t.Fatalf("mode %q", mode)
	}
}

func runMapHelper(t *testing.T, path, mode string, env ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMapHelper$")
	cmd.Env = append(append(os.Environ(), mapPathEnv+"="+path, mapModeEnv+"="+mode), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func mapFile(t *testing.T, path string, size int) ([]byte, *os.File) {
	t.Helper()
	f := open(t, path, os.O_CREATE|os.O_RDWR)
	must(t, f.Truncate(int64(size)))
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	return m, f
}

// mmapShared: what one process writes to a mapping, others read from the file.
func mmapShared(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	runMapHelper(t, p, "shared")
	equalFile(t, p, mapped())
}

// mapped is what mapShared leaves in the file.
func mapped() []byte {
	data := pattern(3<<20, 6)
	copy(data[2<<20:], "written")
	data[5] = 99
	return data
}

func mapShared(t *testing.T, path string) {
	m, f := mapFile(t, path, 3<<20)
	data := pattern(3<<20, 6)
	copy(m, data)
	got := make([]byte, 100)
	if _, err := f.ReadAt(got, 1<<20); err != nil || !bytes.Equal(got, data[1<<20:][:100]) {
		t.Errorf("read does not see the mapping: %v", err)
	}
	_, err := f.WriteAt([]byte("written"), 2<<20)
	must(t, err)
	if string(m[2<<20:][:7]) != "written" {
		t.Error("the mapping does not see a write")
	}
	must(t, unix.Msync(m, unix.MS_SYNC))
	must(t, f.Close())
	m[5] = 99 // after the descriptor is gone
	must(t, unix.Munmap(m))
}

// TestMappedWriteErrors: a failed write-back of mapped memory is reported by msync.
func TestMappedWriteErrors(t *testing.T) {
	c := newCluster(t, 4)
	p := filepath.Join(c.mount(Options{}).Dir(), "f")
	must(t, os.WriteFile(p, make([]byte, 1<<20), 0o644))
	fail := errs.New(errs.NoSpace, "disk", "", nil)
	c.data.write.Store(&fail)
	runMapHelper(t, p, "fail")
	c.data.write.Store(nil)
}
