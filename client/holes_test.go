package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/seg"
)

// deaf is a metadata service that can stop hearing of changes, and counts what it hears of holes.
type deaf struct {
	meta.Service
	off  atomic.Bool
	told atomic.Int64
}

func (d *deaf) Commit(ctx context.Context, c meta.Caller, w meta.Change, sync bool) (
	meta.Attr, error) {
	if d.off.Load() {
		return meta.Attr{}, errs.New(errs.Disconnected, "deaf", "", nil)
	}
	if w.Holes {
		d.told.Add(1)
	}
	return d.Service.Commit(ctx, c, w, sync)
}

func (d *deaf) Close(ctx context.Context, c meta.Caller, w meta.Closing) error {
	if d.off.Load() {
		return errs.New(errs.Disconnected, "deaf", "", nil)
	}
	return d.Service.Close(ctx, c, w)
}

func (d *deaf) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	if d.off.Load() {
		return nil, errs.New(errs.Disconnected, "deaf", "", nil)
	}
	for _, w := range list {
		if w.Dirty && w.Change.Holes {
			d.told.Add(1)
		}
	}
	return d.Service.CloseMany(ctx, c, list)
}

func newDeaf(t *testing.T) (*deaf, *FS) {
	t.Helper()
	c := newCluster(t, 2, store.Options{})
	svc := &deaf{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{}})
	must(t, err)
	t.Cleanup(func() { must(t, fs.Close()) })
	return svc, fs
}

// TestHolesAreToldInTheEnd: a file that is closed while the service is away is known to have holes
// as soon as its length is known.
func TestHolesAreToldInTheEnd(t *testing.T) {
	ctx := context.Background()
	svc, fs := newDeaf(t)
	f, err := fs.Create(ctx, "/f")
	must(t, err)
	_, err = f.WriteAt(ctx, []byte("behind the end"), 1<<20)
	must(t, err)
	svc.off.Store(true)
	must(t, f.Close(ctx)) // under a lease nobody waits for it
	svc.off.Store(false)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		a, err := svc.GetAttr(ctx, fs.trusted(), f.Ino())
		must(t, err)
		if !a.Writers {
			if !a.Holes || a.Size != 1<<20+14 {
				t.Fatalf("%+v", a)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("the file is never closed")
		}
	}
}

// TestHolesAreToldOnce, by whoever makes some, and not by whoever does not.
func TestHolesAreToldOnce(t *testing.T) {
	ctx := context.Background()
	data := make([]byte, 1000)
	for name, c := range map[string]struct {
		do   func(f *File)
		told int64
	}{
		"dense":  {func(f *File) { write(t, f, data, 0); write(t, f, data, 1000) }, 0},
		"parts":  {func(f *File) { write(t, f, data, 1000); write(t, f, data, 0) }, 0},
		"append": {func(f *File) { _, err := f.Append(ctx, make([]byte, 9)); must(t, err) }, 0},
		"gaps": {func(f *File) {
			for i := range int64(5) {
				write(t, f, data, i<<20)
				must(t, f.Sync(ctx))
			}
		}, 1},
		"punch": {func(f *File) {
			write(t, f, make([]byte, 1<<20), 0)
			for i := range int64(3) {
				must(t, f.Punch(ctx, i<<17, 1<<16))
			}
		}, 1},
		"list": {func(f *File) {
			_, err := f.WriteList(ctx, [][]byte{make([]byte, 200)},
				seg.List([]seg.Piece{{Off: 0, Len: 100}, {Off: 1 << 20, Len: 100}}))
			must(t, err)
		}, 1},
		"again": {func(f *File) {
			write(t, f, data, 1<<20)
			must(t, f.Sync(ctx))
			must(t, f.Truncate(ctx, 0))
			write(t, f, data, 0)
			write(t, f, data, 1<<20)
		}, 2},
	} {
		svc, fs := newDeaf(t)
		f, err := fs.Create(ctx, "/f")
		must(t, err)
		c.do(f)
		must(t, f.Close(ctx))
		a, err := fs.GetAttr(ctx, meta.Cred{}, f.Ino())
		if told := svc.told.Load(); err != nil || told != c.told || a.Holes != (told > 0) {
			t.Errorf("%s: told %d times, holes %v, %v", name, told, a.Holes, err)
		}
	}
}
