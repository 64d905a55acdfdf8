package store

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// recount adds up what inodes take of their quotas, to compare it with the counters. It needs 100
// bytes or so a quota.
type recount struct {
	t      *txn
	quotas map[uint64]*quota
	sums   map[uint64]meta.Usage
}

func newRecount(t *txn) recount {
	return recount{t: t, quotas: map[uint64]*quota{}, sums: map[uint64]meta.Usage{}}
}

func (r *recount) quota(key, value []byte) error {
	q := &quota{}
	r.quotas[number(key, 0)] = q
	return parse(key, value, q)
}

func (r *recount) inode(n *inode) {
	c := n.charge()
	sum := r.sums[c.quota]
	r.sums[c.quota] = meta.Usage{Bytes: sum.Bytes + c.Bytes, Inodes: sum.Inodes + c.Inodes}
}

// tree is the quota that an id stands for.
func (r *recount) tree(id uint64) uint64 {
	if r.quotas[id] == nil {
		return 0
	}
	return id
}

// agree tells whether a directory may be in d: both belong to one tree, or it is the top of one
// that lies in none, or the tree is not counted yet.
func (r *recount) agree(d *inode, ino meta.Ino, n *inode) bool {
	outer, inner := r.tree(d.Quota), r.tree(n.Quota)
	switch {
	case outer == inner:
		return true
	case outer != 0:
		return inner == 0 && r.quotas[outer].Counting
	}
	return r.quotas[inner].Dir == ino
}

// drift is a quota whose counters do not say what its inodes take.
type drift struct {
	id             uint64
	gone           bool // there is no such quota
	counted, found meta.Usage
}

func (d drift) String() string {
	if d.gone {
		return fmt.Sprintf("quota %d is gone, and counters of it are there", d.id)
	}
	return fmt.Sprintf("quota %d counts %d bytes and %d inodes, its inodes take %d bytes and are %d",
		d.id, d.counted.Bytes, d.counted.Inodes, d.found.Bytes, d.found.Inodes)
}

// compare reports quotas that drifted, and counters of none.
func (r *recount) compare(report func(drift)) error {
	for id := range r.quotas {
		counted, err := r.t.used(id)
		if err != nil {
			return err
		}
		if found := r.sums[id]; found != counted {
			report(drift{id: id, counted: counted, found: found})
		}
	}
	return r.t.scan([]byte{kindUsage}, func(key, _ []byte) bool {
		if id := number(key, 0); r.quotas[id] == nil && key[9] != usageTodo {
			report(drift{id: id, gone: true})
		}
		return true
	})
}

// quotas lets the trees of all quotas whose directory is left be counted anew: directories may have
// lost their place, and with it their tree.
func (r *repair) quotas(snap kv.Snapshot) error {
	err := r.each(snap, kindUsage, func(key, _ []byte) error { return r.remove(key) })
	if err == nil {
		err = r.commit() // some of them are put again
	}
	for _, n := range r.inodes {
		n.Quota, n.Reserved = 0, 0
	}
	if err != nil {
		return err
	}
	return r.each(snap, kindQuota, func(key, value []byte) error {
		var q quota
		err := parse(key, value, &q)
		n := r.inodes[q.Dir]
		if err != nil || n == nil || !n.isDir() {
			r.say("lost: the directory of quota %d", number(key, 0))
			return r.remove(key)
		}
		n.Quota, q.Counting = number(key, 0), true
		if err := r.put(key, q.encode()); err != nil {
			return err
		}
		if err := r.put(todoKey(n.Quota, q.Dir), mark()); err != nil {
			return err
		}
		one := binary.BigEndian.AppendUint64(nil, 1)
		return r.put(usageKey(n.Quota, usageInodes), one)
	})
}
