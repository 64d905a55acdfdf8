//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// forkSafe tells whether a fork leaves the pages of registered memory to the parent. Kernels from
// 5.13 on copy them for the child. Older ones let both share them and copy at the first write:
// where the parent writes first it gets the copy, and the device goes on with pages that are the
// child's. Arenas are not inherited (package mem), so that only a program's own memory is affected.
func forkSafe() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	release := unix.ByteSliceToString(name.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 5 || major == 5 && minor >= 13
}
