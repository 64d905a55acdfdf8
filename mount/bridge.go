package mount

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// bridge answers the kernel's requests. What it does not define answers ENOSYS, which the kernel
// takes as "never ask again" and does by other means.
type bridge struct {
	fuse.RawFileSystem
	fs       *client.FS
	opts     Options
	server   *fuse.Server // set by Init, before the first request
	files    table[*file]
	dirs     table[*directory]
	lockers  lockers
	removed  removed
	lost     lost
	touched  touched
	versions versions
	firsts   firsts
	believed believed
	editions editions // where the kernel writes back by itself
	told     told
	users    users
	again    again
	recalls  touched // what others have changed, or are about to
	kept     *kept   // nil: the mount ends with this process

	gone     chan struct{} // closed when the mount is taken away: nobody waits for answers any more
	goneOnce sync.Once
}

func newBridge(fs *client.FS, opts Options) *bridge {
	b := &bridge{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		fs:            fs,
		opts:          opts,
		versions:      newVersions(),
		gone:          make(chan struct{}),
	}
	b.files.last = new(atomic.Uint64)
	b.dirs.last = b.files.last
	b.told.attrs, b.told.names = opts.AttrTimeout, opts.EntryTimeout
	fs.OnLoss(b.forgetPages)
	fs.OnRecall(b.recalled)
	// Which version the kernel's pages belong to after a change of this mount's own.
	fs.OnVersion(func(after *meta.Attr) {
		b.versions.changed(after)
		b.editions.changed(after)
	})
	return b
}

// leave gives up what requests wait for: programs have lost the mount.
func (b *bridge) leave() { b.goneOnce.Do(func() { close(b.gone) }) }

// forgetPages has the kernel forget what it shows of a file: it could not be stored.
func (b *bridge) forgetPages(ino meta.Ino, off, n int64) {
	b.versions.forget(ino)
	b.server.InodeNotify(b.node(ino), off, n)
}

// Init is called once, before the first request.
func (b *bridge) Init(s *fuse.Server) { b.server = s }

// String is the type of the file system as df(1) shows it behind "fuse.".
func (b *bridge) String() string { return "sluice" }

// ino translates a node id. The kernel calls the root of the mount 1.
func (b *bridge) ino(node uint64) meta.Ino {
	if node == fuse.FUSE_ROOT_ID {
		return b.fs.Root()
	}
	if b.writesBack() {
		ino, _ := splitNode(node)
		return ino
	}
	return meta.Ino(node)
}

// node is what the kernel calls an inode.
func (b *bridge) node(ino meta.Ino) uint64 {
	switch {
	case ino == b.fs.Root():
		return fuse.FUSE_ROOT_ID
	case b.writesBack():
		return nodeOf(ino, b.editions.number(ino))
	}
	return uint64(ino)
}

// writesBack tells whether the kernel does so by itself.
func (b *bridge) writesBack() bool { return b.opts.Cache == CacheWriteback }

// status turns an error into what a program sees. Kinds that only mean something between sluice's
// own parts become EIO; the log has the whole story. Among these is that something was closed: the
// kernel keeps descriptors itself, and asks for nothing by one that is closed.
func (b *bridge) status(op string, err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	switch k := errs.KindOf(err); k {
	case errs.IO, errs.Corrupt, errs.Fenced, errs.Expired, errs.Forged, errs.Conflict,
		errs.MaybeDone, errs.TimedOut, errs.Disconnected, errs.Shutdown, errs.Protocol, errs.Version,
		errs.Again, errs.Closed:
		b.opts.Logger.Error("a request failed", "op", op, "err", err)
		return fuse.EIO
	case errs.Canceled:
		return fuse.EINTR
	default:
		return fuse.Status(k.Errno())
	}
}

// nodeStatus is status for requests of a thread that name an inode: one that does not exist any
// more is stale, and the kernel looks its name up again.
func (b *bridge) nodeStatus(op string, pid uint32, err error) fuse.Status {
	if errs.KindOf(err) == errs.NotFound {
		b.again.note(pid)
		return fuse.Status(syscall.ESTALE)
	}
	return b.status(op, err)
}

// typeBits is the kernel's word for a type.
func typeBits(t meta.Type) uint32 {
	switch t {
	case meta.Directory:
		return syscall.S_IFDIR
	case meta.Symlink:
		return syscall.S_IFLNK
	case meta.Fifo:
		return syscall.S_IFIFO
	case meta.Socket:
		return syscall.S_IFSOCK
	case meta.CharDevice:
		return syscall.S_IFCHR
	case meta.BlockDevice:
		return syscall.S_IFBLK
	}
	return syscall.S_IFREG
}

// fill writes attributes as the kernel wants them, and notes that it has got them.
func (b *bridge) fill(out *fuse.Attr, a *meta.Attr) {
	out.Ino = uint64(a.Ino)
	out.Size = uint64(a.Size)
	out.Blocks = uint64(spaceUsed(a)+511) / 512
	out.Mode = typeBits(a.Type) | a.Mode
	out.Nlink = a.Nlink
	out.Uid, out.Gid = a.UID, a.GID
	out.Rdev = a.Rdev
	out.Atime, out.Atimensec = uint64(a.Atime.Sec), a.Atime.Nsec
	out.Mtime, out.Mtimensec = uint64(a.Mtime.Sec), a.Mtime.Nsec
	out.Ctime, out.Ctimensec = uint64(a.Ctime.Sec), a.Ctime.Nsec
	b.believed.told(a)
	if a.Type == meta.Directory {
		b.removed.show(a)
	}
}

// moment is one after which something was asked for that the kernel is told.
type moment struct{ recalls, touched uint64 }

func (b *bridge) now() moment { return moment{b.recalls.now(), b.touched.now()} }

// entry fills in what a name in a directory led to, as it was found after a moment.
func (b *bridge) entry(out *fuse.EntryOut, dir meta.Ino, name string, a *meta.Attr, at moment) {
	var outdated bool
	out.NodeId, outdated = b.nodeFor(a)
	out.Generation = generation
	if !outdated {
		out.SetEntryTimeout(b.entryTimeout(dir, name, a.Ino, at))
		out.SetAttrTimeout(b.attrTimeout(a, false, at))
	}
	b.fill(&out.Attr, a)
}

// generation tells inodes of one number apart. Numbers are never used twice.
const generation = 1

// nodeFor is the node that the kernel gets attributes for. outdated: others are known since.
func (b *bridge) nodeFor(a *meta.Attr) (node uint64, outdated bool) {
	if !b.writesBack() || a.Type != meta.Regular {
		return b.node(a.Ino), false
	}
	telling := b.fs.Telling(a.Ino) // before the editions are looked at: OnVersion comes first
	number := b.editions.of(a, telling)
	return nodeOf(a.Ino, number), number == outdatedNumber
}

// entryTimeout is how long the kernel may believe that a name in a directory stands for an inode, 0
// for none.
func (b *bridge) entryTimeout(dir meta.Ino, name string, ino meta.Ino, at moment) time.Duration {
	now := time.Now()
	if b.opts.EntryTimeout == 0 || b.told.isShared(dir, now) ||
		b.fs.LeasedName(dir, name, ino) == 0 { // most of what nobody may believe is not noted
		return 0
	}
	b.told.name(dir, now)
	if b.recalls.since(at.recalls, dir) || !b.kept.believes(b.told.keep()) {
		return 0
	}
	return within(b.fs.LeasedName(dir, name, ino), b.opts.EntryTimeout)
}

// attrTimeout is how long the kernel may believe attributes that were asked for after a moment: not
// at all while somebody writes, or where the space that a file takes is not known. Whoever wants to
// know that asks by GetAttr. (An answer from memory is all that it costs.) For asked see told.attr.
// What this mount has changed since does not count either: the kernel does not notice that it has
// asked for the attributes of a directory before a name in it was changed.
func (b *bridge) attrTimeout(a *meta.Attr, asked bool, at moment) time.Duration {
	if b.opts.AttrTimeout == 0 || a.Writers || a.Holes && a.Allocated < 0 || b.fs.Leased(a) == 0 {
		return 0
	}
	b.told.attr(a, asked, time.Now())
	if b.recalls.since(at.recalls, a.Ino) || b.touched.since(at.touched, a.Ino) ||
		!b.kept.believes(b.told.keep()) {
		return 0
	}
	return within(b.fs.Leased(a), b.opts.AttrTimeout)
}

// within is what is left of a lease when an answer arrives, at most max.
func within(left, most time.Duration) time.Duration {
	return max(0, min(left-answerGrace, most))
}
