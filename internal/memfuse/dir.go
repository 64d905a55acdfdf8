package memfuse

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// OpenDir notes what is in a directory, so that reading it is steady.
func (m *memory) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.nodes[in.NodeId]
	if dir == nil || dir.names == nil {
		return fuse.ENOTDIR
	}
	list := make([]fuse.DirEntry, 0, len(dir.names)+2)
	list = append(list, fuse.DirEntry{Name: ".", Ino: dir.id, Mode: syscall.S_IFDIR},
		fuse.DirEntry{Name: "..", Ino: dir.parent.id, Mode: syscall.S_IFDIR})
	for name, n := range dir.names {
		list = append(list, fuse.DirEntry{Name: name, Ino: n.id, Mode: n.mode})
	}
	m.lastList++
	m.lists[m.lastList] = list
	out.Fh = m.lastList
	return fuse.OK
}

// ReadDir lists names.
func (m *memory) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := m.lists[in.Fh]
	for _, e := range list[min(in.Offset, uint64(len(list))):] {
		if !out.AddDirEntry(e) {
			break
		}
	}
	return fuse.OK
}

// ReadDirPlus lists names and attributes. A name that is gone by now has none.
func (m *memory) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn,
	out *fuse.DirEntryList) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, dir := m.lists[in.Fh], m.nodes[in.NodeId]
	for _, e := range list[min(in.Offset, uint64(len(list))):] {
		entry := out.AddDirLookupEntry(e)
		if entry == nil {
			break
		}
		if e.Name == "." || e.Name == ".." || dir == nil {
			continue // the kernel knows them; they are not counted
		}
		if n := dir.names[e.Name]; n != nil && n.id == e.Ino {
			n.entryLocked(entry)
		}
	}
	return fuse.OK
}

// ReleaseDir forgets the list.
func (m *memory) ReleaseDir(in *fuse.ReleaseIn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lists, in.Fh)
}

// FsyncDir has nothing to do.
func (m *memory) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status { return fuse.OK }
