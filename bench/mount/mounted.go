package mount

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// unmount takes a mount away, out of sight at least. It is only used by root.
func unmount(dir string) error {
	err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	for range 20 { // something may still close its files
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(50 * time.Millisecond)
		err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	}
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // nothing is mounted there
	}
	return errs.Wrap("unmount", dir, err)
}

// room is how large the file system at dir is, 0 while it does not answer. It waits a second only,
// because a mount whose server hangs never answers.
func room(dir string) uint64 {
	answer := make(chan uint64, 1)
	go func() {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil {
			st.Blocks = 0
		}
		answer <- st.Blocks * uint64(st.Bsize)
	}()
	select {
	case n := <-answer:
		return n
	case <-time.After(time.Second):
		return 0
	}
}

// isOther tells whether something is mounted at dir: it is on another device than the folder above.
func isOther(dir string) bool {
	var in, above unix.Stat_t
	return unix.Stat(dir, &in) == nil && unix.Stat(dir+"/..", &above) == nil && in.Dev != above.Dev
}

func addrOf(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
