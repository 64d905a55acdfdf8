package client

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestSyncBesideAMoveOut: a small file is synced, or written durably, while another handle moves it
// out. When that returns the data is on stable storage at the I/O servers.
func TestSyncBesideAMoveOut(t *testing.T) {
	ctx := context.Background()
	for name, sync := range map[string]func(*File) error{
		"sync":  func(f *File) error { return f.Sync(ctx) },
		"write": func(f *File) error { return f.wroteSmall(ctx, writingDurably) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, withLongLeases(store.Options{}))
			data := &unreachable{cluster: c}
			fs, err := New(c.service(), data, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
			must(t, err)
			defer func() { _ = fs.Close() }()
			listened(t, fs)
			f := createSmall(t, fs, "f", 1)
			g, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenRead|meta.OpenWrite)
			must(t, err)
			write(t, f, []byte("content"), 0)
			for _, n := range fs.flushing.take() { // it is not told before
				fs.unref(n)
			}
			data.on.Store(true)
			moved, synced := make(chan error, 1), make(chan error, 1)
			go func() { moved <- fs.moveOut(ctx, g) }()
			eventually(t, func() bool {
				f.node.mu.Lock()
				defer f.node.mu.Unlock()
				return f.node.content.frozen
			})
			go func() { synced <- sync(f) }()
			time.Sleep(50 * time.Millisecond) // it waits for who moves the file out
			data.on.Store(false)
			must(t, <-moved)
			must(t, <-synced)
			c.mu.Lock()
			n := len(c.unsynced)
			c.mu.Unlock()
			if n != 0 || f.node.small.Load() {
				t.Errorf("%d objects are not synced", n)
			}
			must(t, f.Close(ctx))
			must(t, g.Close(ctx))
		})
	}
}
