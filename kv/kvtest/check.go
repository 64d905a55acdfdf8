package kvtest

import (
	"bytes"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

func checkCases() []Case {
	return []Case{
		on("check/absent", checkAbsent),
		on("check/exact", checkExact),
		on("check/exists", checkExists),
		on("check/sees-recreation", checkRecreation),
		on("check/every-one-counts", everyCheckCounts),
		on("check/own-effects-are-later", ownEffectsLater),
	}
}

func checkAbsent(e *env) {
	t := kv.Txn{Checks: at("a", 0), Puts: puts("a", "1")}
	e.commit(t)
	e.conflict(t)
	e.commit(kv.Txn{Deletes: deletes("a")})
	e.commit(t)
}

func checkExact(e *env) {
	v1 := e.commit(kv.Txn{Puts: puts("a", "1")})
	e.commit(kv.Txn{Puts: puts("b", "1")})
	e.conflict(kv.Txn{Checks: at("a", v1+1), Puts: puts("a", "x")})
	v3 := e.commit(kv.Txn{Checks: at("a", v1), Puts: puts("a", "2")})
	e.conflict(kv.Txn{Checks: at("a", v1), Puts: puts("a", "x")})
	v4 := e.commit(kv.Txn{Checks: at("a", v3), Deletes: deletes("a")})
	e.conflict(kv.Txn{Checks: at("a", v3)})
	e.conflict(kv.Txn{Checks: at("a", v4)})
	v5 := e.commit(kv.Txn{Adds: adds("n", 1)})
	e.commit(kv.Txn{Adds: adds("n", 1)})
	e.conflict(kv.Txn{Checks: at("n", v5), Puts: puts("a", "x")})
}

func checkExists(e *env) {
	t := kv.Txn{Checks: exists("dir"), Puts: puts("dir/a", "1")}
	e.conflict(t)
	v := e.commit(kv.Txn{Puts: puts("dir", "")})
	e.commit(t)
	t.Checks[0].Version = v + 100 // ignored with Exists
	e.commit(t)
	e.commit(kv.Txn{Adds: adds("count", 0)})
	e.commit(kv.Txn{Checks: exists("count")})
	e.commit(kv.Txn{Deletes: deletes("dir")})
	e.conflict(t)
}

func checkRecreation(e *env) {
	v := e.commit(kv.Txn{Puts: puts("a", "same")})
	e.commit(kv.Txn{Deletes: deletes("a")})
	e.commit(kv.Txn{Puts: puts("a", "same")})
	e.conflict(kv.Txn{Checks: at("a", v)})
}

func everyCheckCounts(e *env) {
	const n = 10
	v := e.commit(kv.Txn{Puts: puts("a", "1")})
	for bad := range n {
		t := kv.Txn{Puts: puts("z", "x")}
		for i := range n {
			t.Checks = append(t.Checks, at(fmt.Sprint("absent", i), 0)...)
		}
		t.Checks[bad] = kv.Check{Key: []byte("a"), Version: 0}
		e.conflict(t)
		t.Checks[bad].Version = v
		e.commit(t)
		e.commit(kv.Txn{Deletes: deletes("z")})
	}
}

// Checks are about the state before the transaction: its own effects do not count.
func ownEffectsLater(e *env) {
	e.commit(kv.Txn{Checks: at("a", 0), Ranges: within("a", 0), Puts: puts("a", "1")})
	e.commit(kv.Txn{Checks: exists("a"), Deletes: deletes("a")})
	e.conflict(kv.Txn{Checks: exists("a"), Puts: puts("a", "1")})
}

func limitCases() []Case {
	return []Case{
		on("limit/ops", limitOps),
		on("limit/bytes", limitBytes),
		on("limit/keys", limitKeys),
		on("limit/duplicates", limitDuplicates),
		on("limit/ranges", limitRanges),
	}
}

func limitOps(e *env) {
	var t kv.Txn
	for i := range kv.MaxOps - 2 {
		t.Puts = append(t.Puts, put(fmt.Sprintf("k%02d", i), "v"))
	}
	t.Checks = at("c", 0)
	t.Ranges = within("r", 0)
	e.commit(t)
	if n := len(e.dump()); n != kv.MaxOps-2 {
		e.Errorf("%d keys after a transaction of the largest size", n)
	}
	for _, more := range []func(*kv.Txn){
		func(t *kv.Txn) { t.Checks = append(at("d", 0), t.Checks...) },
		func(t *kv.Txn) { t.Ranges = append(within("d", 0), t.Ranges...) },
		func(t *kv.Txn) { t.Puts = append(puts("d", ""), t.Puts...) },
		func(t *kv.Txn) { t.Deletes = deletes("d") },
		func(t *kv.Txn) { t.Adds = adds("d", 1) },
	} {
		over := t
		more(&over)
		e.refuse(errs.TooBig, over)
	}
}

func limitBytes(e *env) {
	value := make([]byte, kv.MaxTxnBytes/4-1)
	t := kv.Txn{}
	for _, k := range []string{"a", "b", "c", "d"} {
		t.Puts = append(t.Puts, kv.Put{Key: []byte(k), Value: value})
	}
	e.commit(t)
	t.Deletes = deletes("e")
	e.refuse(errs.TooBig, t)
}

func limitKeys(e *env) {
	longest := bytes.Repeat([]byte{'k'}, kv.MaxKeyBytes)
	tooLong := append(longest, 'k')
	v := e.commit(kv.Txn{Puts: []kv.Put{{Key: longest}}})
	e.want(string(longest), "", v)
	for _, key := range [][]byte{tooLong, {}, nil} {
		kind := errs.Invalid
		if len(key) > 0 {
			kind = errs.TooBig
		}
		e.refuse(kind, kv.Txn{Checks: []kv.Check{{Key: key}}})
		e.refuse(kind, kv.Txn{Puts: []kv.Put{{Key: key}}})
		e.refuse(kind, kv.Txn{Deletes: [][]byte{key}})
		e.refuse(kind, kv.Txn{Adds: []kv.Add{{Key: key, Delta: 1}}})
	}
}

func limitDuplicates(e *env) {
	e.commit(kv.Txn{Puts: puts("n", counter(1))})
	for _, t := range []kv.Txn{
		{Puts: puts("n", "1", "m", "1", "n", "2")},
		{Puts: puts("n", "1"), Deletes: deletes("n")},
		{Puts: puts("n", "1"), Adds: adds("n", 1)},
		{Deletes: deletes("n", "n")},
		{Deletes: deletes("n"), Adds: adds("n", 1)},
		{Adds: append(adds("n", 1), adds("n", 1)...)},
	} {
		e.refuse(errs.Invalid, t)
	}
	e.commit(kv.Txn{Checks: append(exists("n"), at("n", 1)...), Adds: adds("n", 1)})
}

func limitRanges(e *env) {
	bad := func(start, end []byte) kv.Txn {
		return kv.Txn{Ranges: []kv.RangeCheck{{Start: start, End: end}}}
	}
	e.refuse(errs.Invalid, bad([]byte("b"), []byte("b")))
	e.refuse(errs.Invalid, bad([]byte("b"), []byte("a")))
	e.refuse(errs.TooBig, bad(make([]byte, kv.MaxKeyBytes+1), nil))
	e.refuse(errs.TooBig, bad(nil, make([]byte, kv.MaxKeyBytes+1)))
	e.commit(bad(nil, nil))
}
