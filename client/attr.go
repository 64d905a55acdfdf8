package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// GetAttr returns an inode's attributes; size and times include what this client's own handles have
// written.
func (fs *FS) GetAttr(ctx context.Context, cred meta.Cred, ino meta.Ino) (meta.Attr, error) {
	if n := fs.peek(ino); n != nil {
		if err := fs.tellHoles(ctx, n); err != nil {
			return meta.Attr{}, err
		}
	}
	a, err := fs.svc.GetAttr(ctx, fs.Caller(cred), ino)
	if err != nil {
		return a, errs.Wrap("client.GetAttr", "", err)
	}
	if n := fs.peek(ino); n != nil {
		n.learn(&a)
		n.overlay(&a)
	}
	return a, nil
}

// Overlay corrects attributes that came straight from the metadata service by what this client's
// own handles have written.
func (fs *FS) Overlay(a *meta.Attr) {
	if n := fs.peek(a.Ino); n != nil {
		n.overlay(a)
	}
}

// statNode asks for attributes on behalf of an open handle.
func (fs *FS) statNode(ctx context.Context, ino meta.Ino) (meta.Attr, error) {
	a, err := fs.svc.GetAttr(ctx, fs.trusted(), ino)
	return a, errs.Wrap("client.GetAttr", "", err)
}

// SetAttr changes the attributes in mask. Truncation goes through here, so that open handles of
// this client know of it at once. Uncommitted times of earlier writes are committed before a time
// is set, because closing the file must not undo it.
func (fs *FS) SetAttr(ctx context.Context, cred meta.Cred, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {
	n := fs.peek(ino)
	if n != nil && mask&(meta.SetMtime|meta.SetMtimeNow|meta.SetSize) != 0 {
		if err := fs.commit(ctx, n, false); err != nil {
			return meta.Attr{}, err
		}
	}
	if mask&meta.SetSize != 0 {
		if err := fs.syncBeforeCut(ctx, ino, a.Size); err != nil {
			return meta.Attr{}, errs.Wrap("client.SetAttr", "", err)
		}
	}
	got, err := fs.svc.SetAttr(ctx, fs.Caller(cred), ino, mask, a)
	if err != nil {
		return got, errs.Wrap("client.SetAttr", "", err)
	}
	if n := fs.peek(ino); n != nil {
		if mask&meta.SetSize != 0 {
			n.learn(&got)
		}
		n.overlay(&got)
	}
	return got, nil
}
