package filter

import (
	"context"

	"github.com/sluice-storage/sluice/nbd"
)

// call is a kind of call.
type call uint8

const (
	read call = iota
	write
	flush
	trim
	zero
	status // of allocation or another context
	prefetch
)

func callNames() []string {
	return []string{"read", "write", "flush", "trim", "zero", "status", "cache"}
}

func (c call) String() string { return callNames()[c] }

// request is one call of an export.
type request struct {
	call   call
	off    int64
	length int64
	fua    bool
}

// guard is what a filter does around a call: it may wait before it, refuse it, or look at what
// became of it. It is called concurrently.
type guard func(ctx context.Context, r request, next func() error) error

// around is an export all of whose calls pass a guard.
type around struct {
	exp   nbd.Export
	under nbd.Extras
	guard guard
	waits bool         // the guard may keep calls waiting
	end   func() error // releases what the filter has; nil: nothing
}

func newAround(exp nbd.Export, g guard, waits bool) *around {
	return &around{exp: exp, under: nbd.ExtrasOf(exp), guard: g, waits: waits}
}

// Size implements nbd.Export.
func (a *around) Size() int64 { return a.exp.Size() }

// ReadAt implements nbd.Export.
func (a *around) ReadAt(ctx context.Context, p []byte, off int64) error {
	return a.guard(ctx, request{call: read, off: off, length: int64(len(p))},
		func() error { return a.exp.ReadAt(ctx, p, off) })
}

// WriteAt implements nbd.Export.
func (a *around) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	return a.guard(ctx, request{call: write, off: off, length: int64(len(p)), fua: fua},
		func() error { return a.exp.WriteAt(ctx, p, off, fua) })
}

// Flush implements nbd.Export.
func (a *around) Flush(ctx context.Context) error {
	return a.guard(ctx, request{call: flush, length: a.exp.Size()},
		func() error { return a.exp.Flush(ctx) })
}

// Close implements nbd.Export.
func (a *around) Close() error {
	err := a.exp.Close()
	if a.end != nil {
		if e := a.end(); err == nil {
			err = e
		}
	}
	return err
}

// Extras implements nbd.Wrapper: what the export below has, through the guard. Lent memory, reads
// at once and several requests together would lead past it.
func (a *around) Extras() nbd.Extras {
	e := a.under
	e.Slicer, e.NowReader, e.Batcher = nil, nil, nil
	if a.waits {
		e.Instant = nil
	}
	if e.Trimmer != nil {
		e.Trimmer = a
	}
	if e.Zeroer != nil {
		e.Zeroer = a
	}
	if e.Mapper != nil {
		e.Mapper = a
	}
	if e.Streamer != nil {
		e.Streamer = a
	}
	if e.Cacher != nil {
		e.Cacher = a
	}
	if e.Contexter != nil {
		e.Contexter = a
	}
	return e
}

// Trim implements nbd.Trimmer.
func (a *around) Trim(ctx context.Context, off, length int64, fua bool) error {
	return a.guard(ctx, request{call: trim, off: off, length: length, fua: fua},
		func() error { return a.under.Trimmer.Trim(ctx, off, length, fua) })
}

// WriteZeroes implements nbd.Zeroer.
func (a *around) WriteZeroes(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	return a.guard(ctx, request{call: zero, off: off, length: length, fua: flags.FUA},
		func() error { return a.under.Zeroer.WriteZeroes(ctx, off, length, flags) })
}

// Map implements nbd.Mapper.
func (a *around) Map(
	ctx context.Context, off, length int64, most int, dst []nbd.Extent,
) (out []nbd.Extent, err error) {
	err = a.guard(ctx, request{call: status, off: off, length: length}, func() error {
		out, err = a.under.Mapper.Map(ctx, off, length, most, dst)
		return err
	})
	return out, err
}

// Stream implements nbd.Streamer. The guard sees the whole read; pieces leave as they come.
func (a *around) Stream(ctx context.Context, off, length int64, to nbd.Sink) error {
	return a.guard(ctx, request{call: read, off: off, length: length},
		func() error { return a.under.Streamer.Stream(ctx, off, length, to) })
}

// Cache implements nbd.Cacher.
func (a *around) Cache(ctx context.Context, off, length int64) error {
	return a.guard(ctx, request{call: prefetch, off: off, length: length},
		func() error { return a.under.Cacher.Cache(ctx, off, length) })
}

// Contexts implements nbd.Contexter.
func (a *around) Contexts() []nbd.Context {
	all := a.under.Contexter.Contexts()
	guarded := make([]nbd.Context, len(all))
	for i, one := range all {
		guarded[i] = nbd.Context{Name: one.Name, Status: func(
			ctx context.Context, off, length int64, most int, dst []nbd.Status,
		) (out []nbd.Status, err error) {
			err = a.guard(ctx, request{call: status, off: off, length: length}, func() error {
				out, err = one.Status(ctx, off, length, most, dst)
				return err
			})
			return out, err
		}}
	}
	return guarded
}
