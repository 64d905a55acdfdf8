package engine

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// Reader is the current state, as far as checks need it.
type Reader interface {
	// VersionOf returns the version of a key, 0 if it is absent.
	VersionOf(key []byte) (kv.Version, error)

	// AnyIn tells whether a key exists in [start, end); an empty end means no upper bound.
	AnyIn(start, end []byte) (bool, error)
}

// Check verifies all checks and ranges of t against the state r and its recent changes c. It
// returns nil if t may commit, errs.Conflict if not, or the error of r. Where recent is not nil,
// keys that have not changed since the caller saw them are not read.
func Check(t *kv.Txn, r Reader, c *Changes, recent *Recent) error {
	for i := range t.Checks {
		k := &t.Checks[i]
		if recent != nil && t.Seen != 0 && !recent.Touched(k.Key, t.Seen) {
			continue
		}
		if err := checkKey(k, r); err != nil {
			return err
		}
	}
	for i := range t.Ranges {
		if err := checkRange(&t.Ranges[i], r, c); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(k *kv.Check, r Reader) error {
	v, err := r.VersionOf(k.Key)
	switch {
	case err != nil:
		return err
	case k.Exists && v == 0:
		return conflict("key %q does not exist", k.Key)
	case !k.Exists && v != k.Version:
		return conflict("key %q is at version %d, not %d", k.Key, v, k.Version)
	}
	return nil
}

func checkRange(g *kv.RangeCheck, r Reader, c *Changes) error {
	if g.Since != 0 {
		if c.Touched(g.Start, g.End, g.Since) {
			return conflict("range from %q to %q changed after version %d, or nobody remembers",
				g.Start, g.End, g.Since)
		}
		return nil
	}
	any, err := r.AnyIn(g.Start, g.End)
	if err != nil {
		return err
	}
	if any {
		return conflict("range from %q to %q is not empty", g.Start, g.End)
	}
	return nil
}

func conflict(format string, args ...any) error {
	return errs.Newf(errs.Conflict, "kv.Commit", "", format, args...)
}

// Counter decodes the value of a key that is added to. An absent key (version 0) counts as 0; a
// value that is not a counter refuses the transaction as errs.Invalid.
func Counter(key, value []byte, v kv.Version) (int64, error) {
	if v == 0 {
		return 0, nil
	}
	if len(value) != kv.CounterBytes {
		return 0, errs.Newf(errs.Invalid, "kv.Commit", "",
			"add to key %q, which holds %d bytes and is no counter", key, len(value))
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

// Sum is what an add makes of a counter. A sum above the add's bound refuses the transaction as
// errs.Conflict.
func Sum(a *kv.Add, old int64) (int64, error) {
	sum := old + a.Delta
	if a.Max > 0 && sum > a.Max {
		return 0, conflict("counter %q would be %d, above %d", a.Key, sum, a.Max)
	}
	return sum, nil
}
