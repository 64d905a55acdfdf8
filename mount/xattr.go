package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
	"golang.org/x/sys/unix"
)

// GetXAttr reads an extended attribute. The kernel asks for access control lists before it lets
// somebody else than the owner in, and for capabilities before it runs a program.
func (b *bridge) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string,
	dest []byte) (uint32, fuse.Status) {
	ctx := b.request(cancel, h)
	defer ctx.end()
	ino := b.ino(h.NodeId)
	if b.refuses(name) {
		return 0, fuse.Status(unix.EOPNOTSUPP)
	}
	v, err := b.fs.GetXattr(ctx, b.as(ctx), ino, name)
	if errs.KindOf(err) == errs.NotFound {
		v, err = b.removed.list(ino, name, err)
	}
	if err != nil {
		return 0, b.nodeStatus("getxattr", h.Pid, err)
	}
	return answer(dest, v)
}

// refuses tells whether an attribute is a list, and there are to be none. The kernel, which checks
// nothing by them then, would pass them on as if they were like others.
func (b *bridge) refuses(name string) bool {
	return b.opts.NoACL && (name == acl.Access || name == acl.Default)
}

// answer copies a value, or tells how much room it needs.
func answer(dest, v []byte) (uint32, fuse.Status) {
	if len(dest) < len(v) {
		return uint32(len(v)), fuse.ERANGE
	}
	return uint32(copy(dest, v)), fuse.OK
}

// ListXAttr lists the names of extended attributes.
func (b *bridge) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader,
	dest []byte) (uint32, fuse.Status) {
	ctx := b.request(cancel, h)
	defer ctx.end()
	names, err := b.fs.ListXattr(ctx, b.as(ctx), b.ino(h.NodeId))
	if err != nil {
		return 0, b.nodeStatus("listxattr", h.Pid, err)
	}
	var list []byte
	for _, n := range visible(names, h.Pid) {
		if b.refuses(n) {
			continue
		}
		list = append(append(list, n...), 0)
	}
	return answer(dest, list)
}

// SetXAttr stores an extended attribute. Whoever gives a file a list that could not set its
// set-group-id bit takes that away; this comes first, so that nobody sees the one without the other
// who should not.
func (b *bridge) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string,
	data []byte) fuse.Status {
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	if len(name) > meta.XattrName {
		return fuse.ERANGE
	}
	if len(data) > meta.XattrValue {
		return fuse.Status(unix.E2BIG)
	}
	if b.refuses(name) {
		return fuse.Status(unix.EOPNOTSUPP)
	}
	ino := b.ino(in.NodeId)
	defer b.touched.note(ino)
	if in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0 && name == acl.Access {
		a, err := b.fs.GetAttr(ctx, b.as(ctx), ino)
		if err == nil && a.Mode&setGID != 0 {
			_, err = b.fs.SetAttr(ctx, b.as(ctx), ino, meta.SetMode, meta.Attr{Mode: a.Mode &^ setGID})
		}
		if err != nil {
			return b.nodeStatus("setxattr", in.Pid, err)
		}
	}
	create, replace := in.Flags&unix.XATTR_CREATE != 0, in.Flags&unix.XATTR_REPLACE != 0
	err := b.fs.SetXattr(ctx, b.as(ctx), ino, name, data, create, replace)
	return b.nodeStatus("setxattr", in.Pid, err)
}

// RemoveXAttr removes an extended attribute.
func (b *bridge) RemoveXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	ctx := b.change(cancel, h)
	defer ctx.end()
	if b.refuses(name) {
		return fuse.Status(unix.EOPNOTSUPP)
	}
	defer b.touched.note(b.ino(h.NodeId))
	err := b.fs.RemoveXattr(ctx, b.as(ctx), b.ino(h.NodeId), name)
	return b.nodeStatus("removexattr", h.Pid, err)
}
