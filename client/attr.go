package client

import (
	"context"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// GetAttr returns an inode's attributes; size and times include what this client's own handles have
// written. Nobody is asked where a lease says that this client knows them. A file that is gone and
// still open here is as it was, without names.
func (fs *FS) GetAttr(ctx context.Context, cred meta.Cred, ino meta.Ino) (meta.Attr, error) {
	a, err := fs.getAttr(ctx, cred, ino)
	return a, errs.Wrap("client.GetAttr", "", err)
}

func (fs *FS) getAttr(ctx context.Context, cred meta.Cred, ino meta.Ino) (meta.Attr, error) {
	n := fs.peek(ino)
	holes := n != nil && n.holesUntold()
	if a, ok := fs.cache.Attr(ino); ok && !holes {
		if fs.overlayKnown(&a); !a.Holes || a.Allocated >= 0 {
			return a, nil
		}
	}
	if holes {
		if err := fs.tellHoles(ctx, n); err != nil {
			return meta.Attr{}, err
		}
	}
	if n != nil {
		if err := fs.tellShared(ctx, n); err != nil {
			return meta.Attr{}, err
		}
	}
	a, err := fs.askAttr(ctx, cred, ino)
	if errs.KindOf(err) == errs.NotFound && n != nil && n.removed() {
		return n.last(), nil
	}
	return a, err
}

// askAttr is GetAttr of the service, whose answer is taken in.
func (fs *FS) askAttr(ctx context.Context, cred meta.Cred, ino meta.Ino) (meta.Attr, error) {
	t := fs.cache.Begin()
	a, err := fs.svc.GetAttr(ctx, fs.Caller(cred), ino)
	if err != nil {
		return a, err
	}
	fs.cache.PutAttr(t, &a)
	if n := fs.peek(ino); n != nil {
		n.accept(fs, t, &a, meta.SmallData{}, byLook)
	}
	fs.Overlay(&a)
	return a, nil
}

// Overlay corrects attributes that came straight from the metadata service by what this client's
// own handles have written.
func (fs *FS) Overlay(a *meta.Attr) {
	if n := fs.peek(a.Ino); n != nil {
		n.overlay(a)
	} else {
		fs.past.correct(a)
	}
	fs.accesses.overlay(a)
}

// overlayKnown is Overlay for attributes that were not asked for just now: how much space a file
// with holes takes is not known while this client writes to it.
func (fs *FS) overlayKnown(a *meta.Attr) {
	defer fs.accesses.overlay(a)
	n := fs.peek(a.Ino)
	if n == nil {
		fs.past.correct(a)
		return
	}
	n.overlay(a)
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.Holes && (n.writers > 0 || n.dirty || n.taken) {
		a.Allocated = -1
	}
}

// statNode asks for attributes on behalf of an open handle.
func (fs *FS) statNode(ctx context.Context, ino meta.Ino) (meta.Attr, error) {
	return fs.GetAttr(ctx, meta.Cred{}, ino)
}

// SetAttr changes the attributes in mask. Truncation goes through here, so that open handles of
// this client know of it at once. Uncommitted times of earlier writes are committed before a time
// is set, because closing the file must not undo it.
func (fs *FS) SetAttr(ctx context.Context, cred meta.Cred, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {
	got, err := fs.setAttr(ctx, cred, ino, mask, a)
	return got, errs.Wrap("client.SetAttr", "", err)
}

func (fs *FS) setAttr(ctx context.Context, cred meta.Cred, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {
	grows := mask&meta.SetSize != 0 && a.Size > meta.SmallMax && a.Size <= layout.FileSizeMax
	if grows {
		w, err := fs.outgrow(ctx, cred, ino)
		if err != nil {
			return meta.Attr{}, err
		}
		if w != nil {
			defer w.Discard(ctx)
		}
	}
	n := fs.ref(ino)
	if n != nil {
		defer fs.unref(n)
	}
	if mask&meta.SetSize != 0 { // without n.telling: I/O servers may be away
		if err := fs.syncBeforeCut(ctx, ino, a.Size); err != nil {
			return meta.Attr{}, err
		}
	}
	if n == nil || mask&(meta.SetMtime|meta.SetMtimeNow|meta.SetSize) == 0 {
		return fs.askSetAttr(ctx, cred, ino, mask, a)
	}
	var got meta.Attr
	var failed error
	asked := false
	err := fs.tellThen(patient(ctx), n, func() {
		if asked = mask&meta.SetSize == 0 || n.small.Load(); asked {
			got, failed = fs.askSetAttr(ctx, cred, ino, mask, a)
		}
	})
	switch {
	case err != nil:
		return got, err
	case !asked: // the service waits for I/O servers: a recall meanwhile needs n.telling
		// What is told in between is told under the truncations that it has followed, as when a file
		// is emptied by opening it: its length counts for nothing if this one was first.
		return fs.askSetAttr(ctx, cred, ino, mask, a)
	}
	return got, failed
}

// askSetAttr is SetAttr of the service, whose answer is taken in.
func (fs *FS) askSetAttr(ctx context.Context, cred meta.Cred, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {
	if n := fs.peek(ino); n != nil && mask&meta.SetSize != 0 && n.spills() {
		mask |= meta.SetSpilled
	}
	if mask&(meta.SetAtime|meta.SetAtimeNow) != 0 {
		if err := fs.accesses.forget(ctx, ino); err != nil {
			return meta.Attr{}, err
		}
	}
	change := fs.cache.Change().Inode(ino)
	t := fs.cache.Begin()
	got, err := fs.svc.SetAttr(ctx, fs.identified(ctx, cred, UseSetAttr), ino, mask, a)
	if err != nil {
		change.End(outcome(err, nil))
		if !refused(errs.KindOf(err)) {
			fs.cache.Recall(ino) // nobody knows what mode and owner are
		}
		return got, err
	}
	change.End(settled(ctx, cache.Outcome{Attrs: []*meta.Attr{&got}}))
	if n := fs.peek(ino); n != nil {
		if mask&meta.SetSize != 0 {
			n.cut(&got)
			if mask&meta.SetSpilled != 0 {
				n.cutSpilled(got.TruncSeq)
			}
			n.accept(fs, t, &got, meta.SmallData{}, byLook)
		}
		n.overlay(&got)
	}
	fs.accesses.overlay(&got)
	return got, nil
}

// outgrow moves a file out that is to become larger than small files are. A file that is not open
// here is opened for that; the caller closes it.
func (fs *FS) outgrow(ctx context.Context, cred meta.Cred, ino meta.Ino) (opened *File, err error) {
	a, err := fs.getAttr(ctx, cred, ino)
	if err != nil || !a.Small || a.Type != meta.Regular {
		return nil, err
	}
	w := fs.writer(ino)
	if w == nil {
		if opened, err = fs.OpenIno(ctx, cred, ino, meta.OpenWrite); err != nil {
			return nil, err
		}
		w = opened
	}
	return opened, fs.moveOut(ctx, w)
}

// outcome is what a change has led to that answers with attributes: if it was refused nothing has
// changed, if it failed in another way nobody knows.
func outcome(err error, a *meta.Attr) cache.Outcome {
	switch {
	case err == nil && a != nil:
		return cache.Outcome{Attrs: []*meta.Attr{a}}
	case err == nil:
		return cache.Outcome{}
	}
	return cache.Outcome{Failed: refused(errs.KindOf(err))}
}

// refused tells whether an operation that failed like that has changed nothing.
func refused(k errs.Kind) bool {
	switch k {
	case errs.NotFound, errs.Exists, errs.NotDir, errs.IsDir, errs.NotEmpty, errs.Access, errs.Perm,
		errs.Invalid, errs.NameTooLong, errs.Loop, errs.Unsupported, errs.TooManyLinks, errs.NoData,
		errs.TooBig, errs.OutOfRange, errs.Busy:
		return true
	}
	return false
}
