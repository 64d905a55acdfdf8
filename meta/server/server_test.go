package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// TestPagesAreCut: a page fits the room that there is, is not shorter than need be, and never
// empty.
func TestPagesAreCut(t *testing.T) {
	wide := layout.Layout{Version: 1, Unit: layout.UnitDefault, Servers: make([]uint32, 256)}
	a := meta.Attr{Layout: wide}
	for _, room := range []int{1 << 20, 12000, 3000, 1} {
		var r meta.Result
		for range 1000 {
			r.Entries = append(r.Entries, meta.Entry{Name: strings.Repeat("n", meta.NameMax), Attr: &a})
		}
		one := len((&meta.Result{Entries: r.Entries[:1]}).Append(meta.OpReadDir, nil))
		bytes := func(e []meta.Entry) int {
			return len((&meta.Result{Entries: e}).Append(meta.OpReadDir, nil))
		}
		r.Entries = cutPage(r.Entries, room, bytes)
		n, size := len(r.Entries), len(r.Append(meta.OpReadDir, nil))
		if n == 0 || n > 1 && size > room {
			t.Errorf("room %d: %d entries of %d bytes", room, n, size)
		}
		if n < 1000 && room-size > 3*one {
			t.Errorf("room %d: %d entries leave %d bytes unused", room, n, room-size)
		}
	}
}

func TestCounts(t *testing.T) {
	s := &Server{seen: newRecorder()}
	for _, err := range []error{nil, errors.New("no")} {
		q := s.seen.Begin(int(meta.OpMake), time.Second)
		done := new(task).done(err)
		q.End(time.Second+time.Millisecond, &done)
	}
	got := s.Status()
	want := Count{Op: "make", Calls: 2, Failed: 1, Time: 2 * time.Millisecond}
	if len(got) != 1 || got[0] != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	if _, err := New(nil, Options{}); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("options without a domain: %v", err)
	}
}
