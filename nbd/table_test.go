package nbd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

func keyed(f *fake, name, key string) Entry {
	e := f.entry(name)
	e.Key = key
	return e
}

// TestSetEntries: connections of an entry that stays do not notice; those of one that changes or
// goes are drained, their export closes, and only then the new one opens.
func TestSetEntries(t *testing.T) {
	stays, goes, changes, changed := newFake(mib), newFake(mib), newFake(mib), newFake(2*mib)
	s := serve(t, Config{DrainGrace: time.Second}, keyed(stays, "stays", "1"),
		keyed(goes, "goes", "1"), keyed(changes, "changes", "1"))
	a, b, c := ready(t, s, "stays", true), ready(t, s, "goes", true), ready(t, s, "changes", true)
	gate, entered := make(chan struct{}), make(chan struct{})
	changes.setHook(func(op string, _ int64) error {
		if op == "write" {
			close(entered)
			<-gate
		}
		return nil
	})
	var early atomic.Bool
	next := keyed(changed, "changes", "2")
	open := next.Open
	next.Open = func(ctx context.Context) (Export, error) {
		early.Store(changes.closes.Load() == 0)
		return open(ctx)
	}
	old := c.send(cmdWrite, 0, 0, 4, []byte("data"))
	<-entered
	type result struct {
		added []string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		added, err := s.SetEntries(context.Background(), keyed(stays, "stays", "1"), next,
			keyed(newFake(mib), "new", ""))
		done <- result{added, err}
	}()
	eventually(t, "no longer offered", func() bool { return s.find("goes") == nil })
	eventually(t, "told", func() bool {
		return c.do(cmdRead, 0, 0, 1, nil).errno == nbdSHUTDOWN
	})
	a.want(nbdOK, cmdRead, 0, 0, 1, nil)
	late := greeted(t, s)
	late.write(optionMessage(optGo, infoData("changes"))) // it waits for the old one's end
	close(gate)
	if got := c.receive(cmdWrite, 0, 0); got.cookie != old || got.errno != nbdOK {
		t.Errorf("the write under way: %+v", got)
	}
	r := <-done
	if r.err != nil || len(r.added) != 2 || r.added[0] != "changes" || r.added[1] != "new" {
		t.Errorf("%v, %v", r.added, r.err)
	}
	if got := late.optionReplies(optGo); got[len(got)-1].kind != repAck || early.Load() {
		t.Errorf("the new one: %v, opened early: %v", got, early.Load())
	}
	late.want(nbdOK, cmdRead, 0, mib, 1, nil)
	b.wantEOF()
	c.wantEOF()
	a.want(nbdOK, cmdRead, 0, 0, 1, nil)
	if stays.opens.Load() != 1 || goes.closes.Load() != 1 || changes.closes.Load() != 1 {
		t.Errorf("opens %d, closes %d %d", stays.opens.Load(), goes.closes.Load(),
			changes.closes.Load())
	}
	greeted(t, s).mustRefuse(optGo, infoData("goes"), repErrUnknown)
}

// TestKeptExportsCloseWithTheirEntry, and those that were never opened are not.
func TestKeptExportsCloseWithTheirEntry(t *testing.T) {
	f, idle := newFake(mib), newFake(mib)
	e, other := keyed(f, "x", "1"), keyed(idle, "y", "1")
	e.Keep, other.Keep = true, true
	s := serve(t, Config{}, e, other)
	if err := s.Try(t.Context(), "x"); err != nil || f.opens.Load() != 1 || f.closes.Load() != 0 {
		t.Fatalf("Try: %v, %d opens, %d closes", err, f.opens.Load(), f.closes.Load())
	}
	if _, err := s.SetEntries(t.Context(), e, other); err != nil || f.closes.Load() != 0 {
		t.Errorf("the same entries: %v, %d closes", err, f.closes.Load())
	}
	if _, err := s.SetEntries(t.Context()); err != nil || f.closes.Load() != 1 {
		t.Errorf("no entries: %v, %d closes", err, f.closes.Load())
	}
	if idle.opens.Load()+idle.closes.Load() != 0 {
		t.Error("an export was opened to be closed")
	}
	if err := s.Try(t.Context(), "x"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Try of what is gone: %v", err)
	}
	if _, err := s.SetEntries(t.Context(), e, e); !errors.Is(err, errs.Exists) {
		t.Errorf("two of one name: %v", err)
	}
}

// TestSetEntriesGivesUp: an export that hangs holds nobody up but those who need it.
func TestSetEntriesGivesUp(t *testing.T) {
	f := newFake(mib)
	gate, entered := make(chan struct{}), make(chan struct{})
	f.setHook(func(string, int64) error { close(entered); <-gate; return nil })
	s := serve(t, Config{}, keyed(f, "x", "1"))
	c := ready(t, s, "x", true)
	c.send(cmdRead, 0, 0, 4, nil)
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.SetEntries(ctx, newFake(mib).entry("y")); !errors.Is(err, errs.TimedOut) {
		t.Errorf("SetEntries: %v", err)
	}
	ready(t, s, "y", true).want(nbdOK, cmdRead, 0, 0, 1, nil)
	close(gate)
	eventually(t, "closed in the end", func() bool { return f.closes.Load() == 1 })
}

// TestTurns: a connection with one request does not wait behind all those of a deep one.
func TestTurns(t *testing.T) {
	f := newFake(mib)
	step := make(chan struct{})
	f.setHook(func(string, int64) error { <-step; return nil })
	s := serve(t, Config{ExportRequests: 1}, f.entry("x"))
	deep, single := ready(t, s, "x", true), ready(t, s, "x", true)
	for range 20 {
		deep.send(cmdRead, 0, 0, 1, nil)
	}
	slots := func() int { return s.find("x").open.slots.Usage().Waiting }
	eventually(t, "nineteen wait", func() bool { return slots() == 19 })
	single.send(cmdRead, 0, 0, 1, nil)
	eventually(t, "twenty wait", func() bool { return slots() == 20 })
	for range 3 {
		step <- struct{}{}
	}
	single.receive(cmdRead, 0, 1)
	close(step)
	for range 20 {
		deep.receive(cmdRead, 0, 1)
	}
}
