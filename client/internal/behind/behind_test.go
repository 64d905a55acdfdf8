package behind

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is what rooms are reserved from; it counts those that are not back.
type memory struct {
	mu  sync.Mutex
	out int
}

type room struct {
	of *memory
	p  []byte
}

func (r *room) Bytes() []byte { return r.p }

func (r *room) Return() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.out--
}

func (m *memory) reserve(_ context.Context, n int) (iod.Room, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out++
	return &room{m, make([]byte, n)}, nil
}

// sink is a file. While it is held nothing lands in it.
type sink struct {
	ino   meta.Ino
	hold  chan struct{} // nil: it is not; closed: nor any longer
	asked atomic.Bool   // others look at it

	mu   sync.Mutex
	data []byte
	puts int
	fail error
	lost int64 // bytes
}

func (f *sink) Ino() meta.Ino { return f.ino }

func (f *sink) Holds() bool { return !f.asked.Load() }

func (f *sink) Put(_ context.Context, r iod.Room, n int, off int64) error {
	if f.hold != nil {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer r.Return()
	f.puts++
	if f.fail != nil {
		return f.fail
	}
	if need := off + int64(n); int64(len(f.data)) < need {
		f.data = append(f.data, make([]byte, need-int64(len(f.data)))...)
	}
	copy(f.data[off:], r.Bytes()[:n])
	return nil
}

func (f *sink) Lose(_ error, _, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost += n
}

func newTest(t *testing.T, bytes int) (*Behind, *memory) {
	m := &memory{}
	w := New(bytes, m.reserve)
	t.Cleanup(func() {
		w.Close()
		if m.out != 0 || len(w.free) != cap(w.free) {
			t.Errorf("%d rooms and %d chunks are not back", m.out, cap(w.free)-len(w.free))
		}
	})
	return w, m
}

// write is what a front end does.
func write(w *Behind, f *sink, p []byte, off int64) error {
	took, err := w.Write(context.Background(), f, p, off)
	if err != nil || took == len(p) {
		return err
	}
	r := &room{&memory{}, p[took:]}
	return f.Put(context.Background(), r, len(p)-took, off+int64(took))
}

// TestModel: writes of all sizes, some of them elsewhere, to several files at once, with fewer
// chunks than files; what is there at the end is what was written.
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w, _ := newTest(t, 3*ChunkBytes)
	var wg sync.WaitGroup
	for i := range uint64(6) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, i))
			f := &sink{ino: meta.Ino(i + 1)}
			var want []byte
			end := int64(0)
			for range 300 {
				if rng.IntN(20) == 0 {
					end = rng.Int64N(int64(len(want)) + 1)
				}
				p := bytes.Repeat([]byte{byte(rng.Uint32())}, 1+rng.IntN(40<<10))
				if rng.IntN(30) == 0 {
					p = bytes.Repeat(p, 70)
				}
				if err := write(w, f, p, end); err != nil {
					t.Error(err)
				}
				if need := end + int64(len(p)); int64(len(want)) < need {
					want = append(want, make([]byte, need-int64(len(want)))...)
				}
				copy(want[end:], p)
				end += int64(len(p))
				if e := w.End(f.ino); e > int64(len(want)) {
					t.Errorf("%d bytes are said to be there, %d were written", e, len(want))
				}
				if rng.IntN(10) == 0 {
					check(t, w, f, want)
				}
			}
			check(t, w, f, want)
			w.Forget(f.ino)
		})
	}
	wg.Wait()
	if s := w.Stats(); s.Files != 0 || s.Chunks != 0 {
		t.Errorf("%+v is left", s)
	}
}

func check(t *testing.T, w *Behind, f *sink, want []byte) {
	t.Helper()
	if err := w.Drain(context.Background(), f.ino); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !bytes.Equal(f.data, want) || w.End(f.ino) != 0 {
		t.Errorf("file %d has other bytes", f.ino)
	}
}

// TestLossIsReportedOnce: by the next write, and to the file; Settle takes it from the writes.
func TestLossIsReportedOnce(t *testing.T) {
	w, _ := newTest(t, 4*ChunkBytes)
	broken := errors.New("broken")
	f := &sink{ino: 1, fail: broken}
	p := make([]byte, 1000)
	for round := range 2 {
		off := int64(round) * 10000
		if _, err := w.Write(t.Context(), f, p, off); err != nil { // not sequential
			t.Fatal(err)
		}
		if took, err := w.Write(t.Context(), f, p, off+1000); took != 1000 || err != nil {
			t.Fatal(took, err)
		}
		drain := w.Drain
		if round == 1 {
			drain = w.Settle
		}
		if err := drain(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		_, err := w.Write(t.Context(), f, p, off+2000)
		if reported := round == 0; errors.Is(err, broken) != reported {
			t.Errorf("round %d: %v", round, err)
		}
	}
	w.Forget(1)
	if f.lost != 3000 {
		t.Errorf("%d bytes were lost, three writes of 1000 were taken", f.lost)
	}
}

// TestHeldBack: a writer that is faster than the servers waits, at most until its context ends;
// what was taken counts.
func TestHeldBack(t *testing.T) {
	w, _ := newTest(t, 2*ChunkBytes)
	f := &sink{ino: 1, hold: make(chan struct{})}
	if _, err := w.Write(t.Context(), f, nil, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	took, err := w.Write(ctx, f, make([]byte, 3*ChunkBytes), 0)
	if took != 2*ChunkBytes || err != nil {
		t.Errorf("%d bytes were taken, %v", took, err)
	}
	if err := w.Drain(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drained: %v", err)
	}
	close(f.hold)
	check(t, w, f, make([]byte, 2*ChunkBytes))
}

// TestAsked: when others look at a file nothing is taken, nor from a write that waits for room at
// that moment; what was taken before is drained by whoever has made it so.
func TestAsked(t *testing.T) {
	w, _ := newTest(t, ChunkBytes)
	f := &sink{ino: 1, hold: make(chan struct{})}
	if _, err := w.Write(t.Context(), f, nil, 0); err != nil {
		t.Fatal(err)
	}
	waits := make(chan int)
	go func() {
		took, err := w.Write(context.Background(), f, make([]byte, 2*ChunkBytes), 0)
		if err != nil {
			t.Error(err)
		}
		waits <- took
	}()
	for w.Stats().Chunks == 0 || w.End(1) < ChunkBytes {
		time.Sleep(time.Millisecond)
	}
	f.asked.Store(true)
	close(f.hold)
	if took := <-waits; took != ChunkBytes {
		t.Errorf("%d bytes were taken, a chunk was before somebody asked", took)
	}
	if took, err := w.Write(t.Context(), f, make([]byte, 10), ChunkBytes); took != 0 || err != nil {
		t.Errorf("%d bytes were taken, %v", took, err)
	}
	check(t, w, f, make([]byte, ChunkBytes))
}

// TestSlowWriter: whoever waits for the chunk of a writer that never pauses and never fills it gets
// it.
func TestSlowWriter(t *testing.T) {
	w, _ := newTest(t, ChunkBytes)
	slow, other := &sink{ino: 1}, &sink{ino: 2}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for off := int64(0); ; off += 10 {
			select {
			case <-stop:
				return
			case <-time.After(IdleMax / 20):
			}
			if err := write(w, slow, make([]byte, 10), off); err != nil {
				t.Error(err)
			}
		}
	})
	for len(w.free) > 0 {
		time.Sleep(time.Millisecond)
	}
	s, err := w.enter(t.Context(), other.ino)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.begin(t.Context(), s, other, 0); err != nil {
		t.Error(err)
	}
	s.chunk.n = 1
	s.order.giveBack()
	close(stop)
	wg.Wait()
	w.Forget(1)
	w.Forget(2)
}

// TestNothingIsAllocated: not for a write, nor for a chunk.
func TestNothingIsAllocated(t *testing.T) {
	m := &memory{}
	spare := &room{m, make([]byte, ChunkBytes)}
	w := New(ChunkBytes, func(context.Context, int) (iod.Room, error) { return spare, nil })
	defer w.Close()
	p := make([]byte, 128<<10)
	off := int64(0)
	g := &drop{ino: 1}
	next := func() {
		if _, err := w.Write(context.Background(), g, p, off); err != nil {
			t.Error(err)
		}
		off += int64(len(p))
	}
	next() // it begins nothing: it follows nothing
	if n := alloctest.Mean(0.05, 800, next); n > 0.05 {
		t.Errorf("%v allocations for each write", n)
	}
	w.Forget(1)
}

// drop is a file that forgets.
type drop struct{ ino meta.Ino }

func (f *drop) Ino() meta.Ino                                             { return f.ino }
func (f *drop) Holds() bool                                               { return true }
func (f *drop) Put(_ context.Context, r iod.Room, n int, off int64) error { return nil }
func (f *drop) Lose(error, int64, int64)                                  {}
