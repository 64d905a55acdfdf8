package mount

import "github.com/hanwen/go-fuse/v2/fuse"

// The requests, as the bridge answers them, with onlookers.

func (w *watched) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	at := w.begin(opLookup, h, name)
	return at.end(w.bridge.Lookup(cancel, h, name, out))
}

func (w *watched) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn,
	out *fuse.AttrOut) fuse.Status {
	at := w.begin(opGetattr, &in.InHeader, "")
	return at.end(w.bridge.GetAttr(cancel, in, out))
}

func (w *watched) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn,
	out *fuse.AttrOut) fuse.Status {
	at := w.begin(opSetattr, &in.InHeader, "")
	return at.end(w.bridge.SetAttr(cancel, in, out))
}

func (w *watched) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string,
	out *fuse.EntryOut) fuse.Status {
	at := w.begin(opMknod, &in.InHeader, name)
	return at.end(w.bridge.Mknod(cancel, in, name, out))
}

func (w *watched) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string,
	out *fuse.EntryOut) fuse.Status {
	at := w.begin(opMkdir, &in.InHeader, name)
	return at.end(w.bridge.Mkdir(cancel, in, name, out))
}

func (w *watched) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	at := w.begin(opUnlink, h, name)
	return at.end(w.bridge.Unlink(cancel, h, name))
}

func (w *watched) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	at := w.begin(opRmdir, h, name)
	return at.end(w.bridge.Rmdir(cancel, h, name))
}

func (w *watched) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	at := w.begin(opRename, &in.InHeader, from)
	return at.end(w.bridge.Rename(cancel, in, from, to))
}

func (w *watched) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string,
	out *fuse.EntryOut) fuse.Status {
	at := w.begin(opLink, &in.InHeader, name)
	return at.end(w.bridge.Link(cancel, in, name, out))
}

func (w *watched) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string,
	out *fuse.EntryOut) fuse.Status {
	at := w.begin(opSymlink, h, name)
	return at.end(w.bridge.Symlink(cancel, h, target, name, out))
}

func (w *watched) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status {
	at := w.begin(opAccess, &in.InHeader, "")
	return at.end(w.bridge.Access(cancel, in))
}

func (w *watched) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string,
	data []byte) fuse.Status {
	at := w.begin(opSetxattr, &in.InHeader, name)
	return at.end(w.bridge.SetXAttr(cancel, in, name, data))
}

func (w *watched) RemoveXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	at := w.begin(opRemovexattr, h, name)
	return at.end(w.bridge.RemoveXAttr(cancel, h, name))
}

func (w *watched) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string,
	out *fuse.CreateOut) fuse.Status {
	at := w.begin(opCreate, &in.InHeader, name)
	return at.end(w.bridge.Create(cancel, in, name, out))
}

func (w *watched) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn,
	out *fuse.CreateOut) fuse.Status {
	at := w.begin(opTmpfile, &in.InHeader, "")
	return at.end(w.bridge.Tmpfile(cancel, in, out))
}

func (w *watched) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	at := w.begin(opOpen, &in.InHeader, "")
	return at.end(w.bridge.Open(cancel, in, out))
}

func (w *watched) Lseek(cancel <-chan struct{}, in *fuse.LseekIn,
	out *fuse.LseekOut) fuse.Status {
	at := w.begin(opLseek, &in.InHeader, "")
	return at.end(w.bridge.Lseek(cancel, in, out))
}

func (w *watched) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	at := w.begin(opGetlk, &in.InHeader, "")
	return at.end(w.bridge.GetLk(cancel, in, out))
}

func (w *watched) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	at := w.begin(opSetlk, &in.InHeader, "")
	return at.end(w.bridge.SetLk(cancel, in))
}

func (w *watched) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	at := w.begin(opSetlkw, &in.InHeader, "")
	return at.end(w.bridge.SetLkw(cancel, in))
}

func (w *watched) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, inbuf []byte,
	out *fuse.IoctlOut, outbuf []byte) fuse.Status {
	at := w.begin(opIoctl, &in.InHeader, "")
	return at.end(w.bridge.Ioctl(cancel, in, inbuf, out, outbuf))
}

func (w *watched) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	at := w.begin(opFlush, &in.InHeader, "")
	return at.end(w.bridge.Flush(cancel, in))
}

func (w *watched) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	at := w.begin(opFsync, &in.InHeader, "")
	return at.end(w.bridge.Fsync(cancel, in))
}

func (w *watched) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	at := w.begin(opFallocate, &in.InHeader, "")
	return at.end(w.bridge.Fallocate(cancel, in))
}

func (w *watched) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	at := w.begin(opOpendir, &in.InHeader, "")
	return at.end(w.bridge.OpenDir(cancel, in, out))
}

func (w *watched) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn,
	out *fuse.DirEntryList) fuse.Status {
	at := w.begin(opReaddir, &in.InHeader, "")
	return at.end(w.bridge.ReadDir(cancel, in, out))
}

func (w *watched) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn,
	out *fuse.DirEntryList) fuse.Status {
	at := w.begin(opReaddirplus, &in.InHeader, "")
	return at.end(w.bridge.ReadDirPlus(cancel, in, out))
}

func (w *watched) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	at := w.begin(opFsyncdir, &in.InHeader, "")
	return at.end(w.bridge.FsyncDir(cancel, in))
}

func (w *watched) StatFs(cancel <-chan struct{}, h *fuse.InHeader,
	out *fuse.StatfsOut) fuse.Status {
	at := w.begin(opStatfs, h, "")
	return at.end(w.bridge.StatFs(cancel, h, out))
}

func (w *watched) Statx(cancel <-chan struct{}, in *fuse.StatxIn,
	out *fuse.StatxOut) fuse.Status {
	at := w.begin(opStatx, &in.InHeader, "")
	return at.end(w.bridge.Statx(cancel, in, out))
}

func (w *watched) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	at := w.begin(opReadlink, h, "")
	target, st := w.bridge.Readlink(cancel, h)
	return target, at.end(st)
}

func (w *watched) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string,
	dest []byte) (uint32, fuse.Status) {
	at := w.begin(opGetxattr, h, name)
	n, st := w.bridge.GetXAttr(cancel, h, name, dest)
	return n, at.end(st)
}

func (w *watched) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader, dest []byte) (
	uint32, fuse.Status) {
	at := w.begin(opListxattr, h, "")
	n, st := w.bridge.ListXAttr(cancel, h, dest)
	return n, at.end(st)
}

func (w *watched) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (
	fuse.ReadResult, fuse.Status) {
	at := w.begin(opRead, &in.InHeader, "")
	r, st := w.bridge.Read(cancel, in, buf)
	n := 0
	if r != nil {
		n = r.Size()
	}
	return r, at.moved(st, n, 0)
}

func (w *watched) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (
	uint32, fuse.Status) {
	at := w.begin(opWrite, &in.InHeader, "")
	n, st := w.bridge.Write(cancel, in, data)
	return n, at.moved(st, 0, int(n))
}

func (w *watched) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (
	uint32, fuse.Status) {
	at := w.begin(opWrite, &in.InHeader, "")
	n, st := w.bridge.Writev(cancel, in, data)
	return n, at.moved(st, 0, int(n))
}

func (w *watched) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (
	uint32, fuse.Status) {
	at := w.begin(opCopyFileRange, &in.InHeader, "")
	n, st := w.bridge.CopyFileRange(cancel, in)
	return n, at.moved(st, 0, int(n))
}

func (w *watched) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	at := w.begin(opRelease, &in.InHeader, "")
	w.bridge.Release(cancel, in)
	at.end(fuse.OK)
}

func (w *watched) ReleaseDir(in *fuse.ReleaseIn) {
	at := w.begin(opReleasedir, &in.InHeader, "")
	w.bridge.ReleaseDir(in)
	at.end(fuse.OK)
}
