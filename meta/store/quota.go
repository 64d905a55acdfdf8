package store

import (
	"bytes"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// Quotas of trees.
//
// Each inode carries the id of the quota that it counts in, 0 for none, which it gets from its
// directory. 'M' id keeps the limits, 'K' id the two counters of usage. An id whose 'M' is gone
// stands for no quota: removing a quota touches no inode, and ids are never given out again.
//
// The one rule: 'K' id is at every commit the sum of what the inodes with that id take. It holds
// because there are two ways only to write an inode, putInode and destroy, which note what it took
// before and takes after, and because every transaction ends with settleQuotas, which turns the
// differences into adds. Adds commute: those who make files in one tree do not conflict with each
// other. A limit is the add's bound (kv.Add.Max), which the engine checks as it commits, so that it
// is exact whoever else adds at the same moment.
//
// How a tree that had no quota gets one is told in countquota.go, what may move between trees in
// movequota.go, and how writers stay below a limit although data does not pass the service in
// grow.go.

// quota is what 'M' keeps: |ver |dir u64 |bytes i64 |inodes i64 |counting u8 |.
type quota struct {
	Dir      meta.Ino
	Limit    meta.Usage
	Counting bool
}

func (q *quota) encode() []byte {
	e := wire.Enc{B: make([]byte, 0, 26)}
	e.U8(recordVersion)
	e.U64(uint64(q.Dir))
	e.I64(q.Limit.Bytes)
	e.I64(q.Limit.Inodes)
	e.Bool(q.Counting)
	return e.B
}

func (q *quota) decode(d *wire.Dec) {
	q.Dir = meta.Ino(d.U64())
	q.Limit.Bytes, q.Limit.Inodes = d.Size(), d.Size()
	q.Counting = d.Bool()
}

// charge is what an inode takes of a quota.
type charge struct {
	quota uint64
	meta.Usage
}

// charge is what the inode takes as it is now. A file that somebody writes takes what was promised
// to its writers, if that is more than its length.
func (n *inode) charge() charge {
	if n.Quota == 0 {
		return charge{}
	}
	c := charge{n.Quota, meta.Usage{Inodes: 1}}
	if n.Type == meta.Regular {
		c.Bytes = max(n.Size, n.Reserved)
	}
	return c
}

// account is what a transaction does to the charge of one inode.
type account struct {
	ino      meta.Ino
	isDir    bool
	was, now charge
}

// account notes what an inode takes from now on; the last word on an inode counts.
func (t *txn) account(ino meta.Ino, n *inode, now charge) {
	for i := range t.accounts {
		if t.accounts[i].ino == ino {
			t.accounts[i].now = now
			return
		}
	}
	if n.was != now {
		t.accounts = append(t.accounts, account{ino, n.isDir(), n.was, now})
	}
}

// quota reads a quota, as this transaction leaves it; nil if there is none of that id.
func (t *txn) quota(id uint64) (*quota, error) {
	if id == 0 {
		return nil, nil
	}
	key := quotaKey(id)
	value, err := t.read(key)
	if err != nil {
		return nil, err
	}
	for i := range t.kv.Puts {
		if bytes.Equal(t.kv.Puts[i].Key, key) {
			value = t.kv.Puts[i].Value
		}
	}
	if value == nil {
		return nil, nil
	}
	q := &quota{}
	return q, parse(key, value, q)
}

// used reads what a quota counts. The transaction does not depend on it.
func (t *txn) used(id uint64) (u meta.Usage, err error) {
	bytes, err := t.peek(usageKey(id, usageBytes))
	if err != nil {
		return u, err
	}
	inodes, err := t.peek(usageKey(id, usageInodes))
	return meta.Usage{Bytes: counter(bytes), Inodes: counter(inodes)}, err
}

// quotaOps bounds what settleQuotas adds to a transaction for one quota: a check of its record, and
// two adds, or the removal of the record and of both counters.
const quotaOps = 4

// settleQuotas ends a transaction: it adds what its inodes take more or less to their quotas, and
// refuses it with errs.Quota if that is beyond a limit.
func (t *txn) settleQuotas() error {
	for _, c := range t.charges() {
		if err := t.addUsage(c); err != nil {
			return err
		}
	}
	return nil
}

// charges is what the inodes take more or less, by quota.
func (t *txn) charges() []charge {
	var sums []charge
	add := func(c charge, sign int64) {
		for i := range sums {
			if sums[i].quota == c.quota {
				sums[i].Bytes += sign * c.Bytes
				sums[i].Inodes += sign * c.Inodes
				return
			}
		}
		sums = append(sums, charge{c.quota, meta.Usage{Bytes: sign * c.Bytes, Inodes: sign * c.Inodes}})
	}
	for i := range t.accounts {
		add(t.accounts[i].was, -1)
		add(t.accounts[i].now, 1)
	}
	return slices.DeleteFunc(sums, func(c charge) bool {
		return c.quota == 0 || c.Usage == (meta.Usage{})
	})
}

// addUsage adds to the counters of a quota, or ends it with its directory.
//
// Transactions that may use the last room of a disk (kv.Txn.MakesRoom) are not held to limits
// either: they remove something, or tell what was written already. Others are, and so is what is
// promised to writers.
func (t *txn) addUsage(c charge) error {
	q, err := t.quota(c.quota)
	if q == nil || err != nil {
		return err
	}
	for _, a := range t.accounts {
		if a.ino == q.Dir && a.isDir && a.now.quota == 0 {
			t.endQuota(c.quota)
			return nil
		}
	}
	held := t.promised || !t.kv.MakesRoom
	used, err := t.used(c.quota)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		what               byte
		delta, used, limit int64
	}{
		{usageBytes, c.Bytes, used.Bytes, q.Limit.Bytes},
		{usageInodes, c.Inodes, used.Inodes, q.Limit.Inodes},
	} {
		add := kv.Add{Key: usageKey(c.quota, x.what), Delta: x.delta}
		if x.delta > 0 && x.limit > 0 && held {
			if x.used > x.limit-x.delta {
				return errs.Newf(errs.Quota, "meta.quota", "", "%d %s of %d are used, %d more are asked for",
					x.used, unitOf(x.what), x.limit, x.delta)
			}
			add.Max = x.limit
		}
		if x.delta != 0 {
			t.kv.Adds = append(t.kv.Adds, add)
		}
	}
	return nil
}

func unitOf(what byte) string {
	if what == usageBytes {
		return "bytes"
	}
	return "inodes"
}

// endQuota forgets a quota. Inodes that carry its id belong to no tree from now on. Directories
// that were to be counted are left to the count, which finds them of no use.
func (t *txn) endQuota(id uint64) {
	t.remove(quotaKey(id))
	t.remove(usageKey(id, usageBytes))
	t.remove(usageKey(id, usageInodes))
}

// quotas lists all quotas by their directories.
func (t *txn) quotas() (all map[meta.Ino]*quota, err error) {
	all = map[meta.Ino]*quota{}
	var bad error
	err = t.scan([]byte{kindQuota}, func(key, value []byte) bool {
		q := &quota{}
		bad = parse(key, value, q)
		all[q.Dir] = q
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	return all, err
}

// wayUp calls fn for a directory and all above it, until fn returns false. It ends at the root, or
// at a tree that is being removed, which has nothing above it. Whoever depends on the answer
// depends on keyRename: see Rename.
func (t *txn) wayUp(dir meta.Ino, fn func(dir meta.Ino) bool) error {
	for range depthMax {
		if dir == 0 || !fn(dir) || dir == meta.RootIno {
			return nil
		}
		key := inodeKey(dir)
		value, err := t.peek(key)
		if err != nil {
			return err
		}
		var n inode
		if err := parse(key, value, &n); err != nil {
			return err
		}
		dir = n.Parent
	}
	return errs.Newf(errs.Corrupt, "meta.quota", "", "the way up from %d has no end", dir)
}

// within tells whether a directory is the top of a quota's tree or lies below it.
func (t *txn) within(dir meta.Ino, all map[meta.Ino]*quota) (found bool, err error) {
	err = t.wayUp(dir, func(dir meta.Ino) bool {
		found = all[dir] != nil
		return !found
	})
	return found, err
}

// holds tells whether a directory is the top of a quota's tree or has one below it.
func (t *txn) holds(dir meta.Ino, all map[meta.Ino]*quota) (found bool, err error) {
	for top := range all {
		if err == nil && !found {
			err = t.wayUp(top, func(up meta.Ino) bool {
				found = up == dir
				return !found
			})
		}
	}
	return found, err
}
