package client

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/seg"
)

// TestCutUnderARead: another client cuts a file while it is read here, and the lease that its
// length was known under is recalled before the data is fetched. The read tells the new end; it
// does not pass zeroes from behind that off as data.
func TestCutUnderARead(t *testing.T) {
	ctx := context.Background()
	const size, left = 6 * unit, unit + 10
	for name, read := range map[string]func(f *File, p []byte) (int64, error){
		"ReadAt": func(f *File, p []byte) (int64, error) {
			n, err := f.ReadAt(ctx, p, 0)
			return int64(n), err
		},
		"ReadList": func(f *File, p []byte) (int64, error) {
			return f.ReadList(ctx, [][]byte{p}, seg.Contig(0, int64(len(p))))
		},
		"Queue": func(f *File, p []byte) (int64, error) {
			q := f.fs.NewQueue(ctx, QueueOptions{})
			defer q.Close()
			must(t, q.Submit(&Request{Op: OpRead, File: f, Buf: p}))
			var done [1]Completion
			_, err := q.Wait(ctx, done[:], 1)
			must(t, err)
			return done[0].N, done[0].Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, store.Options{})
			a, b := c.client(Options{Cred: &meta.Cred{}}), c.client(Options{Cred: &meta.Cred{}})
			listened(t, a)
			f := create(t, a, "f", 3)
			data := pattern(size, 3)
			write(t, f, data, 0)
			must(t, f.Sync(ctx))
			var once sync.Once
			c.setHook(func(x call) error {
				if x.op == iod.OpRead {
					once.Do(func() {
						if err := b.Truncate(ctx, "/f", left); err != nil {
							t.Error(err)
						}
					})
				}
				return nil
			})
			p := make([]byte, size)
			n, err := read(f, p)
			if n != left || err != io.EOF || !bytes.Equal(p[:n], data[:left]) {
				t.Errorf("%d bytes, %v; want %d and the end of the file", n, err, left)
			}
			must(t, f.Close(ctx))
		})
	}
}
