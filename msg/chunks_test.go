package msg

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

// chunked answers with the pattern of the body's salt, in chunks that leave from the back to the
// front, from several goroutines, each through one buffer that it fills again as soon as it may.
func chunked(t testing.TB, d fabric.Domain, chunk int64) Handler {
	const movers = 3
	rooms := make(chan fabric.Sge, movers)
	for range movers {
		rooms <- memory(t, d, int(chunk))
	}
	return HandlerFunc(func(ctx context.Context, c *Call) {
		whole := make([]byte, c.InLen())
		pattern(whole, uint64(c.Body()[0]))
		chunks := make(chan int64, len(whole)/int(chunk)+1)
		for off := (c.InLen() - 1) / chunk * chunk; off >= 0 && c.InLen() > 0; off -= chunk {
			chunks <- off
		}
		close(chunks)
		failed := make([]error, movers)
		var wg sync.WaitGroup
		for i := range movers {
			wg.Go(func() {
				room := <-rooms
				defer func() { rooms <- room }()
				for off := range chunks {
					piece := room
					piece.Buf = room.Buf[:min(chunk, c.InLen()-off)]
					copy(piece.Buf, whole[off:])
					failed[i] = errors.Join(failed[i], c.PushWait(ctx, off, []fabric.Sge{piece}))
					clear(piece.Buf) // it is ours again: what comes must not be this
				}
			})
		}
		wg.Wait()
		if err := errors.Join(failed...); err != nil {
			_ = c.Fail(err)
			return
		}
		_ = c.Reply(nil, c.InLen())
	})
}

func TestPushWaitGivesMemoryBack(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			r := newRigFor(t, p, func(d fabric.Domain) Handler { return chunked(t, d, 10_000) }, nil)
			for _, n := range []int{0, 1, 3000, 40_000, 300_000, p.some(1 << 20)} {
				in, want := memory(t, r.cdom, n), make([]byte, n)
				pattern(want, uint64(n%200))
				var rep Reply
				err := r.conn.Call(context.Background(),
					&Request{Body: []byte{byte(n % 200)}, In: contig(in)}, &rep)
				if err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				if rep.InLen != int64(n) || !bytes.Equal(in.Buf, want) {
					t.Fatalf("%d bytes: other data than were pushed", n)
				}
			}
			if err := quiet(r); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPushWaitBeyondTheSegment(t *testing.T) {
	r := newRigFor(t, simProviders()[0], func(d fabric.Domain) Handler {
		room := memory(t, d, 100)
		return HandlerFunc(func(ctx context.Context, c *Call) {
			_ = c.Fail(c.PushWait(ctx, c.InLen()-99, []fabric.Sge{room}))
		})
	}, nil)
	in := memory(t, r.cdom, 20_000)
	err := r.conn.Call(context.Background(), &Request{In: contig(in)}, &Reply{})
	if err == nil || !bytes.Equal(in.Buf, make([]byte, 20_000)) {
		t.Fatalf("bytes beyond the segment: %v", err)
	}
}
