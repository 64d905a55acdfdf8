package mount

import (
	"context"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/mount/state"
	"golang.org/x/sys/unix"
)

// file is an open file. The kernel follows a write with O_SYNC or O_DSYNC by an fsync where it
// keeps pages of the file; where it keeps none, Write must see to it.
type file struct {
	*client.File
	direct bool // the kernel keeps no pages for it
	reads  bool // what is read through it is noted
	owners lockOwners
	noted  atomic.Bool // it is noted that it was written through; see kept.go

	edition uint64 // which of the kernel's inodes of the file was opened; see editions.go
	unsure  bool   // the kernel may know an older length: it has looked again as often as it does

	unsynced atomic.Uint64 // writes through it since all was found durable; see lives.go
}

func openFlags(flags uint32) meta.OpenFlags {
	var f meta.OpenFlags
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		f = meta.OpenRead
	case unix.O_WRONLY:
		f = meta.OpenWrite
	default:
		f = meta.OpenRead | meta.OpenWrite
	}
	if f&meta.OpenWrite != 0 {
		// The kernel reads the rest of a page that is written in part.
		f |= meta.OpenRead
	}
	if flags&unix.O_TRUNC != 0 {
		f |= meta.OpenTruncate
	}
	return f
}

// Open opens a file. The kernel has checked the right to read, and to write where O_TRUNC asks for
// it, which it may without O_WRONLY.
func (b *bridge) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	ino := b.ino(in.NodeId)
	if b.openedBefore(in.Unique, out) {
		return fuse.OK
	}
	if err := b.fs.Drain(ctx, ino); err != nil {
		return b.status("open", err)
	}
	if in.Flags&unix.O_TRUNC != 0 || in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
		defer b.touched.note(ino)
	}
	b.fs.FinishCloses(ctx, ino) // so that the kernel may keep the pages of what was just written
	f, err := b.fs.OpenIno(ctx, b.as(ctx), ino, openFlags(in.Flags))
	if err != nil {
		return b.nodeStatus("open", in.Pid, err)
	}
	if in.Flags&unix.O_DIRECT != 0 {
		f.PassCaches() // as the kernel passes its own
	}
	if in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
		a := f.Attr()
		if err := b.dropPrivileges(ctx, &a); err != nil {
			b.release(&file{File: f})
			return b.status("open", err)
		}
	}
	status := b.opened(ctx, in, f, out)
	if status != fuse.Status(unix.ESTALE) {
		b.again.done(in.Pid, nil)
	}
	return status
}

// opened brings what the kernel believes of a file into line with what was opened, before a program
// can use it.
func (b *bridge) opened(ctx context.Context, in *fuse.OpenIn, f *client.File,
	out *fuse.OpenOut) fuse.Status {
	a := f.Attr()
	first := b.firsts.open(a.Ino)
	own := &file{File: f, direct: b.uncached(in.Flags), reads: b.reads(in.Flags)}
	_, own.edition = splitNode(in.NodeId)
	if in.Flags&unix.O_TRUNC != 0 {
		if b.emptiesAnother(own, &a, in.Pid) {
			return b.lookAgain(f, in.Pid)
		}
		// The kernel takes the length for 0 when it has the answer, and drops all pages.
		b.believed.told(&a)
		if b.versions.note(&a); !a.Writers {
			b.versions.forget(a.Ino) // nothing else stops another open from keeping them meanwhile
		}
		b.server.InodeNotify(in.NodeId, -1, 0) // fails where the kernel has forgotten the inode
		return b.hand(own, in.Flags, in.Unique, out)
	}
	switch b.believed.check(&a, in.Pid, b.stale(ctx, in.NodeId, &a), b.again.repeats(in.Pid)) {
	case lookAgain:
		return b.lookAgain(f, in.Pid)
	case unsure:
		own.direct, own.unsure = true, true
	case known:
		if b.writesBack() && b.editions.doubtful(own.edition, a.Ino) {
			own.direct, own.unsure = true, true
		}
	}
	if b.versions.current(&a, f.WritesAlone()) {
		out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
		if !own.direct {
			b.openedToRead(in.NodeId, in.Flags, f)
		}
	} else {
		// The kernel drops the pages by itself when it has the answer, but that is too late for
		// another open that is answered in the same moment; and it would go on believing the length
		// that it knows, for as long as it was told to. Most files have no pages, and just the length
		// that it was told a moment ago.
		if !first || !b.told.same(&a, time.Now()) {
			b.touched.note(a.Ino) // pages of directories from before must not tell it the old length
			b.server.InodeNotify(in.NodeId, 0, 0)
		}
		b.versions.note(&a)
	}
	return b.hand(own, in.Flags, in.Unique, out)
}

// lookAgain closes a file, and has the kernel look its name up and open it once more.
func (b *bridge) lookAgain(f *client.File, pid uint32) fuse.Status {
	f.Discard(context.Background())
	b.again.note(pid)
	return fuse.Status(unix.ESTALE)
}

// hand gives an open file to the kernel.
func (b *bridge) hand(f *file, flags uint32, unique uint64, out *fuse.OpenOut) fuse.Status {
	h := state.Handle{Ino: uint64(f.Ino()), Flags: flags, Edition: f.edition}
	f.direct = f.direct || b.writesBack() && !hasEditions(f.Ino())
	if f.direct {
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO
		h.Bits = state.Direct
	}
	if b.writesBack() {
		a := f.Attr()
		b.editions.opened(f.edition, &a, !f.unsure)
	}
	b.firsts.open(f.Ino())
	if flags&unix.O_ACCMODE != unix.O_WRONLY && f.Size() > smallRead {
		b.fs.Prepare() // before it is read
	}
	out.Fh = b.files.add(f)
	h.Number = out.Fh
	if err := b.keep(h, unique); err != nil {
		if b.writesBack() {
			b.editions.closed(f.Ino())
		}
		b.files.remove(out.Fh)
		b.release(f)
		return b.status("open", err)
	}
	if b.kept != nil && f.Unsynced() { // through a handle that was closed
		b.noteUnsynced(f, out.Fh)
	}
	return fuse.OK
}

// openedBefore answers a request that is sent again and has opened its file already.
func (b *bridge) openedBefore(unique uint64, out *fuse.OpenOut) bool {
	number, ok := b.kept.before(unique)
	if !ok {
		return false
	}
	f, ok := b.files.get(number)
	if ok {
		out.Fh = number
	}
	if ok && f.direct {
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO
	}
	return ok
}

// uncached tells whether the kernel keeps no pages for an open file.
func (b *bridge) uncached(flags uint32) bool {
	return b.opts.Cache == CacheStrict || appending(flags)
}

// appending tells whether a file is opened to be appended to. The kernel takes the length that it
// remembers for the end, and puts what is written there into its pages; so it gets none for such a
// file, and the end is found where the data goes.
func appending(flags uint32) bool {
	return flags&unix.O_APPEND != 0 && flags&unix.O_ACCMODE != unix.O_RDONLY
}

// Create makes and opens a file.
func (b *bridge) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string,
	out *fuse.CreateOut) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	flags := openFlags(in.Flags)
	if in.Flags&unix.O_EXCL != 0 {
		flags |= meta.OpenExclusive
	}
	dir, at := b.ino(in.NodeId), b.now()
	defer b.touched.note(dir)
	if b.openedBefore(in.Unique, &out.OpenOut) {
		f, _ := b.files.get(out.Fh)
		b.entryOfOpen(&out.EntryOut, dir, name, f, at)
		return fuse.OK
	}
	nf := newFile(meta.Regular, in.Mode, in.Umask)
	f, err := b.createAll(ctx, &in.InHeader, dir, name, nf, flags)
	if carriedOut(in.Unique, err, errs.Exists) {
		f, err = b.createdBefore(ctx, in, dir, name, &nf, flags, err)
	}
	if err != nil {
		return b.status("create", err)
	}
	if in.Flags&unix.O_DIRECT != 0 {
		f.PassCaches()
	}
	a := f.Attr()
	if b.versions.current(&a, f.WritesAlone()) {
		out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
	}
	b.versions.note(&a)
	own := &file{File: f, direct: b.uncached(in.Flags), reads: b.reads(in.Flags)}
	b.chooseEdition(own, &a)
	status := b.hand(own, in.Flags, in.Unique, &out.OpenOut)
	if status == fuse.OK {
		b.entryOfOpen(&out.EntryOut, dir, name, own, at)
	}
	return status
}

// entryOfOpen fills in what a name leads to that was made, or opened by its name.
func (b *bridge) entryOfOpen(out *fuse.EntryOut, dir meta.Ino, name string, f *file, at moment) {
	a := f.Attr()
	if a.Size == 0 && f.WritesAlone() {
		a.Writers = false // the kernel, which is about to ask, hears of another writer by a recall
	}
	b.entry(out, dir, name, &a, at)
	if b.writesBack() {
		out.NodeId = nodeOf(a.Ino, f.edition)
	}
}

// smallRead is what comes inside a message: any memory will do.
const smallRead = 4 << 10

// lent is the answer to a read in memory that the servers have filled by themselves. It goes back
// when the kernel has the data: go-fuse calls Done behind its write of results that have Slices,
// and before the write of others.
type lent struct {
	buf  *client.Buffer
	data [1][]byte
}

func (r *lent) Slices() ([][]byte, fuse.Status)    { return r.data[:], fuse.OK }
func (r *lent) Bytes([]byte) ([]byte, fuse.Status) { return r.data[0], fuse.OK }
func (r *lent) Size() int                          { return len(r.data[0]) }
func (r *lent) Done()                              { r.buf.Return() }

// Read reads into the buffer that goes to the kernel, or into one that servers reach better.
func (b *bridge) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (
	fuse.ReadResult, fuse.Status) {
	f, ok := b.files.get(in.Fh)
	if !ok {
		return nil, b.noFile(in.Fh)
	}
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	if err := b.fs.Drain(ctx, f.Ino()); err != nil {
		return nil, b.status("read", err)
	}
	size := min(int(in.Size), len(buf))
	var own *client.Buffer
	if size > smallRead {
		own = b.fs.TryTake(size)
	}
	if own != nil {
		buf = own.Bytes()
	}
	n, err := f.ReadAt(ctx, buf[:size], int64(in.Offset))
	if err == io.EOF {
		err = nil
	}
	if f.reads && n > 0 && err == nil {
		f.Accessed(b.opts.Atime == AtimeRelative)
	}
	if own != nil && n > 0 && err == nil {
		return &lent{own, [1][]byte{buf[:n]}}, fuse.OK
	}
	if own != nil { // go-fuse does not call Done where there is nothing to send
		own.Return()
		n = 0
	}
	if err != nil {
		return nil, b.status("read", err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Write writes from the buffer that came from the kernel.
func (b *bridge) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (
	uint32, fuse.Status) {
	f, ok := b.files.get(in.Fh)
	if !ok {
		return 0, b.noFile(in.Fh)
	}
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	defer b.touched.note(f.Ino())
	b.noteWrite(f, in.Fh)
	n, err := b.write(ctx, f, in, data)
	b.wrote(f.Ino())
	b.noteUnsynced(f, in.Fh)
	if err == nil && in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		a := f.Attr()
		err = b.dropPrivileges(ctx, &a)
	}
	if err == nil && f.direct && in.WriteFlags&fuse.WRITE_CACHE == 0 && in.Flags&unix.O_DSYNC != 0 {
		if err = b.commit(ctx, f, func() error { return f.Sync(ctx) }); err == nil {
			b.saved(f.Ino())
		}
	}
	return uint32(n), b.status("write", err)
}

// write hands a write on to write-behind or carries it out. Direct writes, appends and those of
// mapped memory are never delayed. (A file that is appended to may be mapped, too: the kernel
// writes its pages back at their place, not at the end.)
func (b *bridge) write(ctx context.Context, f *file, in *fuse.WriteIn, data []byte) (int, error) {
	off := int64(in.Offset)
	if in.WriteFlags&fuse.WRITE_CACHE == 0 && in.Flags&unix.O_APPEND != 0 {
		return b.append(ctx, f, in, data)
	}
	// A program must hear from its write that a quota has no room, and write-behind would be late.
	to, err := f.Room(ctx, off, off+int64(len(data)))
	if err != nil {
		return 0, err
	}
	data = data[:to-off]
	switch {
	case in.WriteFlags&fuse.WRITE_CACHE != 0 || in.Flags&unix.O_DIRECT != 0 ||
		b.opts.Cache == CacheStrict:
		if err := b.fs.Drain(ctx, f.Ino()); err != nil {
			return 0, err
		}
	default:
		return writeBehind(ctx, f.File, data, off)
	}
	return f.WriteAt(ctx, data, off)
}

// writeBehind has a write delayed if that may be. While others look at the file it may not, perhaps
// only from some byte on.
func writeBehind(ctx context.Context, f *client.File, data []byte, off int64) (int, error) {
	took, err := f.WriteBehind(ctx, data, off)
	if err != nil || took > 0 && (took == len(data) || ctx.Err() != nil) {
		return took, err
	}
	n, err := f.WriteAt(ctx, data[took:], off+int64(took))
	if took > 0 {
		err = nil // less than all was written: the program hears why when it writes the rest
	}
	return took + n, err
}

// append writes at the end of the file, wherever the kernel takes it to be, and drops the pages
// that other open files may show of that range.
func (b *bridge) append(ctx context.Context, f *file, in *fuse.WriteIn, data []byte) (int, error) {
	if err := b.fs.Drain(ctx, f.Ino()); err != nil {
		return 0, err
	}
	off, known, err := b.appendAgain(ctx, f, in.Unique, data)
	if !known {
		off, err = b.appendNoted(ctx, f, in.Unique, data)
	}
	switch {
	case err != nil:
		return 0, err
	case f.direct:
		b.server.InodeNotify(in.NodeId, off, int64(len(data)))
	case off != int64(in.Offset):
		// O_APPEND was set by fcntl(2). The kernel has put the data into pages elsewhere, which stay
		// locked until this request is answered.
		go b.server.InodeNotify(in.NodeId, 0, 0)
	}
	return len(data), nil
}

// Flush is close(2) of one descriptor: size and time are told to the metadata service, so that
// whoever opens the file afterwards, anywhere, sees them; errors of earlier writes are reported.
func (b *bridge) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	f, ok := b.files.get(in.Fh)
	if !ok {
		return b.noFile(in.Fh)
	}
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	err := b.commit(ctx, f, func() error { return f.Flush(ctx) })
	if !b.opts.LocalLocks && b.unlockFlushed(ctx, f, in.LockOwner) {
		f.owners.remove(in.LockOwner) // it may lock the file anew before this one is released
		b.lockers.drop(locker{f.Ino(), meta.LockRange, in.LockOwner})
		b.kept.disown(in.Fh, in.LockOwner)
	}
	b.saved(f.Ino())
	return b.status("flush", err)
}

// commit runs a commit of the file, when all that was written is at the servers.
func (b *bridge) commit(ctx context.Context, f *file, do func() error) error {
	if err := b.fs.Settle(ctx, f.Ino()); err != nil {
		return err
	}
	return do()
}

// Fsync returns when everything written to the file is on stable storage.
func (b *bridge) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	f, ok := b.files.get(in.Fh)
	if !ok {
		return b.noFile(in.Fh)
	}
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	written := b.kept.writtenTo(f.Ino())
	err := b.commit(ctx, f, func() error { return f.Sync(ctx) })
	if err == nil { // else it may have to be told again: this process may die before it has answered
		b.kept.synced(written)
		b.saved(f.Ino())
	}
	b.noteTold(f, in.Fh, err)
	return b.status("fsync", err)
}

// releaseMax bounds how long a release waits for the metadata service. Nobody hears of its errors:
// what a program must know was reported by flush.
const releaseMax = time.Minute

// Release is the end of an open file: its last descriptor and mapping are gone.
func (b *bridge) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	if f, ok := b.files.remove(in.Fh); ok {
		if b.writesBack() {
			defer b.editions.closed(f.Ino())
		}
		b.fs.WrittenBehind(f.Ino())
		ctx, cancel := context.WithTimeout(context.Background(), releaseMax)
		defer cancel()
		b.unlockClosed(ctx, in, f)
		b.release(f)
		if f.Flags()&meta.OpenWrite != 0 { // what was still on its way has changed it
			b.touched.note(f.Ino())
		}
		b.passUnsynced(f, in.Fh)
		b.kept.remove(in.Fh)
	}
}

func (b *bridge) release(f *file) {
	b.fs.WrittenBehind(f.Ino())
	ctx, cancel := context.WithTimeout(context.Background(), releaseMax)
	defer cancel()
	if err := b.commit(ctx, f, func() error { return f.Commit(ctx) }); err != nil {
		b.opts.Logger.Error("closing a file failed", "ino", f.Ino(), "err", err)
	}
	if err := f.Close(ctx); err != nil {
		b.opts.Logger.Error("closing a file failed", "ino", f.Ino(), "err", err)
	}
}

// releasesMax is how many files are released at once.
const releasesMax = 64

// closeAll closes what the kernel has not released.
func (b *bridge) closeAll() {
	var wg sync.WaitGroup
	slots := make(chan struct{}, releasesMax) // a service that is away is waited for by all at once
	for _, f := range b.files.drain() {
		slots <- struct{}{}
		wg.Go(func() {
			b.release(f)
			<-slots
		})
	}
	wg.Wait()
	b.again.stop()
	b.dirs.drain()
}

// Lseek finds the next data or hole.
func (b *bridge) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	f, ok := b.files.get(in.Fh)
	if !ok {
		return b.noFile(in.Fh)
	}
	if in.Whence != unix.SEEK_DATA && in.Whence != unix.SEEK_HOLE {
		return fuse.EINVAL
	}
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	if err := b.fs.Drain(ctx, f.Ino()); err != nil {
		return b.status("lseek", err)
	}
	if _, err := f.Stat(ctx); err != nil {
		return b.status("lseek", err)
	}
	off, found, err := seek(ctx, f.File, int64(in.Offset), in.Whence == unix.SEEK_HOLE)
	switch {
	case err != nil:
		return b.status("lseek", err)
	case !found:
		return fuse.Status(unix.ENXIO)
	}
	out.Offset = uint64(off)
	return fuse.OK
}

// seek looks for the first byte at or behind off that is in a hole, or that is not. The end of
// the file counts as a hole.
func seek(ctx context.Context, f *client.File, off int64, hole bool) (int64, bool, error) {
	if off < 0 || off >= f.Size() {
		return 0, false, nil
	}
	for {
		extents, err := f.Map(ctx, off, math.MaxInt64-off)
		if err != nil {
			return 0, false, err
		}
		for _, e := range extents {
			if e.Hole == hole {
				return e.Off, true, nil
			}
		}
		if len(extents) == 0 {
			return f.Size(), hole, nil
		}
		last := extents[len(extents)-1]
		off = last.Off + last.Len
	}
}
