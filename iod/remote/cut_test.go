package remote

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// truncate does what the metadata service does for a client.
func (g *rig) truncate(file uint64, size int64) error {
	g.truncSeq++
	return g.Truncate(context.Background(), g.target(file), size)
}

// cutRig is two clients of a server: one writes and does not sync, the server dies, and the other
// one truncates before the first has sent its write again.
type cutRig struct {
	d             *double
	writer, other *rig
	told          []error
}

func newCutRig(t *testing.T, callback bool, opts Options) *cutRig {
	c := &cutRig{d: newDouble(t, 1)}
	c.d.lazy = true
	opts.KeepMax = time.Minute
	if callback {
		opts.Lost = func(_ iod.Target, err error) { c.told = append(c.told, err) }
	}
	c.writer = newRig(t, c.d, 1, opts)
	c.other = newRig(t, c.d, 2, Options{KeepMax: time.Minute})
	return c
}

// crash lets fn come before what the writer sends again.
func (c *cutRig) crash(fn func()) {
	c.writer.away.Store(true)
	c.d.crash()
	fn()
	c.writer.away.Store(false)
}

// TestCutBeforeSentAgain: what a server has lost, and another client has truncated meanwhile, is
// told as lost, unless all of it lies behind the cut.
func TestCutBeforeSentAgain(t *testing.T) {
	contig := func(off, n int64) seg.Access { return seg.Contig(off, n) }
	list := func(a, b int64) seg.Access {
		return seg.List([]seg.Piece{{Off: a, Len: 9}, {Off: b, Len: 9}})
	}
	for name, c := range map[string]struct {
		at    seg.Access // empty: a punch of [100, 200)
		cuts  []int64    // sizes, one after the other
		later int64      // bytes from 0 on that the other one writes then
		lost  bool
	}{
		"behind":             {contig(100, 100), []int64{100}, 0, false},
		"far behind":         {contig(100, 100), []int64{0}, 100, false},
		"before":             {contig(0, 100), []int64{100}, 0, true},
		"across":             {contig(50, 100), []int64{100}, 0, true},
		"made longer":        {contig(100, 100), []int64{1000}, 0, true},
		"longer, then cut":   {contig(100, 100), []int64{1000, 100}, 0, false},
		"list behind":        {list(300, 100), []int64{100}, 0, false},
		"list across":        {list(300, 99), []int64{100}, 0, true},
		"punch behind":       {seg.Access{}, []int64{100}, 0, false},
		"punch before":       {seg.Access{}, []int64{200}, 0, true},
		"nobody can tell it": {contig(100, 100), []int64{0}, 101, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, callback := range []bool{false, true} {
				r := newCutRig(t, callback, Options{})
				r.change(t, c.at)
				r.crash(func() {
					for _, size := range c.cuts {
						must(t, r.other.truncate(1, size))
					}
					if c.later > 0 {
						must(t, r.other.write(1, 0, bytes.Repeat([]byte{2}, int(c.later)), stripe.Volatile))
					}
				})
				err := r.writer.sync(1)
				r.check(t, err, c.lost, callback)
			}
		})
	}
}

// change is the write that is lost.
func (c *cutRig) change(t *testing.T, at seg.Access) {
	t.Helper()
	ctx, tg := t.Context(), c.writer.target(1)
	if at.Len() > 0 {
		_, err := c.writer.Write(ctx, tg, at, memory(bytes.Repeat([]byte{1}, int(at.Len()))),
			stripe.Volatile)
		must(t, err)
		return
	}
	// A server has a punch in its store when it acknowledges it. This one forgets it all the same.
	_, err := c.writer.Punch(ctx, tg, 100, 100, stripe.Volatile)
	must(t, err)
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.seen = stripe.Sessions{}
}

func (c *cutRig) check(t *testing.T, err error, lost, callback bool) {
	t.Helper()
	want := Stats{Superseded: 1, Restarts: 1}
	kind, tellings := errs.OK, 0
	switch {
	case lost && callback:
		tellings = 1
	case lost:
		kind = errs.IO
	}
	if lost {
		want.Superseded, want.Lost = 0, 1
	}
	if errs.KindOf(err) != kind || len(c.told) != tellings {
		t.Errorf("sync: %v, told %v", err, c.told)
	}
	must(t, c.writer.sync(1)) // it is told once
	c.writer.awaitForgotten()
	if got := c.writer.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	tg := c.writer.target(1)
	if got := c.d.objects[tg.Object].data; bytes.IndexByte(got, 1) >= 0 {
		t.Error("bytes from before the truncation are back")
	}
}

// TestAppliedBeforeTheCut: what was in the store before the truncation is not lost, whatever the
// server has forgotten since, and whatever the rights are by which it is asked.
func TestAppliedBeforeTheCut(t *testing.T) {
	for _, expired := range []bool{false, true} {
		opts := Options{}
		if expired {
			opts.Renew = func(_ context.Context, tg *iod.Target) error {
				tg.Cap[0], tg.Stamp.TruncSeq = freshCap, 1
				return nil
			}
		}
		r := newCutRig(t, false, opts)
		must(t, r.writer.write(1, 0, []byte("kept-cut"), stripe.Volatile))
		must(t, r.other.truncate(1, 4))
		r.crash(func() {
			r.d.mu.Lock()
			defer r.d.mu.Unlock()
			r.d.expired = expired
		})
		must(t, r.writer.SyncAll(t.Context()))
		if s := r.writer.Stats(); s.Resent != 1 || s.Lost != 0 || s.Superseded != 0 {
			t.Errorf("expired %v: %+v", expired, s)
		}
		if got := r.d.objects[r.writer.target(1).Object].data[:8]; string(got) != "kept\x00\x00\x00\x00" {
			t.Errorf("expired %v: %q", expired, got)
		}
	}
}

// TestManyCutWrites: a cut is asked for once, not for each write.
func TestManyCutWrites(t *testing.T) {
	r := newCutRig(t, false, Options{})
	for i := range int64(200) {
		must(t, r.writer.write(1, i, []byte{1}, stripe.Volatile))
	}
	r.crash(func() { must(t, r.other.truncate(1, 50)) })
	if err := r.writer.sync(1); errs.KindOf(err) != errs.IO {
		t.Fatalf("sync: %v", err)
	}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if s := r.writer.Stats(); s.Lost != 50 || s.Superseded != 150 || r.d.measured != 1 {
		t.Fatalf("%+v, asked %d times", s, r.d.measured)
	}
}
