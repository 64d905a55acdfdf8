package client

import (
	"context"
	"crypto/rand"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// opening is an Open or a Create of a program, over all its tries.
//
// Once the service has answered with an inode it is this inode that is opened: a Create must not
// meet the file that it has made, and must not fail because somebody has taken its name away since.
// So handles of earlier tries, which may be there or not, are taken back only at the end: until
// then they keep the inode.
type opening struct {
	fs    *FS
	cred  meta.Cred
	flags meta.OpenFlags
	get   openFunc
	makes bool // the file, if there is none
	named bool // it is a volume, which is opened by its name

	upkeep bool // not for a program

	request  [16]byte    // of the next try
	repeated bool        // an earlier one had the same id
	found    meta.Handle // the first answer; without an inode: there was none
	undo     []ending
}

// openFunc asks the service to open something.
type openFunc func(context.Context, meta.Caller) (meta.Handle, error)

// openTries is how often a file is opened anew because the service was restarted meanwhile.
const openTries = 5

// open gets a handle, once more if the session turns out to be lost, or the service was restarted
// just behind the answer, and makes a File of it.
func (o *opening) open(ctx context.Context) (*File, error) {
	fs := o.fs
	if o.flags&meta.OpenTruncate != 0 {
		fs.cutting.Add(1)
		defer fs.cutting.Add(-1)
	}
	defer func() {
		for _, e := range o.undo {
			fs.endings.put(e)
		}
	}()
	o.request = openRequest(ctx, o.makes || o.flags&meta.OpenTruncate != 0)
	for try := 1; ; try++ {
		s, t, life := fs.sess.Load(), fs.cache.Begin(), fs.leases.lives()
		h, err := o.try(ctx, s)
		if err == nil {
			f, err := o.newFile(ctx, s, t, &h)
			if err == nil && fs.leases.lives() != life {
				f.claimLate(ctx)
			}
			return f, err
		}
		if o.makes && o.found.Attr.Ino != 0 && errs.KindOf(err) == errs.NotFound {
			return fs.removedFile(s, &o.found, o.cred, o.flags)
		}
		again := errs.KindOf(err) == errs.MaybeDone || fs.madeRoom(ctx, err) ||
			fs.checkSession(ctx, s, err)
		if !again || try == openTries {
			return nil, errs.Wrap("client.Open", "", err)
		}
	}
}

// try is one try. What was found is opened from then on.
func (o *opening) try(ctx context.Context, s *session) (meta.Handle, error) {
	h, undo, err := o.fs.openOnce(ctx, s, o.request,
		func(ctx context.Context, c meta.Caller) (meta.Handle, error) {
			if ino := o.found.Attr.Ino; ino != 0 && !o.named {
				// Whoever has made it may use it, whatever its mode says.
				h, err := o.fs.svc.Open(ctx, c, ino, o.flags&access)
				if errs.KindOf(err) == errs.Access && o.cred.UID != 0 { // root is not believed
					c.Cred = o.cred
					h, err = o.fs.svc.Open(ctx, c, ino, o.flags&access)
				}
				return h, err
			}
			c.Cred = o.cred
			return o.get(ctx, c)
		})
	if err == nil && o.repeated {
		// The service only tells what it did then: of a file that nobody had open in between, because
		// the session was lost, it does not note again that somebody writes.
		undo = &ending{caller: meta.Caller{Session: s.id, ReqID: o.request, Leases: true}, handle: h.ID}
		err = errs.Newf(errs.MaybeDone, "client.Open", "", "it was opened before")
	}
	if undo != nil {
		o.undo = append(o.undo, *undo)
	}
	if h.Attr.Ino != 0 && o.found.Attr.Ino == 0 {
		o.found = h
	}
	k := errs.KindOf(err)
	o.repeated = o.found.Attr.Ino == 0 && (k == errs.Stale || k == errs.MaybeDone)
	if !o.repeated { // otherwise it may have been done, and is not to be done twice
		o.request = newRequest()
	}
	return h, err
}

// newRequest draws the id of a request that opens something.
func newRequest() (id [16]byte) {
	for meta.HandleOf(id) == 0 {
		rand.Read(id[:])
	}
	return id
}

// openOnce opens a file in a session. Where the answer leaves open whether there is a handle now,
// undo takes the opening back.
func (fs *FS) openOnce(ctx context.Context, s *session, id [16]byte, get openFunc) (
	h meta.Handle, undo *ending, err error) {
	if err := fs.roomToOpen(ctx); err != nil {
		return h, nil, err
	}
	c := meta.Caller{Session: s.id, ReqID: id, Leases: true}
	life := fs.leases.lives()
	h, err = get(ctx, c)
	if err == nil && fs.leases.lives() != life {
		// The service was restarted meanwhile, and open files were claimed without this one.
		err = errs.Newf(errs.MaybeDone, "client.Open", "", "the service was restarted")
	}
	if err != nil && !refusal(errs.KindOf(err)) {
		undo = &ending{caller: c, handle: meta.HandleOf(id)}
	}
	return h, undo, err
}

func (o *opening) newFile(ctx context.Context, s *session, t cache.Token, h *meta.Handle) (
	*File, error) {
	fs, flags := o.fs, o.flags
	n, err := fs.node(&h.Attr, o.upkeep)
	if err != nil {
		_ = fs.svc.Close(ctx, meta.Caller{Session: s.id}, meta.Closing{Handle: h.ID})
		return nil, err
	}
	f := fs.addFile(n, newGrant(s.id, h), o.cred, flags)
	if h.Hints != (How{}) {
		f.SetHow(h.Hints)
	}
	if flags&meta.OpenTruncate != 0 {
		n.cut(&h.Attr)
	}
	n.accept(fs, t, &h.Attr, meta.SmallData{Bytes: h.Data}, byOpen)
	n.allow(h)
	if flags&meta.OpenWrite == 0 {
		fs.cache.PutData(t, &h.Attr, h.Data)
	}
	if flags&meta.OpenTruncate != 0 && n.leftBehind() {
		// The opening has not cut at the I/O servers. Cutting once more is as if it came a moment later.
		if _, err := fs.askSetAttr(ctx, meta.Cred{}, n.ino, meta.SetSize, meta.Attr{}); err != nil {
			f.Discard(ctx)
			return nil, errs.Wrap("client.Open", "", err)
		}
	}
	return f, nil
}

// removedFile makes a File of a file that was opened and is gone: its name was taken away while no
// handle of this client was known. It is as a local handle of a file that was removed.
func (fs *FS) removedFile(s *session, h *meta.Handle, cred meta.Cred, flags meta.OpenFlags) (
	*File, error) {
	n, err := fs.node(&h.Attr, false)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.content.local++
	n.content.gone = true
	if h.Attr.Small {
		n.content.kept = append([]byte{}, h.Data...) // never nil
	}
	n.mu.Unlock()
	g := &grant{session: s.id, gen: h.Attr.Gen, layout: h.Attr.Layout}
	return fs.addFile(n, g, cred, flags), nil
}

// claimLate is for a file that was opened when the service was restarted: open files may have been
// claimed just before this one was there. If so it is opened again.
func (f *File) claimLate(ctx context.Context) {
	if claims := f.fs.leases.claiming(); claims != nil {
		select {
		case <-claims:
		case <-ctx.Done():
		}
	}
	if err := f.fs.renew(ctx, []*File{f}); err != nil {
		f.fs.opts.Logger.Warn("a file may not be open at the service", "ino", f.node.ino, "err", err)
	}
}
