package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/internal/journal"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// noting is a deferral with a journal, and nothing else.
func noting(t testing.TB, mem []byte) *deferral {
	t.Helper()
	j, err := journal.Open(mem)
	must(t, err)
	d := newDeferral(j)
	return &d
}

// makes is an operation that makes a file, which is open.
func makes(d *deferral, ino meta.Ino) *deed {
	w := &deed{item: -1, session: 7, epoch: 8, Deferred: meta.Deferred{Kind: meta.DeferMake, Dir: 2,
		Name: fmt.Sprint("f", ino), Ino: ino, At: meta.Now(), File: meta.NewFile{Type: meta.Regular},
		Open: meta.OpenWrite | meta.OpenRead, Handle: 100 + uint64(ino)}}
	d.putLocked(w)
	return w
}

func closes(t testing.TB, d *deferral, w *deed, data string) {
	t.Helper()
	c := meta.Change{Ino: w.Ino, Whole: true, Size: int64(len(data)), Data: []byte(data)}
	if !d.noteAsLocked(w, w.closedWith(&c, true), 0) {
		t.Fatal("no room")
	}
}

// messageOf has all that is to be told in a message.
func messageOf(d *deferral) *message {
	m := &message{deeds: d.list, epoch: 8, caller: meta.Caller{Session: 7, ReqID: newRequest()}}
	for _, w := range d.list {
		m.list = append(m.list, w.Deferred)
	}
	d.noteMessage(m)
	return m
}

// say says what is to be told.
func say(list []*deed) (said []string) {
	for _, w := range list {
		said = append(said, fmt.Sprintf("%s %d %v %s", w.Name, w.Handle, w.Dirty, w.Change.Data))
	}
	return said
}

// toTell is what is told of what was found.
type toTell struct {
	busy, list []string
	late       int
	damaged    int
}

// legacies are what processes leave behind that are killed between any two of their records.
func legacies(t *testing.T) map[string]legacy {
	return map[string]legacy{
		"nothing": {func(*deferral) {}, toTell{}},
		"open and closed": {func(d *deferral) {
			makes(d, 11)
			closes(t, d, makes(d, 12), "data")
		}, toTell{list: []string{"f11 111 false ", "f12 0 true data"}}},
		"closed anew, before the record of before is gone": {func(d *deferral) {
			w := makes(d, 11)
			closes(t, d, w, "old")
			w.notedClosed = journal.Ref{}
			closes(t, d, w, "data")
		}, toTell{list: []string{"f11 0 true data"}}},
		"void, before all of it is gone": {func(d *deferral) {
			w := makes(d, 11)
			closes(t, d, w, "data")
			d.journal.Remove(w.noted)
			makes(d, 12)
		}, toTell{list: []string{"f12 112 false "}}},
		"void": {func(d *deferral) {
			w := makes(d, 11)
			closes(t, d, w, "data")
			d.voidLocked(w, meta.Now())
			d.voidLocked(makes(d, 12), meta.Now())
		}, toTell{list: []string{" 0 false "}}},
		"sent as open, and closed": {func(d *deferral) {
			closes(t, d, makes(d, 11), "data")
			makes(d, 12)
			messageOf(d)
			makes(d, 13)
		}, toTell{busy: []string{"f11 111 false ", "f12 112 false "}, list: []string{"f13 113 false "},
			late: 1}},
	}
}

// answered are those that had heard the answer to a message, and those whose records are damaged.
func answered(t *testing.T) map[string]legacy {
	return map[string]legacy{
		"answered, and nothing removed": {func(d *deferral) {
			closes(t, d, makes(d, 11), "data")
			makes(d, 12)
			d.answeredLocked(messageOf(d))
			makes(d, 13)
		}, toTell{list: []string{"f13 113 false "}}},
		"answered, and some removed": {func(d *deferral) {
			w := makes(d, 11)
			closes(t, d, w, "data")
			makes(d, 12)
			d.answeredLocked(messageOf(d))
			d.journal.Remove(w.noted)
		}, toTell{}},
		"answered, and removed": {func(d *deferral) {
			closes(t, d, makes(d, 11), "data")
			m := messageOf(d)
			d.answeredLocked(m)
			d.strikeLocked(m)
		}, toTell{}},
		"a message of what is not there": {func(d *deferral) {
			w := makes(d, 11)
			makes(d, 12)
			messageOf(d)
			d.journal.Remove(w.noted)
		}, toTell{list: []string{"f12 112 false "}, damaged: 1}},
		"another version": {func(d *deferral) {
			makes(d, 11)
			d.journal.Put([]byte{journalFormat + 1, recordDeed, 0, 0}, 0)
			d.journal.Put([]byte{journalFormat, 99}, 0)
			d.journal.Put(nil, 0)
		}, toTell{list: []string{"f11 111 false "}, damaged: 3}},
	}
}

type legacy struct {
	do   func(d *deferral)
	want toTell
}

// TestJournalStates: whatever a process has left behind when it was killed, what is told is right.
func TestJournalStates(t *testing.T) {
	all := legacies(t)
	maps.Copy(all, answered(t))
	for name, one := range all {
		mem := make([]byte, 64*journal.UnitBytes)
		one.do(noting(t, mem))
		for range 2 { // the second one finds the same
			d := noting(t, mem)
			left := d.loadLocked()
			got := toTell{list: say(d.list), late: len(left.late), damaged: left.damaged}
			if d.busy != nil {
				got.busy = say(d.busy.deeds)
			}
			if !slices.Equal(got.busy, one.want.busy) || !slices.Equal(got.list, one.want.list) ||
				got.late != one.want.late || got.damaged != one.want.damaged {
				t.Errorf("%s: %+v, want %+v", name, got, one.want)
			}
			if n := int64(len(got.busy) + len(got.list)); d.count.Load() != n {
				t.Errorf("%s: %d operations are counted, want %d", name, d.count.Load(), n)
			}
			one.want.damaged = 0
		}
	}
}

// TestJournalToldOpen: a file that was closed, and told as open because somebody was opening it at
// that moment, has its data.
func TestJournalToldOpen(t *testing.T) {
	l := newLives(t, withLongLeases(store.Options{}), JournalBytes)
	l.svc.undone.Store(true)
	writeAll(t, l.fs, "/d/f", "data")
	d := &l.fs.deferral
	d.mu.Lock()
	n := d.list[0].ending.node
	d.mu.Unlock()
	if n == nil || !n.coming.try() { // somebody else is
		t.Fatal("the file is not closed, or is told already")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.round.take(context.Background()); err != nil {
		t.Fatal(err)
	}
	m := l.fs.nextMessage(1 << 40)
	if m == nil || m.list[0].Handle == 0 {
		t.Fatalf("it is not told as open: %+v", m)
	}
	_ = l.fs.send(ctx, m)
	d.round.giveBack()
	n.coming.giveBack()
	l.next()
	if !l.fs.Rescued(n.ino) {
		t.Error("its data is taken for lost")
	}
	l.sees(map[string]string{"/d/f": "file data"})
}

// FuzzJournal: whatever records say, they are read, and what is not told is removed.
func FuzzJournal(f *testing.F) {
	d := noting(f, make([]byte, 64*journal.UnitBytes))
	closes(f, d, makes(d, 11), "data")
	messageOf(d)
	for _, r := range d.journal.Records() {
		f.Add(r.Bytes, []byte{})
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		mem := make([]byte, 300*journal.UnitBytes)
		d := noting(t, mem)
		makes(d, 11)
		d.journal.Put(a[:min(len(a), journal.RecordMax)], 0)
		d.journal.Put(b[:min(len(b), journal.RecordMax)], 0)
		d = noting(t, mem)
		left := d.loadLocked()
		if int64(len(left.deeds)) != d.count.Load() {
			t.Fatalf("%d of %d operations are told", len(left.deeds), d.count.Load())
		}
		if d.busy != nil {
			d.strikeLocked(d.busy)
		}
		for _, w := range d.list {
			d.strikeDeedLocked(w)
		}
		if n := len(d.journal.Records()); n > 0 {
			t.Fatalf("%d records are left", n)
		}
	})
}

// BenchmarkJournal is what is paid for one file that is made, closed, told and answered, in
// messages of usual size.
func BenchmarkJournal(b *testing.B) {
	for _, bytes := range []int{0, 100, 4096} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			d := noting(b, make([]byte, JournalBytes))
			data := string(make([]byte, bytes))
			b.ReportAllocs()
			for n := 0; n < b.N; n += tellBatch {
				m := &message{epoch: 8, caller: meta.Caller{Session: 7, ReqID: newRequest()}}
				for i := range tellBatch {
					w := makes(d, meta.Ino(i+10))
					closes(b, d, w, data)
					m.deeds, m.list = append(m.deeds, w), append(m.list, w.Deferred)
				}
				d.noteMessage(m)
				d.answeredLocked(m)
				d.strikeLocked(m)
				d.list = d.list[:0]
			}
		})
	}
}
