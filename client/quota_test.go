package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// limited makes a directory whose tree has a limit of bytes.
func limited(t *testing.T, fs *FS, path string, bytes int64) {
	t.Helper()
	ctx := context.Background()
	must(t, fs.Mkdir(ctx, path, 0o777))
	_, err := fs.SetQuota(ctx, path, meta.Usage{Bytes: bytes})
	must(t, err)
	awaitCount(t, fs, path)
}

func awaitCount(t *testing.T, fs *FS, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		q, err := fs.Quota(context.Background(), path)
		must(t, err)
		if !q.Counting {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the tree is never counted")
		}
	}
}

func used(t *testing.T, fs *FS, path string) int64 {
	t.Helper()
	q, err := fs.Quota(context.Background(), path)
	must(t, err)
	return q.Used.Bytes
}

// growing counts what is asked of the service.
type growing struct {
	meta.Service
	asked atomic.Int64
}

func (g *growing) Grow(ctx context.Context, c meta.Caller, ino meta.Ino, end int64) (int64, error) {
	g.asked.Add(1)
	return g.Service.Grow(ctx, c, ino, end)
}

// TestLoneWriterStopsAtTheRightByte: all that a quota leaves is written, not a byte more, and for
// that the service is asked a few times.
func TestLoneWriterStopsAtTheRightByte(t *testing.T) {
	const limit = 3_000_001
	c := newCluster(t, 2, store.Options{})
	svc := &growing{Service: c.meta}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{}})
	must(t, err)
	defer fs.Close()
	ctx := context.Background()
	limited(t, fs, "/d", limit)
	f, err := fs.Create(ctx, "/d/f")
	must(t, err)
	p, off := pattern(10_000, 1), int64(0)
	for err == nil {
		var n int
		n, err = f.WriteAt(ctx, p, off)
		off += int64(n)
	}
	if errs.KindOf(err) != errs.Quota || off != limit || f.Size() != limit {
		t.Fatalf("%d bytes of %d, then %v", off, limit, err)
	}
	if n := svc.asked.Load(); n > 100 {
		t.Errorf("the service was asked %d times for %d writes", n, limit/len(p))
	}
	write(t, f, p, 500) // what is there may be written again
	if _, err := f.Append(ctx, p[:1]); errs.KindOf(err) != errs.Quota {
		t.Fatalf("an append: %v", err)
	}
	if err := f.Truncate(ctx, limit+1); errs.KindOf(err) != errs.Quota {
		t.Fatalf("extended: %v", err)
	}
	must(t, f.Truncate(ctx, limit-100))
	if at, err := f.Append(ctx, p[:60]); err != nil || at != limit-100 {
		t.Fatalf("appended at %d, %v", at, err)
	}
	if _, err := f.Append(ctx, p[:60]); errs.KindOf(err) != errs.Quota {
		t.Fatalf("an append that does not fit: %v", err)
	}
	if at, err := f.Append(ctx, p[:40]); err != nil || at != limit-40 {
		t.Fatalf("appended at %d, %v", at, err)
	}
	must(t, f.Sync(ctx))
	must(t, f.Close(ctx))
	fs.flushEndings(ctx) // what is closed gives room back when the service knows
	if n := used(t, fs, "/d"); n != limit {
		t.Fatalf("%d bytes are used, %d were written", n, limit)
	}
	must(t, fs.Remove(ctx, "/d/f"))
	if n := used(t, fs, "/d"); n != 0 {
		t.Fatalf("%d bytes are used by nothing", n)
	}
}

// TestClientsStayWithinAQuota together, whatever each of them knows; and all of it can be used.
func TestClientsStayWithinAQuota(t *testing.T) {
	const limit, clients, piece = 2 << 20, 4, 3000
	c := newCluster(t, 2, store.Options{})
	admin := c.client(Options{Cred: &meta.Cred{}})
	limited(t, admin, "/d", limit)
	ctx := context.Background()
	var total atomic.Int64
	var wg sync.WaitGroup
	for who := range clients {
		f, err := c.client(Options{}).Create(ctx, fmt.Sprint("/d/", who))
		must(t, err)
		wg.Go(func() {
			for off := int64(0); ; {
				n, err := f.WriteAt(ctx, pattern(piece, byte(who)), off)
				off += int64(n)
				total.Add(int64(n))
				if err == nil {
					continue
				}
				if errs.KindOf(err) != errs.Quota {
					t.Error(err)
				}
				break
			}
			if err := f.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := used(t, admin, "/d"); n != total.Load() || n > limit {
		t.Fatalf("%d bytes were written, %d are used of %d", total.Load(), n, limit)
	}
	// What was promised to one and not used is there for others when it has closed.
	f, err := c.client(Options{}).Create(ctx, "/d/rest")
	must(t, err)
	rest := limit - total.Load()
	n, err := f.WriteAt(ctx, pattern(limit, 9), 0)
	if int64(n) != rest || errs.KindOf(err) != errs.Quota {
		t.Fatalf("%d bytes of the %d that are left, %v", n, rest, err)
	}
	must(t, f.Close(ctx))
}

// TestQuotaSetWhileOpen: whoever has a file open learns of a limit when its capability is renewed,
// and what was written until then counts.
func TestQuotaSetWhileOpen(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{Cred: &meta.Cred{}, RenewEvery: 5 * time.Millisecond})
	ctx := context.Background()
	must(t, fs.Mkdir(ctx, "/d", 0o777))
	f, err := fs.Create(ctx, "/d/f")
	must(t, err)
	write(t, f, pattern(5000, 1), 0)
	_, err = fs.SetQuota(ctx, "/d", meta.Usage{Bytes: 10_000})
	must(t, err)
	awaitCount(t, fs, "/d")
	off := int64(5000)
	for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
		var n int
		n, err = f.WriteAt(ctx, []byte{1}, off)
		off += int64(n)
	}
	if errs.KindOf(err) != errs.Quota {
		t.Fatalf("%d bytes were written, then %v", off, err)
	}
	must(t, f.Close(ctx))
	fs.flushEndings(ctx)
	if n := used(t, fs, "/d"); n != off {
		t.Fatalf("%d bytes are used, %d were written", n, off)
	}
}
