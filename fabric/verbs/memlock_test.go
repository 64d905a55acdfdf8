//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// TestMemoryLock wants a clear word where the allowance for locked memory is missing.
func TestMemoryLock(t *testing.T) {
	address(t)
	var limit unix.Rlimit
	fatal(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	if os.Geteuid() == 0 || limit.Cur > 1<<20 {
		t.Skipf("this user may lock memory (allowance %d, user %d)", limit.Cur, os.Geteuid())
	}
	d, err := Open(Options{})
	fatal(t, err)
	defer d.Close()
	mem, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	fatal(t, err)
	defer func() { fatal(t, unix.Munmap(mem)) }()
	_, err = d.Register(mem)
	if errs.KindOf(err) != errs.NoMemory || !strings.Contains(err.Error(), "raise ulimit -l") {
		t.Fatalf("4 MiB with an allowance of %d: %v", limit.Cur, err)
	}
}
