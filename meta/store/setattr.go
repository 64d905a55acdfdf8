package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

const setAll = meta.SetCtimeNow<<1 - 1

// SetAttr implements meta.Attrs.
//
// A new size is committed with the truncation written down as pending, carried out at the I/O
// servers, and then marked as done. Whoever needs the file's data or exact size in between
// carries it out himself first: so does the next truncation, for a file that is cut and then
// extended must show zeros where the cut was.
func (s *Store) SetAttr(ctx context.Context, c meta.Caller, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {

	err := checkSet(&c, mask, &a)
	for attempt := 0; err == nil; attempt++ {
		_, err = s.update(ctx, &c, func(t *txn) error { return t.setattr(&c, ino, mask, &a) })
		if err != errPending {
			break
		}
		if err = s.settleTruncate(ctx, ino); err == nil {
			err = pause(ctx, attempt)
		}
	}
	if err == nil && mask&(meta.SetMtime|meta.SetMtimeNow) != 0 {
		s.sessions.timed(ino, s.steady())
	}
	if err == nil && mask&meta.SetSize != 0 {
		err = s.settleTruncate(ctx, ino)
	}
	if err == nil {
		a, err = s.tell(ctx, &c, ino)
	}
	if err != nil {
		return meta.Attr{}, errs.Wrap("meta.SetAttr", "", err)
	}
	return a, nil
}

func checkSet(c *meta.Caller, mask meta.SetMask, a *meta.Attr) error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "meta.set", "", format, args...)
	}
	switch {
	case mask&^setAll != 0:
		return bad("unknown fields %#x", mask&^setAll)
	case mask&meta.SetMode != 0 && a.Mode&^modeMask != 0:
		return bad("mode %#o has bits beyond %#o", a.Mode, modeMask)
	case mask&meta.SetSize != 0 && a.Size < 0:
		return bad("size %d", a.Size)
	case mask&meta.SetSize != 0 && a.Size > layout.FileSizeMax:
		return errs.TooBig
	}
	return checkCaller(c)
}

func (t *txn) setattr(c *meta.Caller, ino meta.Ino, mask meta.SetMask, a *meta.Attr) error {
	n, err := t.inode(ino)
	if err != nil {
		return err
	}
	if mask == 0 {
		return errNothing
	}
	if mask&meta.SetSize != 0 {
		t.kv.MakesRoom = a.Size < n.Size
		if err := t.setSize(c, ino, n, a.Size, mask&meta.SetSpilled != 0); err != nil {
			return err
		}
	}
	if mask&(meta.SetUID|meta.SetGID) != 0 {
		if err := t.setOwner(&c.Cred, ino, n, mask, a); err != nil {
			return err
		}
	}
	if mask&meta.SetMode != 0 {
		if err := setMode(&c.Cred, n, a.Mode); err != nil {
			return err
		}
	}
	if mask&meta.SetCtimeNow != 0 && !isOwner(&c.Cred, n) {
		return errs.Perm
	}
	if err := t.setTimes(&c.Cred, ino, n, mask, a); err != nil {
		return err
	}
	n.Ctime = t.now
	t.putInode(ino, n)
	return nil
}

func (t *txn) setSize(c *meta.Caller, ino meta.Ino, n *inode, size int64, spilled bool) error {
	switch {
	case n.isDir():
		return errs.IsDir
	case n.Type != meta.Regular:
		return errs.Invalid
	case n.has(flagVolume):
		return errs.Perm
	}
	if err := t.mayChange(c, ino, n); err != nil {
		return err
	}
	return t.truncate(&c.Cred, ino, n, size, spilled)
}

// mayChange checks the right to change a file's data.
func (t *txn) mayChange(c *meta.Caller, ino meta.Ino, n *inode) error {
	if allowed(&c.Cred, n, mayWrite) {
		return nil
	}
	// The same user of the same client has the file open for writing: then ftruncate(2) is allowed
	// whatever the mode says by now.
	if t.open.writes(ino, c.Session, c.Cred.UID) {
		return nil
	}
	return errs.Access
}

// truncate writes a truncation down. An empty file that nobody writes has nothing to cut, unless
// space may be reserved for it. spilled: I/O servers may have some of a small file.
func (t *txn) truncate(c *meta.Cred, ino meta.Ino, n *inode, size int64, spilled bool) error {
	if n.has(flagPending) {
		return errPending
	}
	spilled = spilled || t.leases != nil && t.leases.Lapsed(ino)
	if n.has(flagSmall) && n.Size == 0 && size > meta.SmallMax && !spilled {
		n.Flags &^= flagSmall // nothing has to be moved out
		t.remove(smallKey(ino))
	}
	if n.has(flagSmall) {
		if err := t.cutSmall(ino, n, size, spilled); err != nil {
			return err
		}
		return t.truncated(c, ino, n)
	}
	if size > n.Size {
		n.Flags |= flagHoles
	}
	if size != 0 || n.Size != 0 || n.has(flagWriters|flagHoles) {
		n.TruncSeq++
		n.DataVersion++
		n.Size, n.Pending, n.Reserved = size, size, 0
		n.Flags |= flagPending | flagData
		t.put(pendingKey(ino), mark())
	}
	if size == 0 {
		n.Losses = t.losses // nothing is left that could have been lost
		n.Flags &^= flagHoles
	}
	return t.truncated(c, ino, n)
}

// truncated is what every truncation does.
func (t *txn) truncated(c *meta.Cred, ino meta.Ino, n *inode) error {
	n.Mtime, n.Ctime = t.now, t.now
	if !isRoot(c) {
		dropPrivileges(n)
	}
	return t.dropCapabilities(ino, n)
}

// setOwner is chown(2), which takes privileges from all but directories. A set-group-id bit that
// does not mean execution stays if the caller could set it.
func (t *txn) setOwner(c *meta.Cred, ino meta.Ino, n *inode, mask meta.SetMask,
	a *meta.Attr) error {

	uid, gid := n.UID, n.GID
	if mask&meta.SetUID != 0 {
		uid = a.UID
	}
	if mask&meta.SetGID != 0 {
		gid = a.GID
	}
	if !isRoot(c) {
		if c.UID != n.UID || uid != n.UID || gid != n.GID && !inGroup(c, gid) {
			return errs.Perm
		}
	}
	if !isRoot(c) && !inGroup(c, n.GID) && !n.isDir() {
		n.Mode &^= setGID
	}
	n.UID, n.GID = uid, gid
	dropPrivileges(n)
	return t.dropCapabilities(ino, n)
}

func setMode(c *meta.Cred, n *inode, mode uint32) error {
	if !isOwner(c, n) {
		return errs.Perm
	}
	if n.Type == meta.Symlink {
		return errs.Unsupported
	}
	if !isRoot(c) && !inGroup(c, n.GID) {
		mode &^= setGID
	}
	n.Mode, n.ACL = mode, n.ACL.WithMode(mode)
	return nil
}

func (t *txn) setTimes(c *meta.Cred, ino meta.Ino, n *inode, mask meta.SetMask,
	a *meta.Attr) error {

	const given, now = meta.SetAtime | meta.SetMtime, meta.SetAtimeNow | meta.SetMtimeNow
	switch {
	case mask&(given|now) == 0:
		return nil
	case isOwner(c, n):
	case mask&given != 0:
		return errs.Perm
	case !allowed(c, n, mayWrite):
		return errs.Access
	}
	switch {
	case mask&meta.SetAtimeNow != 0:
		n.Atime = t.now
	case mask&meta.SetAtime != 0:
		n.Atime = a.Atime
	}
	switch {
	case mask&meta.SetMtimeNow != 0:
		n.Mtime = t.now
	case mask&meta.SetMtime != 0:
		n.Mtime = a.Mtime
	default:
		return nil
	}
	if n.isDir() {
		t.put(timesKey(ino), (&times{Mtime: n.Mtime, Ctime: t.now}).encode())
	}
	return nil
}

// settleTruncate carries out the truncation that is pending, if there is one. Several may try at
// the same time: I/O servers do it once, and the one that marks it as done first ends it for
// all. One that comes so late that the next truncation was there before looks for that one.
func (s *Store) settleTruncate(ctx context.Context, ino meta.Ino) error {
	var late error
	for last := uint64(0); ; {
		var n *inode
		err := s.look(func(t *txn) (err error) {
			n, err = t.inode(ino)
			return err
		})
		switch {
		case err != nil || !n.has(flagPending):
			return err
		case late != nil && n.TruncSeq == last:
			return late // servers know of one that the service does not
		}
		// A power cut must not bring back an inode that knows less than the I/O servers.
		if err := s.kv.Sync(ctx); err != nil {
			return err
		}
		last, late = n.TruncSeq, s.opt.Objects.Truncate(ctx, n.ref(ino), n.Pending)
		if errs.KindOf(late) == errs.Stale {
			continue
		}
		if late != nil {
			return late
		}
		return s.truncated(ctx, ino, last)
	}
}

// truncated notes that a truncation was carried out.
func (s *Store) truncated(ctx context.Context, ino meta.Ino, seq uint64) error {
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if !n.has(flagPending) || n.TruncSeq != seq {
			return errNothing
		}
		n.Flags &^= flagPending
		n.Pending = 0
		t.kv.MakesRoom = true // what was begun is finished
		t.quiet = true
		t.putInode(ino, n)
		t.remove(pendingKey(ino))
		return nil
	})
	return err
}
