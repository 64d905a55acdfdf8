package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Files without a name (O_TMPFILE of open(2)). Such a file is an orphan from its birth: 'U' lists
// it, its handles keep it, and it is destroyed with the last one, whoever closes that: its owner,
// the end of its session, or a restart after which nobody claims it. What tells it from one whose
// name was taken is flagNameless: Link may give it a name. It stays an orphan in memory then:
// whoever lets go of it last finds that it has links.

// birthNameless is birth without a name. The directory is not changed; it says what the file
// inherits, and the caller must be allowed to make files there.
func (s *Store) birthNameless(ctx context.Context, t *txn, o *opening, dir meta.Ino,
	f *meta.NewFile, ino *meta.Ino) (*inode, error) {

	cred := o.c.Cred
	if f.Checked {
		cred = meta.Cred{}
	}
	d, err := t.dir(dir, &cred, maySeek|mayWrite)
	if err != nil {
		return nil, err
	}
	if err := s.number(ctx, ino); err != nil {
		return nil, err
	}
	n, err := s.newInode(t, d, f)
	if err != nil {
		return nil, err
	}
	inherit(&o.c.Cred, d, n, f)
	n.born(o.c)
	n.Nlink = 0
	n.homes.only(dir)
	if o.flags&meta.OpenExclusive == 0 {
		n.Flags |= flagNameless
	}
	t.putInode(*ino, n)
	t.put(orphanKey(*ino), mark())
	t.add([]byte(keyFiles), 1)
	return n, nil
}

// firstName makes an orphan an inode that is about to get a name. It has none in any tree: so it
// goes to that of the directory, with what it takes.
func (t *txn) firstName(ino meta.Ino, n, d *inode) error {
	into, _, err := t.tree(d.Quota)
	if err != nil {
		return err
	}
	n.Flags &^= flagNameless
	n.Quota = into
	t.remove(orphanKey(ino))
	return nil
}

// checkCreate checks the arguments of Create.
func checkCreate(o *opening, name string, f *meta.NewFile) error {
	if o.flags&meta.OpenNameless == 0 {
		return checkMake(o.c, name, f)
	}
	if name != "" || o.flags&meta.OpenTruncate != 0 {
		return errs.Newf(errs.Invalid, "meta.Create", "", "a nameless file with a name, or truncated")
	}
	return checkMake(o.c, "nameless", f)
}
