package member

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

var limits = Limits{Slow: 3 * time.Second, Down: 10 * time.Second}

func at(s float64) time.Time {
	return time.Unix(1_800_000_000, 0).Add(time.Duration(s * float64(time.Second)))
}

func TestSilence(t *testing.T) {
	m, changed, err := Member{}.Hear(Beat{Incarnation: 1, Start: 7}, at(0))
	if err != nil || !changed || m.State != meta.StateUp {
		t.Fatalf("%+v %v %v", m, changed, err)
	}
	for _, c := range []struct {
		after float64
		want  meta.State
	}{{0, meta.StateUp}, {3, meta.StateUp}, {3.1, meta.StateSlow}, {10, meta.StateSlow},
		{10.1, meta.StateDown}, {1e6, meta.StateDown}} {
		if got := m.At(at(c.after), limits); got != c.want {
			t.Errorf("after %v s of silence it is %v", c.after, got)
		}
		if m.Due(at(c.after), limits) != (c.want != meta.StateUp) {
			t.Errorf("after %v s: whether there is something to note down", c.after)
		}
	}
	m, changed, err = m.Hear(Beat{Incarnation: 1, Start: 7}, at(2))
	if err != nil || changed {
		t.Fatalf("a heartbeat without news changes something: %v %v", changed, err)
	}
	if got := m.At(at(5), limits); got != meta.StateUp {
		t.Fatalf("it was heard of 3 s ago and is %v", got)
	}
	m.Excuse(20 * time.Second)
	if got := m.At(at(25), limits); got != meta.StateUp {
		t.Fatalf("nobody listened for 20 s, and it is %v", got)
	}
}

func TestLeaving(t *testing.T) {
	m, _, _ := Member{}.Hear(Beat{Incarnation: 1}, at(0))
	m, changed, err := m.Hear(Beat{Incarnation: 1, Leaving: true}, at(1))
	if err != nil || !changed || m.At(at(5), limits) != meta.StateLeaving ||
		m.At(at(12), limits) != meta.StateDown {
		t.Fatalf("%+v %v", m, err)
	}
	m, changed, err = m.Hear(Beat{Incarnation: 2}, at(6))
	if err != nil || !changed || m.At(at(6), limits) != meta.StateUp {
		t.Fatalf("it is back: %+v %v", m, err)
	}
}

func TestLateHeartbeats(t *testing.T) {
	m, _, _ := Member{}.Hear(Beat{Incarnation: 5, Start: 1}, at(0))
	for name, b := range map[string]Beat{"an older start": {Incarnation: 4, Start: 1},
		"one that does not count": {}, "a second process": {Incarnation: 5, Start: 2}} {
		if next, _, err := m.Hear(b, at(1)); errs.KindOf(err) != errs.Stale || next != m {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.State = meta.StateGone
	if _, _, err := m.Hear(Beat{Incarnation: 5, Start: 1}, at(1)); errs.KindOf(err) != errs.NotFound {
		t.Errorf("a late heartbeat brings back what was removed: %v", err)
	}
	if m.At(at(99), limits) != meta.StateGone {
		t.Error("what is gone is down")
	}
	m, changed, err := m.Hear(Beat{Incarnation: 6, Start: 9}, at(2))
	if err != nil || !changed || m.State != meta.StateUp {
		t.Errorf("a new start of what was removed: %+v %v", m, err)
	}
}

func TestLoaded(t *testing.T) {
	up := Loaded(Member{Incarnation: 1, State: meta.StateUp}, at(100))
	if up.Due(at(103), limits) || up.At(at(111), limits) != meta.StateDown {
		t.Errorf("who was up has no time to be heard of, or all of it: %+v", up)
	}
	down := Loaded(Member{Incarnation: 1, State: meta.StateDown}, at(100))
	if down.Due(at(100), limits) {
		t.Error("who was down is not")
	}
}

// TestRandom: whatever comes in whatever order, incarnations never fall, a member that was heard of
// within Slow is not slow, and one that was silent for longer than Down does not serve.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Member
		now, heard := at(0), time.Time{}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 12000).Draw(t, "ms")) * time.Millisecond)
			b := Beat{Incarnation: rapid.Uint64Range(0, 4).Draw(t, "inc"),
				Start: rapid.Uint64Range(0, 1).Draw(t, "start"), Leaving: rapid.Bool().Draw(t, "leaving")}
			next, changed, err := m.Hear(b, now)
			switch {
			case err != nil && (next != m || changed):
				t.Fatal("what is refused changes something")
			case err == nil && (next.Incarnation < m.Incarnation ||
				next.Incarnation == m.Incarnation && m.State != 0 && next.Start != m.Start):
				t.Fatalf("%+v after %+v", next, m)
			case err == nil:
				heard = now
			}
			m = next
			later := now.Add(time.Duration(rapid.IntRange(0, 12000).Draw(t, "later")) * time.Millisecond)
			if heard.IsZero() {
				continue
			}
			state, silent := m.At(later, limits), later.Sub(heard)
			if silent > limits.Down && state.Serves() || silent <= limits.Slow && state == meta.StateSlow ||
				silent <= limits.Down && state == meta.StateDown {
				t.Fatalf("%v after %v of silence: %+v", state, silent, m)
			}
		}
	})
}
