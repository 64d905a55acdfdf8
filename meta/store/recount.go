package store

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// recount adds up what inodes take of their quotas, to compare it with the counters.
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
	counted, found meta.Usage
}

func (d drift) String() string {
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
			report(drift{id, counted, found})
		}
	}
	return r.t.scan([]byte{kindUsage}, func(key, value []byte) bool {
		if id := number(key, 0); r.quotas[id] == nil && key[9] != usageTodo {
			report(drift{id: id, counted: meta.Usage{Bytes: counter(value)}})
		}
		return true
	})
}

// Recount reads all inodes of one moment, reports every quota whose counters say something else
// than its inodes, and, if asked to, corrects them. Operations go on meanwhile: what is corrected
// is a difference, so that it stays right whatever they add. It needs 100 bytes or so a quota.
func (s *Store) Recount(ctx context.Context, repair bool, report func(problem string)) error {
	var all []drift
	err := s.look(func(t *txn) error {
		r := newRecount(t)
		err := each(t, kindQuota, r.quota)
		if err == nil {
			err = each(t, kindInode, func(key, value []byte) error {
				n := &inode{}
				err := parse(key, value, n)
				r.inode(n)
				return err
			})
		}
		if err == nil {
			err = r.compare(func(d drift) { all = append(all, d) })
		}
		return err
	})
	for _, d := range all {
		report(d.String())
		if repair && err == nil {
			err = s.correct(ctx, d)
		}
	}
	return errs.Wrap("meta.Recount", "", err)
}

// each calls fn for all keys of a kind until it fails.
func each(t *txn, kind byte, fn func(key, value []byte) error) error {
	var bad error
	err := t.scan([]byte{kind}, func(key, value []byte) bool {
		bad = fn(key, value)
		return bad == nil
	})
	return unlessNil(err, bad)
}

// correct adds what is missing to the counters of a quota, or takes away those of none.
func (s *Store) correct(ctx context.Context, d drift) error {
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.MakesRoom = true
		q, err := t.quota(d.id)
		if err != nil {
			return err
		}
		if q == nil {
			t.endQuota(d.id)
			return nil
		}
		t.add(usageKey(d.id, usageBytes), d.found.Bytes-d.counted.Bytes)
		t.add(usageKey(d.id, usageInodes), d.found.Inodes-d.counted.Inodes)
		return nil
	})
	return err
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
