package attach

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// A process that serves a device may be needed to free memory: what the kernel wants to write out
// to the device goes through it. If it then had to wait for memory, or for pages of its own that
// were swapped out, nothing would go on any more.

// HoldMemory keeps the process's pages where they are, from now on, and keeps the kernel from
// ending it when memory is short. Pages that were never touched do not count yet.
func HoldMemory() error {
	err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	const least = -1000 // never
	e := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(least)), 0)
	return errs.Wrap("attach.HoldMemory", "", errors.Join(err, e))
}

// MarkFlusher tells the kernel that the calling thread, and every process that it starts, is one
// that writes out memory: what it allocates does not wait for that. Whether it is told already is
// what IsFlusher says.
func MarkFlusher() error {
	return errs.Wrap("attach.MarkFlusher", "", unix.Prctl(unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0))
}

// IsFlusher tells whether the calling thread is marked.
func IsFlusher() bool {
	on, err := unix.PrctlRetInt(unix.PR_GET_IO_FLUSHER, 0, 0, 0, 0)
	return err == nil && on == 1
}
