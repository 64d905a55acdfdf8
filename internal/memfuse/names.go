package memfuse

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Lookup finds a name.
func (m *memory) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.nodes[in.NodeId]
	if dir == nil || dir.names == nil {
		return fuse.ENOTDIR
	}
	n := dir.names[name]
	if name == ".." {
		n = dir.parent
	}
	if n == nil {
		out.SetEntryTimeout(believe) // of a name that is not there: node 0
		return fuse.OK
	}
	n.entryLocked(out)
	return fuse.OK
}

// make makes a node with a name that must be free.
func (m *memory) make(in *fuse.InHeader, name string, mode uint32,
	out *fuse.EntryOut) (*node, fuse.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.nodes[in.NodeId]
	switch {
	case dir == nil || dir.names == nil:
		return nil, fuse.ENOTDIR
	case dir.links == 0:
		return nil, fuse.ENOENT
	case dir.names[name] != nil:
		return nil, fuse.Status(syscall.EEXIST)
	}
	n := m.makeLocked(mode, in.Owner)
	m.addLocked(dir, name, n)
	n.entryLocked(out)
	return n, fuse.OK
}

// Create makes a file, or opens the one that is there.
func (m *memory) Create(_ <-chan struct{}, in *fuse.CreateIn, name string,
	out *fuse.CreateOut) fuse.Status {
	n, status := m.make(&in.InHeader, name, syscall.S_IFREG|in.Mode&0o7777, &out.EntryOut)
	if status == fuse.Status(syscall.EEXIST) && in.Flags&syscall.O_EXCL == 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		if n = m.nodes[in.NodeId].names[name]; n == nil || n.file == nil {
			return status
		}
		if in.Flags&syscall.O_TRUNC != 0 {
			n.file.truncate(0)
		}
		n.entryLocked(&out.EntryOut)
		status = fuse.OK
	}
	if status.Ok() {
		out.Fh = n.id
	}
	return status
}

// Mknod makes a file without opening it; there are no devices here.
func (m *memory) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string,
	out *fuse.EntryOut) fuse.Status {
	if in.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fuse.EPERM
	}
	_, status := m.make(&in.InHeader, name, in.Mode, out)
	return status
}

// Mkdir makes a directory.
func (m *memory) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string,
	out *fuse.EntryOut) fuse.Status {
	_, status := m.make(&in.InHeader, name, syscall.S_IFDIR|in.Mode&0o7777, out)
	return status
}

// Symlink makes a symbolic link.
func (m *memory) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string,
	out *fuse.EntryOut) fuse.Status {
	n, status := m.make(in, name, syscall.S_IFLNK|0o777, out)
	if status.Ok() {
		m.mu.Lock()
		n.target = target
		out.Size = uint64(len(target))
		m.mu.Unlock()
	}
	return status
}

// Readlink reads one.
func (m *memory) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.nodes[in.NodeId]
	if n == nil || n.mode&syscall.S_IFMT != syscall.S_IFLNK {
		return nil, fuse.EINVAL
	}
	return []byte(n.target), fuse.OK
}

// Link gives a file another name.
func (m *memory) Link(_ <-chan struct{}, in *fuse.LinkIn, name string,
	out *fuse.EntryOut) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, n := m.nodes[in.NodeId], m.nodes[in.Oldnodeid]
	switch {
	case dir == nil || dir.names == nil:
		return fuse.ENOTDIR
	case n == nil || n.links == 0:
		return fuse.ENOENT
	case n.names != nil:
		return fuse.EPERM
	case dir.names[name] != nil:
		return fuse.Status(syscall.EEXIST)
	}
	n.links++
	m.addLocked(dir, name, n)
	n.entryLocked(out)
	return fuse.OK
}

// Unlink takes a name away.
func (m *memory) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return m.remove(in, name, false)
}

// Rmdir removes an empty directory.
func (m *memory) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return m.remove(in, name, true)
}

func (m *memory) remove(in *fuse.InHeader, name string, directory bool) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.nodes[in.NodeId]
	if dir == nil || dir.names == nil || dir.names[name] == nil {
		return fuse.ENOENT
	}
	n := dir.names[name]
	switch {
	case directory && n.names == nil:
		return fuse.ENOTDIR
	case !directory && n.names != nil:
		return fuse.Status(syscall.EISDIR)
	case len(n.names) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	m.dropLocked(dir, name)
	return fuse.OK
}

// Rename moves a name, over another one if that is there.
func (m *memory) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	src, dst := m.nodes[in.NodeId], m.nodes[in.Newdir]
	if src == nil || dst == nil || src.names[from] == nil || dst.names == nil {
		return fuse.ENOENT
	}
	const noReplace = 1
	n, old := src.names[from], dst.names[to]
	switch {
	case in.Flags&^noReplace != 0:
		return fuse.EINVAL
	case in.Flags&noReplace != 0 && old != nil:
		return fuse.Status(syscall.EEXIST)
	case old == n:
		return fuse.OK
	case old != nil && len(old.names) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	if old != nil {
		m.dropLocked(dst, to)
	}
	delete(src.names, from)
	if n.names != nil {
		src.links--
	}
	src.changedLocked()
	m.addLocked(dst, to, n)
	return fuse.OK
}
