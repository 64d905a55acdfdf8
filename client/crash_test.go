package client

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	iodserver "github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// severed is a store that a cache can be cut off from: what it has not written then is lost.
type severed struct {
	stripe.Engine
	cut atomic.Bool
}

func (s *severed) over() error {
	if s.cut.Load() {
		return errs.New(errs.IO, "severed", "", nil)
	}
	return nil
}

func (s *severed) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, d stripe.Durability) error {
	if err := s.over(); err != nil {
		return err
	}
	return s.Engine.WriteAt(ctx, id, bufs, off, st, d)
}

func (s *severed) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, d stripe.Durability) error {
	if err := s.over(); err != nil {
		return err
	}
	return s.Engine.WriteSums(ctx, id, bufs, off, sums, stamps, d)
}

// addLazy starts an I/O server that writes back late. Its stop is a crash: what is not written back
// by then is lost.
func (w *wired) addLazy(id uint32) {
	t := w.t
	disk, err := memstore.New(memstore.Options{})
	must(t, err)
	w.start[id] = func() {
		s := &severed{Engine: disk}
		cache, err := unifier.New(unifier.Config{MemoryBytes: 64 << 20, DirtyBytes: 16 << 20,
			DirtyAge: time.Hour, Registrar: w.net.Node}, s)
		must(t, err)
		srv, err := iodserver.New(iodserver.Config{ID: id, Key: w.key.ServerKey(id), Store: s,
			Cache: cache, WriteBack: true})
		must(t, err)
		listen, err := w.net.Serve(w.places(fmt.Sprint("iod", id)), srv, msg.ServeOptions{})
		must(t, err)
		w.mu.Lock()
		w.addrs[id] = listen.Addr()
		w.mu.Unlock()
		m := meta.Server{ID: id, Addr: listen.Addr(), StoreID: uint64(id), Total: 1 << 30,
			Free: 1 << 30}
		must(t, w.meta.Join(context.Background(), m, meta.SignJoin(w.key.ServerKey(id), &m)))
		w.stop[id] = func() {
			must(t, listen.Close(context.Background()))
			s.cut.Store(true)
			_ = cache.Close() // fails: that is the point
			w.stop[id] = func() {}
		}
	}
	w.start[id]()
}

// TestServersCrash: programs write, read, sync and truncate while servers lose all that they have
// not written back. No program sees an error or an old byte, and when the client is gone
// everything is there, whatever crashes then.
func TestServersCrash(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newWired(t, 0)
	const servers = 3
	for id := uint32(1); id <= servers; id++ {
		w.addLazy(id)
	}
	ctx := context.Background()
	fs, err := Dial(ctx, "sluice://"+w.addr, Options{Providers: w.far(), Cred: &meta.Cred{},
		Retain: 8 << 20, WaitMax: 30 * time.Second})
	must(t, err)
	models := make([][]byte, 4)
	stop := make(chan struct{})
	var programs, crashes sync.WaitGroup
	crashes.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 99))
		for range 20 { // then the programs must come to an end, however slow the host
			id := uint32(1 + rng.IntN(servers))
			w.stop[id]()
			w.start[id]()
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(10+rng.IntN(40)) * time.Millisecond):
			}
		}
	})
	for i := range models {
		programs.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			var err error
			if models[i], err = crashProgram(ctx, fs, fmt.Sprintf("/f%d", i), rng); err != nil {
				t.Errorf("program %d: %v", i, err)
			}
		})
	}
	programs.Wait()
	close(stop)
	crashes.Wait()
	st := fs.Stats()
	t.Logf("%+v", st)
	must(t, fs.Close())
	if t.Failed() {
		return
	}
	if st.Resent == 0 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
	for id := uint32(1); id <= servers; id++ {
		w.stop[id]()
		w.start[id]()
	}
	w.checkFiles(models)
}

// checkFiles compares files with their models, through a client of its own.
func (w *wired) checkFiles(models [][]byte) {
	t, ctx := w.t, context.Background()
	t.Helper()
	fs, err := Dial(ctx, "sluice://"+w.addr, Options{Providers: w.far(), Cred: &meta.Cred{}})
	must(t, err)
	defer fs.Close()
	for i, want := range models {
		f, err := fs.Open(ctx, fmt.Sprintf("/f%d", i))
		must(t, err)
		got := make([]byte, len(want))
		if _, err := f.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) ||
			f.Size() != int64(len(want)) {
			t.Errorf("file %d of %d bytes: %v, equal %v", i, f.Size(), err, bytes.Equal(got, want))
		}
		must(t, f.Close(ctx))
	}
}

// crashProgram uses one file and returns what it must hold.
func crashProgram(ctx context.Context, fs *FS, name string, rng *rand.Rand) ([]byte, error) {
	f, err := fs.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	model := []byte{}
	for step := range 80 {
		if err := crashStep(ctx, f, &model, rng); err != nil {
			return nil, fmt.Errorf("step %d: %w", step, err)
		}
		if rng.IntN(20) == 0 { // what is kept of a closed file is kept on
			if err := f.Close(ctx); err != nil {
				return nil, err
			}
			if f, err = fs.OpenFile(ctx, name, 2, 0); err != nil {
				return nil, err
			}
		}
		time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
	return model, f.Close(ctx)
}

func crashStep(ctx context.Context, f *File, model *[]byte, rng *rand.Rand) error {
	m := *model
	off := rng.IntN(len(m) + 1)
	n := 1 + rng.IntN(150<<10)
	switch rng.IntN(10) {
	case 0:
		return f.Sync(ctx)
	case 1:
		size := rng.IntN(len(m) + 50<<10)
		*model = append(m[:min(size, len(m))], make([]byte, max(size-len(m), 0))...)
		return f.Truncate(ctx, int64(size))
	case 2:
		end := min(off+n, len(m))
		clear(m[off:end])
		return f.Punch(ctx, int64(off), int64(end-off))
	case 3, 4, 5:
		if len(m) == 0 {
			return nil
		}
		got := make([]byte, len(m))
		if _, err := f.ReadAt(ctx, got, 0); err != nil {
			return err
		}
		if i := firstDifference(got, m); i >= 0 {
			return fmt.Errorf("byte %d of %d is %d, want %d", i, len(m), got[i], m[i])
		}
		return nil
	}
	p := make([]byte, n)
	fill(p, rng)
	if off+n > len(m) {
		m = append(m, make([]byte, off+n-len(m))...)
	}
	copy(m[off:], p)
	*model = m
	if rng.IntN(8) == 0 {
		_, err := f.WriteAtDurable(ctx, p, int64(off))
		return err
	}
	_, err := f.WriteAt(ctx, p, int64(off))
	return err
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// TestKeptWritesOutliveTheirRights: capabilities and even handles are gone when a server crashes;
// what was written by them is sent again by fresh ones, but not to a file that was removed.
func TestKeptWritesOutliveTheirRights(t *testing.T) {
	w := newWiredWith(t, 0, false, store.Options{CapTTL: 100 * time.Millisecond})
	w.addLazy(1)
	ctx := context.Background()
	fs, err := Dial(ctx, "sluice://"+w.addr, Options{Providers: w.far(), Cred: &meta.Cred{},
		RenewEvery: time.Hour})
	must(t, err)
	data := pattern(100<<10, 1)
	files := make([]*File, 3)
	for i := range files {
		files[i], err = fs.Create(ctx, fmt.Sprintf("/f%d", i))
		must(t, err)
		write(t, files[i], data, 0)
	}
	must(t, files[1].Close(ctx))
	must(t, files[2].Close(ctx))
	must(t, fs.Remove(ctx, "/f2"))
	time.Sleep(150 * time.Millisecond)
	w.stop[1]()
	w.start[1]()
	must(t, fs.syncKept(ctx))
	st := fs.Stats()
	if st.Resent < 2 || st.Superseded < 1 || st.Lost != 0 || st.KeptWrites != 0 {
		t.Errorf("%+v", st)
	}
	must(t, files[0].Close(ctx))
	must(t, fs.Close())
	w.checkFiles([][]byte{data, data})
}

// TestModes: whichever way a handle's data takes, all handles see the same bytes.
func TestModes(t *testing.T) {
	w := newWired(t, 2)
	ctx := context.Background()
	fs, err := Dial(ctx, "sluice://"+w.addr, Options{Providers: w.far(), Cred: &meta.Cred{}})
	must(t, err)
	defer fs.Close()
	create, err := fs.Create(ctx, "/f")
	must(t, err)
	var files []*File
	for _, flag := range []int{0, syscall.O_DIRECT} {
		f, err := fs.OpenFile(ctx, "/f", os.O_RDWR|flag, 0)
		must(t, err)
		files = append(files, f)
	}
	if files[0].How().Mode != Cached || files[1].How().Mode != Direct {
		t.Fatalf("modes %v, %v", files[0].How(), files[1].How())
	}
	create.SetHow(How{Mode: DirectReads, Policy: PolicyStream, UnitBytes: 16 << 10})
	files = append(files, create)
	model := make([]byte, 3<<20)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 60 {
		off := rng.IntN(len(model) - 1)
		p := model[off : off+1+rng.IntN(min(300<<10, len(model)-off))]
		fill(p, rng)
		write(t, files[i%3], p, int64(off))
		got := make([]byte, len(p))
		if _, err := files[(i+1)%3].ReadAt(ctx, got, int64(off)); err != nil || !bytes.Equal(got, p) {
			t.Fatalf("step %d: %v, equal %v", i, err, bytes.Equal(got, p))
		}
	}
	for _, f := range files {
		must(t, f.Close(ctx))
	}
}
