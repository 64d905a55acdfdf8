package kvtest

import (
	"fmt"

	"github.com/sluice-storage/sluice/kv"
)

func seenCases() []Case {
	return []Case{
		on("seen/unchanged", seenUnchanged),
		on("seen/changed", seenChanged),
		on("seen/changed-within-a-group", seenTogether),
		on("seen/reopen", func(e *env) { seenAcross(e, e.reopen) }),
		on("seen/crash", func(e *env) { seenAcross(e, e.crash) }),
	}
}

// seenUnchanged: what held in the snapshot and has not changed since holds, whatever else changes.
func seenUnchanged(e *env) {
	v := e.commit(kv.Txn{Puts: puts("a", "1"), Adds: adds("n", 1)})
	seen := e.version()
	for i := range 100 {
		e.commit(kv.Txn{Puts: puts(fmt.Sprint("other", i), "1"), Deletes: deletes("c")})
	}
	t := kv.Txn{Seen: seen, Puts: puts("done", "1")}
	t.Checks = append(append(at("a", v), exists("n")...), at("b", 0)...)
	e.commit(t)
}

// seenChanged: every kind of change that breaks a check is noticed, and one that does not is let
// through.
func seenChanged(e *env) {
	for i, c := range []struct {
		check  func(v kv.Version) []kv.Check // of key k, which is at v
		change kv.Txn
		breaks bool
	}{
		{func(v kv.Version) []kv.Check { return at("k", v) }, kv.Txn{Puts: puts("k", "2")}, true},
		{func(v kv.Version) []kv.Check { return at("k", v) }, kv.Txn{Deletes: deletes("k")}, true},
		{func(v kv.Version) []kv.Check { return at("k", v) }, kv.Txn{Adds: adds("k", 1)}, true},
		{func(kv.Version) []kv.Check { return exists("k") }, kv.Txn{Deletes: deletes("k")}, true},
		{func(kv.Version) []kv.Check { return exists("k") }, kv.Txn{Puts: puts("k", "2")}, false},
		{func(kv.Version) []kv.Check { return at("none", 0) }, kv.Txn{Puts: puts("none", "")}, true},
	} {
		v := e.commit(kv.Txn{Puts: puts("k", counter(0)), Deletes: deletes("none")})
		t := kv.Txn{Seen: e.version(), Checks: c.check(v), Adds: adds("n", 1)}
		e.commit(c.change)
		if _, err := e.try(t); (err != nil) != c.breaks {
			e.Errorf("case %d, changed after it was seen: %v", i, err)
		}
	}
}

// seenTogether: many have seen the same state and put the same key. One of them wins, however many
// are committed together.
func seenTogether(e *env) {
	const rounds, writers = 40, 8
	v := e.commit(kv.Txn{Puts: puts("k", "")})
	for round := range rounds {
		t := kv.Txn{Seen: e.version(), Checks: at("k", v), Puts: puts("k", fmt.Sprint(round))}
		var won [writers]kv.Version
		parallel(writers, func(i int) { won[i], _ = e.try(t) })
		winners := 0
		for _, w := range won {
			if w != 0 {
				winners, v = winners+1, w
			}
		}
		if winners != 1 {
			e.Fatalf("%d transactions have changed what all of them had seen", winners)
		}
	}
}

// seenAcross: what was seen before a restart is compared with what is there after it, be it that
// the key has changed since or that a crash has undone what was seen.
func seenAcross(e *env, restart func()) {
	put := func(value string, sync bool) kv.Txn {
		v := e.commit(kv.Txn{Puts: puts("a", value), Sync: sync})
		return kv.Txn{Seen: e.version(), Checks: at("a", v), Puts: puts("b", value)}
	}
	list := []kv.Txn{put("1", true), put("2", false), put("3", false)}
	restart()
	there := e.get("a").v
	for _, t := range list {
		if _, err := e.try(t); (err == nil) != (t.Checks[0].Version == there) {
			e.Errorf("a is at %d; seen at %d before the restart: %v", there, t.Checks[0].Version, err)
		}
	}
}
