package kvtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// env is one case's store with shorthands that fail the case.
type env struct {
	testing.TB
	cfg Config
	s   kv.Store
}

// on adapts a case that works on an env.
func on(name string, f func(e *env)) Case {
	return Case{Name: name, Run: func(tb testing.TB, cfg Config) {
		tb.Helper()
		e := &env{TB: tb, cfg: cfg, s: cfg.Open(tb)}
		defer func() {
			if err := e.s.Close(); err != nil {
				tb.Errorf("Close: %v", err)
			}
		}()
		f(e)
	}}
}

func (e *env) reopen() { e.Helper(); e.s = e.cfg.Reopen(e.TB, e.s) }

func (e *env) crash() { e.Helper(); e.s = e.cfg.Crash(e.TB, e.s) }

// try commits t.
func (e *env) try(t kv.Txn) (kv.Version, error) {
	r, err := e.s.Commit(context.Background(), &t)
	return r.Version, err
}

// result commits t, which must succeed, and returns all that the commit gave.
func (e *env) result(t kv.Txn) kv.Result {
	e.Helper()
	r, err := e.s.Commit(context.Background(), &t)
	if err != nil {
		e.Fatalf("Commit: %v", err)
	}
	if r.Version == 0 {
		e.Fatalf("Commit returned version 0")
	}
	return r
}

// commit commits t, which must succeed.
func (e *env) commit(t kv.Txn) kv.Version {
	e.Helper()
	return e.result(t).Version
}

// refuse commits t, which must fail with kind and leave everything as it was.
func (e *env) refuse(kind errs.Kind, t kv.Txn) {
	e.Helper()
	before := e.dump()
	v, err := e.try(t)
	if !errors.Is(err, kind) {
		e.Fatalf("Commit gave version %d and %v, want %v", v, err, kind)
	}
	if after := e.dump(); !maps.Equal(before, after) {
		e.Fatalf("a refused commit changed the store\nbefore %v\nafter  %v", before, after)
	}
}

// conflict is refuse with errs.Conflict.
func (e *env) conflict(t kv.Txn) { e.Helper(); e.refuse(errs.Conflict, t) }

// cell is a value and its version.
type cell struct {
	value string
	v     kv.Version
}

func (c cell) String() string { return fmt.Sprintf("%q@%d", c.value, c.v) }

// get reads one key of the latest state.
func (e *env) get(key string) cell {
	e.Helper()
	snap := e.s.Snapshot()
	defer e.closeSnap(snap)
	return e.getIn(snap, key)
}

func (e *env) getIn(snap kv.Snapshot, key string) cell {
	e.Helper()
	value, v, err := snap.Get([]byte(key))
	if err != nil {
		e.Fatalf("Get(%q): %v", key, err)
	}
	if v == 0 && value != nil {
		e.Fatalf("Get(%q) of an absent key gave %q", key, value)
	}
	if v != 0 && value == nil {
		e.Fatalf("Get(%q) of a present key gave a nil value", key)
	}
	return cell{string(value), v}
}

// want demands value and version of a key in the latest state.
func (e *env) want(key, value string, v kv.Version) {
	e.Helper()
	if got := e.get(key); got != (cell{value, v}) {
		e.Fatalf("key %q is %v, want %v", key, got, cell{value, v})
	}
}

func (e *env) wantCount(key string, n int64) {
	e.Helper()
	if got := e.get(key); got.value != counter(n) {
		e.Fatalf("counter %q is %x, want %d", key, got.value, n)
	}
}

// dump is the latest state as a map.
func (e *env) dump() map[string]cell {
	e.Helper()
	snap := e.s.Snapshot()
	defer e.closeSnap(snap)
	return e.dumpOf(snap)
}

func (e *env) dumpOf(snap kv.Snapshot) map[string]cell {
	e.Helper()
	all := map[string]cell{}
	last := ""
	err := snap.Scan(nil, nil, func(key, value []byte, v kv.Version) bool {
		if string(key) <= last && len(all) > 0 {
			e.Errorf("scan gave %q after %q", key, last)
		}
		last = string(key)
		all[last] = cell{string(value), v}
		return true
	})
	if err != nil {
		e.Fatalf("Scan: %v", err)
	}
	return all
}

// scan lists the keys in [start, end).
func (e *env) scan(snap kv.Snapshot, start, end []byte) []string {
	e.Helper()
	keys := []string{}
	err := snap.Scan(start, end, func(key, _ []byte, _ kv.Version) bool {
		keys = append(keys, string(key))
		return true
	})
	if err != nil {
		e.Fatalf("Scan: %v", err)
	}
	return keys
}

// version is the version of the latest state.
func (e *env) version() kv.Version {
	snap := e.s.Snapshot()
	defer e.closeSnap(snap)
	return snap.Version()
}

func (e *env) closeSnap(snap kv.Snapshot) {
	if err := snap.Close(); err != nil {
		e.Errorf("Snapshot.Close: %v", err)
	}
}

// parallel runs f(0) ... f(n-1) at once and waits. f must report with Errorf, not Fatalf.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func put(key, value string) kv.Put { return kv.Put{Key: []byte(key), Value: []byte(value)} }

func puts(pairs ...string) []kv.Put {
	var list []kv.Put
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, put(pairs[i], pairs[i+1]))
	}
	return list
}

func deletes(keys ...string) [][]byte {
	var list [][]byte
	for _, k := range keys {
		list = append(list, []byte(k))
	}
	return list
}

func adds(key string, delta int64) []kv.Add { return []kv.Add{{Key: []byte(key), Delta: delta}} }

func at(key string, v kv.Version) []kv.Check { return []kv.Check{{Key: []byte(key), Version: v}} }

func exists(key string) []kv.Check { return []kv.Check{{Key: []byte(key), Exists: true}} }

// within is the range of all keys that start with prefix.
func within(prefix string, since kv.Version) []kv.RangeCheck {
	p := []byte(prefix)
	return []kv.RangeCheck{{Start: p, End: kv.PrefixEnd(p), Since: since}}
}

// counter is the value of a counter key.
func counter(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

// reqID makes a distinct request id out of two numbers.
func reqID(a, b int) (id kv.ReqID) {
	binary.BigEndian.PutUint64(id[:8], uint64(a)+1)
	binary.BigEndian.PutUint64(id[8:], uint64(b))
	return id
}

// decode reads a counter; what is none, an absent key for one, is 0.
func decode(value string) int64 {
	if len(value) != kv.CounterBytes {
		return 0
	}
	return int64(binary.BigEndian.Uint64([]byte(value)))
}
