package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/internal/activity"
)

// watched is a bridge whose requests onlookers see: how many there are of each kind, how long they
// take, which process asks and about which inode. It answers nothing itself.
type watched struct {
	*bridge
	seen *activity.Recorder
}

// The kernel's requests, as onlookers call them.
const (
	opLookup = iota
	opGetattr
	opSetattr
	opMknod
	opMkdir
	opUnlink
	opRmdir
	opRename
	opLink
	opSymlink
	opReadlink
	opAccess
	opGetxattr
	opListxattr
	opSetxattr
	opRemovexattr
	opCreate
	opTmpfile
	opOpen
	opRead
	opLseek
	opGetlk
	opSetlk
	opSetlkw
	opRelease
	opWrite
	opCopyFileRange
	opIoctl
	opFlush
	opFsync
	opFallocate
	opOpendir
	opReaddir
	opReaddirplus
	opReleasedir
	opFsyncdir
	opStatfs
	opStatx
)

var opNames = [...]string{
	"lookup", "getattr", "setattr", "mknod", "mkdir", "unlink", "rmdir", "rename", "link",
	"symlink", "readlink", "access", "getxattr", "listxattr", "setxattr", "removexattr",
	"create", "tmpfile", "open", "read", "lseek", "getlk", "setlk", "setlkw", "release",
	"write", "copy_file_range", "ioctl", "flush", "fsync", "fallocate", "opendir", "readdir",
	"readdirplus", "releasedir", "fsyncdir", "statfs", "statx"}

func newWatched(b *bridge) *watched {
	var ops []activity.Op
	for op, name := range opNames {
		ops = append(ops, activity.Op{Name: name, Waits: op == opSetlkw})
	}
	return &watched{bridge: b, seen: activity.New(activity.Options{Ops: ops})}
}

// watch is a request under way.
type watch struct {
	q    activity.Request
	seen *activity.Recorder
	name string
}

func (w *watched) begin(op int, h *fuse.InHeader, name string) watch {
	q := w.seen.Begin(op, w.seen.Now())
	q.Of(uint64(h.Pid), uint64(w.ino(h.NodeId)))
	return watch{q, w.seen, name}
}

// end takes note of what has become of the request.
func (w *watch) end(st fuse.Status) fuse.Status { return w.moved(st, 0, 0) }

// moved is end of a request that moved bytes. That there is no such name or attribute is an answer,
// and no failure; what this mount does not know at all the kernel asks for once.
func (w *watch) moved(st fuse.Status, read, written int) fuse.Status {
	if st == fuse.ENOSYS {
		w.q.Forget()
		return st
	}
	done := activity.Done{Name: w.name, Read: int64(read), Written: int64(written),
		Failed: st != fuse.OK && st != fuse.ENOENT && st != fuse.ENODATA}
	w.q.End(w.seen.Now(), &done)
	return st
}

// Activity fills in what onlookers see of the mount. Clients are processes.
func (m *Mounted) Activity(s *activity.Snapshot) {
	m.watch.seen.Snapshot(s)
	s.Open = m.bridge.files.count()
	s.Untold = m.bridge.fs.Deferred().Untold
}
