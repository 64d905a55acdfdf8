package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
)

// Hold implements meta.Deferrals.
func (s *Store) Hold(ctx context.Context, c meta.Caller, dir meta.Ino, files []meta.Ino) (
	[]meta.Settled, error) {

	out := make([]meta.Settled, 1+len(files))
	err := s.sessions.touch(c.Session, s.steady())
	if err == nil && len(files) > meta.HoldMax {
		err = errs.Newf(errs.Invalid, "", "", "%d files", len(files))
	}
	if err == nil && c.Leases {
		out[0], err = s.holdDir(ctx, &c, dir)
	}
	if err != nil {
		return nil, errs.Wrap("meta.Hold", "", err)
	}
	if out[0].Lease == meta.LeaseSole {
		s.holdFiles(&c, files, out[1:])
	}
	return out, nil
}

// holdDir lends a directory.
func (s *Store) holdDir(ctx context.Context, c *meta.Caller, dir meta.Ino) (
	got meta.Settled, err error) {

	if got.Lease, got.Serial = s.leases.Held(c.Session, dir); got.Lease == meta.LeaseSole {
		return got, nil
	}
	got = meta.Settled{}
	if s.leases.Disputed(dir, s.steady()) {
		return got, nil
	}
	var ch lease.Change
	defer ch.End()
	loan := lent{ino: dir, mode: meta.LeaseSole}
	_, _, err = s.apply(ctx, c, &ch, func(t *txn) error {
		n, err := t.dir(dir, &meta.Cred{}, 0)
		if err != nil {
			return err
		}
		if !n.simple() {
			return errNothing
		}
		// The mark is written even if it is there: what is lent goes with a commit.
		n.Flags |= flagSole
		t.kv.MakesRoom = true
		t.putInode(dir, n)
		t.change(dir)
		t.lend = &loan
		return nil
	})
	if err == nil && loan.serial != 0 {
		got.Lease, got.Serial = loan.mode, loan.serial
	}
	return got, err
}

// simple tells whether what is made in a directory inherits nothing but its owner.
func (n *inode) simple() bool {
	return n.isDir() && n.Mode&setGID == 0 && n.Default == "" && n.Quota == 0 &&
		n.Hints == (hint.Hints{}) && n.Policy == (policy{})
}

// holdFiles lends files that nobody else has a lease on, or has open. Whoever opens one keeps it
// first and asks for its lease then: so either he is seen here, or he finds that it is lent.
func (s *Store) holdFiles(c *meta.Caller, files []meta.Ino, out []meta.Settled) {
	for i, was := range s.leases.Raise(c.Session, files) {
		switch {
		case was == meta.LeaseNone:
		case !s.sessions.kept(files[i]):
			out[i].Lease = meta.LeaseWrite
		case was == meta.LeaseRead:
			s.leases.Downgrade(c.Session, files[i])
		}
	}
}

// kept tells whether an inode is open, or about to be.
func (x *sessions) kept(ino meta.Ino) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	return o != nil && (o.refs > 0 || o.dying > 0)
}
