package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
)

// opening is an Open or a Create on its way.
type opening struct {
	c       *meta.Caller
	id      uint64 // of the handle
	flags   meta.OpenFlags
	ino     meta.Ino
	n       *inode // as it is with the handle open; nil: to be looked at
	born    bool   // the inode is made by this opening
	claims  bool   // it was open before: nothing is checked or truncated
	grace   bool   // by a client, before the service was restarted: nobody is asked
	written bool   // somebody had it open for writing before
	named   bool   // a volume, by its name
	epoch   uint32 // of a volume's writer that comes back; 0: a new one
	fenced  bool   // a writer that did not answer is kept off
	serial  uint64 // of the lease that was asked for before the inode was read
	lent    lent   // the lease that came with the commit
	change  lease.Change
}

// newOpening chooses the handle's id. It comes from the request id, so that a repetition finds the
// handle of the first time, whoever has forgotten the request by then.
func newOpening(c *meta.Caller, flags meta.OpenFlags) (*opening, error) {
	const all = meta.OpenRead | meta.OpenWrite | meta.OpenTruncate | meta.OpenExclusive |
		meta.OpenNameless | meta.OpenShared
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
	if err == nil && flags&(meta.OpenExclusive|meta.OpenNameless|meta.OpenShared) != 0 {
		err = errs.Invalid
	}
	if err != nil {
		return meta.Handle{}, errs.Wrap("meta.Open", "", err)
	}
	h, err := s.open(ctx, o, func() error { return s.openInode(ctx, o, ino) })
	return h, errs.Wrap("meta.Open", "", err)
}

// Create implements meta.Files. A repetition opens the inode that was made, or found, the first
// time, whatever its name stands for now.
func (s *Store) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {

	f.Type = meta.Regular
	o, err := newOpening(&c, flags)
	if err == nil {
		err = checkCreate(o, name, &f)
	}
	if err == nil {
		err = s.visitNames(ctx, &c, dir)
	}
	if err != nil {
		return meta.Handle{}, errs.Wrap("meta.Create", name, err)
	}
	h, err := s.open(ctx, o, func() error {
		for attempt := 0; ; attempt++ {
			err := s.openNew(ctx, o, dir, name, &f)
			if errs.KindOf(err) != errs.Exists || flags&meta.OpenExclusive != 0 {
				return err
			}
			// The name may be gone again by the time that the inode is looked at.
			err = s.openNamed(ctx, o, dir, name)
			if errs.KindOf(err) != errs.NotFound {
				return err
			}
			if err := pause(ctx, attempt); err != nil {
				return err
			}
		}
	})
	return h, errs.Wrap("meta.Create", name, err)
}

// open does what all openings share: do adds the handle, then the answer is put together.
func (s *Store) open(ctx context.Context, o *opening, do func() error) (meta.Handle, error) {
	if id := kv.ReqID(o.c.ReqID); id != (kv.ReqID{}) {
		if err := s.inFlight.enter(ctx, id); err != nil {
			return meta.Handle{}, err
		}
		defer s.inFlight.leave(id)
	}
	before, err := s.sessions.opened(o.c.Session, o.id)
	switch {
	case err != nil:
		return meta.Handle{}, err
	case before != nil:
		o.ino, o.flags, o.written = before.ino, before.flags, true
		return s.opened(ctx, o)
	}
	err = s.sessions.reserve(o.c.Session, s.opt.HandlesMax, s.opt.HandlesAllMax)
	if err != nil {
		return meta.Handle{}, err
	}
	if err := do(); err != nil {
		s.sessions.release(o.c.Session)
		return meta.Handle{}, err
	}
	h, err := s.opened(ctx, o)
	if err != nil && o.c.ReqID == (meta.Caller{}.ReqID) {
		// Nobody will come back for it.
		if left, _ := s.sessions.opened(o.c.Session, o.id); left != nil {
			_ = s.closeHandle(context.WithoutCancel(ctx), o.c, left, &closing{})
		}
	}
	return h, err
}

// openNew makes an inode and opens it; errs.Exists if there is one of that name.
func (s *Store) openNew(ctx context.Context, o *opening, dir meta.Ino, name string,
	f *meta.NewFile) error {

	var fresh, kept meta.Ino
	defer func() {
		if kept != 0 {
			s.sessions.leave(kept)
			s.letGo(ctx, kept)
		}
	}()
	defer o.change.End()
	made, replayed, err := s.apply(ctx, o.c, &o.change, func(t *txn) error {
		n, err := s.beget(ctx, t, o, dir, name, f, &fresh)
		if err != nil {
			return err
		}
		if kept == 0 {
			// As soon as it has a name somebody may take that away, or find a file that is being
			// written by nobody: its handle comes after the commit.
			if err := s.keepTurn(ctx, fresh); err != nil {
				return err
			}
			kept = fresh
		}
		if o.flags&meta.OpenWrite != 0 {
			if err := t.write(n); err != nil {
				return err
			}
			t.putInode(fresh, n)
		}
		t.kv.Answer = uint64(fresh)
		o.n = n
		o.lent = lent{ino: fresh, mode: modeFor(o.flags)}
		t.lend = &o.lent
		return nil
	})
	switch {
	case err != nil:
		return err
	case replayed:
		o.claims = true
		return s.openInode(ctx, o, meta.Ino(made))
	}
	// Whoever made it may use it, whatever its mode says.
	o.ino, o.born = fresh, true
	if o.flags&meta.OpenNameless != 0 {
		s.sessions.adopt(fresh) // it is kept until it has its handle
	}
	return s.addHandle(o)
}

// beget makes the inode of a Create.
func (s *Store) beget(ctx context.Context, t *txn, o *opening, dir meta.Ino, name string,
	f *meta.NewFile, ino *meta.Ino) (*inode, error) {

	if o.flags&meta.OpenNameless != 0 {
		return s.birthNameless(ctx, t, o, dir, f, ino)
	}
	return s.birth(ctx, t, o.c, dir, name, f, ino)
}

// openNamed opens what a name stands for.
func (s *Store) openNamed(ctx context.Context, o *opening, dir meta.Ino, name string) error {
	if isDots(name) {
		return errs.IsDir
	}
	var ino meta.Ino
	err := s.look(func(t *txn) (err error) {
		ino, err = t.lookup(&o.c.Cred, dir, name)
		return err
	})
	if err != nil {
		return err
	}
	return s.openInode(ctx, o, ino)
}

// openInode opens an inode that exists.
func (s *Store) openInode(ctx context.Context, o *opening, ino meta.Ino) error {
	o.ino = ino
	if err := s.sessions.keep(ctx, ino); err != nil {
		return err
	}
	defer s.letGo(ctx, ino)
	for attempt := 0; ; attempt++ {
		err := s.openKept(ctx, o)
		if err != errPending {
			return err
		}
		// I/O servers are waited for without the turn: closings of other files may wait for that.
		if err := s.settleTruncate(ctx, o.ino); err != nil {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// modeFor is the lease that goes with an opening.
func modeFor(flags meta.OpenFlags) meta.LeaseMode {
	if flags&meta.OpenWrite != 0 {
		return meta.LeaseWrite
	}
	return meta.LeaseRead
}

// openKept opens an inode that is kept; errPending: a truncation is to be carried out first. Who
// writes does it in turn, so that the mark of writers in the inode fits the handles.
func (s *Store) openKept(ctx context.Context, o *opening) error {
	if o.flags&(meta.OpenWrite|meta.OpenTruncate) == 0 {
		return s.openToRead(ctx, o)
	}
	// Others know from now on that data may change without a word. This comes before the turn, which
	// those may need who are asked. A handle that is claimed was open before: it recalls nothing,
	// and keeps nobody else from his claims.
	defer o.change.End()
	if !o.grace {
		if err := s.awaitCalm(ctx); err != nil {
			return err
		}
		lane, err := s.enterLane(ctx, o.ino)
		if err != nil {
			return err
		}
		defer lane.leave()
		w := o.change.Begin(s.leases, o.c.Session, []meta.Ino{o.ino}, true, s.steady())
		if err := s.await(ctx, w); err != nil {
			return err
		}
	}
	if o.flags&meta.OpenWrite != 0 {
		if err := s.sessions.enter(ctx, o.ino); err != nil {
			return err
		}
		defer s.sessions.leave(o.ino)
	}
	build := func(t *txn) error { return t.openInode(s, o) }
	_, replayed, err := s.apply(ctx, o.c, &o.change, build)
	if err != nil {
		return err
	}
	if replayed {
		if err := s.reopened(ctx, o); err != nil {
			return err
		}
	}
	if o.fenced {
		s.leases.Forget(o.ino)
	}
	return s.addHandle(o)
}

// reopened is for an opening that was committed earlier, perhaps by the last process: the inode may
// be gone by now, and somebody who found nobody writing may have noted that.
func (s *Store) reopened(ctx context.Context, o *opening) error {
	o.n = nil
	_, err := s.update(ctx, &meta.Caller{Session: o.c.Session}, func(t *txn) error {
		n, err := t.inode(o.ino)
		if err != nil {
			return err
		}
		if o.flags&meta.OpenWrite == 0 || n.has(flagWriters) {
			return errNothing
		}
		t.kv.MakesRoom = true
		if err := t.write(n); err != nil {
			return err
		}
		t.putInode(o.ino, n)
		return nil
	})
	return err
}

// openToRead commits nothing.
func (s *Store) openToRead(ctx context.Context, o *opening) error {
	if !o.grace { // the grace time, in which nobody looks at files, is there for claims
		if err := s.visit(ctx, o.c, o.ino); err != nil {
			return err
		}
		o.serial = s.borrow(o.c, o.ino)
	}
	err := s.look(func(t *txn) error { return t.openInode(s, o) })
	if err == nil {
		err = s.addHandle(o)
	}
	if err != nil && o.serial != 0 {
		s.leases.Release(o.c.Session, o.ino, o.serial)
	}
	return err
}

// addHandle adds the handle. A claim that is made twice at once finds it there.
func (s *Store) addHandle(o *opening) error {
	err := s.sessions.open(&handle{id: o.id, session: o.c.Session, ino: o.ino,
		flags: o.flags, uid: o.c.Cred.UID})
	if err == errThere {
		s.sessions.release(o.c.Session)
		return nil
	}
	return err
}

// openInode checks that an existing inode may be opened, and notes what opening it changes.
func (t *txn) openInode(s *Store, o *opening) error {
	n, err := t.inode(o.ino)
	if err != nil {
		return err
	}
	if err := t.growth(n); err != nil {
		return err
	}
	o.n, o.written = n, n.has(flagWriters)
	if err := t.mayOpen(o, n); err != nil {
		return err
	}
	changed := false
	if o.flags&meta.OpenTruncate != 0 && !o.claims {
		if n.has(flagVolume) {
			return errs.Perm
		}
		if err := t.truncate(&o.c.Cred, o.ino, n, 0, false); err != nil {
			return err
		}
		changed = true
	}
	if o.flags&meta.OpenWrite != 0 && n.has(flagVolume) {
		if changed, err = t.newWriter(o, n); err != nil {
			return err
		}
	}
	if o.flags&meta.OpenWrite != 0 {
		before := *n
		if n.has(flagSmall) {
			if err := t.openSmall(s, o, n); err != nil {
				return err
			}
		}
		if err := t.write(n); err != nil {
			return err
		}
		changed = changed || n.Flags != before.Flags || n.TruncSeq != before.TruncSeq
	}
	if !changed {
		return unlessView(t.view)
	}
	// Whoever cuts a file opens it first: that must be possible on a full disk.
	t.kv.MakesRoom = true
	t.kv.Answer = uint64(o.ino)
	t.quiet = o.grace
	t.putInode(o.ino, n)
	if _, alone := t.open.alone(o.ino, o.c.Session); o.flags&meta.OpenWrite != 0 &&
		(alone || n.has(flagSmall)) && !n.has(flagPending) {
		o.lent = lent{ino: o.ino, mode: meta.LeaseWrite}
		t.lend = &o.lent
	}
	return nil
}

// write notes that somebody writes, which with the first one reserves room in the file's quota. A
// small file has nothing at the I/O servers.
func (t *txn) write(n *inode) error {
	if !n.has(flagSmall) {
		n.Flags |= flagData
	}
	if n.has(flagWriters) {
		return nil
	}
	n.Flags |= flagWriters
	return t.promise(n)
}

// unlessView is success for who only looks, and nothing to do for who would commit.
func unlessView(view bool) error {
	if view {
		return nil
	}
	return errNothing
}

// mayOpen checks type and permissions.
func (t *txn) mayOpen(o *opening, n *inode) error {
	switch n.Type {
	case meta.Regular:
	case meta.Directory:
		return errs.IsDir
	case meta.Symlink:
		return errs.Loop
	default: // pipes and devices belong to the client's kernel
		return errs.Unsupported
	}
	if o.claims {
		return nil
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
	return nil
}

// opened puts the answer together. Only where somebody had the file open for writing before must
// its size be measured. Who writes it alone holds data back, perhaps: it was asked before the
// handle was there, and may have got the lease once more until then; now it gets none. (Of a small
// file a reader has to ask in any case.)
func (s *Store) opened(ctx context.Context, o *opening) (meta.Handle, error) {
	if o.flags&meta.OpenWrite == 0 && !o.grace && (o.n == nil || !o.n.has(flagSmall)) {
		if err := s.visit(ctx, o.c, o.ino); err != nil {
			return meta.Handle{}, err
		}
	}
	if o.n == nil || o.n.has(flagPending) {
		if err := s.settleTruncate(ctx, o.ino); err != nil {
			return meta.Handle{}, err
		}
		err := s.look(func(t *txn) (err error) {
			_, o.n, err = t.signed(o.ino)
			return err
		})
		if err != nil {
			return meta.Handle{}, err
		}
	}
	a := fileAttr(o.ino, o.n)
	switch {
	case o.lent.serial != 0:
		o.lent.on(&a)
	case o.serial != 0:
		s.settle(o.c, &a, o.n, o.serial)
	case o.c.Leases && o.flags&meta.OpenWrite != 0:
		// It was open for writing before, or truncated: what is there is read again with a lease.
		var err error
		if a, o.n, err = s.lookAt(ctx, o.c, o.ino); err != nil {
			return meta.Handle{}, err
		}
	}
	if !a.Small && (o.written || !a.Writers) {
		s.measure(ctx, &a)
	}
	if o.flags&meta.OpenWrite != 0 && o.n.has(flagVolume) {
		if err := s.grantWriter(ctx, o); err != nil {
			return meta.Handle{}, err
		}
	}
	h, err := s.sign(o.c.Session, o.id, o.flags, a, o.n)
	if err == nil && a.Small {
		h.Data, err = s.openData(o)
	}
	return h, err
}

// openData is the data of a small file, if it is that of the attributes that the answer has.
func (s *Store) openData(o *opening) (data []byte, err error) {
	if o.n.Size == 0 {
		return []byte{}, nil
	}
	err = s.look(func(t *txn) error {
		n, err := t.inode(o.ino)
		if err != nil || !n.has(flagSmall) || n.DataVersion != o.n.DataVersion {
			return err
		}
		small, err := t.small(o.ino)
		data = small.Bytes
		return err
	})
	return data, err
}

// handleOf finds a handle; errs.Closed if there is none.
func (s *Store) handleOf(session, id uint64) (*handle, error) {
	h, err := s.sessions.find(session, id)
	if err == nil && h == nil {
		err = errs.Closed
	}
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
	if n.has(flagVolume) && rights&capability.Write != 0 {
		h.Epoch = n.Epoch
	}
	for i, server := range a.Layout.Servers {
		h.Caps[i] = s.signers.Sign(&capability.Capability{
			File: uint64(a.Ino), Gen: a.Gen, Rights: rights, Session: session, Server: server,
			Layout: a.Layout.Version, Expiry: expiry.Truncate(time.Millisecond), TTL: s.opt.CapTTL,
			Life: s.servers.life(server, n.Losses), Epoch: h.Epoch,
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
			h, err := s.sessions.find(c.Session, id)
			if err != nil {
				return err
			}
			if h == nil {
				continue
			}
			a, n, err := t.signed(h.ino)
			if err != nil {
				return err
			}
			flags := h.flags
			if c.ReadOnly {
				flags &^= meta.OpenWrite
			}
			if out[i], err = s.sign(c.Session, id, flags, a, n); err != nil {
				return err
			}
		}
		return nil
	})
	return out, errs.Wrap("meta.Renew", "", err)
}
