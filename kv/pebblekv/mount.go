package pebblekv

import (
	"crypto/sha256"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// mountOf names the mount that a directory is on, as it is never named again: the boot, and the
// number that newer kernels give to each mount once. The zero value where the kernel does not tell.
func mountOf(dir string) (id mountID) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID_UNIQUE, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return id
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(boot, st.Mnt_id))
	copy(id[:], sum[:])
	return id
}
