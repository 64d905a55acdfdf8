package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// GetAttr returns attributes; the size is exact for every write that was acknowledged.
func (b *bridge) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn,
	out *fuse.AttrOut) fuse.Status {
	_, status := b.getAttr(cancel, in, out)
	return status
}

func (b *bridge) getAttr(cancel <-chan struct{}, in *fuse.GetAttrIn,
	out *fuse.AttrOut) (meta.Attr, fuse.Status) {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	if err := b.fs.Drain(ctx, b.ino(in.NodeId)); err != nil {
		return meta.Attr{}, b.status("getattr", err)
	}
	at := b.now()
	a, err := b.attrOf(ctx, b.ino(in.NodeId))
	if errs.KindOf(err) == errs.NotFound {
		if was, _, ok := b.keptLink(in.Pid, b.ino(in.NodeId)); ok {
			a, err = was, nil
		}
	}
	if err != nil {
		return meta.Attr{}, b.nodeStatus("getattr", in.Pid, err)
	}
	out.SetTimeout(b.attrTimeout(&a, true, at))
	b.fill(&out.Attr, &a)
	return a, fuse.OK
}

// overlay brings attributes that came by the way up to what this mount has written. It does not
// wait for what is on its way to servers: the kernel has the directory locked meanwhile, and nobody
// could use it while one of them is away. So that counts for the length only, and the kernel is not
// to believe the rest: it asks by GetAttr if it needs to know.
func (b *bridge) overlay(a *meta.Attr) {
	end := b.fs.BehindEnd(a.Ino) // before Overlay, which knows of all that has arrived until then
	b.fs.Overlay(a)
	if end > 0 {
		a.Size, a.Writers = max(a.Size, end), true
	}
}

func (b *bridge) attrOut(out *fuse.AttrOut, a *meta.Attr, at moment) {
	out.SetTimeout(b.attrTimeout(a, false, at))
	b.fill(&out.Attr, a)
}

// SetAttr changes attributes. The kernel has checked that the process may.
func (b *bridge) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn,
	out *fuse.AttrOut) fuse.Status {
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	ino := b.ino(in.NodeId)
	if err := b.fs.Drain(ctx, ino); err != nil {
		return b.status("setattr", err)
	}
	mask, want := changes(in)
	at := b.now()
	defer b.touched.note(ino)
	a, err := b.fs.SetAttr(ctx, b.as(ctx), ino, mask, want)
	if err == nil && in.Valid&fuse.FATTR_KILL_SUIDGID != 0 && mask&meta.SetMode == 0 {
		err = b.dropPrivileges(ctx, &a)
	}
	if err != nil {
		return b.nodeStatus("setattr", in.Pid, err)
	}
	if mask&meta.SetSize != 0 {
		b.editions.cut(&a)
	}
	b.attrOut(out, &a, at)
	return fuse.OK
}

// changes reads out of a request what it wants changed.
func changes(in *fuse.SetAttrIn) (mask meta.SetMask, a meta.Attr) {
	if in.Valid&fuse.FATTR_MODE != 0 {
		mask, a.Mode = mask|meta.SetMode, in.Mode&0o7777
	}
	if in.Valid&fuse.FATTR_UID != 0 {
		mask, a.UID = mask|meta.SetUID, in.Uid
	}
	if in.Valid&fuse.FATTR_GID != 0 {
		mask, a.GID = mask|meta.SetGID, in.Gid
	}
	if in.Valid&fuse.FATTR_SIZE != 0 {
		mask, a.Size = mask|meta.SetSize, int64(in.Size)
	}
	switch {
	case in.Valid&fuse.FATTR_ATIME_NOW != 0:
		mask |= meta.SetAtimeNow
	case in.Valid&fuse.FATTR_ATIME != 0:
		mask, a.Atime = mask|meta.SetAtime, meta.Time{Sec: int64(in.Atime), Nsec: in.Atimensec}
	}
	switch {
	case in.Valid&fuse.FATTR_MTIME_NOW != 0:
		mask |= meta.SetMtimeNow
	case in.Valid&fuse.FATTR_MTIME != 0:
		mask, a.Mtime = mask|meta.SetMtime, meta.Time{Sec: int64(in.Mtime), Nsec: in.Mtimensec}
	}
	if mask == 0 { // chown(2) of nothing, which changes the time of change all the same
		mask = meta.SetCtimeNow
	}
	return mask, a
}
