package stripetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// rig is one engine under test with the words that the cases are written in.
type rig struct {
	testing.TB
	e   stripe.Engine
	cfg Config
	ctx context.Context

	restarts int
}

// alpha is the object that most cases talk about.
var alpha = stripe.ObjectID{File: 7, Gen: 3, Stripe: 1}

func newRig(t testing.TB, c Config) *rig {
	t.Helper()
	r := &rig{TB: t, e: c.Open(t), cfg: c, ctx: context.Background()}
	t.Cleanup(func() { r.e.Close() })
	return r
}

// reopen restarts the engine, in order and by a crash in turn. Without a Reopen the case goes on
// with the same engine.
func (r *rig) reopen() {
	r.Helper()
	r.restarts++
	switch {
	case r.cfg.Crash != nil && r.restarts%2 == 1:
		r.e = r.cfg.Crash(r.TB, r.e)
	case r.cfg.Reopen != nil:
		r.e = r.cfg.Reopen(r.TB, r.e)
	}
}

func seq(n uint64) wire.Stamp { return wire.Stamp{TruncSeq: n} }

// fill makes n bytes that differ by place and by tag, none of them zero. The pattern begins again
// after 64 KiB, so that the rest is copied: the race detector makes loops over bytes slow.
func fill(n int, tag byte) []byte {
	const period = 64 << 10
	b := make([]byte, n)
	for i := range b[:min(n, period)] {
		b[i] = byte(i*7+i>>8)&0x7f + tag&0x7f | 1
	}
	for i := period; i < n; i *= 2 {
		copy(b[i:], b[:i])
	}
	return b
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("unexpected error: %v", err)
	}
}

func (r *rig) refused(err error, want errs.Kind) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Fatalf("got error %v, want kind %q", err, want)
	}
}

func (r *rig) write(id stripe.ObjectID, off int64, p []byte) {
	r.Helper()
	r.writeAs(id, off, p, wire.Stamp{})
}

func (r *rig) writeAs(id stripe.ObjectID, off int64, p []byte, st wire.Stamp) {
	r.Helper()
	r.ok(r.e.WriteAt(r.ctx, id, [][]byte{p}, off, st, stripe.Volatile))
}

func (r *rig) read(id stripe.ObjectID, off int64, n int) []byte {
	r.Helper()
	p := fill(n, 0x55) // dirt, which a read must replace
	r.ok(r.e.ReadAt(r.ctx, id, [][]byte{p}, off))
	return p
}

// holds checks the bytes at off.
func (r *rig) holds(id stripe.ObjectID, off int64, want []byte) {
	r.Helper()
	got := r.read(id, off, len(want))
	if bytes.Equal(got, want) {
		return
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	r.Fatalf("object %v differs at offset %d: %#02x, want %#02x", id, off+int64(i), got[i], want[i])
}

func (r *rig) truncate(id stripe.ObjectID, size int64, st wire.Stamp) {
	r.Helper()
	r.ok(r.e.Truncate(r.ctx, id, size, st))
}

func (r *rig) stat(id stripe.ObjectID) stripe.Info {
	r.Helper()
	in, err := r.e.Stat(r.ctx, id)
	r.ok(err)
	if in.ID != id {
		r.Fatalf("Stat of %v tells about %v", id, in.ID)
	}
	return in
}

func (r *rig) size(id stripe.ObjectID, want int64) {
	r.Helper()
	if got := r.stat(id).Size; got != want {
		r.Fatalf("object %v has size %d, want %d", id, got, want)
	}
}

// list collects all objects by id and fails when one comes twice.
func (r *rig) list() map[stripe.ObjectID]stripe.Info {
	r.Helper()
	all := map[stripe.ObjectID]stripe.Info{}
	r.ok(r.e.List(r.ctx, func(in stripe.Info) bool {
		if _, twice := all[in.ID]; twice {
			r.Errorf("List names object %v twice", in.ID)
		}
		all[in.ID] = in
		return true
	}))
	return all
}

// extents asks for the map and checks that it covers the range exactly and in order.
func (r *rig) extents(id stripe.ObjectID, off, length int64) []stripe.Extent {
	r.Helper()
	list, err := r.e.Map(r.ctx, id, off, length, 1<<20)
	r.ok(err)
	at := off
	for _, x := range list {
		if x.Off != at || x.Len <= 0 {
			r.Fatalf("extent %+v, want one that starts at %d and is not empty", x, at)
		}
		at += x.Len
	}
	if at != off+length {
		r.Fatalf("extents end at %d, want %d", at, off+length)
	}
	return list
}
