package memfuse

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// GetAttr returns attributes.
func (m *memory) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.nodes[in.NodeId]
	if n == nil {
		return fuse.ENOENT
	}
	out.SetTimeout(believe)
	n.attrLocked(&out.Attr)
	return fuse.OK
}

// SetAttr changes attributes.
func (m *memory) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[in.NodeId]
	if n == nil {
		return fuse.ENOENT
	}
	n.ctime = time.Now()
	if size, ok := in.GetSize(); ok && n.file != nil {
		n.file.truncate(int64(size))
	}
	if mode, ok := in.GetMode(); ok {
		n.mode = n.mode&syscall.S_IFMT | mode&0o7777
	}
	if uid, ok := in.GetUID(); ok {
		n.owner.Uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.owner.Gid = gid
	}
	if at, ok := in.GetATime(); ok {
		n.atime = at
	}
	if at, ok := in.GetMTime(); ok {
		n.mtime = at
		if n.file != nil {
			n.file.forgetTime()
		}
	}
	out.SetTimeout(believe)
	n.attrLocked(&out.Attr)
	return fuse.OK
}

// StatFs says that there is room: programs look.
func (m *memory) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const blocks = 1 << 28 // of 4 KiB: 1 TiB
	out.Blocks, out.Bfree, out.Bavail, out.Bsize, out.Frsize = blocks, blocks, blocks, 4096, 4096
	out.Files, out.Ffree, out.NameLen = 1<<32, 1<<32, 255
	return fuse.OK
}
