package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/clustertest"
	"github.com/sluice-storage/sluice/client/iofs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/seg"
)

// connect starts a cluster of two I/O servers and opens it. With one that `sluice up` has started
// it is only client.Open(ctx, "sluice://127.0.0.1:9400/").
func connect(ctx context.Context) (c *client.FS, done func()) {
	url, stop, err := clustertest.Start(2)
	if err != nil {
		log.Fatal(err)
	}
	if c, err = client.Open(ctx, url); err != nil {
		stop()
		log.Fatal(err)
	}
	return c, func() {
		if err := c.Close(); err != nil {
			fmt.Println(err)
		}
		stop()
	}
}

// ExampleOpen writes a file and reads it back. What it needs is the address of a cluster, like one
// that `sluice up` has started.
func ExampleOpen() {
	url, stop, err := clustertest.Start(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	ctx := context.Background()
	fs, err := client.Open(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fs.Close()
	f, err := fs.OpenFile(ctx, "/greeting", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close(ctx)
	if _, err := f.WriteAt(ctx, []byte("hello, servers"), 0); err != nil {
		fmt.Println(err)
		return
	}
	if err := f.Sync(ctx); err != nil {
		fmt.Println(err)
		return
	}
	text := make([]byte, 14)
	if _, err := f.ReadAt(ctx, text, 0); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text))
	// Output: hello, servers
}

// What Sync acknowledged survives the death of every process and a power cut; other clients see the
// file before that, from the moment that WriteAt returns.
func ExampleFile_Sync() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	f, err := c.Create(ctx, "/ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := f.WriteAt(ctx, []byte("entry 1\n"), 0); err != nil {
		fmt.Println(err)
	}
	if err := f.Sync(ctx); err != nil { // data and size, on every server that has some of it
		fmt.Println("write it again:", err)
	}
	if err := f.Close(ctx); err != nil {
		fmt.Println(err)
	}
	a, err := c.Stat(ctx, "/ledger")
	fmt.Println(a.Size, err)
	// Output: 8 <nil>
}

// A column of a matrix of 4 rows of 8 bytes: one request to each server, whatever the number of
// rows.
func ExampleFile_ReadList() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	f, err := c.Create(ctx, "/matrix")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close(ctx)
	if _, err := f.WriteAt(ctx, []byte("a1b1c1d1a2b2c2d2a3b3c3d3a4b4c4d4"), 0); err != nil {
		fmt.Println(err)
	}
	column := make([]byte, 4*2)
	n, err := f.ReadList(ctx, [][]byte{column}, seg.Strided(seg.Vector{
		Off: 4, Block: 2, Dims: []seg.Dim{{Count: 4, Stride: 8}}}))
	fmt.Printf("%s, %d bytes, %v\n", column, n, err)
	// Output: c1c2c3c4, 8 bytes, <nil>
}

// A tile of a picture, of which the program has all in memory: vectors on both sides, one request
// to each server, and the array as a hint, so that where memory must be registered it is once.
func ExampleFile_Transfer() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	f, err := c.Create(ctx, "/picture")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close(ctx)
	if _, err := f.WriteAt(ctx, []byte("abcdefghijklmnopqrstuvwxyz0123456789"), 0); err != nil {
		fmt.Println(err)
	}
	picture := bytes.Repeat([]byte("."), 36) // 6 rows of 6
	tile := seg.Strided(seg.Vector{Off: 2*6 + 3, Block: 3, Dims: []seg.Dim{{Count: 2, Stride: 6}}})
	n, err := f.Transfer(ctx, &client.Transfer{Bufs: [][]byte{picture}, Memory: tile, File: tile,
		Parents: []client.Parent{{Bytes: picture}}})
	fmt.Printf("%s, %d bytes, %v\n", picture[12:24], n, err)
	// Output: ...pqr...vwx, 6 bytes, <nil>
}

// A large file is copied with several requests under way in both directions.
func ExampleFile_Writer() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	f, err := c.Create(ctx, "/big")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close(ctx)
	w := f.Writer(ctx, client.WriterOptions{})
	source := io.LimitReader(bytes.NewReader(bytes.Repeat([]byte("0123456789abcdef"), 1<<18)), 4e6)
	if _, err := io.Copy(w, source); err != nil {
		fmt.Println(err)
	}
	if err := w.Close(); err != nil { // what could not be written is told here at the latest
		fmt.Println(err)
	}

	r := f.Reader(ctx, client.ReaderOptions{Ahead: 4 << 20})
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	fmt.Println(n, err)
	// Output: 4000000 <nil>
}

// Everything that takes an fs.FS works.
func ExampleFS_walk() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()
	for _, dir := range []string{"/data/2026", "/data/2027"} {
		if err := c.MkdirAll(ctx, dir, 0o755); err != nil {
			fmt.Println(err)
		}
	}
	f, err := c.Create(ctx, "/data/2026/points.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := io.WriteString(f.IO(ctx), "1,2\n3,4\n"); err != nil {
		fmt.Println(err)
	}
	if err := f.Close(ctx); err != nil {
		fmt.Println(err)
	}

	fsys := iofs.New(ctx, c, iofs.Options{})
	err = fs.WalkDir(fsys, "data", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			fmt.Println(path, info.Size())
		} else {
			fmt.Println(path)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	text, err := fs.ReadFile(fsys, "data/2026/points.csv")
	fmt.Printf("%q %v\n", text, err)
	// Output:
	// data
	// data/2026
	// data/2026/points.csv 8
	// data/2027
	// "1,2\n3,4\n" <nil>
}

// A directory is listed with the attributes of what is in it, page by page, however large it is.
func ExampleFS_ReadDir() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()
	if err := c.Mkdir(ctx, "/runs", 0o755); err != nil {
		fmt.Println(err)
	}
	if err := c.Symlink(ctx, "runs", "/latest"); err != nil {
		fmt.Println(err)
	}
	kinds := map[meta.Type]string{meta.Directory: "directory", meta.Symlink: "link"}
	err := c.ReadDir(ctx, "/", func(e meta.Entry) error {
		fmt.Println(kinds[e.Type], e.Name)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// directory runs
	// link latest
}

// Two programs, or two parts of one, take turns with a file. Locks are advisory, as those of
// flock(2) and fcntl(2), which hold between the library and mounts.
func ExampleFS_Lock() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()
	f, err := c.Create(ctx, "/shared")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close(ctx)

	lock := meta.Lock{Ino: f.Ino(), Kind: meta.LockFlock, Type: meta.LockExclusive, Owner: 1,
		End: meta.LockEndMax}
	if err := c.Lock(ctx, lock, true); err != nil { // waits until it is free
		fmt.Println(err)
	}
	other := lock
	other.Owner = 2
	fmt.Println("second:", c.Lock(ctx, other, false) != nil)
	if err := c.Unlock(ctx, lock); err != nil {
		fmt.Println(err)
	}
	fmt.Println("second, later:", c.Lock(ctx, other, true) != nil)
	// Output:
	// second: true
	// second, later: false
}

// Alloc lends memory that servers of this host, and devices, move data into by themselves.
func ExampleFS_Alloc() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()
	f, err := c.Create(ctx, "/tensor")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close(ctx)

	m := c.Alloc(3 << 20)
	defer m.Free()
	copy(m.Bytes(), "weights")
	if _, err := f.WriteAtDurable(ctx, m.Bytes(), 0); err != nil {
		fmt.Println(err)
	}
	clear(m.Bytes())
	n, err := f.ReadAt(ctx, m.Bytes(), 0)
	fmt.Printf("%d %s %v\n", n, m.Bytes()[:7], err)
	// Output: 3145728 weights <nil>
}
