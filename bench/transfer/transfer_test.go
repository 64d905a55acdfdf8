package transfer

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/benchtest"
)

// TestMeasures runs every case with a peer in this process.
func TestMeasures(t *testing.T) {
	open := benchtest.Opener(t)
	n := &Bench{Providers: []string{"tcp", Shm}, Open: open,
		Peer: benchtest.Serve(t, func(err error) { t.Error("peer:", err) }, Jobs(open))}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	b := bench.Budget{Rounds: 1, Round: time.Millisecond, Note: func(text string) { t.Error(text) }}
	rows, err := bench.RunAll(t.Context(), b, n.Cases())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{piecesName, farName, "write-256", "write-64k", "write-4m"} {
		for _, p := range []string{"tcp", Shm, Socket} {
			if !slices.ContainsFunc(rows, func(r bench.Row) bool {
				return r.Case == name && r.Provider == p && r.LocalCPU != nil && r.RemoteCPU != nil
			}) {
				t.Errorf("no row of %s by %s, with what it costs", name, p)
			}
		}
	}
	for _, r := range rows {
		if r.Bench != "transfer" || !(r.Value > 0) || math.IsInf(r.Value, 0) || r.Depth != depth ||
			r.Ceiling != "" && !(r.Ratio > 0) {
			t.Errorf("%+v", r)
		}
	}
	if all := bench.Judge(Promises(), rows); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	n.Quick = true
	if all := n.Cases(); len(all) != 1 {
		t.Errorf("%d cases are quick", len(all))
	}
}
