package kv

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
)

func TestValidate(t *testing.T) {
	key := []byte("k")
	long := make([]byte, MaxKeyBytes+1)
	for _, c := range []struct {
		name string
		txn  Txn
		want errs.Kind
	}{
		{"nothing", Txn{}, errs.OK},
		{"all kinds", Txn{
			Checks: []Check{{Key: key}, {Key: key, Exists: true}}, Ranges: []RangeCheck{{}},
			Puts: []Put{{Key: key}}, Deletes: [][]byte{{'l'}}, Adds: []Add{{Key: []byte{'m'}}},
		}, errs.OK},
		{"longest key", Txn{Deletes: [][]byte{long[1:]}}, errs.OK},
		{"long key", Txn{Deletes: [][]byte{long}}, errs.TooBig},
		{"long check", Txn{Checks: []Check{{Key: long}}}, errs.TooBig},
		{"long bound", Txn{Ranges: []RangeCheck{{End: long}}}, errs.TooBig},
		{"empty key", Txn{Puts: []Put{{}}}, errs.Invalid},
		{"empty check", Txn{Checks: []Check{{}}}, errs.Invalid},
		{"put twice", Txn{Puts: []Put{{Key: key}, {Key: key}}}, errs.Invalid},
		{"put and add", Txn{Puts: []Put{{Key: key}}, Adds: []Add{{Key: key}}}, errs.Invalid},
		{"empty range", Txn{Ranges: []RangeCheck{{Start: key, End: key}}}, errs.Invalid},
		{"too many", Txn{Checks: make([]Check, MaxOps+1)}, errs.TooBig},
		{"too much", Txn{Puts: []Put{{Key: key, Value: make([]byte, MaxTxnBytes)}}}, errs.TooBig},
	} {
		if err := c.txn.Validate(); errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if !errors.Is((&Txn{Puts: []Put{{}}}).Validate(), errs.Invalid) {
		t.Error("the error is no errs.Invalid")
	}
}

func TestPrefixEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xfe, 0xff}), 0, 4)
		prefix, key := some.Draw(t, "prefix"), some.Draw(t, "key")
		end := PrefixEnd(prefix)
		in := bytes.Compare(key, prefix) >= 0 && (end == nil || bytes.Compare(key, end) < 0)
		if in != bytes.HasPrefix(key, prefix) {
			t.Errorf("key %x in [%x, %x): %v", key, prefix, end, in)
		}
	})
}
