package iofs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/clustertest"
	"github.com/sluice-storage/sluice/meta"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect is a client of a new cluster.
func connect(t testing.TB) *client.FS {
	t.Helper()
	url, stop, err := clustertest.Start(2)
	must(t, err)
	t.Cleanup(stop)
	c, err := client.Dial(context.Background(), url, client.Options{Cred: &meta.Cred{}})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

func put(t testing.TB, c *client.FS, path string, data []byte) {
	t.Helper()
	ctx := context.Background()
	f, err := c.Create(ctx, path)
	must(t, err)
	_, err = f.WriteAt(ctx, data, 0)
	must(t, err)
	must(t, f.Close(ctx))
}

// large is a file that lies on several I/O servers.
var large = bytes.Repeat([]byte("0123456789abcde\n"), 1280)

// plant makes a tree with all that a file system may hold.
func plant(t testing.TB, c *client.FS) (files []string) {
	t.Helper()
	ctx := context.Background()
	must(t, c.MkdirAll(ctx, "/a/b/empty", 0o755))
	put(t, c, "/none", nil)
	put(t, c, "/a/small", []byte("small\n"))
	put(t, c, "/a/b/large", large)
	must(t, c.Symlink(ctx, "b/large", "/a/link"))
	must(t, c.Symlink(ctx, "/a/b", "/absolute"))
	_, err := c.MakeIno(ctx, c.Cred(), c.Root(), "fifo", meta.NewFile{Type: meta.Fifo, Mode: 0o640})
	must(t, err)
	must(t, c.Mkdir(ctx, "/many", 0o755))
	files = []string{"none", "a/small", "a/b/large", "a/link", "absolute", "a/b/empty"}
	for i := range 30 {
		name := fmt.Sprintf("many/%d", i)
		put(t, c, "/"+name, fmt.Append(nil, i))
		files = append(files, name)
	}
	return files
}

// TestSuite is the standard library's definition of a file system. A fifo cannot be read, which it
// does not know of.
func TestSuite(t *testing.T) {
	c := connect(t)
	files := plant(t, c)
	must(t, c.Remove(context.Background(), "/fifo"))
	for _, opts := range []Options{{}, {Strict: true}, {Ahead: -1}} {
		must(t, fstest.TestFS(New(context.Background(), c, opts), files...))
	}
	other := connect(t)
	must(t, fstest.TestFS(New(context.Background(), other, Options{}))) // an empty one
}

// TestSub: a directory is a file system, too, with all that the whole one can do.
func TestSub(t *testing.T) {
	c := connect(t)
	plant(t, c)
	sub, err := fs.Sub(New(context.Background(), c, Options{}), "a")
	must(t, err)
	must(t, fstest.TestFS(sub, "small", "b/large", "link"))
	target, err := fs.ReadLink(sub, "link")
	if target != "b/large" || err != nil {
		t.Errorf("%q, %v", target, err)
	}
	info, err := fs.Stat(sub, "link") // through the link
	if err != nil || info.Size() != int64(len(large)) || info.Mode()&fs.ModeSymlink != 0 {
		t.Errorf("%v, %v", info, err)
	}
	found, err := fs.Glob(sub, "*/l*")
	if err != nil || !slices.Equal(found, []string{"b/large"}) {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := fs.Sub(sub, "../b"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("left it: %v", err)
	}
}

// TestFile: a file is an io.ReaderAt, io.Seeker and io.WriterTo, and knows when it is closed.
func TestFile(t *testing.T) {
	c := connect(t)
	plant(t, c)
	fsys := New(context.Background(), c, Options{})
	f, err := fsys.Open("a/b/large")
	must(t, err)
	must(t, iotest.TestReader(f, large))
	p := make([]byte, 16)
	if _, err := f.(io.ReaderAt).ReadAt(p, 32); err != nil || !bytes.Equal(p, large[:16]) {
		t.Errorf("%q, %v", p, err)
	}
	_, err = f.(io.Seeker).Seek(-16, io.SeekEnd)
	must(t, err)
	var out bytes.Buffer
	if n, err := io.Copy(&out, f); n != 16 || err != nil || !bytes.Equal(out.Bytes(), large[:16]) {
		t.Errorf("%d, %v, %q", n, err, out.Bytes())
	}
	info, err := f.Stat()
	must(t, err)
	a := info.Sys().(*meta.Attr)
	if info.Name() != "large" || info.Size() != int64(len(large)) || a.Size != info.Size() ||
		time.Since(info.ModTime()) > time.Hour {
		t.Errorf("%v", info)
	}
	must(t, f.Close())
	for what, err := range map[string]error{"close": f.Close(), "read": second(f.Read(p))} {
		var perr *fs.PathError
		if !errors.Is(err, fs.ErrClosed) || !errors.As(err, &perr) || perr.Path != "a/b/large" {
			t.Errorf("%s after it: %v", what, err)
		}
	}
}

func second(_ int, err error) error { return err }

// TestDir reads a directory that is larger than a page in steps, while it changes.
func TestDir(t *testing.T) {
	c := connect(t)
	ctx := context.Background()
	const n = meta.DirPageMax + 300
	for i := range n {
		_, err := c.MakeIno(ctx, c.Cred(), c.Root(), fmt.Sprint(i), meta.NewFile{Type: meta.Regular})
		must(t, err)
	}
	f, err := New(ctx, c, Options{}).Open(".")
	must(t, err)
	d := f.(fs.ReadDirFile)
	seen := map[string]int{}
	for {
		list, err := d.ReadDir(97)
		for _, e := range list {
			seen[e.Name()]++
		}
		if err == io.EOF {
			break
		}
		must(t, err)
		_ = c.Remove(ctx, fmt.Sprintf("/%d", n-1-len(seen)/100)) // some of the last ones
	}
	for i := range n - 20 {
		if seen[fmt.Sprint(i)] != 1 {
			t.Fatalf("%d was seen %d times", i, seen[fmt.Sprint(i)])
		}
	}
	if _, err := f.Read(make([]byte, 1)); err == nil {
		t.Error("read a directory")
	}
	must(t, f.Close())
	if _, err := d.ReadDir(1); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestErrors: what package io/fs calls an error is one here.
func TestErrors(t *testing.T) {
	c := connect(t)
	plant(t, c)
	must(t, c.Symlink(context.Background(), "nowhere", "/a/dangling"))
	fsys := New(context.Background(), c, Options{})
	for name, want := range map[string]error{
		"gone": fs.ErrNotExist, "gone/x": fs.ErrNotExist, "/a": fs.ErrInvalid, "a/": fs.ErrInvalid,
		"../a": fs.ErrInvalid, "": fs.ErrInvalid, "a/dangling": fs.ErrNotExist,
	} {
		_, oerr := fsys.Open(name)
		_, serr := fsys.Stat(name)
		_, rerr := fsys.ReadFile(name)
		for _, err := range []error{oerr, serr, rerr} {
			var perr *fs.PathError
			if !errors.Is(err, want) || !errors.As(err, &perr) || perr.Path != name {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	if _, err := fsys.ReadLink("none"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("the target of what is no link: %v", err)
	}
	f, err := fsys.Open("fifo")
	must(t, err)
	info, err := f.Stat()
	if err != nil || info.Mode() != fs.ModeNamedPipe|0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := f.Read(make([]byte, 1)); err == nil {
		t.Error("read a fifo")
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(ended, c, Options{}).ReadFile("a/b/large"); err == nil {
		t.Error("read without a context")
	}
}

// TestUsers: what takes an fs.FS works.
func TestUsers(t *testing.T) {
	c := connect(t)
	plant(t, c)
	must(t, c.Remove(context.Background(), "/fifo"))
	fsys := New(context.Background(), c, Options{})

	dir := t.TempDir()
	sub, err := fs.Sub(fsys, "a/b")
	must(t, err)
	must(t, os.CopyFS(dir, sub))
	if got, err := os.ReadFile(dir + "/large"); err != nil || !bytes.Equal(got, large) {
		t.Errorf("copied %d bytes, %v", len(got), err)
	}

	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	must(t, w.AddFS(sub))
	must(t, w.Close())
	if packed.Len() < len(large) {
		t.Errorf("an archive of %d bytes", packed.Len())
	}

	web := httptest.NewServer(http.FileServerFS(fsys))
	defer web.Close()
	req, err := http.NewRequest("GET", web.URL+"/a/b/large", nil)
	must(t, err)
	req.Header.Set("Range", "bytes=32-47")
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 206 || !bytes.Equal(body, large[:16]) {
		t.Errorf("%s, %q, %v", resp.Status, body, err)
	}
}
