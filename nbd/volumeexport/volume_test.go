package volumeexport

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
	"github.com/sluice-storage/sluice/nbd/memexport"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// double is a cluster with one volume, in memory, that notes what was asked of it.
type double struct {
	mem *memexport.Memory

	mu     sync.Mutex
	calls  []string
	vol    client.Volume
	opens  []client.VolumeOptions
	hands  int
	busy   bool          // somebody else writes
	fenced bool          // so that what is written is refused
	news   chan struct{} // closed when vol has changed
}

func newDouble(tb testing.TB, size int64) *double {
	tb.Helper()
	m, err := memexport.New(size)
	if err != nil {
		tb.Fatal(err)
	}
	return &double{mem: m, vol: client.Volume{Name: "v", Size: size, Epoch: 1, First: 1,
		Layout: layout.Layout{Unit: 64 << 10, Servers: []uint32{1, 2}}}, news: make(chan struct{})}
}

// change changes the volume, and tells who waits.
func (d *double) change(fn func(v *client.Volume)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn(&d.vol)
	close(d.news)
	d.news = make(chan struct{})
}

func (d *double) open(_ context.Context, _ string, o client.VolumeOptions) (
	volumeFile, client.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy && !o.ReadOnly {
		return nil, client.Volume{}, errs.New(errs.Busy, "double", "", nil)
	}
	d.opens = append(d.opens, o)
	return d, d.vol, nil
}

func (d *double) await(ctx context.Context, _ string, seen client.VolumeState) (
	client.Volume, error) {
	for {
		d.mu.Lock()
		v, news := d.vol, d.news
		d.mu.Unlock()
		if v.State() != seen {
			return v, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// handOver plays a gateway that does what it is asked to.
func (d *double) handOver(context.Context, string, bool) (client.Volume, error) {
	d.change(func(v *client.Volume) {
		d.busy = false
		d.hands++
		v.Writer = ""
	})
	return d.vol, nil
}

func (d *double) ReadList(ctx context.Context, bufs [][]byte, a seg.Access) (int64, error) {
	for i, c := 0, a.Cursor(); i < len(bufs); i++ {
		p, _ := c.Next(int64(len(bufs[i])))
		if err := d.mem.ReadAt(ctx, bufs[i], p.Off); err != nil {
			return 0, err
		}
	}
	return a.Len(), nil
}

func (d *double) WriteList(ctx context.Context, bufs [][]byte, a seg.Access) (int64, error) {
	for i, c := 0, a.Cursor(); i < len(bufs); i++ {
		p, _ := c.Next(int64(len(bufs[i])))
		if _, err := d.WriteAt(ctx, bufs[i], p.Off); err != nil {
			return 0, err
		}
	}
	return a.Len(), nil
}

func (d *double) buffer(int) nbd.Buffer { return nil }
func (d *double) Grow(int64)            {}

func (d *double) Epoch() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return 1
}

// refused is what a deposed writer hears.
func (d *double) refused() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fenced {
		return errs.New(errs.Fenced, "double", "", nil)
	}
	return nil
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
	if err := d.refused(); err != nil {
		return 0, err
	}
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
	return volumeWith(tb, size, Options{}, nil)
}

func volumeWith(tb testing.TB, size int64, o Options, prepare func(d *double)) (*Volume, *double) {
	tb.Helper()
	d := newDouble(tb, size)
	if prepare != nil {
		prepare(d)
	}
	v, err := open(context.Background(), d, "v", o)
	if err != nil {
		tb.Fatal(err)
	}
	return v, d
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
	v.size.Store(2 << 20) // more than there is
	if err := v.ReadAt(t.Context(), make([]byte, 4096), 1<<20-2048); err == nil {
		t.Error("a short read went through")
	}
}
