package store

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// What may go from one tree into another, where a tree is what has one quota or none.
//
// A file takes its usage along. If it has another name it cannot be in both trees, and a directory
// would have to take along all that is in it, in one transaction: both are refused, and programs
// copy. An empty directory may go.
//
// While a tree is being counted part of it does not carry its id yet, and looks as if it lay in no
// tree. What goes from there into a directory that does belongs to the tree for certain, or comes
// from outside and is welcome. It gets the id at once, for the count may have been there: files,
// and directories too, whose entries are then to be counted. That also holds for what did not carry
// the id in a directory that did. Out of the part that carries it the rules hold.

// tree is the quota that an id stands for; 0, nil for one that is gone.
func (t *txn) tree(id uint64) (uint64, *quota, error) {
	q, err := t.quota(id)
	if q == nil || err != nil {
		return 0, nil, err
	}
	return id, q, nil
}

var errOtherTree = errs.Newf(errs.CrossDevice, "meta.quota", "",
	"it would go to a tree with another quota")

// moveTrees gives what a rename moves to its new trees. Within a directory that matters, too: who
// takes the place of another entry takes its cookie, which the count may have passed.
func (t *txn) moveTrees(from, to *place, flags meta.RenameFlags) error {
	if from.dir == to.dir && from.d.Quota == 0 {
		return nil
	}
	if err := t.moveTree(from, to.d); err != nil {
		return err
	}
	if flags&meta.RenameExchange != 0 {
		return t.moveTree(to, from.d)
	}
	return nil
}

// moveTree gives what has a name to the tree of the directory that it goes to.
func (t *txn) moveTree(p *place, to *inode) error {
	from, _, err := t.tree(p.d.Quota)
	if err != nil {
		return err
	}
	into, q, err := t.tree(to.Quota)
	if err != nil {
		return err
	}
	own, _, err := t.tree(p.n.Quota)
	switch {
	case err != nil:
	case p.n.isDir():
		err = t.moveDirTree(p, to, own, from, into, q)
	case own == into:
	case own == 0 && q.Counting:
		p.n.Quota = into
	case from == into: // it has, or had, a name in its own tree
	case p.n.Nlink > 1:
		err = errOtherTree
	default:
		p.n.Quota = into
	}
	return err
}

// moveDirTree is moveTree for directories. One that has another quota's tree below it, or is one's
// top, stays out of all trees, also of those that are not counted yet: trees do not nest.
func (t *txn) moveDirTree(p *place, to *inode, own, from, into uint64, q *quota) error {
	if own == into && from == into && into != 0 {
		return nil // it holds no top, as it lies in a tree itself
	}
	all, err := t.quotas()
	if err != nil || own == into && from == into && !counting(all) {
		return err
	}
	holds, err := t.holds(p.e.Ino, all)
	if err != nil {
		return err
	}
	if holds {
		return t.moveTops(to, into, all)
	}
	if own == into {
		return nil
	}
	some, err := t.first(entriesOf(p.e.Ino))
	if err != nil {
		return err
	}
	switch {
	case some == nil:
		t.demandNone(entriesOf(p.e.Ino))
	case own == 0 && q.Counting:
		t.put(todoKey(into, p.e.Ino), mark())
	default:
		return errOtherTree
	}
	p.n.Quota = into
	return nil
}

// counting tells whether a tree is being counted.
func counting(all map[meta.Ino]*quota) bool {
	for _, q := range all {
		if q.Counting {
			return true
		}
	}
	return false
}

// moveTops looks at a directory that holds tops of trees.
func (t *txn) moveTops(to *inode, into uint64, all map[meta.Ino]*quota) error {
	if into != 0 {
		return errOtherTree
	}
	within, err := t.within(to.Parent, all)
	if err == nil && within {
		err = errOtherTree
	}
	return err
}

// linkTree refuses a second name in another tree than the inode's.
func (t *txn) linkTree(n, d *inode) error {
	own, _, err := t.tree(n.Quota)
	if err != nil {
		return err
	}
	into, q, err := t.tree(d.Quota)
	switch {
	case err != nil || own == into:
		return err
	case own == 0 && q.Counting:
		n.Quota = into
		return nil
	}
	return errOtherTree
}
