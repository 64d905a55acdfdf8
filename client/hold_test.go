package client

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// behindBoth makes a large file that a client writes behind, and another client.
func behindBoth(t *testing.T, c *cluster, data DataService) (f *File, other *FS) {
	fs, err := New(c.service(), data, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	listened(t, fs)
	f = createSmall(t, fs, "f", 2)
	write(t, f, pattern(20_000, 1), 0)
	writeBehind(t, f, 1000, 20_000, 0) // it begins a stream
	return f, c.client(Options{})
}

// writeBehind writes behind, and demands how much is taken. What is not taken is written.
func writeBehind(t *testing.T, f *File, n int, off int64, want int) {
	t.Helper()
	p := pattern(n, byte(off))
	got, err := f.WriteBehind(context.Background(), p, off)
	if err != nil || got != want {
		t.Fatalf("%d of %d bytes were taken, want %d: %v", got, n, want, err)
	}
	if got < n {
		write(t, f, p[got:], off+int64(got))
	}
}

// writes counts those that have reached the servers.
func writes(c *cluster) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, times := range c.calls {
		if k.op == iod.OpWrite {
			n += times
		}
	}
	return n
}

// TestHeldBackUntilAsked: what is written behind is held back while nobody else looks, is there for
// whoever does, and is held back again afterwards.
func TestHeldBackUntilAsked(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	f, other := behindBoth(t, c, c)
	ctx := context.Background()
	end := int64(21_000)
	for range 5 {
		for !f.Holds() {
			p := pattern(10, byte(end))
			got, err := f.WriteBehind(ctx, p, end) // this asks for the lease now and then
			must(t, err)
			if got < len(p) { // it may have it just now
				write(t, f, p[got:], end+int64(got))
			}
			end += 10
			time.Sleep(time.Millisecond)
		}
		before := writes(c)
		writeBehind(t, f, 1000, end, 1000)
		end += 1000
		if n := writes(c); n != before {
			t.Fatalf("%d writes reached the servers, none was asked for", n-before)
		}
		a, err := other.GetAttr(ctx, meta.Cred{}, f.Ino())
		must(t, err)
		if a.Size != end {
			t.Fatalf("%d bytes for another client, want %d", a.Size, end)
		}
	}
	r, err := other.OpenIno(ctx, meta.Cred{}, f.Ino(), meta.OpenRead)
	must(t, err)
	for range 100 {
		writeBehind(t, f, 10, end, 0) // while another one has it open nothing is held back
		end += 10
	}
	must(t, r.Close(ctx))
	must(t, f.Close(ctx))
}

// TestAskedWhileServersAreAway: whoever asks for a file waits for a part of a lease if what is held
// back cannot be sent, and the writer keeps its leases.
func TestAskedWhileServersAreAway(t *testing.T) {
	const lease = 12 * time.Second
	c := newCluster(t, 2, store.Options{Lease: 2 * lease, LeaseTime: lease})
	data := &unreachable{cluster: c}
	f, other := behindBoth(t, c, data)
	writeBehind(t, f, 1000, 21_000, 1000)
	data.on.Store(true)
	defer data.on.Store(false)
	epoch, start := f.fs.leases.current(), time.Now()
	_, err := other.GetAttr(context.Background(), meta.Cred{}, f.Ino())
	must(t, err)
	if d := time.Since(start); d < lease/8 || d > lease/2 {
		t.Errorf("another client has waited for %v, a lease is %v", d, lease)
	}
	if f.fs.leases.current() != epoch {
		t.Error("the writer has lost all of its leases")
	}
}

// TestAppendsLandInOrder: the data of an append is on its way to a server while another client
// appends behind it. Nobody sees what lies behind it, nor zeroes in its place.
func TestAppendsLandInOrder(t *testing.T) {
	c := newCluster(t, 1, withLongLeases(store.Options{}))
	ctx := context.Background()
	data := &unreachable{cluster: c}
	fs, err := New(c.service(), data, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { _ = fs.Close() }()
	want := pattern(20_000, 1)
	made := create(t, c.client(Options{}), "f", 1)
	write(t, made, want, 0)
	must(t, made.Close(ctx))
	a, err := fs.OpenIno(ctx, meta.Cred{}, made.Ino(), meta.OpenWrite)
	must(t, err)
	b, err := c.client(Options{}).OpenIno(ctx, meta.Cred{}, made.Ino(), meta.OpenWrite)
	must(t, err)
	reader, err := c.client(Options{}).OpenIno(ctx, meta.Cred{}, made.Ino(), meta.OpenRead)
	must(t, err)
	look := func() int {
		t.Helper()
		got := make([]byte, 2*len(want))
		n, err := reader.ReadAt(ctx, got, 0)
		if err != io.EOF || n < len(want) || bytes.IndexByte(got[len(want):n], 0) >= 0 {
			t.Fatalf("%d bytes, %v: %q", n, err, got[len(want):n])
		}
		return n
	}
	data.on.Store(true)
	reserved, done := make(chan int64, 1), make(chan error, 2)
	go func() {
		_, err := a.AppendNoted(ctx, []byte("first"), func(off int64) { reserved <- off })
		done <- err
	}()
	<-reserved
	var second atomic.Bool
	before := writes(c)
	go func() {
		_, err := b.Append(ctx, []byte("second"))
		second.Store(true)
		done <- err
	}()
	for looks := 0; looks < 20; {
		if n := look(); n != len(want) || second.Load() {
			t.Fatalf("%d bytes are seen, of %d; the second append has returned: %v",
				n, len(want), second.Load())
		}
		if writes(c) > before {
			looks++
		}
		time.Sleep(time.Millisecond)
	}
	data.on.Store(false)
	must(t, <-done)
	must(t, <-done)
	if n := look(); n != len(want)+len("firstsecond") {
		t.Errorf("%d bytes in the end", n)
	}
	must(t, a.Close(ctx))
	must(t, b.Close(ctx))
}
