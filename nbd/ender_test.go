package nbd

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

// ending is an export that can end by itself, and grow.
type ending struct {
	size  atomic.Int64
	ended atomic.Bool
	shut  atomic.Int32
}

func (e *ending) Size() int64                                        { return e.size.Load() }
func (e *ending) ReadAt(context.Context, []byte, int64) error        { return nil }
func (e *ending) WriteAt(context.Context, []byte, int64, bool) error { return nil }
func (e *ending) Flush(context.Context) error                        { return nil }
func (e *ending) Ended() bool                                        { return e.ended.Load() }
func (e *ending) Close() error                                       { e.shut.Add(1); return nil }

// TestEndedExport: nobody joins an export that has ended; without users it is opened anew, kept or
// not.
func TestEndedExport(t *testing.T) {
	var made []*ending
	sh := newShared(Entry{Name: "v", Keep: true, Open: func(context.Context) (Export, error) {
		e := &ending{}
		e.size.Store(1 << 20)
		made = append(made, e)
		return e, nil
	}}, Config{}.withDefaults())
	first, err := sh.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made[0].size.Store(2 << 20)
	if second, err := sh.acquire(t.Context()); err != nil || second != first ||
		second.size.Load() != 2<<20 {
		t.Fatalf("%v: who comes later sees %d bytes", err, second.size.Load())
	}
	made[0].ended.Store(true)
	if _, err := sh.acquire(t.Context()); errs.KindOf(err) != errs.Shutdown {
		t.Errorf("somebody joined what has ended: %v", err)
	}
	for range 2 {
		if err := sh.release(); err != nil {
			t.Fatal(err)
		}
	}
	if made[0].shut.Load() != 1 {
		t.Error("what has ended is not closed with its last user")
	}
	again, err := sh.acquire(t.Context())
	if err != nil || len(made) != 2 || again.exp != made[1] {
		t.Fatalf("%v: opened %d times", err, len(made))
	}
	if err := sh.release(); err != nil || made[1].shut.Load() != 0 {
		t.Errorf("%v: what is kept is closed", err)
	}
	made[1].ended.Store(true)
	if third, err := sh.acquire(t.Context()); err != nil || third.exp != made[2] ||
		made[1].shut.Load() != 1 {
		t.Errorf("%v: what ended without users is in the way", err)
	}
}
