package lock

import (
	"maps"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Expect lets the table wait for the claims of a session of the last life. Until all of those have
// claimed, or ended, nothing is granted but claims.
func (t *Table) Expect(sess uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected[sess] = struct{}{}
}

// Expected lists the sessions whose claims have not come.
func (t *Table) Expected() []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.expected))
}

// Settle ends the wait for a session's claims.
func (t *Table) Settle(sess uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(sess)
}

func (t *Table) settle(sess uint64) {
	if _, ok := t.expected[sess]; !ok {
		return
	}
	delete(t.expected, sess)
	if len(t.expected) > 0 {
		return
	}
	var all []*entry
	for _, s := range t.sessions {
		for _, e := range s.waits {
			all = append(all, e)
		}
	}
	t.resume(all)
	for _, e := range all {
		if e.queued && t.deadlocked(e) {
			t.refuse(e, errs.Deadlock)
		}
		t.tidy(e.file)
	}
}

// Claim brings locks of a session back, which were held before a restart, or by the session old of
// the same client, and returns those that are lost. What old holds passes to the session. With more
// its claims are not complete.
func (t *Table) Claim(sess, old uint64, locks []meta.Lock, more bool) (lost []meta.Lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old != sess {
		t.inherit(sess, old)
	}
	_, expected := t.expected[old]
	for _, l := range locks {
		if !t.claim(sess, &l, expected) {
			lost = append(lost, l)
		}
	}
	if !more {
		t.settle(old)
		t.settle(sess)
	}
	return lost
}

// claim brings one lock back, if it is there already, or if it cannot have been anybody else's.
func (t *Table) claim(sess uint64, l *meta.Lock, expected bool) bool {
	f := t.fileOf(l)
	defer t.tidy(f)
	t.serial++
	e := &entry{file: f, owner: owner{sess, l.Owner}, typ: l.Type, start: l.Start, end: l.End,
		pid: l.PID, serial: t.serial}
	switch {
	case f.covered(e):
		return true
	case !expected || f.conflict(e) != nil || !t.room(t.sessionOf(sess)):
		return false
	}
	t.hold(e)
	return true
}

// inherit moves what a session holds to another one. Nobody else can have it in between.
func (t *Table) inherit(sess, old uint64) {
	from := t.sessions[old]
	if from == nil {
		return
	}
	t.stop(from)
	var moved, freed []*entry
	for k := range from.files {
		moved = append(moved, k.file.owned[k.owner]...)
	}
	for _, e := range moved {
		freed = append(freed, e.hanging...)
		e.hanging = nil
		t.drop(e)
	}
	for _, e := range moved {
		e.owner.session = sess
		t.hold(e)
	}
	t.resume(freed)
}
