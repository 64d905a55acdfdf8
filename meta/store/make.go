package store

import (
	"context"
	"math/rand/v2"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Make implements meta.Names. A repetition is answered with the inode that was made the first time,
// whatever its name stands for now.
func (s *Store) Make(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile) (meta.Attr, error) {

	var a meta.Attr
	var ino meta.Ino
	err := checkMake(&c, name, &f)
	if err == nil {
		err = s.visitNames(ctx, &c, dir)
	}
	if err == nil {
		var made uint64
		var replayed bool
		var got lent
		made, replayed, err = s.answer(ctx, &c, func(t *txn) error {
			n, err := s.birth(ctx, t, &c, dir, name, &f, &ino)
			if err != nil {
				return err
			}
			t.kv.Answer = uint64(ino)
			got = lent{ino: ino, mode: meta.LeaseRead}
			if n.has(flagSole) {
				got.mode = meta.LeaseSole
			}
			t.lend = &got
			a, err = t.attr(ino, n)
			if n.isDir() {
				a.Nlink = 2
			}
			return err
		})
		got.on(&a)
		if replayed && err == nil {
			a, err = s.madeBefore(ctx, &c, meta.Ino(made), &f)
		}
	}
	if err != nil {
		return meta.Attr{}, errs.Wrap("meta.Make", name, err)
	}
	return a, nil
}

// madeBefore is the answer of a Make that was done earlier. What somebody has removed since is
// shown without links: the making succeeded nevertheless.
func (s *Store) madeBefore(ctx context.Context, c *meta.Caller, ino meta.Ino, f *meta.NewFile) (
	a meta.Attr, err error) {

	err = s.look(func(t *txn) error {
		a, err = t.attrOf(ino)
		if errs.KindOf(err) != errs.NotFound {
			return err
		}
		n, err := s.newInode(t, nil, f)
		if err != nil {
			return err
		}
		n.UID, n.GID, n.Nlink = c.Cred.UID, c.Cred.GID, 0
		a = fileAttr(ino, n)
		return nil
	})
	if err == nil {
		s.measureAttr(ctx, &a)
	}
	return a, err
}

func checkMake(c *meta.Caller, name string, f *meta.NewFile) error {
	if err := checkCaller(c); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	if f.Mode&^modeMask != 0 {
		return errs.Newf(errs.Invalid, "meta.mode", "", "mode %#o has bits beyond %#o",
			f.Mode, modeMask)
	}
	if f.Umask&^permMask != 0 {
		return errs.Newf(errs.Invalid, "meta.mode", "", "mask %#o has bits beyond %#o",
			f.Umask, permMask)
	}
	switch f.Type {
	case meta.Regular, meta.Directory, meta.Fifo, meta.Socket:
	case meta.Symlink:
		if f.Target == "" {
			return errs.NotFound
		}
		if len(f.Target) > meta.SymlinkMax {
			return errs.NameTooLong
		}
	case meta.CharDevice, meta.BlockDevice:
		whiteout := f.Type == meta.CharDevice && f.Rdev == 0 // means nothing to anybody but overlays
		if !isRoot(&c.Cred) && !f.Checked && !whiteout {
			return errs.Perm
		}
	default:
		return errs.Newf(errs.Invalid, "meta.type", "", "unknown type %d", f.Type)
	}
	return nil
}

// birth makes an inode with a name. *ino holds its number from one attempt to the next; the
// number is also the cookie of the entry, which is why it must be fresh.
func (s *Store) birth(ctx context.Context, t *txn, c *meta.Caller, dir meta.Ino, name string,
	f *meta.NewFile, ino *meta.Ino) (*inode, error) {

	// As mkdir(2) and open(2) do: what is there already is reported before missing rights to
	// write.
	cred := &c.Cred
	if f.Checked {
		cred = &meta.Cred{}
	}
	d, err := t.dir(dir, cred, maySeek)
	if err != nil {
		return nil, err
	}
	old, err := t.entry(dir, name)
	if err != nil {
		return nil, err
	}
	if old != nil || isDots(name) {
		return nil, errs.Exists
	}
	if !allowed(cred, d, mayWrite) {
		return nil, errs.Access
	}
	if err := s.number(ctx, ino); err != nil {
		return nil, err
	}
	n, err := s.newInode(t, d, f)
	if err != nil {
		return nil, err
	}
	inherit(&c.Cred, d, n, f)
	n.born(c)
	n.single(c, f)
	t.bear(dir, name, *ino, n)
	return n, nil
}

// bear writes a new inode down with its name.
func (t *txn) bear(dir meta.Ino, name string, ino meta.Ino, n *inode) {
	if n.isDir() {
		n.Parent = dir
		t.count(dir, 0, 1)
		t.touch(ino)
	} else {
		n.homes.only(dir)
	}
	t.putInode(ino, n)
	t.add([]byte(keyFiles), 1)
	t.enter(dir, name, &entry{Type: n.Type, Ino: ino, Cookie: uint64(ino)}, true)
}

// number takes a number unless an earlier attempt did.
func (s *Store) number(ctx context.Context, ino *meta.Ino) error {
	if *ino != 0 {
		return nil
	}
	v, err := s.numbers.take(ctx)
	*ino = meta.Ino(v)
	return err
}

// newGen chooses the first generation of a file at random. Should a number be given out twice after
// all, because the service has lost its history, then the objects of the two files still have
// different names. Half of the numbers are left for later generations.
func newGen() uint32 { return 1 + rand.Uint32N(1<<31) }

// newInode is an inode without owner. d is the directory that says how it is striped; nil: none.
func (s *Store) newInode(t *txn, d *inode, f *meta.NewFile) (*inode, error) {
	return s.newSized(t, d, f, 0)
}

// newSized is newInode for a file whose length is known before.
func (s *Store) newSized(t *txn, d *inode, f *meta.NewFile, size int64) (*inode, error) {
	n := &inode{Size: size,
		Type: f.Type, Mode: f.Mode, Nlink: 1, Gen: newGen(),
		Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now,
	}
	switch f.Type {
	case meta.CharDevice, meta.BlockDevice:
		n.Rdev = f.Rdev
	case meta.Symlink:
		n.Target = f.Target
		n.Mode = 0o777
	}
	return n, s.stripe(t, d, n, f)
}
