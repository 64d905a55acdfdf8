package unifier

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// muted takes the failures of a run that is meant to fail.
type muted struct {
	testing.TB
	mu     sync.Mutex
	why    string
	ending []func()
}

func (m *muted) Helper()                      {}
func (m *muted) Logf(string, ...any)          {}
func (m *muted) Cleanup(fn func())            { m.ending = append(m.ending, fn) }
func (m *muted) Error(args ...any)            { m.note(fmt.Sprint(args...)) }
func (m *muted) Errorf(f string, args ...any) { m.note(fmt.Sprintf(f, args...)) }
func (m *muted) Fatal(args ...any)            { m.stop(fmt.Sprint(args...)) }
func (m *muted) Fatalf(f string, args ...any) { m.stop(fmt.Sprintf(f, args...)) }

func (m *muted) note(why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why == "" {
		m.why = why
	}
}

func (m *muted) stop(why string) {
	m.note(why)
	runtime.Goexit()
}

// found runs a test, panics included, and tells what it has found.
func (m *muted) found(run func(testing.TB)) string {
	for _, step := range []func(){func() { run(m) }, m.end} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if v := recover(); v != nil {
					m.note(fmt.Sprint("panic: ", v))
				}
			}()
			step()
		}()
		<-done
	}
	return m.why
}

func (m *muted) end() {
	for _, fn := range m.ending {
		fn()
	}
}

// TestDefectsAreFound plants each defect and looks whether the tests that are there find it.
func TestDefectsAreFound(t *testing.T) {
	model := func(defect string) func(testing.TB, int) {
		return func(t testing.TB, round int) { modelRun(t, 1000+round, defect) }
	}
	for name, run := range map[string]func(testing.TB, int){
		"lend without a pin":            model("lendUnpinned"),
		"fill without settling":         model("skipSettle"),
		"drop stamps when merging":      model("dropStamps"),
		"keep what was changed":         model("keepChanged"),
		"evict what is dirty":           model("evictDirty"),
		"keep the sums of a merge":      model("keepSums"),
		"pending writes in wrong order": model("anyOrder"),
		"slots in wrong order":          model("loseSlots"),
		"publish what does not verify": func(t testing.TB, _ int) {
			wrongSums(t, "skipVerify")
		},
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 60 {
				m := &muted{TB: t}
				if why := m.found(func(t testing.TB) { run(t, round) }); why != "" {
					t.Logf("round %d: %s", round, why)
					return
				}
			}
			t.Fatal("nobody has found it")
		})
	}
	m := &muted{TB: t}
	if why := m.found(func(t testing.TB) { wrongSums(t) }); why != "" {
		t.Fatalf("without a defect: %s", why)
	}
}

// wrongSums sends data that was damaged on its way.
func wrongSums(t testing.TB, defects ...string) {
	r := newRig(t, Config{DirtyBytes: 256 << 10, DirtyAge: time.Millisecond})
	r.plant(defects)
	r.write(alpha, 0, fill1(3*testUnit, 1))
	p := fill1(3*testUnit, 2)
	sums := sumsOf(p, testUnit)
	p[testUnit]++
	w, err := r.Draft(r.ctx, alpha, seg.Contig(0, 3*testUnit), Hint{})
	r.ok(err)
	scatter(w.Sges(), p)
	if w.Verify(sums, testUnit) == nil {
		r.ok(only(w.Publish(r.ctx, wire.Stamp{}, stripe.Volatile)))
	} else {
		w.Abort()
	}
	r.holds(alpha, 0, fill1(3*testUnit, 1))
}
