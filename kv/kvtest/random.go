package kvtest

import (
	"errors"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

func modelCases() []Case {
	return []Case{{Name: "model/random", Run: func(tb testing.TB, cfg Config) {
		tb.Helper()
		rapid.Check(tb, func(rt *rapid.T) { runRandom(tb, rt, cfg) })
	}}}
}

// rapidTB sends failures to rapid, which then looks for a shorter run and prints how to repeat
// it.
type rapidTB struct {
	testing.TB
	rt *rapid.T
}

func (r rapidTB) Helper()                   {}
func (r rapidTB) Errorf(f string, a ...any) { r.rt.Errorf(f, a...) }
func (r rapidTB) Fatalf(f string, a ...any) { r.rt.Fatalf(f, a...) }

// run is one random run: a store, its model, and snapshots that are held for a while.
type run struct {
	*env
	rt   *rapid.T
	m    *model
	held []held
	ids  int
	sent []kv.Txn // those with a request id
}

type held struct {
	snap kv.Snapshot
	want point
}

func runRandom(tb testing.TB, rt *rapid.T, cfg Config) {
	failing := rapidTB{tb, rt}
	r := &run{env: &env{TB: failing, cfg: cfg, s: cfg.Open(failing)}, rt: rt, m: newModel()}
	defer func() {
		r.dropAll()
		if err := r.s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	}()
	steps := map[string]func(){
		"commit": r.randomCommit, "repeat": r.repeat, "hold": r.hold, "look": r.look,
		"sync": r.syncAll, "reopen": r.restart, "crash": r.powerCut,
	}
	names := []string{"commit", "commit", "commit", "commit", "commit", "repeat", "hold", "look",
		"sync", "reopen", "crash"}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		steps[rapid.SampledFrom(names).Draw(rt, "step")]()
		r.compare()
	}
}

// compare demands that the store is what the model is.
func (r *run) compare() {
	snap := r.s.Snapshot()
	defer r.closeSnap(snap)
	r.compareOne(snap, point{r.m.last, r.m.state})
}

func (r *run) compareOne(snap kv.Snapshot, want point) {
	if snap.Version() != want.v {
		r.Fatalf("snapshot says version %d, want %d", snap.Version(), want.v)
	}
	if got := r.dumpOf(snap); !maps.Equal(got, want.state) {
		r.Fatalf("at version %d\nstore %v\nmodel %v", want.v, got, want.state)
	}
	for _, key := range []string{"a", "d/2", "n"} {
		if got := r.getIn(snap, key); got != want.state[key] {
			r.Fatalf("at version %d key %q is %v, want %v", want.v, key, got, want.state[key])
		}
	}
}

func (r *run) randomCommit() {
	t := r.draw()
	verdict := r.m.judge(&t)
	v, err := r.try(t)
	switch {
	case err == nil && verdict == mustConflict:
		r.Fatalf("a transaction that must conflict was committed as %d: %+v", v, t)
	case err != nil && !errors.Is(err, errs.Conflict):
		r.Fatalf("Commit: %v", err)
	case err != nil && verdict == mustCommit:
		r.Fatalf("a transaction that must commit was refused: %v: %+v", err, t)
	case err != nil:
		return
	case v != r.m.given+1 && v <= max(r.m.given, r.m.burnt):
		r.Fatalf("version %d was given, %d had been reached", v, r.m.given)
	case v != r.m.given+1 && r.m.last != r.m.opened:
		r.Fatalf("version %d follows %d", v, r.m.last)
	}
	r.m.apply(&t, v)
	if t.ReqID != (kv.ReqID{}) {
		r.sent = append(r.sent, t)
	}
}

// repeat sends an earlier request again. If a crash undid it, it is a new one.
func (r *run) repeat() {
	if len(r.sent) == 0 {
		return
	}
	t := rapid.SampledFrom(r.sent).Draw(r.rt, "repeat")
	first, known := r.m.done[t.ReqID]
	if !known {
		return
	}
	t.Answer++ // it counts the first time only
	if again := r.result(t); again != first {
		r.Fatalf("request %x gave %+v, first %+v", t.ReqID, again, first)
	}
	if t.Sync {
		r.m.synced()
	}
}

func (r *run) hold() {
	if len(r.held) < 3 {
		r.held = append(r.held, held{r.s.Snapshot(), point{r.m.last, r.m.state}})
	}
}

func (r *run) look() {
	for _, h := range r.held {
		r.compareOne(h.snap, h.want)
	}
	r.dropAll()
}

func (r *run) dropAll() {
	for _, h := range r.held {
		_ = h.snap.Close()
	}
	r.held = nil
}

func (r *run) syncAll() {
	if err := r.s.Sync(r.Context()); err != nil {
		r.Fatalf("Sync: %v", err)
	}
	r.m.synced()
}

func (r *run) restart() {
	r.look()
	r.reopen()
	r.m.reopened()
}

func (r *run) powerCut() {
	r.look()
	r.crash()
	snap := r.s.Snapshot()
	defer r.closeSnap(snap)
	state := r.dumpOf(snap)
	if points := r.m.points; !r.m.crashed(snap.Version(), state) {
		r.Fatalf("a crash left %v at %d, which is none of %v", state, snap.Version(), points)
	}
}

// draw makes a transaction over few keys, with checks that mostly hold.
func (r *run) draw() kv.Txn {
	rt := r.rt
	t := kv.Txn{Sync: rapid.IntRange(0, 3).Draw(rt, "sync") == 0}
	if rapid.Bool().Draw(rt, "with id") {
		r.ids++
		t.ReqID = reqID(1, r.ids)
		t.Answer = rapid.Uint64().Draw(rt, "answer")
	}
	plain := rapid.SampledFrom([]string{"a", "b", "d", "d/1", "d/2", "d/3", "d0", "\xff"})
	counters := rapid.SampledFrom([]string{"n", "d/n"})
	for range rapid.IntRange(0, 2).Draw(rt, "checks") {
		key := rapid.OneOf(plain, counters).Draw(rt, "check")
		c := kv.Check{Key: []byte(key), Version: r.m.state[key].v}
		switch rapid.IntRange(0, 7).Draw(rt, "kind") {
		case 0, 1:
			c.Exists = true
		case 2:
			c.Version = kv.Version(rapid.Uint64Range(0, uint64(r.m.given)+1).Draw(rt, "version"))
		case 3:
			c.Version = 0
		}
		t.Checks = append(t.Checks, c)
	}
	for range rapid.IntRange(0, 2).Draw(rt, "ranges") {
		t.Ranges = append(t.Ranges, r.drawRange())
	}
	for _, key := range rapid.SliceOfNDistinct(plain, 0, 4, rapid.ID).Draw(rt, "keys") {
		if rapid.IntRange(0, 2).Draw(rt, "effect") == 0 {
			t.Deletes = append(t.Deletes, []byte(key))
		} else {
			t.Puts = append(t.Puts, put(key, rapid.StringN(0, 3, 6).Draw(rt, "value")))
		}
	}
	for _, key := range rapid.SliceOfNDistinct(counters, 0, 2, rapid.ID).Draw(rt, "counters") {
		if rapid.IntRange(0, 4).Draw(rt, "effect") == 0 {
			t.Deletes = append(t.Deletes, []byte(key))
		} else {
			t.Adds = append(t.Adds, adds(key, rapid.Int64().Draw(rt, "delta"))...)
		}
	}
	return t
}

func (r *run) drawRange() kv.RangeCheck {
	bounds := rapid.SampledFrom([][2]string{
		{"d/", "d0"}, {"d/1", "d/1\x00"}, {"a", "c"}, {"", "a"}, {"d/2", ""}, {"", ""}, {"e", "f"},
	})
	b := bounds.Draw(r.rt, "range")
	g := kv.RangeCheck{Start: []byte(b[0]), End: []byte(b[1])}
	switch back := rapid.Uint64Range(0, 8).Draw(r.rt, "since"); {
	case back == 8: // must be empty
	case back == 7: // any version, those that a crash undid included
		g.Since = kv.Version(rapid.Uint64Range(0, uint64(r.m.given)+1).Draw(r.rt, "any"))
	case kv.Version(back) < r.m.last:
		g.Since = r.m.last - kv.Version(back)
	}
	return g
}
