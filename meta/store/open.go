package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// opening is an Open or a Create on its way.
type opening struct {
	c     *meta.Caller
	id    uint64 // of the handle
	flags meta.OpenFlags
	ino   meta.Ino
	n     *inode
	born  bool // the inode is made by this opening
}

// newOpening chooses the handle's id. It comes from the request id, so that a repetition finds the
// handle of the first time, whoever has forgotten the request by then.
func newOpening(c *meta.Caller, flags meta.OpenFlags) (*opening, error) {
	const all = meta.OpenRead | meta.OpenWrite | meta.OpenTruncate | meta.OpenExclusive
	if flags&^all != 0 || flags&(meta.OpenRead|meta.OpenWrite) == 0 {
		return nil, errs.Newf(errs.Invalid, "meta.flags", "", "open flags %#x", flags)
	}
	o := &opening{c: c, flags: flags, id: meta.HandleOf(c.ReqID)}
	for o.id == 0 {
		o.id = rand.Uint64()
	}
	return o, checkCaller(c)
}

// Open implements meta.Files.
func (s *Store) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {

	o, err := newOpening(&c, flags)
	if err == nil && flags&meta.OpenExclusive != 0 {
		err = errs.Invalid
	}
	if err != nil {
		return meta.Handle{}, errs.Wrap("meta.Open", "", err)
	}
	h, err := s.open(ctx, o, func(t *txn) error { return t.openInode(o, ino) })
	return h, errs.Wrap("meta.Open", "", err)
}

// Create implements meta.Files.
func (s *Store) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {

	f.Type = meta.Regular
	o, err := newOpening(&c, flags)
	if err == nil {
		err = checkMake(&c, name, &f)
	}
	if err != nil {
		return meta.Handle{}, errs.Wrap("meta.Create", name, err)
	}
	var fresh meta.Ino
	h, err := s.open(ctx, o, func(t *txn) error {
		n, err := s.birth(ctx, t, &c, dir, name, &f, &fresh)
		if o.born = err == nil; o.born {
			o.ino, o.n = fresh, n
			return nil // whoever made it may use it, whatever its mode says
		}
		if errs.KindOf(err) != errs.Exists || flags&meta.OpenExclusive != 0 {
			return err
		}
		if isDots(name) {
			return errs.IsDir
		}
		e, err := t.entry(dir, name)
		if err != nil {
			return err
		}
		return t.openInode(o, e.Ino)
	})
	return h, errs.Wrap("meta.Create", name, err)
}

// openInode checks that an existing inode may be opened, and truncates it if asked to.
func (t *txn) openInode(o *opening, ino meta.Ino) error {
	n, err := t.inode(ino)
	if err != nil {
		return err
	}
	switch n.Type {
	case meta.Regular:
	case meta.Directory:
		return errs.IsDir
	case meta.Symlink:
		return errs.Loop
	default: // pipes and devices belong to the client's kernel
		return errs.Unsupported
	}
	var want uint32
	if o.flags&meta.OpenRead != 0 {
		want |= mayRead
	}
	if o.flags&(meta.OpenWrite|meta.OpenTruncate) != 0 {
		want |= mayWrite
	}
	if !allowed(&o.c.Cred, n, want) {
		return errs.Access
	}
	if n.has(flagVolume) && n.has(flagWriters) && o.flags&meta.OpenWrite != 0 {
		if err := t.soleWriter(o.c.Session, ino); err != nil {
			return err
		}
	}
	if o.flags&meta.OpenTruncate != 0 {
		if n.has(flagVolume) {
			return errs.Perm
		}
		if err := t.truncate(&o.c.Cred, ino, n, 0); err != nil {
			o.ino = ino
			return err
		}
		t.putInode(ino, n)
	}
	o.ino, o.n = ino, n
	return nil
}

// open does what Open, Create and OpenVolume share: find finds or makes the inode, the handle is
// written down with it, and what the handle needs is put together.
func (s *Store) open(ctx context.Context, o *opening, find func(t *txn) error) (
	meta.Handle, error) {

	err := s.sessions.reserve(o.c.Session, s.opt.HandlesMax, s.opt.HandlesAllMax)
	if err != nil {
		return meta.Handle{}, err
	}
	kept := false
	defer func() {
		if !kept {
			s.sessions.release(o.c.Session)
		}
	}()
	var replayed bool
	for attempt := 0; ; attempt++ {
		replayed, err = s.update(ctx, o.c, func(t *txn) error { return t.openHandle(o, find) })
		if err != errPending {
			break
		}
		if err = s.settleTruncate(ctx, o.ino); err == nil {
			err = pause(ctx, attempt)
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		return meta.Handle{}, err
	}
	kept = !replayed
	h, err := s.opened(ctx, o, replayed)
	if err != nil && o.c.ReqID == (meta.Caller{}.ReqID) {
		// Nobody will come back for it.
		_ = s.closeHandle(context.WithoutCancel(ctx), o.c, o.id, closing{})
	}
	return h, err
}

// openHandle finds the inode and writes the handle down.
func (t *txn) openHandle(o *opening, find func(t *txn) error) error {
	if err := t.live(o.c.Session); err != nil {
		return err
	}
	key := handleKey(o.c.Session, o.id)
	old, err := t.read(key)
	if err != nil {
		return err
	}
	if old != nil {
		return errReplayed
	}
	if err := find(t); err != nil {
		return err
	}
	if o.flags&meta.OpenWrite != 0 && !o.n.has(flagWriters) {
		o.n.Flags |= flagWriters | flagData
		if err := t.promise(o.n); err != nil {
			return err
		}
		t.putInode(o.ino, o.n)
	}
	// Reading must be possible on a full disk, and whoever cuts a file opens it first.
	t.kv.MakesRoom = !o.born
	t.kv.Answer = uint64(o.ino)
	h := handle{Flags: o.flags, Ino: o.ino, UID: o.c.Cred.UID}
	t.put(key, h.encode())
	t.put(openKey(o.ino, o.c.Session, o.id), h.encode())
	if h.writes() {
		t.put(writerKey(o.ino, o.c.Session, h.UID, o.id), mark())
	}
	return nil
}

// opened puts the answer together. A new file's attributes are known; others are read again,
// after a truncation of theirs is carried out.
func (s *Store) opened(ctx context.Context, o *opening, replayed bool) (meta.Handle, error) {
	if replayed {
		h, err := s.handleOf(o.c.Session, o.id)
		if err != nil {
			return meta.Handle{}, err
		}
		o.ino, o.flags = h.Ino, h.Flags
	}
	if replayed || o.n.has(flagPending) {
		if err := s.settleTruncate(ctx, o.ino); err != nil {
			return meta.Handle{}, err
		}
	}
	if o.born && !replayed {
		return s.sign(o.c.Session, o.id, o.flags, fileAttr(o.ino, o.n), o.n)
	}
	var a meta.Attr
	var n *inode
	err := s.look(func(t *txn) (err error) {
		a, n, err = t.signed(o.ino)
		return err
	})
	if err != nil {
		return meta.Handle{}, err
	}
	s.measureAttr(ctx, &a)
	return s.sign(o.c.Session, o.id, o.flags, a, n)
}

// handleOf reads a handle; errs.Closed if there is none.
func (s *Store) handleOf(session, id uint64) (handle, error) {
	var h handle
	err := s.look(func(t *txn) error {
		key := handleKey(session, id)
		value, err := t.read(key)
		if err != nil {
			return err
		}
		if value == nil {
			return errs.Closed
		}
		return parse(key, value, &h)
	})
	return h, err
}

// signed reads what sign needs of a file.
func (t *txn) signed(ino meta.Ino) (a meta.Attr, n *inode, err error) {
	if n, err = t.inode(ino); err != nil {
		return a, nil, err
	}
	if a, err = t.attr(ino, n); err == nil {
		err = t.growth(n)
	}
	return a, n, err
}

// sign makes a handle of inode n, with a capability for the server of each stripe.
func (s *Store) sign(session, id uint64, flags meta.OpenFlags, a meta.Attr, n *inode) (
	meta.Handle, error) {

	var rights capability.Rights
	if flags&meta.OpenRead != 0 {
		rights |= capability.Read
	}
	if flags&meta.OpenWrite != 0 {
		rights |= capability.Write
	}
	expiry, err := s.sessions.expiry(session, s.steady, s.opt.CapTTL)
	if err != nil {
		return meta.Handle{}, err
	}
	h := meta.Handle{ID: id, Attr: a, Hints: n.Hints, Bounded: n.bounded, GrowTo: n.charge().Bytes,
		Caps: make([][capability.Bytes]byte, a.Layout.Width())}
	for i, server := range a.Layout.Servers {
		h.Caps[i] = s.serverKey(server).Sign(&capability.Capability{
			File: uint64(a.Ino), Gen: a.Gen, Rights: rights, Session: session, Server: server,
			Layout: a.Layout.Version, Expiry: expiry.Truncate(time.Millisecond), TTL: s.opt.CapTTL,
			Life: s.servers.life(server, n.Losses),
		})
	}
	return h, nil
}

// Renew implements meta.Files. Attributes are the stored ones: nothing is measured.
func (s *Store) Renew(_ context.Context, c meta.Caller, handles []uint64) ([]meta.Handle, error) {
	if err := s.sessions.touch(c.Session, s.steady()); err != nil {
		return nil, errs.Wrap("meta.Renew", "", err)
	}
	out := make([]meta.Handle, len(handles))
	err := s.look(func(t *txn) error {
		for i, id := range handles {
			out[i].ID = id
			key := handleKey(c.Session, id)
			value, err := t.read(key)
			if err != nil {
				return err
			}
			if value == nil {
				continue
			}
			var h handle
			if err := parse(key, value, &h); err != nil {
				return err
			}
			a, n, err := t.signed(h.Ino)
			if err != nil {
				return err
			}
			if out[i], err = s.sign(c.Session, id, h.Flags, a, n); err != nil {
				return err
			}
		}
		return nil
	})
	return out, errs.Wrap("meta.Renew", "", err)
}
