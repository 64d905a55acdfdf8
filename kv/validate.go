package kv

import (
	"bytes"

	"github.com/sluice-storage/sluice/errs"
)

// Validate checks t against the limits and rules of this package, without looking at any state.
// Too much or too long is errs.TooBig; what makes no sense (an empty key, a key with two effects,
// a range that ends before it starts) is errs.Invalid. Engines call it first in every Commit.
func (t *Txn) Validate() error {
	if n := t.ops(); n > MaxOps {
		return tooBig("%d operations, at most %d", n, MaxOps)
	}
	if n := t.Bytes(); n > MaxTxnBytes {
		return tooBig("%d bytes of keys and values, at most %d", n, MaxTxnBytes)
	}
	for i := range t.Checks {
		if err := validKey(t.Checks[i].Key); err != nil {
			return err
		}
	}
	for i := range t.Ranges {
		if err := t.Ranges[i].validate(); err != nil {
			return err
		}
	}
	for i, n := 0, t.Effects(); i < n; i++ {
		key := t.Effect(i)
		if err := validKey(key); err != nil {
			return err
		}
		// Quadratic, but over at most 64 keys and without an allocation.
		for j := range i {
			if bytes.Equal(key, t.Effect(j)) {
				return invalid("key %q has two effects in one transaction", key)
			}
		}
	}
	return nil
}

// Effects is the number of keys that t writes: puts, deletes and adds.
func (t *Txn) Effects() int { return len(t.Puts) + len(t.Deletes) + len(t.Adds) }

// Effect returns the i-th key that t writes, counting through puts, then deletes, then adds.
func (t *Txn) Effect(i int) []byte {
	if i < len(t.Puts) {
		return t.Puts[i].Key
	}
	i -= len(t.Puts)
	if i < len(t.Deletes) {
		return t.Deletes[i]
	}
	return t.Adds[i-len(t.Deletes)].Key
}

// Bytes is the size that counts against MaxTxnBytes; an add counts as a key and a counter.
func (t *Txn) Bytes() int {
	n := 0
	for i := range t.Checks {
		n += len(t.Checks[i].Key)
	}
	for i := range t.Ranges {
		n += len(t.Ranges[i].Start) + len(t.Ranges[i].End)
	}
	for i := range t.Puts {
		n += len(t.Puts[i].Key) + len(t.Puts[i].Value)
	}
	for i := range t.Deletes {
		n += len(t.Deletes[i])
	}
	for i := range t.Adds {
		n += len(t.Adds[i].Key) + CounterBytes
	}
	return n
}

func (t *Txn) ops() int { return len(t.Checks) + len(t.Ranges) + t.Effects() }

func (r *RangeCheck) validate() error {
	if len(r.Start) > MaxKeyBytes || len(r.End) > MaxKeyBytes {
		return tooBig("range bound of %d bytes, at most %d",
			max(len(r.Start), len(r.End)), MaxKeyBytes)
	}
	if len(r.End) != 0 && bytes.Compare(r.Start, r.End) >= 0 {
		return invalid("range from %q to %q holds nothing", r.Start, r.End)
	}
	return nil
}

func validKey(key []byte) error {
	switch {
	case len(key) == 0:
		return invalid("empty key")
	case len(key) > MaxKeyBytes:
		return tooBig("key of %d bytes, at most %d", len(key), MaxKeyBytes)
	}
	return nil
}

func tooBig(format string, args ...any) error {
	return errs.Newf(errs.TooBig, "kv.Commit", "", format, args...)
}

func invalid(format string, args ...any) error {
	return errs.Newf(errs.Invalid, "kv.Commit", "", format, args...)
}
