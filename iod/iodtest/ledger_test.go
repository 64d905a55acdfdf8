package iodtest

import (
	"slices"
	"testing"
)

// story is a ledger of one cell and what happens to it. Its methods are named for whole requests;
// the ledger's own are for those that overlap.
type story struct{ *Ledger }

// put is a write from beginning to end; its bytes are what seen returns them as.
func (s story) put(client int, stable bool) []byte {
	op := s.Write(client, []int{0})
	p := make([]byte, s.CellBytes())
	op.Fill(p)
	op.Written(stable)
	return p
}

// begin is a write that has not ended.
func (s story) begin(client int) (*Op, []byte) {
	op := s.Write(client, []int{0})
	p := make([]byte, s.CellBytes())
	op.Fill(p)
	return op, p
}

func (s story) sees(client int, p []byte) bool { return s.Ask(client, []int{0}).Seen(p) == nil }

func (s story) sync(client int) { s.Ask(client, nil).Synced() }

// tale is what happens to a ledger, and whether the last reads may be as they are.
type tale struct {
	name string
	want bool
	read func(s story) bool
}

// plainTales have no crash in them.
func plainTales() []tale {
	zero := make([]byte, 100)
	return []tale{
		{"a hole is zeroes", true, func(s story) bool { return s.sees(1, zero) }},
		{"the last write", true, func(s story) bool {
			s.put(1, false)
			return s.sees(2, s.put(1, false))
		}},
		{"the write before", false, func(s story) bool {
			old := s.put(1, false)
			s.put(2, false)
			return s.sees(1, old)
		}},
		{"a write that runs, and the one before", true, func(s story) bool {
			old := s.put(1, false)
			_, running := s.begin(2)
			return s.sees(1, old) && s.sees(1, running)
		}},
		{"back and forth while it runs", false, func(s story) bool {
			old := s.put(1, false)
			_, running := s.begin(2)
			return s.sees(1, old) && s.sees(1, running) && s.sees(3, old)
		}},
		{"two that overlap, in either order", true, func(s story) bool {
			a, _ := s.begin(1)
			b, second := s.begin(2)
			b.Written(false)
			a.Written(false)
			return s.sees(3, second)
		}},
		{"of two that overlap first one, then the other", false, func(s story) bool {
			a, first := s.begin(1)
			b, second := s.begin(2)
			b.Written(false)
			a.Written(false)
			return s.sees(3, second) && s.sees(3, first)
		}},
		{"a failed write may come late", true, func(s story) bool {
			op, late := s.begin(1)
			op.Failed()
			s.put(2, true)
			return s.sees(3, late)
		}},
		{"torn", false, func(s story) bool {
			a, b := s.put(1, false), s.put(1, false)
			return s.sees(1, append(b[:50:50], a[50:]...))
		}},
		{"zeroes after a punch", true, func(s story) bool {
			s.put(1, true)
			s.Zero(1, []int{0}).Written(true)
			return s.sees(1, zero)
		}},
		{"zeroes before a write", false, func(s story) bool { s.put(1, true); return s.sees(2, zero) }},
	}
}

// lostTales are about what a crash takes.
func lostTales() []tale {
	zero := make([]byte, 100)
	return []tale{
		{"what was not synced is lost to others", true, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			return s.sees(2, zero)
		}},
		{"but its client has repeated it", false, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			return s.sees(1, zero)
		}},
		{"and then it is there for all", false, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			s.sync(1)
			return s.sees(2, zero)
		}},
		{"what was synced survives", false, func(s story) bool {
			s.put(1, false)
			s.sync(2)
			s.Crashed()
			return s.sees(2, zero)
		}},
		{"what was durable survives", false, func(s story) bool {
			s.put(1, true)
			s.Crashed()
			return s.sees(2, zero)
		}},
		{"what overlapped a sync does not", true, func(s story) bool {
			op, _ := s.begin(1)
			syncing := s.Ask(2, nil)
			op.Written(false)
			syncing.Synced()
			s.Crashed()
			return s.sees(2, zero)
		}},
	}
}

// repeatTales are about what clients repeat afterwards.
func repeatTales() []tale {
	zero := make([]byte, 100)
	return []tale{
		{"a sync across a crash is for its client only", true, func(s story) bool {
			s.put(1, false)
			syncing := s.Ask(2, nil)
			s.Crashed()
			syncing.Synced()
			return s.sees(2, zero)
		}},
		{"a sync does not cover what is repeated behind it", true, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			syncing := s.Ask(2, nil)
			s.sees(1, zero) // its client has repeated it by now
			syncing.Synced()
			s.Crashed()
			return s.sees(2, zero)
		}},
		{"what is repeated does not come over newer stable bytes", false, func(s story) bool {
			old := s.put(1, false)
			s.put(2, true)
			s.Crashed()
			s.sync(1)
			return s.sees(2, old)
		}},
		{"clients repeat in any order", true, func(s story) bool {
			old := s.put(1, false)
			s.put(2, false)
			s.Crashed()
			s.sync(2)
			s.sync(1)
			return s.sees(2, old)
		}},
		{"one client repeats in its order", false, func(s story) bool {
			old := s.put(1, false)
			s.put(1, false)
			s.Crashed()
			s.sync(1)
			return s.sees(2, old)
		}},
		{"a client that is gone repeats nothing", true, func(s story) bool {
			p := s.put(1, false)
			s.Gone(1)
			s.Crashed()
			first := s.sees(2, p)
			return first && s.sees(2, p) // nobody takes it back
		}},
		{"and its lost bytes stay lost", false, func(s story) bool {
			p := s.put(1, false)
			s.Gone(1)
			s.Crashed()
			return s.sees(2, zero) && s.sees(2, s.put(2, false)) && s.sees(2, p)
		}},
	}
}

// laterTales are about what is written between a crash and a repetition.
func laterTales() []tale {
	return []tale{
		{"what is written after a crash stays on top", false, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			s.put(2, false)
			return s.sees(3, old)
		}},
		{"also when the client is gone that repeats", false, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			s.Gone(1)
			s.put(2, true)
			return s.sees(3, old)
		}},
		{"for good when it has repeated", false, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			s.put(2, true)
			s.sync(1)
			s.Crashed()
			return s.sees(3, old)
		}},
		{"what a crash has met under way is not later", true, func(s story) bool {
			op, p := s.begin(2)
			old := s.put(1, false)
			s.Crashed()
			op.Written(true)
			return s.sees(3, p) && s.sees(3, old)
		}},
		{"what a client that is gone has repeated may come late", true, func(s story) bool {
			op, p := s.begin(2)
			old := s.put(1, false)
			s.Crashed()
			s.Gone(1)
			op.Written(true)
			return s.sees(3, p) && s.sees(3, old)
		}},
	}
}

// cutTales have a truncation after a crash.
func cutTales() []tale {
	zero := make([]byte, 100)
	return []tale{
		{"what is repeated behind a truncation may be refused", true, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			s.Truncate(2, nil).Written(true)
			return s.sees(1, zero)
		}},
		{"its client is told", false, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			s.Truncate(2, nil).Written(true)
			s.sync(1)
			return s.sees(1, zero)
		}},
		{"and was told", true, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			s.Truncate(2, nil).Written(true)
			told := s.Ask(1, nil).Told()
			s.sync(1)
			return told && s.sees(1, zero)
		}},
		{"of two syncs one is told", true, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			s.Truncate(2, nil).Written(true)
			one, two := s.Ask(1, nil), s.Ask(1, nil)
			one.Synced()
			return two.Told() && s.sees(1, zero)
		}},
		{"nobody is told of what the truncation takes", true, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			s.Truncate(2, []int{0}).Written(true)
			s.sync(1)
			return s.sees(1, zero)
		}},
		{"nothing is lost without a crash", false, func(s story) bool {
			s.put(1, false)
			s.Truncate(2, nil).Written(true)
			return s.Ask(1, nil).Told()
		}},
		{"but what was stable stays", false, func(s story) bool {
			s.put(1, true)
			s.Crashed()
			s.Truncate(2, nil).Written(true)
			return s.sees(1, zero)
		}},
	}
}

// missedTales are about a client that does not come back before the server dies again.
func missedTales() []tale {
	return []tale{
		{"it does not repeat over what is stable", false, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			s.put(2, true)
			s.Crashed()
			return s.sees(3, old)
		}},
		{"nor over what was repeated and synced", false, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			s.put(2, false)
			s.Crashed()
			s.sync(2)
			s.Crashed()
			return s.sees(3, old)
		}},
		{"nor over what was seen, repeated", false, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			later := s.put(2, false)
			s.Crashed()
			return s.sees(3, later) && s.sees(3, old)
		}},
		{"it may be the first to repeat", true, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			later := s.put(2, false)
			s.Crashed()
			return s.sees(3, old) && s.sees(3, later)
		}},
	}
}

// awayTales are about what becomes of what such a client has written.
func awayTales() []tale {
	zero := make([]byte, 100)
	elsewhere := func(s story) { s.Write(2, nil).Written(true) }
	return []tale{
		{"it repeats if nothing was written", true, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			s.Crashed()
			return s.sees(1, old)
		}},
		{"and nothing else will do", false, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			s.Crashed()
			return s.sees(1, zero)
		}},
		{"nor is anything lost", false, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			s.Crashed()
			elsewhere(s)
			return s.Ask(1, nil).Told()
		}},
		{"it is told if something was written", true, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			elsewhere(s)
			s.Crashed()
			return s.Ask(1, nil).Told() && s.sees(1, zero)
		}},
		{"and has lost nothing if it is not", false, func(s story) bool {
			s.put(1, false)
			s.Crashed()
			elsewhere(s)
			s.Crashed()
			s.sync(1)
			return s.sees(1, zero)
		}},
		{"nor if it was there in between", false, func(s story) bool {
			old := s.put(1, false)
			s.Crashed()
			elsewhere(s)
			s.sees(1, old)
			s.Crashed()
			return s.Ask(1, nil).Told()
		}},
	}
}

// coveredTales are about what somebody has replaced for good, which its client cannot know.
func coveredTales() []tale {
	elsewhere := func(s story) { s.Write(3, nil).Written(true) }
	covered := func(s story) {
		s.put(1, false)
		s.put(2, true)
		s.sees(2, s.put(2, true))
	}
	return []tale{
		{"it is sent again, refused and told", true, func(s story) bool {
			covered(s)
			s.Crashed()
			elsewhere(s)
			s.Crashed()
			return s.Ask(1, nil).Told()
		}},
		{"unless nothing was written", false, func(s story) bool {
			covered(s)
			s.Crashed()
			s.Crashed()
			return s.Ask(1, nil).Told()
		}},
		{"or its client has synced", false, func(s story) bool {
			covered(s)
			s.sync(1)
			s.Crashed()
			elsewhere(s)
			s.Crashed()
			return s.Ask(1, nil).Told()
		}},
		{"or was there", false, func(s story) bool {
			covered(s)
			s.Crashed()
			s.Ask(1, nil).Synced()
			elsewhere(s)
			s.Crashed()
			return s.Ask(1, nil).Told()
		}},
	}
}

// lateTales are about answers that come in after a crash that they were sent before.
func lateTales() []tale {
	zero := make([]byte, 100)
	elsewhere := func(s story) { s.Write(2, nil).Written(true) }
	return []tale{
		{"an answer may be from the life before the one that just ends", true, func(s story) bool {
			op, _ := s.begin(1)
			s.Crashed()
			elsewhere(s)
			s.Crashing()
			op.Written(false)
			s.Crashed()
			told := s.Ask(1, nil).Told()
			s.sync(1)
			return told && s.sees(1, zero)
		}},
		{"or from the next life, and is lost with what came after it", true, func(s story) bool {
			op, p := s.begin(1)
			s.Crashed()
			op.Written(false)
			later := s.put(2, false)
			s.Crashed()
			return s.sees(3, later) && s.sees(3, p)
		}},
		{"or from before that one", true, func(s story) bool {
			op, _ := s.begin(1)
			s.Crashed()
			elsewhere(s)
			s.Crashed()
			op.Written(false)
			told := s.Ask(1, nil).Told()
			s.sync(1)
			return told && s.sees(1, zero)
		}},
	}
}

func TestLedger(t *testing.T) {
	for _, c := range slices.Concat(plainTales(), lostTales(), repeatTales(),
		laterTales(), missedTales(), awayTales(), lateTales(), coveredTales(), cutTales()) {
		t.Run(c.name, func(t *testing.T) {
			if got := c.read(story{NewLedger(1, 100)}); got != c.want {
				t.Errorf("allowed: %v, want %v", got, c.want)
			}
		})
	}
}
