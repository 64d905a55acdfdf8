// Package memfuse is a file system that holds its files in memory and does nothing else: the
// ceiling against which the mount is measured. It is served by the same FUSE library with the
// same options, so that what is left is what sluice adds.
//
// It has directories, links and symbolic links, as far as cp, tar, rm and git need them; it keeps
// modes, owners and times, and the kernel checks permissions. It has no extended attributes, no
// locks, no device nodes and no sparse files. It is for benchmarks and tests only.
//
// Read memfuse.go first (how it is served), then node.go (the tree), names.go, dir.go and attr.go
// (what is asked about it) and file.go (data).
package memfuse

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Settings of the mount; they are those of package mount.
const (
	requestMax    = 1 << 20
	backgroundMax = 64
	inflightMax   = 256 << 20
	readAheadKiB  = 8 << 10

	// believe is how long the kernel may believe names and attributes: nobody else changes them.
	believe = time.Minute
)

// Mount serves an empty file system at dir until unmount is called.
func Mount(dir string) (unmount func(), err error) {
	server, err := fuse.NewServer(newMemory(), dir, &fuse.MountOptions{
		Options:       []string{"default_permissions"},
		MaxBackground: backgroundMax,
		MaxWrite:      requestMax,
		MaxReadAhead:  requestMax,

		MaxInflightRequestBytes: inflightMax,

		FsName:      "memfuse",
		Name:        "memfuse",
		DirectMount: os.Geteuid() == 0,

		// Data comes from memory: there is nothing to splice from, and trying costs.
		DisableSplice: true,

		ExtraCapabilities:    fuse.CAP_ATOMIC_O_TRUNC,
		DisabledCapabilities: fuse.CAP_AUTO_INVAL_DATA,
	})
	if err != nil {
		return nil, fmt.Errorf("memfuse: mount at %s: %w", dir, err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve()
	}()
	if err := server.WaitMount(); err != nil {
		_ = server.Unmount()
		return nil, fmt.Errorf("memfuse: mount at %s: %w", dir, err)
	}
	setReadAhead(dir)
	return func() {
		if server.Unmount() == nil {
			<-served
		}
	}, nil
}

// setReadAhead does what package mount does; without the right to it both stay at the default.
func setReadAhead(dir string) {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return
	}
	path := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev))
	_ = os.WriteFile(path, fmt.Appendf(nil, "%d", readAheadKiB), 0)
}
