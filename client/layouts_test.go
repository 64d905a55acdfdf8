package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestAnOpenFileIsStripedAnew: a file that was just made, and is open, gets another layout; what is
// then written through any of its handles goes where others look for it.
func TestAnOpenFileIsStripedAnew(t *testing.T) {
	c := newCluster(t, 4, store.Options{})
	fs, other := c.client(Options{}), c.client(Options{})
	ctx := context.Background()
	data := pattern(5*layout.UnitMin+77, 3)
	for i, p := range []layout.Policy{{Width: 1}, {Width: 2, Unit: layout.UnitMin}, {Unit: 4 << 20},
		{Width: layout.WidthAll, Unit: layout.UnitMin}} {
		path := fmt.Sprint("/f", i)
		f, err := fs.Create(ctx, path)
		must(t, err)
		reader, err := fs.Open(ctx, path)
		must(t, err)
		must(t, fs.SetLayout(ctx, path, p))
		if l := f.Layout(); p.Unit != 0 && l.Unit != p.Unit || p.Width == 1 && l.Width() != 1 {
			t.Fatalf("a handle knows %+v after %+v", l, p)
		}
		wrote := c.counted(iod.OpWrite, func() {
			write(t, f, data, 0)
			must(t, f.Sync(ctx))
		})
		for id := range wrote {
			l := f.Layout()
			if !slices.Contains(l.Servers, id) {
				t.Errorf("server %d was written to, of a file on %v", id, l.Servers)
			}
		}
		got := make([]byte, len(data))
		if _, err := reader.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("the file is read otherwise by a handle from before: %v", err)
		}
		must(t, f.Close(ctx))
		must(t, reader.Close(ctx))
		r, err := other.Open(ctx, path)
		must(t, err)
		clear(got)
		if _, err := r.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("another client reads something else: %v", err)
		}
		must(t, r.Close(ctx))
	}
}

// TestAFileWithDataIsNotStripedAnew: also where the service does not know of the data yet. What a
// program copies along is taken.
func TestAFileWithDataIsNotStripedAnew(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f, err := fs.Create(ctx, "/f")
	must(t, err)
	write(t, f, pattern(10, 1), 0)
	if err := fs.SetLayout(ctx, "/f", layout.Policy{Width: 1}); errs.KindOf(err) != errs.NotEmpty {
		t.Fatalf("a file with data that was not told: %v", err)
	}
	must(t, fs.LsetXattr(ctx, "/f", Xattr{layout.AttrAll, []byte("width=2")}))
	if l := f.Layout(); l.Width() != 2 {
		t.Errorf("a small file is striped over %d servers", l.Width())
	}
	data := pattern(3<<20, 2)
	write(t, f, data, 0)
	must(t, f.Close(ctx))
	must(t, fs.LsetXattr(ctx, "/f", Xattr{layout.AttrAll, []byte("width=1")}))
	if err := fs.SetLayout(ctx, "/f", layout.Policy{Width: 3}); errs.KindOf(err) != errs.NotEmpty {
		t.Fatalf("a file with data: %v", err)
	}
	p, err := fs.Layout(ctx, "/f")
	if err != nil || p.Layout.Width() != 2 || p.Policy.Width != 1 {
		t.Fatalf("%v: %+v", err, p)
	}
	got, err := readPath(fs, "/f")
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the file holds something else: %v", err)
	}
}

// TestStripingAnewAmongWriters: files are made, striped anew and written by several at once; every
// byte is where it is looked for.
func TestStripingAnewAmongWriters(t *testing.T) {
	c := newCluster(t, 4, store.Options{})
	clients := []*FS{c.client(Options{}), c.client(Options{})}
	ctx := context.Background()
	data := pattern(3*layout.UnitMin, 9)
	var wg sync.WaitGroup
	for g := range 4 {
		fs := clients[g%2]
		wg.Go(func() {
			for i := range 25 {
				path := fmt.Sprintf("/f%d.%d", g, i)
				f, err := fs.Create(ctx, path)
				if err != nil {
					t.Error(err)
					return
				}
				var set sync.WaitGroup
				set.Go(func() { // before, while or after the file is written to
					p := layout.Policy{Width: 1 + i%4, Unit: layout.UnitMin}
					err := fs.SetLayout(ctx, path, p)
					if err != nil && errs.KindOf(err) != errs.NotEmpty {
						t.Error(err)
					}
				})
				if _, err := f.WriteAt(ctx, data, 0); err != nil {
					t.Error(err)
				}
				set.Wait()
				if err := f.Close(ctx); err != nil {
					t.Error(err)
				}
				got, err := readPath(clients[(g+1)%2], path)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestWithLayout(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	root, fs := c.client(Options{Cred: &meta.Cred{}}), c.client(Options{})
	ctx := context.Background()
	_, err := root.CreatePool(ctx, "two", []uint32{2, 3})
	must(t, err)
	opts := WithLayout(layout.Policy{Pool: "two", Unit: layout.UnitMin})
	f, err := fs.OpenFile(ctx, "/f", os.O_CREATE|os.O_RDWR, 0o644, opts)
	must(t, err)
	if l := f.Layout(); l.Width() != 2 || l.Unit != layout.UnitMin {
		t.Errorf("%+v", l)
	}
	must(t, f.Close(ctx))
	for _, p := range []layout.Policy{{Unit: 5}, {Pool: "three"}} {
		_, err := fs.OpenFile(ctx, "/g", os.O_CREATE|os.O_RDWR, 0o644, WithLayout(p))
		if errs.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if pools, err := fs.Pools(ctx); err != nil || len(pools) != 1 || pools[0].Name != "two" {
		t.Errorf("%v: %+v", err, pools)
	}
}

// readPath reads a whole file.
func readPath(fs *FS, path string) ([]byte, error) {
	ctx := context.Background()
	f, err := fs.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	data := make([]byte, f.Size())
	if _, err = f.ReadAt(ctx, data, 0); errors.Is(err, io.EOF) {
		err = nil
	}
	return data, errors.Join(err, f.Close(ctx))
}
