package kvtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

func raceCases() []Case {
	return []Case{
		on("race/adds-never-conflict", addsNeverConflict),
		on("race/adds-within-bound", boundedTogether),
		on("race/creates-in-one-directory", createsTogether),
		on("race/exclusive-create", exclusiveCreate),
		on("race/lost-update", lostUpdate),
		on("race/write-skew", writeSkew),
		on("race/phantom-create-rmdir", phantomRmdir),
		on("race/phantom-remove-all", phantomRemoveAll),
		on("race/snapshots-are-consistent", consistentSnapshots),
		on("race/linearizable", linearizable),
	}
}

func addsNeverConflict(e *env) {
	const writers, each = 8, 100
	parallel(writers, func(i int) {
		for n := range each {
			t := kv.Txn{Adds: append(adds("n", 1), adds("m", int64(i-n))...), Sync: n%10 == 0}
			if _, err := e.try(t); err != nil {
				e.Errorf("an add failed: %v", err)
			}
		}
	})
	e.wantCount("n", writers*each)
	sum := int64(0)
	for i := range writers {
		for n := range each {
			sum += int64(i - n)
		}
	}
	e.wantCount("m", sum)
}

// boundedTogether: whoever adds, the bound is reached exactly and never passed.
func boundedTogether(e *env) {
	const writers, limit = 8, 200
	parallel(writers, func(int) {
		for {
			_, err := e.try(kv.Txn{Adds: []kv.Add{{Key: []byte("n"), Delta: 1, Max: limit}}})
			if errs.KindOf(err) == errs.Conflict {
				return
			}
			if err != nil {
				e.Errorf("an add failed: %v", err)
				return
			}
		}
	})
	e.wantCount("n", limit)
}

// createsTogether: creates in one directory check that it exists, not its version, and count by
// adds.
func createsTogether(e *env) {
	const writers, each = 8, 50
	e.commit(kv.Txn{Puts: puts("dir", "")})
	parallel(writers, func(i int) {
		for n := range each {
			name := fmt.Sprintf("dir/%d.%d", i, n)
			_, err := e.try(kv.Txn{
				Checks: append(exists("dir"), at(name, 0)...),
				Puts:   puts(name, "x"), Adds: adds("count", 1),
			})
			if err != nil {
				e.Errorf("create: %v", err)
			}
		}
	})
	e.wantCount("count", writers*each)
	if n := len(e.dump()); n != writers*each+2 {
		e.Errorf("%d keys, want %d", n, writers*each+2)
	}
}

func exclusiveCreate(e *env) {
	const rounds, writers = 30, 6
	for round := range rounds {
		name := fmt.Sprint("file", round)
		var winners atomic.Int32
		parallel(writers, func(i int) {
			_, err := e.try(kv.Txn{Checks: at(name, 0), Puts: puts(name, fmt.Sprint(i))})
			if err == nil {
				winners.Add(1)
			} else if !errors.Is(err, errs.Conflict) {
				e.Errorf("create: %v", err)
			}
		})
		if n := winners.Load(); n != 1 {
			e.Fatalf("%d of %d exclusive creates succeeded", n, writers)
		}
	}
}

func lostUpdate(e *env) {
	v := e.commit(kv.Txn{Puts: puts("a", "0")})
	first, second := at("a", v), at("a", v)
	e.commit(kv.Txn{Checks: first, Puts: puts("a", "1")})
	e.conflict(kv.Txn{Checks: second, Puts: puts("a", "2")})

	const writers, each = 4, 50
	e.commit(kv.Txn{Puts: puts("a", "")})
	parallel(writers, func(int) {
		for range each {
			e.retry(func() kv.Txn {
				c := e.get("a")
				return kv.Txn{Checks: at("a", c.v), Puts: puts("a", c.value+"x")}
			})
		}
	})
	if got := e.get("a").value; got != strings.Repeat("x", writers*each) {
		e.Errorf("%d updates left %d marks", writers*each, len(got))
	}
}

// retry reads and commits until there is no conflict.
func (e *env) retry(prepare func() kv.Txn) {
	for {
		_, err := e.try(prepare())
		if err == nil {
			return
		}
		if !errors.Is(err, errs.Conflict) {
			e.Errorf("Commit: %v", err)
			return
		}
	}
}

// writeSkew: of two doctors on call each may leave if the other stays.
func writeSkew(e *env) {
	leave := func(me, other string) (kv.Txn, bool) {
		snap := e.s.Snapshot()
		defer e.closeSnap(snap)
		mine, theirs := e.getIn(snap, me), e.getIn(snap, other)
		if mine.value != "on" || theirs.value != "on" {
			return kv.Txn{}, false
		}
		checks := append(at(me, mine.v), at(other, theirs.v)...)
		return kv.Txn{Checks: checks, Puts: puts(me, "off")}, true
	}
	e.commit(kv.Txn{Puts: puts("a", "on", "b", "on")})
	first, _ := leave("a", "b")
	second, _ := leave("b", "a")
	e.commit(first)
	e.conflict(second)

	for range 100 {
		e.commit(kv.Txn{Puts: puts("a", "on", "b", "on")})
		parallel(2, func(i int) {
			if t, ok := leave([]string{"a", "b"}[i], []string{"b", "a"}[i]); ok {
				if _, err := e.try(t); err != nil && !errors.Is(err, errs.Conflict) {
					e.Errorf("Commit: %v", err)
				}
			}
		})
		if e.get("a").value == "off" && e.get("b").value == "off" {
			e.Fatalf("both left: write skew")
		}
	}
}

// phantomRmdir: a directory is removed only while nothing is in it, and nothing is created in a
// directory that is gone, whoever comes first.
func phantomRmdir(e *env) {
	for round := range 200 {
		dir := fmt.Sprintf("dir%d", round)
		e.commit(kv.Txn{Puts: puts(dir, "")})
		create := kv.Txn{Checks: exists(dir), Puts: puts(dir+"/file", "x")}
		rmdir := kv.Txn{Checks: exists(dir), Ranges: within(dir+"/", 0), Deletes: deletes(dir)}
		var errCreate, errRmdir error
		parallel(2, func(i int) {
			if i == round%2 {
				_, errCreate = e.try(create)
			} else {
				_, errRmdir = e.try(rmdir)
			}
		})
		if (errCreate == nil) == (errRmdir == nil) {
			e.Fatalf("create: %v, rmdir: %v; exactly one must win", errCreate, errRmdir)
		}
		if e.get(dir).v == 0 && e.get(dir+"/file").v != 0 {
			e.Fatalf("a file in a directory that is gone")
		}
	}
}

// phantomRemoveAll removes what a listing showed, together with the directory, while others
// create.
func phantomRemoveAll(e *env) {
	e.commit(kv.Txn{Puts: puts("dir", "", "dir/0", "x")})
	early := e.removeAll("dir")
	e.commit(kv.Txn{Checks: exists("dir"), Puts: puts("dir/1", "x")})
	e.conflict(early)
	early = e.removeAll("dir")
	e.commit(kv.Txn{Deletes: deletes("dir/1")})
	e.conflict(early)

	for round := range 50 {
		dir := fmt.Sprintf("dir%d", round)
		e.commit(kv.Txn{Puts: puts(dir, "", dir+"/0", "x")})
		parallel(3, func(i int) {
			if i == 0 {
				e.retry(func() kv.Txn { return e.removeAll(dir) })
				return
			}
			t := kv.Txn{Checks: exists(dir), Puts: puts(fmt.Sprint(dir, "/", i), "x")}
			if _, err := e.try(t); err != nil && !errors.Is(err, errs.Conflict) {
				e.Errorf("create: %v", err)
			}
		})
		for key := range e.dump() {
			if key == dir || strings.HasPrefix(key, dir+"/") {
				e.Fatalf("%q is left of a directory that was removed", key)
			}
		}
	}
}

// removeAll lists a directory and prepares to remove it with exactly what the listing showed.
func (e *env) removeAll(dir string) kv.Txn {
	snap := e.s.Snapshot()
	defer e.closeSnap(snap)
	names := e.scan(snap, []byte(dir+"/"), kv.PrefixEnd([]byte(dir+"/")))
	return kv.Txn{
		Checks: exists(dir), Ranges: within(dir+"/", snap.Version()),
		Deletes: deletes(append(names, dir)...),
	}
}

// consistentSnapshots moves money between accounts, which come and go; the total never changes.
func consistentSnapshots(e *env) {
	const total, writers = 100, 3
	e.commit(kv.Txn{Puts: puts("acct/0", counter(total))})
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !done.Load() {
				snap := e.s.Snapshot()
				if sum := e.sum(snap); sum != total {
					e.Errorf("snapshot %d holds %d in all, want %d", snap.Version(), sum, total)
					done.Store(true)
				}
				e.closeSnap(snap)
			}
		})
	}
	parallel(writers, func(w int) {
		for i := range 100 {
			e.retry(func() kv.Txn { return e.transfer(w, i) })
		}
	})
	done.Store(true)
	readers.Wait()
}

// transfer moves the whole of one account to a new one, which takes the old one's place.
func (e *env) transfer(w, i int) kv.Txn {
	snap := e.s.Snapshot()
	defer e.closeSnap(snap)
	keys := e.scan(snap, []byte("acct/"), nil)
	from := keys[(w+i)%len(keys)]
	c := e.getIn(snap, from)
	to := fmt.Sprintf("acct/%d.%d", w, i%7)
	if to == from {
		return kv.Txn{}
	}
	return kv.Txn{
		Checks: at(from, c.v), Deletes: deletes(from),
		Adds: adds(to, decode(c.value)),
	}
}

func (e *env) sum(snap kv.Snapshot) (sum int64) {
	err := snap.Scan([]byte("acct/"), nil, func(_, value []byte, _ kv.Version) bool {
		sum += decode(string(value))
		return true
	})
	if err != nil {
		e.Errorf("Scan: %v", err)
	}
	return sum
}
