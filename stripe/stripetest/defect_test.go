package stripetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/wire"
)

// The suite is worth what it finds. Each defect below is planted into a sound engine; the suite
// must fail, by the case that is named beside it.

// recorder is a testing.TB that keeps a failure to itself.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text)
}

func (r *recorder) Helper()                      {}
func (r *recorder) Log(...any)                   {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Cleanup(fn func())            { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Error(args ...any)            { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.note(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }

// failing runs the case, or all of them without a name, and returns those that failed.
func failing(t *testing.T, c Config, name string) map[string]string {
	failed := map[string]string{}
	for _, one := range Cases() {
		if name != "" && name != one.Name {
			continue
		}
		r := &recorder{TB: t}
		var wg sync.WaitGroup
		wg.Go(func() { one.Run(r, c.withDefaults(t)) })
		wg.Wait()
		for _, fn := range r.cleanups {
			fn()
		}
		if len(r.failures) > 0 {
			failed[one.Name] = r.failures[0]
		}
	}
	return failed
}

func openSound(t testing.TB, bytes int64) *memstore.Store {
	s, err := memstore.New(memstore.Options{MaxBytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func reopenSound(e *memstore.Store) {
	e.Close()
	e.Reopen()
}

// reopener lets a defect see restarts; sound engines below it are reopened in any case.
type reopener interface{ restart() }

// sound is an engine without defects that the defective ones embed.
type sound struct{ *memstore.Store }

func (s sound) restart() { reopenSound(s.Store) }

func config(plant func(s sound) stripe.Engine) Config {
	return Config{
		Open: func(t testing.TB) stripe.Engine { return plant(sound{openSound(t, 64<<20)}) },
		OpenSmall: func(t testing.TB) stripe.Engine {
			return plant(sound{openSound(t, 4<<20)})
		},
		Reopen: func(_ testing.TB, e stripe.Engine) stripe.Engine {
			e.(reopener).restart()
			return e
		},
		Seeds: 2,
	}
}

type lostTruncate struct{ sound }

func (d lostTruncate) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	in, err := d.Stat(ctx, id)
	if err != nil || size < in.Size {
		return err
	}
	return d.sound.Truncate(ctx, id, size, st)
}

type ignoresStamp struct{ sound }

func (d ignoresStamp) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, du stripe.Durability) error {
	st.TruncSeq = 1 << 62
	return d.sound.WriteAt(ctx, id, bufs, off, st, du)
}

// forgetsFence keeps its fences in the process only.
type forgetsFence struct {
	sound
	mu    sync.Mutex
	files map[uint64]uint32
}

func (d *forgetsFence) SetMinGeneration(ctx context.Context, f uint64, gen uint32) error {
	if err := ctx.Err(); err != nil {
		return d.sound.SetMinGeneration(ctx, f, gen)
	}
	if _, err := d.Space(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[f] = max(d.files[f], gen)
	return nil
}

func (d *forgetsFence) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, du stripe.Durability) error {
	d.mu.Lock()
	gen := d.files[id.File]
	d.mu.Unlock()
	if err := stripe.CheckFence("", id, gen); err != nil {
		return err
	}
	return d.sound.WriteAt(ctx, id, bufs, off, st, du)
}

func (d *forgetsFence) restart() {
	d.mu.Lock()
	clear(d.files)
	d.mu.Unlock()
	d.sound.restart()
}

// staleSize tells the first size that it saw of an object.
type staleSize struct {
	sound
	mu   *sync.Mutex
	seen map[stripe.ObjectID]int64
}

func (d staleSize) Stat(ctx context.Context, id stripe.ObjectID) (stripe.Info, error) {
	in, err := d.sound.Stat(ctx, id)
	d.mu.Lock()
	defer d.mu.Unlock()
	if old, ok := d.seen[id]; ok && err == nil {
		in.Size = old
	}
	if err == nil && in.Size > 0 {
		d.seen[id] = in.Size
	}
	return in, err
}

// oldBytes keeps the bytes that a truncate cuts off and shows them again when the object grows.
type oldBytes struct {
	sound
	mu   *sync.Mutex
	tail map[stripe.ObjectID][]byte
}

func (d oldBytes) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	in, err := d.Stat(ctx, id)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if size >= in.Size {
		err := d.sound.Truncate(ctx, id, size, st)
		if n := min(int64(len(d.tail[id])), size-in.Size); err == nil && n > 0 {
			return d.WriteAt(ctx, id, [][]byte{d.tail[id][:n]}, in.Size, st, stripe.Durable)
		}
		return err
	}
	tail := make([]byte, min(in.Size-size, 300))
	if err := d.ReadAt(ctx, id, [][]byte{tail}, size); err != nil {
		return err
	}
	d.tail[id] = tail
	return d.sound.Truncate(ctx, id, size, st)
}

// cutsAgain applies a truncate that it has applied before.
type cutsAgain struct{ sound }

func (d cutsAgain) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	in, err := d.Stat(ctx, id)
	if err == nil && st.TruncSeq > 0 && st.TruncSeq == in.TruncSeq && size < in.Size {
		return d.Punch(ctx, id, size, in.Size-size, st, stripe.Durable)
	}
	return d.sound.Truncate(ctx, id, size, st)
}

// punchShort leaves the last byte of a range.
type punchShort struct{ sound }

func (d punchShort) Punch(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	du stripe.Durability) error {
	if n > 1 {
		n--
	}
	return d.sound.Punch(ctx, id, off, n, st, du)
}

// allHoles calls everything a hole.
type allHoles struct{ sound }

func (d allHoles) Map(ctx context.Context, id stripe.ObjectID, off, n int64,
	max int) ([]stripe.Extent, error) {
	list, err := d.sound.Map(ctx, id, off, n, max)
	for i := range list {
		list[i].Hole = true
	}
	return list, err
}

// lastBuffer drops the last buffer of a gather.
type lastBuffer struct{ sound }

func (d lastBuffer) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, du stripe.Durability) error {
	if len(bufs) > 1 {
		bufs = bufs[:len(bufs)-1]
	}
	return d.sound.WriteAt(ctx, id, bufs, off, st, du)
}

// zombie does not forget removed objects that are large.
type zombie struct{ sound }

func (d zombie) Remove(ctx context.Context, id stripe.ObjectID) error {
	if in, err := d.sound.Stat(ctx, id); err == nil && in.Size > 50_000 {
		return ctx.Err()
	}
	return d.sound.Remove(ctx, id)
}

// appliesTwice forgets who wrote.
type appliesTwice struct{ sound }

func (d appliesTwice) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, du stripe.Durability) error {
	st.Session = 0
	return d.sound.WriteAt(ctx, id, bufs, off, st, du)
}

// zeroKeepsSize does not extend.
type zeroKeepsSize struct{ sound }

func (d zeroKeepsSize) Zero(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	du stripe.Durability) error {
	return d.sound.Punch(ctx, id, off, n, st, du)
}

// truncatesTwice recognises no truncate by its number.
type truncatesTwice struct{ sound }

func (d truncatesTwice) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	st.Session = 0
	return d.sound.Truncate(ctx, id, size, st)
}

// needsRoom refuses to overwrite when there is no second copy's room.
type needsRoom struct{ sound }

func (d needsRoom) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, du stripe.Durability) error {
	sp, err := d.Space()
	if err == nil && sp.Free < stripe.BufBytes(bufs) {
		return errs.New(errs.NoSpace, "write", "", nil)
	}
	return d.sound.WriteAt(ctx, id, bufs, off, st, du)
}

// leaks does not give back what a truncate frees.
type leaks struct{ sound }

func (d leaks) Remove(ctx context.Context, id stripe.ObjectID) error {
	in, err := d.sound.Stat(ctx, id)
	if err != nil || in.Size == 0 {
		return d.sound.Remove(ctx, id)
	}
	if err := d.sound.Remove(ctx, id); err != nil {
		return err
	}
	lost := stripe.ObjectID{File: 1 << 63, Gen: 1, Stripe: id.Stripe}
	p := make([]byte, in.Size)
	return d.sound.WriteAt(ctx, lost, [][]byte{p}, 0, wire.Stamp{}, stripe.Volatile)
}

// planted is a defect.
type planted struct {
	name  string
	found string // the case that must fail
	plant func(s sound) stripe.Engine
}

func defects() []planted {
	return []planted{
		{"loses a truncate", "truncate cuts, and growing shows zeroes",
			func(s sound) stripe.Engine { return lostTruncate{s} }},
		{"ignores the stamp", "a write from before the truncate is refused",
			func(s sound) stripe.Engine { return ignoresStamp{s} }},
		{"forgets fences", "a fence survives a restart and never goes back",
			func(s sound) stripe.Engine {
				return &forgetsFence{sound: s, files: map[uint64]uint32{}}
			}},
		{"tells a stale size", "stat tells size and space",
			func(s sound) stripe.Engine {
				return staleSize{s, new(sync.Mutex), map[stripe.ObjectID]int64{}}
			}},
		{"shows old bytes", "truncate inside a block hides the block's rest",
			func(s sound) stripe.Engine {
				return oldBytes{s, new(sync.Mutex), map[stripe.ObjectID][]byte{}}
			}},
		{"cuts again", "a repeated truncate is harmless",
			func(s sound) stripe.Engine { return cutsAgain{s} }},
		{"punches short", "punch makes zeroes and keeps the size",
			func(s sound) stripe.Engine { return punchShort{s} }},
		{"maps holes only", "the map covers its range exactly",
			func(s sound) stripe.Engine { return allHoles{s} }},
		{"drops a buffer", "buffers are gathered and scattered",
			func(s sound) stripe.Engine { return lastBuffer{s} }},
		{"applies a repeat", "a repeated request is recognised",
			func(s sound) stripe.Engine { return appliesTwice{s} }},
		{"zero keeps the size", "zero is a write of zeroes",
			func(s sound) stripe.Engine { return zeroKeepsSize{s} }},
		{"truncates again", "every kind of request is recognised after a restart",
			func(s sound) stripe.Engine { return truncatesTwice{s} }},
		{"needs room to overwrite", "a full store can be overwritten",
			func(s sound) stripe.Engine { return needsRoom{s} }},
		{"leaks", "a full store can be emptied",
			func(s sound) stripe.Engine { return leaks{s} }},
		{"does not remove", "remove forgets, and again",
			func(s sound) stripe.Engine { return zombie{s} }},
	}
}

func TestPlantedDefectsAreFound(t *testing.T) {
	for _, c := range slices.Concat(defects(), sumDefects(), reserveDefects()) {
		t.Run(c.name, func(t *testing.T) {
			if _, ok := failing(t, config(c.plant), c.found)[c.found]; !ok {
				t.Fatalf("case %q did not find it; failed: %q", c.found,
					failing(t, config(c.plant), ""))
			}
		})
	}
}

func TestSoundEnginePasses(t *testing.T) {
	plain := config(func(s sound) stripe.Engine { return s })
	if failed := failing(t, plain, ""); len(failed) > 0 {
		t.Fatalf("a sound engine fails: %q", failed)
	}
}
