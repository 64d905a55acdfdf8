package kvtest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/sluice-storage/sluice/kv"
)

func crashCases() []Case {
	return []Case{
		on("crash/synced-survives", crashSynced),
		on("crash/sync-survives", crashAfterSync),
		on("crash/prefix", crashPrefix),
		on("crash/prefix-of-many-blocks", crashPrefixBlocks),
		on("crash/versions-are-not-reused", crashVersions),
		on("crash/replay", crashReplay),
		on("crash/replay-synced-later", crashReplaySynced),
		on("crash/since", crashSince),
		on("crash/while-committing", crashWhileCommitting),
	}
}

func crashSynced(e *env) {
	v1 := e.commit(kv.Txn{Puts: puts("a", "1", "b", "1")})
	v2 := e.commit(kv.Txn{Deletes: deletes("b"), Adds: adds("n", 2), Sync: true})
	e.crash()
	e.want("a", "1", v1)
	e.want("b", "", 0)
	e.want("n", counter(2), v2)
	e.crash()
	e.want("n", counter(2), v2)
}

func crashAfterSync(e *env) {
	v := e.commit(kv.Txn{Puts: puts("a", "1")})
	if err := e.s.Sync(context.Background()); err != nil {
		e.Fatalf("Sync: %v", err)
	}
	e.crash()
	e.want("a", "1", v)
}

// crashPrefix commits a chain of transactions of which a few are synced, and crashes. Each writes
// two keys and deletes one: a torn transaction would show.
func crashPrefix(e *env) {
	n, synced := 0, 0
	for round := range 8 {
		for i := range 20 {
			n++
			t := kv.Txn{Puts: puts(link("a", n), "", link("b", n), ""), Adds: adds("n", 1)}
			t.Deletes = deletes(link("c", n-1))
			t.Puts = append(t.Puts, put(link("c", n), ""))
			if t.Sync = i == round; t.Sync {
				synced = n
			}
			e.commit(t)
		}
		e.crash()
		n = e.checkChain(n, synced)
	}
}

// crashPrefixBlocks is crashPrefix with a log of many disk blocks. A disk may keep a later block
// and lose an earlier one: that is the end of the log, not damage, and the store must open.
func crashPrefixBlocks(e *env) {
	value := strings.Repeat("v", 6000)
	n, synced := 0, 0
	for range 8 {
		for i := range 60 {
			n++
			t := kv.Txn{Puts: puts(link("a", n), value, link("b", n), "", link("c", n), "")}
			t.Deletes, t.Adds = deletes(link("c", n-1)), adds("n", 1)
			if t.Sync = i == 10; t.Sync {
				synced = n
			}
			e.commit(t)
		}
		e.crash()
		n = e.checkChain(n, synced)
	}
}

func link(series string, n int) string { return fmt.Sprintf("%s/%04d", series, n) }

// checkChain demands that the store is the state after one of the commits synced ... n and
// returns which one.
func (e *env) checkChain(n, synced int) int {
	e.Helper()
	all := e.dump()
	last := int(decode(all["n"].value))
	if last < synced || last > n {
		e.Fatalf("%d commits are left; %d were synced of %d", last, synced, n)
	}
	for i := 1; i <= n; i++ {
		_, a := all[link("a", i)]
		_, b := all[link("b", i)]
		_, c := all[link("c", i)]
		if a != (i <= last) || b != a || c != (i == last) {
			e.Fatalf("%d commits are left, but of number %d: a %v, b %v, c %v", last, i, a, b, c)
		}
	}
	if v := e.version(); v != all["n"].v {
		e.Fatalf("the last commit left is %d, the store says %d", all["n"].v, v)
	}
	return last
}

func crashVersions(e *env) {
	highest := kv.Version(0)
	for range 3 {
		for i := range 5 {
			v := e.commit(kv.Txn{Puts: puts("a", "1"), Sync: i == 1})
			if v <= highest {
				e.Fatalf("version %d was given again after a crash; %d was reached", v, highest)
			}
			highest = v
		}
		e.crash()
	}
}

// crashReplay: a request that survived is recognised, with its answer; one that was lost is applied
// anew, with the answer of now.
func crashReplay(e *env) {
	var all []kv.Txn
	for i := range 10 {
		t := kv.Txn{ReqID: reqID(1, i), Adds: adds(fmt.Sprint("n", i), 1), Sync: i == 5}
		t.Answer = uint64(i + 100)
		all = append(all, t)
		e.commit(t)
	}
	e.crash()
	for i, t := range all {
		was, answer := e.get(fmt.Sprint("n", i)), t.Answer
		t.Answer += 1000
		r := e.result(t)
		if was.v != 0 && r != (kv.Result{Version: was.v, Answer: answer}) {
			e.Errorf("request %d survived as %d with answer %d; repeated it gave %+v",
				i, was.v, answer, r)
		}
		if was.v == 0 && r.Answer != t.Answer {
			e.Errorf("request %d was lost, but gave answer %d", i, r.Answer)
		}
		e.wantCount(fmt.Sprint("n", i), 1)
	}
}

// crashReplaySynced: repeating an unsynced request with Sync makes it durable.
func crashReplaySynced(e *env) {
	t := kv.Txn{ReqID: reqID(1, 1), Adds: adds("n", 1)}
	v := e.commit(t)
	t.Sync = true
	if again := e.commit(t); again != v {
		e.Errorf("repeated request got version %d, first %d", again, v)
	}
	e.crash()
	e.want("n", counter(1), v)
}

// crashSince: what a reader saw before the crash may be undone. A Since from there must not pass
// as "unchanged", not even after new commits have gone by.
func crashSince(e *env) {
	e.commit(kv.Txn{Puts: puts("d/a", "1"), Sync: true})
	e.commit(kv.Txn{Deletes: deletes("d/a")})
	e.commit(kv.Txn{Puts: puts("d/b", "1")})
	since := e.version()
	e.crash()
	if e.version() == since {
		return // the engine kept everything: nothing was undone
	}
	e.conflict(kv.Txn{Ranges: within("d/", since)})
	e.commit(kv.Txn{Ranges: within("d/", e.version())})
	e.commit(kv.Txn{Puts: puts("e", "1")})
	e.conflict(kv.Txn{Ranges: within("d/", since)})
	e.commit(kv.Txn{Ranges: within("d/", e.version())})
}

// crashWhileCommitting crashes under load. Whatever had been acknowledged as synced is there, and
// what is there is a prefix: no commit is missing below one that survived.
func crashWhileCommitting(e *env) {
	var mu sync.Mutex
	acked := map[string]kv.Version{}
	synced := kv.Version(0)
	var wg sync.WaitGroup
	for w := range 6 {
		s := e.s
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d.%d", w, i)
				t := kv.Txn{Puts: puts(key, ""), Sync: (w+i)%4 == 0}
				r, err := s.Commit(context.Background(), &t)
				if err != nil {
					return
				}
				mu.Lock()
				acked[key] = r.Version
				if t.Sync {
					synced = max(synced, r.Version)
				}
				mu.Unlock()
			}
		})
	}
	for enough := false; !enough; {
		mu.Lock()
		enough = len(acked) > 300
		mu.Unlock()
	}
	mu.Lock()
	syncedBefore := synced
	mu.Unlock()
	e.crash()
	wg.Wait()
	e.checkPrefix(acked, syncedBefore)
}

func (e *env) checkPrefix(acked map[string]kv.Version, synced kv.Version) {
	e.Helper()
	left := e.dump()
	last := e.version()
	if last < synced {
		e.Fatalf("the store is at %d, but %d was acknowledged as synced", last, synced)
	}
	for key, v := range acked {
		c, ok := left[key]
		if v <= last && (!ok || c.v != v) {
			e.Errorf("commit %d of key %q is missing, the store is at %d", v, key, last)
		}
		if ok && c.v > last {
			e.Errorf("key %q is at %d, the store at %d", key, c.v, last)
		}
	}
}
