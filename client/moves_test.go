package client

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	iodserver "github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
)

// frozen is a server that can stop to answer without anybody noticing: its connections stay.
type frozen struct {
	*iodserver.Server
	ice, thaw chan struct{}
}

func (f *frozen) Serve(ctx context.Context, c *msg.Call) {
	select {
	case <-f.ice:
		<-f.thaw
		_ = c.Fail(context.Canceled)
	default:
		f.Server.Serve(ctx, c)
	}
}

// addFreezing starts an I/O server on a disk, as a given start of it, at a port of its own. freeze
// makes it mute.
func (w *wired) addFreezing(id uint32, disk *memstore.Store, start uint64) (freeze func()) {
	t := w.t
	cache, err := unifier.New(unifier.Config{MemoryBytes: 16 << 20, Registrar: w.net.Node}, disk)
	must(t, err)
	srv, err := iodserver.New(iodserver.Config{ID: id, Key: w.key.ServerKey(id), Store: disk,
		Cache: cache})
	must(t, err)
	f := &frozen{srv, make(chan struct{}), make(chan struct{})}
	listen, err := w.net.Serve("127.0.0.1:0", f, msg.ServeOptions{})
	must(t, err)
	t.Cleanup(func() {
		close(f.thaw)
		must(t, listen.Close(context.Background()))
		srv.Close()
		must(t, cache.Close())
	})
	w.mu.Lock()
	w.addrs[id] = listen.Addr()
	w.mu.Unlock()
	s := meta.Server{ID: id, Addr: listen.Addr(), StoreID: uint64(id), Total: 1 << 30, Free: 1 << 30,
		Incarnation: start, Start: start}
	must(t, w.meta.Join(context.Background(), s, meta.SignJoin(w.key.ServerKey(id), &s)))
	return func() { close(f.ice) }
}

// TestServerMovesUnderLoad: a server that is mute, and whose connections stay, is started again at
// another port while programs read. They hear of it and go on there, long before anybody would have
// noticed that the old one is dead; and the map is asked for once or twice, not by every request.
func TestServerMovesUnderLoad(t *testing.T) {
	w := newWired(t, 0)
	disk, err := memstore.New(memstore.Options{})
	must(t, err)
	freeze := w.addFreezing(1, disk, 1)
	ctx := context.Background()
	fs := w.dial("")
	data := pattern(256<<10, 7)
	f, err := fs.Create(ctx, "/f")
	must(t, err)
	write(t, f, data, 0)
	must(t, f.Sync(ctx))

	var reads atomic.Int64
	stop := make(chan struct{})
	var programs sync.WaitGroup
	for i := range 8 {
		programs.Go(func() {
			got := make([]byte, 32<<10)
			for {
				select {
				case <-stop:
					return
				default:
				}
				off := int64(i * len(got))
				if _, err := f.ReadAt(ctx, got, off); err != nil ||
					!bytes.Equal(got, data[off:off+int64(len(got))]) {
					t.Errorf("reading at %d: %v", off, err)
					return
				}
				reads.Add(1)
			}
		})
	}
	progress := func(what string) {
		t.Helper()
		before := reads.Load()
		for end := time.Now().Add(12 * time.Second); reads.Load() < before+100; {
			if time.Now().After(end) {
				t.Fatalf("%s: %d reads in 12 s", what, reads.Load()-before)
			}
			time.Sleep(time.Millisecond)
		}
	}
	defer programs.Wait()
	defer close(stop)
	progress("at first")
	asked := fs.places.Load().Asked()
	for start := uint64(2); start <= 4; start++ {
		freeze()
		freeze = w.addFreezing(1, disk, start)
		progress("after the server has moved")
	}
	if n := fs.places.Load().Asked() - asked; n > 3*4 {
		t.Errorf("the map was asked for %d times for 3 moves", n)
	}
}
