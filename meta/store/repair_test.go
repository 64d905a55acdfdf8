package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestRepairLeavesNoContradiction takes records of every kind away at random, as damage does, and
// repairs the rest: no record contradicts another one afterwards, whatever was open.
func TestRepairLeavesNoContradiction(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBusy(t, 6)
			for i := range 10 {
				dir, err := b.s.Make(t.Context(), b.c, meta.RootIno, fmt.Sprintf("d%d", i),
					meta.NewFile{Type: meta.Directory, Mode: 0o777})
				b.must(err)
				_, err = b.s.Make(t.Context(), b.c, dir.Ino, "f",
					meta.NewFile{Type: meta.Regular, Mode: 0o666})
				b.must(err)
			}
			_, _, err := b.s.Append(t.Context(), b.c, b.writers[0], 100)
			if err != nil && errs.KindOf(err) != errs.Disconnected {
				t.Fatal(err)
			}
			b.s.Stop()
			loseRecords(t, b.m.Store, rng)
			b.must(store.Repair(t.Context(), b.m.Store, func(text string) { t.Log(text) }))
			snap := b.m.Store.Snapshot()
			defer snap.Close()
			b.must(store.VerifySnapshot(snap, func(problem string) { t.Error(problem) }))
		})
	}
}

// loseRecords deletes one record in eight, except those that exist once: without the one that names
// the cluster nothing can be repaired.
func loseRecords(t *testing.T, engine kv.Store, rng *rand.Rand) {
	t.Helper()
	snap := engine.Snapshot()
	defer snap.Close()
	var lost [][]byte
	err := snap.Scan([]byte{'B'}, []byte{'Z' + 1}, func(key, _ []byte, _ kv.Version) bool {
		if rng.IntN(8) == 0 {
			lost = append(lost, append([]byte(nil), key...))
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range lost {
		if _, err := engine.Commit(t.Context(), &kv.Txn{Deletes: [][]byte{key}}); err != nil {
			t.Fatal(err)
		}
	}
}
