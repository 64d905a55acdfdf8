// Package memfuse is a file system that holds its files in memory and does nothing else: the
// ceiling against which the mount is measured. It is served by the same FUSE library with the
// same options, so that what is left is what sluice adds.
//
// It has one directory, no permissions, no links, no renames and no sparse files. It is for
// benchmarks and tests only.
//
// Read memfuse.go first, then file.go.
package memfuse

import (
	"fmt"
	"os"
	"sync"
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
	believe       = time.Second
)

// Mount serves an empty file system at dir until unmount is called.
func Mount(dir string) (unmount func(), err error) {
	fs := &memory{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		names:         map[string]uint64{},
		files:         map[uint64]*file{},
		last:          fuse.FUSE_ROOT_ID,
	}
	server, err := fuse.NewServer(fs, dir, &fuse.MountOptions{
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

// memory is the file system: a root directory and the files in it. A file's number is its node id
// and its handle.
type memory struct {
	fuse.RawFileSystem

	mu    sync.RWMutex
	names map[string]uint64
	files map[uint64]*file
	last  uint64
}

// String names the file system.
func (m *memory) String() string { return "memfuse" }

func (m *memory) find(node uint64) *file {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.files[node]
}

// attr fills in a file's attributes, or the root's.
func (m *memory) attr(node uint64, f *file, out *fuse.Attr) {
	out.Ino = node
	if f == nil {
		out.Mode, out.Nlink = syscall.S_IFDIR|0o777, 2
		return
	}
	out.Mode, out.Nlink = syscall.S_IFREG|0o666, 1
	out.Size = uint64(f.length())
	out.Blocks = (out.Size + 511) / 512
}

func (m *memory) entry(node uint64, f *file, out *fuse.EntryOut) {
	out.NodeId, out.Generation = node, 1
	out.SetEntryTimeout(believe)
	out.SetAttrTimeout(believe)
	m.attr(node, f, &out.Attr)
}

// Lookup finds a file.
func (m *memory) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	m.mu.RLock()
	node, ok := m.names[name]
	m.mu.RUnlock()
	if !ok {
		return fuse.ENOENT
	}
	m.entry(node, m.find(node), out)
	return fuse.OK
}

// GetAttr returns attributes.
func (m *memory) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	f := m.find(in.NodeId)
	if f == nil && in.NodeId != fuse.FUSE_ROOT_ID {
		return fuse.ENOENT
	}
	out.SetTimeout(believe)
	m.attr(in.NodeId, f, &out.Attr)
	return fuse.OK
}

// SetAttr changes the size; other attributes are fixed.
func (m *memory) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f := m.find(in.NodeId)
	if size, ok := in.GetSize(); ok && f != nil {
		f.truncate(int64(size))
	}
	out.SetTimeout(believe)
	m.attr(in.NodeId, f, &out.Attr)
	return fuse.OK
}

// Create makes a file.
func (m *memory) Create(_ <-chan struct{}, _ *fuse.CreateIn, name string,
	out *fuse.CreateOut) fuse.Status {
	m.mu.Lock()
	node, ok := m.names[name]
	if !ok {
		m.last++
		node = m.last
		m.names[name] = node
		m.files[node] = &file{}
	}
	m.mu.Unlock()
	m.entry(node, m.find(node), &out.EntryOut)
	out.Fh = node
	return fuse.OK
}

// Unlink removes a file at once, open or not.
func (m *memory) Unlink(_ <-chan struct{}, _ *fuse.InHeader, name string) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, ok := m.names[name]
	if !ok {
		return fuse.ENOENT
	}
	delete(m.names, name)
	delete(m.files, node)
	return fuse.OK
}
