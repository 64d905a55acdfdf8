package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/meta"
)

// GetAttr returns attributes; the size is exact for every write that was acknowledged.
func (b *bridge) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn,
	out *fuse.AttrOut) fuse.Status {
	ctx, done := b.request(cancel, &in.InHeader)
	defer done()
	a, err := b.fs.GetAttr(ctx, meta.Cred{}, b.ino(in.NodeId))
	if err != nil {
		return b.nodeStatus("getattr", err)
	}
	b.attrOut(out, &a)
	return fuse.OK
}

func (b *bridge) attrOut(out *fuse.AttrOut, a *meta.Attr) {
	out.SetTimeout(b.attrTimeout(a))
	b.fill(&out.Attr, a)
}

// SetAttr changes attributes. The kernel has checked that the process may.
func (b *bridge) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn,
	out *fuse.AttrOut) fuse.Status {
	ctx, done := b.request(cancel, &in.InHeader)
	defer done()
	ino := b.ino(in.NodeId)
	mask, want := changes(in)
	if mask == 0 {
		a, err := b.fs.GetAttr(ctx, meta.Cred{}, ino)
		if err == nil {
			b.attrOut(out, &a)
		}
		return b.nodeStatus("setattr", err)
	}
	a, err := b.fs.SetAttr(ctx, meta.Cred{}, ino, mask, want)
	if err != nil {
		return b.nodeStatus("setattr", err)
	}
	b.attrOut(out, &a)
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
		mask, a.Atime = mask|meta.SetAtime, join(in.Atime, in.Atimensec)
	}
	switch {
	case in.Valid&fuse.FATTR_MTIME_NOW != 0:
		mask |= meta.SetMtimeNow
	case in.Valid&fuse.FATTR_MTIME != 0:
		mask, a.Mtime = mask|meta.SetMtime, join(in.Mtime, in.Mtimensec)
	}
	return mask, a
}

// join is the inverse of split.
func join(sec uint64, nsec uint32) int64 { return int64(sec)*1e9 + int64(nsec) }
