package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// policy is layout.Policy as an inode keeps it: the pool by its number, so that one that was
// removed and another one of the same name are not taken for each other.
type policy struct {
	Unit  int64
	Width int
	Pool  uint64
}

// append adds the policy to a record: |unit u32 |width u16 |pool u64 |.
func (p *policy) append(e *wire.Enc) {
	e.U32(uint32(p.Unit))
	e.U16(uint16(p.Width))
	e.U64(p.Pool)
}

func decodePolicy(d *wire.Dec) policy {
	p := policy{Unit: int64(d.U32()), Width: int(d.U16()), Pool: d.U64()}
	if err := (&layout.Policy{Unit: p.Unit, Width: p.Width}).Validate(); err != nil && d.Err() == nil {
		d.Fail("a policy that cannot be followed")
	}
	return p
}

// over is the policy with what it leaves open filled in from another one.
func (p policy) over(below policy) policy {
	both := layout.Policy{Unit: p.Unit, Width: p.Width}.Over(
		layout.Policy{Unit: below.Unit, Width: below.Width})
	if p.Pool == 0 {
		p.Pool = below.Pool
	}
	return policy{both.Unit, both.Width, p.Pool}
}

// shown is the policy as people see it.
func (s *Store) shown(p policy) layout.Policy {
	out := layout.Policy{Unit: p.Unit, Width: p.Width}
	if known := s.pools.get(p.Pool); known != nil {
		out.Pool = known.Name
	}
	return out
}

// resolve finds the pool that a policy names.
func (s *Store) resolve(p layout.Policy) (policy, error) {
	out := policy{Unit: p.Unit, Width: p.Width}
	if err := p.Validate(); err != nil || p.Pool == "" {
		return out, err
	}
	known := s.pools.named(p.Pool)
	if known == nil {
		return out, errs.Newf(errs.Invalid, "meta.layout", "", "there is no pool %s", p.Pool)
	}
	out.Pool = known.ID
	return out, nil
}

// bounded refuses a width that there are not servers enough for, whether they are up or not.
func (s *Store) bounded(p policy) error {
	s.servers.mu.Lock()
	n, where := len(s.servers.ids), "the cluster has"
	s.servers.mu.Unlock()
	if known := s.pools.get(p.Pool); known != nil {
		n, where = len(known.Servers), "pool "+known.Name+" has"
	}
	if p.Width != layout.WidthAll && p.Width > n {
		return errs.Newf(errs.Invalid, "meta.layout", "", "a width of %d: %s %d servers", p.Width, where,
			n)
	}
	return nil
}

// stripe gives a new inode a policy, and a regular file its place: what f says, and else what the
// directory says; d is nil where there is none.
func (s *Store) stripe(t *txn, d, n *inode, f *meta.NewFile) error {
	if n.Type != meta.Regular && !n.isDir() {
		return nil
	}
	p, err := s.resolve(layout.Policy{Unit: f.Unit, Width: f.Width, Pool: f.Pool})
	if err == nil && n.isDir() {
		err = s.bounded(p)
	}
	if err != nil {
		return err
	}
	if d != nil {
		p = p.over(d.Policy)
	}
	n.Policy = p
	if n.isDir() {
		return nil
	}
	n.Layout, err = s.place(&p, f.Width != 0, n.Size)
	n.Losses = t.losses
	return err
}

// GetLayout implements meta.Layouts.
func (s *Store) GetLayout(_ context.Context, _ meta.Caller, ino meta.Ino) (meta.Placed, error) {
	var out meta.Placed
	err := s.look(func(t *txn) error {
		n, err := t.inode(ino)
		if err == nil {
			err = striped(n)
		}
		if err == nil {
			out = meta.Placed{Policy: s.shown(n.Policy), Layout: n.Layout}
		}
		return err
	})
	return out, errs.Wrap("meta.GetLayout", "", err)
}

// striped refuses what has no layout to give to others, or of its own.
func striped(n *inode) error {
	if n.Type != meta.Regular && !n.isDir() {
		return errs.Newf(errs.Invalid, "meta.layout", "", "only files and directories have layouts")
	}
	return nil
}

// SetLayout implements meta.Layouts.
func (s *Store) SetLayout(ctx context.Context, c meta.Caller, ino meta.Ino,
	p layout.Policy) error {

	err := checkCaller(&c)
	if err == nil {
		err = p.Validate()
	}
	if err == nil {
		err = s.relay(ctx, &c, ino, func(t *txn, n *inode) error {
			if err := striped(n); err != nil {
				return err
			}
			if err := checkXattr(&c.Cred, n, layout.AttrAll, true); err != nil {
				return err
			}
			return s.setPolicy(t, &c, ino, n, p)
		})
	}
	return errs.Wrap("meta.SetLayout", "", err)
}

// busyTries is how often a file is looked at again that somebody has open, or is about to open:
// some have closed it, and their closing is on its way. With the pauses between it is about half
// a second.
const busyTries = 100

// relay changes the policy of an inode.
func (s *Store) relay(ctx context.Context, c *meta.Caller, ino meta.Ino,
	change func(t *txn, n *inode) error) error {

	for try := 0; ; try++ {
		_, err := s.update(ctx, c, func(t *txn) error {
			n, err := t.inode(ino)
			if err != nil {
				return err
			}
			return change(t, n)
		})
		if errs.KindOf(err) != errs.Busy || try == busyTries {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// setPolicy gives an inode a policy, and a file another place by it. A policy that it has already
// is no change, whatever was written to the file.
func (s *Store) setPolicy(t *txn, c *meta.Caller, ino meta.Ino, n *inode, to layout.Policy) error {
	p, err := s.resolve(to)
	if err == nil && p == n.Policy {
		return errNothing
	}
	if err == nil {
		err = s.bounded(p)
	}
	if err == nil && n.Type == meta.Regular {
		if n.Size > 0 || !unplaced(n) {
			return errs.Newf(errs.NotEmpty, "meta.layout", "", "the file has data, or had some: only a new "+
				"file is striped anew")
		}
		err = s.placeAnew(t, c, ino, n, p)
	}
	if err != nil {
		return err
	}
	t.keepPolicy(ino, n, p)
	return nil
}

func (t *txn) keepPolicy(ino meta.Ino, n *inode, p policy) {
	n.Policy = p
	n.Ctime = t.now
	t.putInode(ino, n)
}

// unplaced tells whether no I/O server can have anything of a file.
func unplaced(n *inode) bool { return !n.has(flagData | flagPending | flagVolume) }

// placeAnew gives a file another layout. Whoever has the file open knows the one that it has, and
// would look for data there, or write it: so it must be nobody but the caller's client, which asks
// for the new one, and nobody opens it until this is committed. A writer that died without a word
// may write by its capabilities for a while: the next one that opens the file keeps it off.
func (s *Store) placeAnew(t *txn, c *meta.Caller, ino meta.Ino, n *inode, p policy) error {
	if err := t.open.alter(ino, c.Session); err != nil {
		return err
	}
	t.drops = append(t.drops, dropped{ino: ino, stays: true})
	if own, _, _ := t.open.writer(ino, c.Session); n.has(flagWriters) && !own {
		return errs.Newf(errs.Busy, "meta.layout", "", "a client that wrote to it has not closed it")
	}
	l, err := s.place(&p, false, 0)
	if err != nil {
		return err
	}
	l.Version = n.Layout.Version + 1
	n.Layout = l
	return nil
}

// alter begins a change of an inode that nobody else may have open: until dropped is called nobody
// opens it. errs.Busy: somebody has it open, or is about to. It looks at all handles of the
// session, but only where the file is open.
func (x *sessions) alter(ino meta.Ino, session uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unsettled > 0 {
		return errs.Newf(errs.Again, "meta.layout", "", "some clients have not claimed their files yet")
	}
	own := 0
	o := x.inodes[ino]
	if a := x.byID[session]; o != nil && o.handles > 0 && a != nil {
		for _, h := range a.open {
			if h.ino == ino {
				own++
			}
		}
	}
	if o != nil && (o.orphan || o.refs > own) {
		return errs.Newf(errs.Busy, "meta.layout", "", "another client has it open, or it has no name")
	}
	x.dieLocked(x.openLocked(ino))
	return nil
}

// getPolicy is the value of an attribute: of a directory its policy, of a file what came of it.
func (s *Store) getPolicy(n *inode, name string) ([]byte, error) {
	if striped(n) != nil {
		return nil, errs.NoData
	}
	p := s.shown(n.Policy)
	if n.Type == meta.Regular && name != layout.AttrAll {
		p.Unit, p.Width = n.Layout.Unit, n.Layout.Width()
	}
	return []byte(p.Get(name)), nil
}

// policyNames lists the attributes of an inode's policy.
func (s *Store) policyNames(n *inode) []string {
	p := s.shown(n.Policy)
	switch {
	case n.isDir():
		return p.Names()
	case n.Type == meta.Regular && !p.IsZero():
		return []string{layout.AttrAll}
	}
	return nil
}

// setPolicyXattr is SetXattr of a policy's attribute.
func (s *Store) setPolicyXattr(t *txn, c *meta.Caller, ino meta.Ino, n *inode, name, value string,
	create, replace bool) error {

	p := s.shown(n.Policy)
	switch set := p.IsSet(name); {
	case create && set:
		return errs.Exists
	case replace && !set:
		return errs.NoData
	}
	if err := p.Set(name, value); err != nil {
		return err
	}
	return s.followXattr(t, c, ino, n, name, p)
}

// unsetPolicyXattr is RemoveXattr of it.
func (s *Store) unsetPolicyXattr(t *txn, c *meta.Caller, ino meta.Ino, n *inode,
	name string) error {

	p := s.shown(n.Policy)
	if striped(n) != nil || !p.IsSet(name) {
		return errs.NoData
	}
	if err := p.Set(name, layout.Default); err != nil {
		return err
	}
	return s.followXattr(t, c, ino, n, name, p)
}

// followXattr sets a policy. All of it, of a file that is placed for good, is what programs set
// that have copied the file: it is noted.
func (s *Store) followXattr(t *txn, c *meta.Caller, ino meta.Ino, n *inode, name string,
	p layout.Policy) error {

	if n.Type != meta.Regular || name != layout.AttrAll {
		return s.setPolicy(t, c, ino, n, p)
	}
	noted, err := s.resolve(p)
	if err != nil { // the pool of another cluster
		p.Pool = ""
		if noted, err = s.resolve(p); err != nil {
			return err
		}
	}
	if noted == n.Policy {
		return errNothing
	}
	if unplaced(n) && s.bounded(noted) == nil {
		if err := s.placeAnew(t, c, ino, n, noted); err != nil {
			return err
		}
	}
	t.keepPolicy(ino, n, noted)
	return nil
}
