package store

import "github.com/sluice-storage/sluice/meta"

// examineQuota looks at the record of a quota. One that cannot be read is a quota all the same:
// its counters are not taken for those of none.
func (r *checkRun) examineQuota(t *txn, key, value []byte) error {
	id := number(key, 0)
	q := &quota{}
	r.quotas.quotas[id] = q
	if err := parse(key, value, q); err != nil {
		r.add(unreadable(key, err, func() record { return &quota{} }))
		return nil
	}
	n, err := t.nodeOf(q.Dir)
	if err == nil && !n.unknown() && (n == nil || !n.isDir()) {
		r.add(quotaStray(id))
	}
	return err
}

// examinePool looks at the record of a pool. A server in it that is not there does no harm.
func (r *checkRun) examinePool(_ *txn, key, value []byte) error {
	if err := parse(key, value, &pool{}); err != nil {
		r.add(unreadable(key, err, func() record { return &pool{} }))
	}
	return nil
}

// quotaStray is a quota whose directory is not there. Nothing would ever end it.
func quotaStray(id uint64) flaw {
	f := found(meta.RecordStray, 0, "quota %d is of a directory that is not there", id)
	f.still = func(t *txn) (bool, error) {
		q, err := t.quota(id)
		if q == nil || err != nil {
			return false, err
		}
		n, err := t.nodeOf(q.Dir)
		return !n.unknown() && (n == nil || !n.isDir()), err
	}
	f.mend = func(_ *mending, t *txn) error {
		t.endQuota(id)
		return nil
	}
	return f
}

// quotaStage compares the counters of all quotas with what the inodes were found to take, unless
// there is one that cannot be read: what it takes is not known.
func (r *checkRun) quotaStage() (over bool, err error) {
	if r.blind {
		return true, nil
	}
	if r.drifts == nil {
		if err := r.quotas.compare(func(d drift) { r.drifts = append(r.drifts, d) }); err != nil {
			r.broken = true
			return false, err
		}
	}
	n := min(len(r.drifts), meta.FindingsMax-flawsOfOne)
	for _, d := range r.drifts[:n] {
		r.add(quotaCount(d))
	}
	r.drifts = r.drifts[n:]
	return len(r.drifts) == 0, nil
}

// quotaCount is a quota that counts something else than its inodes take, or counters of none.
//
// The difference was found in one snapshot. Whatever was done since has changed the counters by
// what it changed the inodes by, so the difference is still the same, and adding it is right: to
// look at all inodes once more would tell nothing else.
func quotaCount(d drift) flaw {
	f := found(meta.QuotaCount, 0, "%s", d)
	f.still = func(t *txn) (bool, error) {
		q, err := t.quota(d.id)
		if err != nil || !d.gone {
			return q != nil, err
		}
		bytes, err := t.exists(usageKey(d.id, usageBytes))
		if err != nil {
			return false, err
		}
		inodes, err := t.exists(usageKey(d.id, usageInodes))
		return q == nil && (bytes || inodes), err
	}
	f.mend = func(_ *mending, t *txn) error {
		if d.gone {
			t.endQuota(d.id)
			return nil
		}
		t.add(usageKey(d.id, usageBytes), d.found.Bytes-d.counted.Bytes)
		t.add(usageKey(d.id, usageInodes), d.found.Inodes-d.counted.Inodes)
		return nil
	}
	return f
}
