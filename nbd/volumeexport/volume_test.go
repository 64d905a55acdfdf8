package volumeexport

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
	"github.com/sluice-storage/sluice/nbd/memexport"
	"github.com/sluice-storage/sluice/stripe"
)

// double is an open volume in memory that notes what was asked of it.
type double struct {
	mem *memexport.Memory

	mu    sync.Mutex
	calls []string
}

func newDouble(tb testing.TB, size int64) *double {
	tb.Helper()
	m, err := memexport.New(size)
	if err != nil {
		tb.Fatal(err)
	}
	return &double{mem: m}
}

func (d *double) note(call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
}

// ReadAt says io.EOF together with the last bytes, as a file may.
func (d *double) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n := min(int64(len(p)), d.mem.Size()-off)
	if err := d.mem.ReadAt(ctx, p[:n], off); err != nil {
		return 0, err
	}
	if off+int64(len(p)) >= d.mem.Size() {
		return int(n), io.EOF
	}
	return int(n), nil
}

func (d *double) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	d.note("write")
	return len(p), d.mem.WriteAt(ctx, p, off, false)
}

func (d *double) WriteAtDurable(ctx context.Context, p []byte, off int64) (int, error) {
	d.note("durable write")
	return len(p), d.mem.WriteAt(ctx, p, off, true)
}

func (d *double) Punch(ctx context.Context, off, n int64) error {
	d.note("punch")
	return d.mem.WriteZeroes(ctx, off, n, nbd.ZeroFlags{})
}

func (d *double) Sync(context.Context) error {
	d.note("sync")
	return nil
}

func (d *double) Map(ctx context.Context, off, n int64) ([]stripe.Extent, error) {
	found, err := d.mem.Map(ctx, off, n, 1<<20, nil)
	var extents []stripe.Extent
	for _, e := range found {
		extents = append(extents, stripe.Extent{Off: off, Len: e.Len, Hole: e.Hole})
		off += e.Len
	}
	return extents, err
}

func (d *double) Close(context.Context) error {
	d.note("close")
	return d.mem.Close()
}

func volume(tb testing.TB, size int64) (*Volume, *double) {
	d := newDouble(tb, size)
	return &Volume{file: d, size: size, text: "a volume"}, d
}

func TestConformance(t *testing.T) {
	exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
		v, _ := volume(tb, size)
		return v
	})
}

// TestDurability checks which promise each request turns into.
func TestDurability(t *testing.T) {
	page := make([]byte, 4096)
	for name, c := range map[string]struct {
		do   func(ctx context.Context, v *Volume) error
		want []string
	}{
		"write": {func(ctx context.Context, v *Volume) error {
			return v.WriteAt(ctx, page, 0, false)
		}, []string{"write"}},
		"write with FUA": {func(ctx context.Context, v *Volume) error {
			return v.WriteAt(ctx, page, 0, true)
		}, []string{"durable write"}},
		"flush": {func(ctx context.Context, v *Volume) error {
			return v.Flush(ctx)
		}, []string{"sync"}},
		"trim": {func(ctx context.Context, v *Volume) error {
			return v.Trim(ctx, 0, 4096, false)
		}, []string{"punch"}},
		"trim with FUA": {func(ctx context.Context, v *Volume) error {
			return v.Trim(ctx, 0, 4096, true)
		}, []string{"punch", "sync"}},
		"zeroes with FUA": {func(ctx context.Context, v *Volume) error {
			return v.WriteZeroes(ctx, 0, 4096, nbd.ZeroFlags{FUA: true, Fast: true})
		}, []string{"punch", "sync"}},
	} {
		t.Run(name, func(t *testing.T) {
			v, d := volume(t, 1<<20)
			defer v.Close()
			if err := c.do(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			if len(d.calls) != len(c.want) {
				t.Fatalf("asked for %q, want %q", d.calls, c.want)
			}
			for i := range c.want {
				if d.calls[i] != c.want[i] {
					t.Fatalf("asked for %q, want %q", d.calls, c.want)
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	v, d := volume(t, 1<<20)
	defer v.Close()
	err := v.WriteZeroes(t.Context(), 0, 4096, nbd.ZeroFlags{NoHole: true})
	if !errors.Is(err, errs.Unsupported) || len(d.calls) != 0 {
		t.Errorf("zeroes without a hole: %v, asked for %q", err, d.calls)
	}
	v.size = 2 << 20 // more than there is
	if err := v.ReadAt(t.Context(), make([]byte, 4096), 1<<20-2048); err == nil {
		t.Error("a short read went through")
	}
}
