package mount

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// overtaken is a metadata service at which others are faster than a client that wants to open a
// file, or read a link, for so many times.
type overtaken struct {
	meta.Service
	left  atomic.Int64
	other func()
}

func (o *overtaken) first() {
	if o.left.Add(-1) >= 0 {
		o.other()
	}
}

func (o *overtaken) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	o.first()
	return o.Service.Open(ctx, c, ino, flags)
}

func (o *overtaken) ReadLink(ctx context.Context, c meta.Caller, ino meta.Ino) (string, error) {
	o.first()
	return o.Service.ReadLink(ctx, c, ino)
}

// TestOpenOvertaken: between the lookup of a name and the opening of what it led to another mount
// renames something else over the name, again and again.
func TestOpenOvertaken(t *testing.T) {
	c := newCluster(t, 1)
	svc := &overtaken{Service: c.meta}
	fs, err := client.New(svc, c.data, client.Options{WaitMax: 5 * time.Second, Cache: -1})
	must(t, err)
	t.Cleanup(func() { must(t, fs.Close()) })
	b := c.mountOf(fs, Options{EntryTimeout: -1, AttrTimeout: -1})
	info, err := c.meta.NewSession(context.Background(), "other")
	must(t, err)
	ctx, by, made := context.Background(), meta.Caller{Session: info.ID}, 0
	// What the other one makes nobody has open: it is gone when something takes its name.
	replace := func(name string, f meta.NewFile, size int64) func() {
		return func() {
			made++
			tmp := fmt.Sprint("tmp", made)
			a, err := c.meta.Make(ctx, by, meta.RootIno, tmp, f)
			if err == nil && size > 0 {
				_, err = c.meta.SetAttr(ctx, by, a.Ino, meta.SetSize, meta.Attr{Size: size})
			}
			if err == nil {
				_, err = c.meta.Rename(ctx, by, meta.RootIno, tmp, meta.RootIno, name, 0)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	file := meta.NewFile{Type: meta.Regular, Mode: 0o600}
	link := meta.NewFile{Type: meta.Symlink, Mode: 0o777, Target: "target"}
	for name, test := range map[string]struct {
		other func()
		use   func(path string) error
	}{
		"open": {replace("open", file, 0), func(p string) error { return closeOpened(os.Open(p)) }},
		// The kernel must look at it again for another reason, too.
		"cut": {replace("cut", file, 100), func(p string) error { return closeOpened(os.Open(p)) }},
		"write": {replace("write", file, 0),
			func(p string) error { return closeOpened(os.OpenFile(p, os.O_RDWR, 0)) }},
		"readlink": {replace("readlink", link, 0),
			func(p string) error { _, err := os.Readlink(p); return err }},
	} {
		svc.other = test.other
		for i := range int64(8) {
			svc.other()
			svc.left.Store(i)
			if err := test.use(filepath.Join(b.Dir(), name)); err != nil {
				t.Errorf("%s, overtaken %d times: %v", name, i, err)
			}
			if left := svc.left.Load(); left >= 0 {
				t.Errorf("%s was overtaken %d times only, not %d", name, i-left, i)
			}
		}
	}
	b.bridge.again.mu.Lock()
	defer b.bridge.again.mu.Unlock()
	for pid, r := range b.bridge.again.threads {
		if r.held != nil {
			t.Errorf("a file is kept for thread %d, which has opened it", pid)
		}
	}
}

func closeOpened(f *os.File, err error) error {
	if err != nil {
		return err
	}
	return f.Close()
}
