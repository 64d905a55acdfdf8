package kvtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-storage/sluice/kv"
)

func snapshotCases() []Case {
	return []Case{
		on("snapshot/never-changes", snapshotNeverChanges),
		on("snapshot/sees-returned-commits", snapshotSeesReturned),
		on("snapshot/scan-bounds", scanBounds),
		on("snapshot/scan-stops", scanStops),
		on("snapshot/values-stay", valuesStay),
		on("snapshot/many", manySnapshots),
	}
}

func snapshotNeverChanges(e *env) {
	v := e.commit(kv.Txn{Puts: puts("a", "1", "b", "1"), Adds: adds("n", 1)})
	snap := e.s.Snapshot()
	defer e.closeSnap(snap)
	before := e.dumpOf(snap)
	e.commit(kv.Txn{Puts: puts("a", "2", "c", "2"), Deletes: deletes("b"), Adds: adds("n", 1)})
	if err := e.s.Sync(e.Context()); err != nil {
		e.Fatalf("Sync: %v", err)
	}
	if after := e.dumpOf(snap); !maps.Equal(before, after) {
		e.Errorf("a snapshot changed\nbefore %v\nafter  %v", before, after)
	}
	if snap.Version() != v {
		e.Errorf("snapshot of version %d says %d", v, snap.Version())
	}
	for key, want := range map[string]cell{"a": {"1", v}, "b": {"1", v}, "c": {}} {
		if got := e.getIn(snap, key); got != want {
			e.Errorf("snapshot has %q = %v, want %v", key, got, want)
		}
	}
}

func snapshotSeesReturned(e *env) {
	parallel(8, func(i int) {
		key := fmt.Sprint("k", i)
		for n := range 50 {
			t := kv.Txn{Puts: puts(key, fmt.Sprint(n))}
			v, err := e.try(t)
			if err != nil {
				e.Errorf("Commit: %v", err)
				return
			}
			snap := e.s.Snapshot()
			if snap.Version() < v {
				e.Errorf("a snapshot after commit %d is at %d", v, snap.Version())
			}
			if got, gotV, err := snap.Get([]byte(key)); err != nil || gotV != v {
				e.Errorf("%q is %q@%d after commit %d (%v)", key, got, gotV, v, err)
			}
			e.closeSnap(snap)
		}
	})
}

func scanBounds(e *env) {
	all := []string{"\x00", "a", "a\x00", "ab", "b", "b\xff", "c", "\xff", "\xff\xff"}
	shuffled := []int{4, 8, 0, 6, 2, 7, 1, 5, 3}
	for _, i := range shuffled {
		e.commit(kv.Txn{Puts: puts(all[i], "v"+all[i])})
	}
	snap := e.s.Snapshot()
	defer e.closeSnap(snap)
	bounds := append([]string{"", "0", "aa", "zz", "\xff\xff\xff"}, all...)
	for _, start := range bounds {
		for _, end := range bounds {
			want := []string{}
			for _, k := range all {
				if k >= start && (k < end || end == "") {
					want = append(want, k)
				}
			}
			if got := e.scan(snap, []byte(start), []byte(end)); !slices.Equal(got, want) {
				e.Errorf("Scan(%q, %q) = %q, want %q", start, end, got, want)
			}
		}
	}
}

func scanStops(e *env) {
	e.commit(kv.Txn{Puts: puts("a", "1", "b", "2", "c", "3")})
	snap := e.s.Snapshot()
	defer e.closeSnap(snap)
	seen := ""
	err := snap.Scan(nil, nil, func(key, value []byte, _ kv.Version) bool {
		seen += string(key) + string(value)
		return len(seen) < 4
	})
	if err != nil || seen != "a1b2" {
		e.Errorf("a scan that stops at the second key saw %q (%v)", seen, err)
	}
}

// valuesStay: what Get returned is the caller's, after the snapshot was closed and the key
// changed.
func valuesStay(e *env) {
	e.commit(kv.Txn{Puts: puts("a", "first value")})
	snap := e.s.Snapshot()
	value, _, err := snap.Get([]byte("a"))
	if err != nil {
		e.Fatalf("Get: %v", err)
	}
	e.closeSnap(snap)
	for i := range 200 {
		e.commit(kv.Txn{Puts: puts("a", fmt.Sprintf("other value %d", i))})
	}
	if string(value) != "first value" {
		e.Errorf("a value that was read changed to %q", value)
	}
}

func manySnapshots(e *env) {
	const n = 100
	var snaps []kv.Snapshot
	for i := range n {
		e.commit(kv.Txn{Puts: puts("a", fmt.Sprint(i), fmt.Sprint("k", i), "x")})
		snaps = append(snaps, e.s.Snapshot())
	}
	for i, snap := range snaps {
		if got := e.getIn(snap, "a").value; got != fmt.Sprint(i) {
			e.Errorf("snapshot %d has a = %q", i, got)
		}
		if got := len(e.scan(snap, []byte("k"), nil)); got != i+1 {
			e.Errorf("snapshot %d lists %d keys", i, got)
		}
		e.closeSnap(snap)
	}
}
