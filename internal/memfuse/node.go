package memfuse

import (
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// memory is the file system: a tree of nodes under one lock. A file's number is its node id and its
// handle.
type memory struct {
	fuse.RawFileSystem

	mu    sync.RWMutex
	nodes map[uint64]*node
	last  uint64

	lists    map[uint64][]fuse.DirEntry // what open directories had when they were opened
	lastList uint64

	pool pool
}

// node is a file, a directory or a symbolic link. memory.mu guards all but file, which has a lock
// of its own.
type node struct {
	id                  uint64
	mode                uint32
	owner               fuse.Owner
	links               uint32
	known               uint64 // how often the kernel was told of it, see Forget
	mtime, ctime, atime time.Time

	file   *file            // of a file
	names  map[string]*node // of a directory
	parent *node            // of a directory
	target string           // of a symbolic link
}

func newMemory() *memory {
	m := &memory{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		nodes:         map[uint64]*node{},
		lists:         map[uint64][]fuse.DirEntry{},
	}
	root := m.makeLocked(syscall.S_IFDIR|0o777, fuse.Owner{})
	root.parent = root
	return m
}

// String names the file system.
func (m *memory) String() string { return "memfuse" }

// makeLocked makes a node without a name. The first one is the root, whose id FUSE says.
func (m *memory) makeLocked(mode uint32, owner fuse.Owner) *node {
	m.last++
	now := time.Now()
	n := &node{id: m.last, mode: mode, owner: owner, links: 1, mtime: now, ctime: now, atime: now}
	switch mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		n.names, n.links = map[string]*node{}, 2
	case syscall.S_IFREG:
		n.file = &file{pool: &m.pool}
	}
	m.nodes[n.id] = n
	return n
}

// addLocked gives a node a name.
func (m *memory) addLocked(dir *node, name string, n *node) {
	dir.names[name] = n
	if n.names != nil {
		n.parent = dir
		dir.links++
	}
	dir.changedLocked()
}

// dropLocked takes a name away; a directory's must be empty. A node without names lives on for as
// long as the kernel knows it.
func (m *memory) dropLocked(dir *node, name string) {
	n := dir.names[name]
	delete(dir.names, name)
	n.links--
	n.ctime = time.Now()
	if n.names != nil {
		n.links = 0
		dir.links--
	}
	dir.changedLocked()
	m.forgetLocked(n, 0)
}

func (n *node) changedLocked() {
	n.mtime = time.Now()
	n.ctime = n.mtime
}

func (m *memory) forgetLocked(n *node, times uint64) {
	n.known -= min(times, n.known)
	if n.known == 0 && n.links == 0 {
		delete(m.nodes, n.id)
		if n.file != nil {
			n.file.free()
		}
	}
}

// Forget is how the kernel says what it no longer knows.
func (m *memory) Forget(id, times uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[id]; n != nil {
		m.forgetLocked(n, times)
	}
}

// find is the data of a file, nil of anything else.
func (m *memory) find(id uint64) *file {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if n := m.nodes[id]; n != nil {
		return n.file
	}
	return nil
}

// attrLocked fills in attributes.
func (n *node) attrLocked(out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink, out.Owner = n.id, n.mode, n.links, n.owner
	mtime := n.mtime
	switch {
	case n.file != nil:
		var written time.Time
		out.Size, written = n.file.state()
		if written.After(mtime) {
			mtime = written
		}
	case n.names == nil:
		out.Size = uint64(len(n.target))
	}
	out.Blocks = (out.Size + 511) / 512
	out.Blksize = 4096
	out.SetTimes(&n.atime, &mtime, &n.ctime)
}

// entryLocked tells the kernel of a node.
func (n *node) entryLocked(out *fuse.EntryOut) {
	n.known++
	out.NodeId, out.Generation = n.id, 1
	out.SetEntryTimeout(believe)
	out.SetAttrTimeout(believe)
	n.attrLocked(&out.Attr)
}
