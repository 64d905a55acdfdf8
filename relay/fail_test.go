package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// quietEnd checks that nothing is under way and all memory is back.
func quietEnd(t testing.TB, d *disk, p *peer, r *room) {
	t.Helper()
	under, _ := d.look()
	if now, _ := r.outstanding(); under != 0 || p.look() != 0 || now != 0 {
		t.Fatalf("left behind: %d at the disk, %d at the peer, %d bytes", under, p.look(), now)
	}
}

// The first error that a lane reports is the answer; later ones change nothing.
func TestFirstErrorIsKept(t *testing.T) {
	f := &flow{}
	f.turn.L = &f.mu
	first := errs.New(errs.IO, "the first", "", nil)
	f.fail(first)
	f.fail(errs.New(errs.Corrupt, "a later one", "", nil))
	if f.err != first {
		t.Fatalf("kept %v", f.err)
	}
}

// An error is the answer, what is under way ends before it is given, and nothing more is begun:
// whoever fails, in every way to stream. (Which of several that fail at the same moment reports
// first, nobody can say.)
func TestFirstErrorEndsAll(t *testing.T) {
	first := errs.New(errs.IO, "the first", "", nil)
	for _, streams := range []Streams{Plain, Single, Multiple} {
		for _, who := range []string{"disk", "peer", "check", "room"} {
			for _, write := range []bool{false, true} {
				if who == "check" && !write {
					continue
				}
				name := fmt.Sprintf("%v, %s fails, write %v", streams, who, write)
				t.Run(name, func(t *testing.T) { failOnce(t, streams, who, write, first) })
			}
		}
	}
}

func failOnce(t *testing.T, streams Streams, who string, write bool, first error) {
	d, s := newDisk(t)
	r, p := &room{}, newPeer(t, 2<<20)
	var failed atomic.Bool
	var later atomic.Int32
	once := func(at int64) error {
		if at < 256<<10 {
			return nil
		}
		if failed.CompareAndSwap(false, true) {
			return first
		}
		later.Add(1)
		return errs.New(errs.Corrupt, "a later one", "", nil)
	}
	switch who {
	case "disk":
		d.before = func(off int64, _ int) error { return once(off) }
	case "peer":
		p.on = func(_ context.Context, at int64) error { return once(at) }
	case "check":
		p.reject = once
	case "room":
		r.refuse = first
	}
	e := start(t, Options{Disk: d, Room: r, WindowBytes: 256 << 10, ChunkBytes: 64 << 10,
		Streams: streams, Place: places{2, 128 << 10}})
	st := wire.Stamp{Session: 1, Seq: 1}
	err := within(t, func() error {
		if write {
			return e.Write(context.Background(), &WriteJob{Object: alpha, Bytes: 2 << 20, From: p,
				Stamp: st, Durability: stripe.Durable})
		}
		return e.Read(context.Background(), &ReadJob{Object: alpha, Bytes: 2 << 20, To: p})
	})
	if !errors.Is(err, errs.IO) && (later.Load() == 0 || !errors.Is(err, errs.Corrupt)) {
		t.Fatalf("got %v, want the first error, or one that came at the same moment", err)
	}
	quietEnd(t, d, p, r)
	if n := later.Load(); n > 3 { // the window is four chunks
		t.Fatalf("%d chunks after the first error", n)
	}
	if known, err := s.Admit(context.Background(), alpha, 0, 1, st, 0); known || err != nil ||
		d.syncs != 0 {
		t.Fatalf("a failed write is remembered: %v, %v, %d syncs", known, err, d.syncs)
	}
}

// A context that ends ends the request, whatever it waits for.
func TestCancellation(t *testing.T) {
	for _, write := range []bool{false, true} {
		for _, streams := range []Streams{Plain, Single, Multiple} {
			d, _ := newDisk(t)
			r, p := &room{}, newPeer(t, 1<<20)
			ctx, cancel := context.WithCancel(context.Background())
			var begun atomic.Int32
			p.on = func(ctx context.Context, _ int64) error {
				if begun.Add(1) == 1 {
					cancel()
				}
				<-ctx.Done()
				return ctx.Err()
			}
			e := start(t, Options{Disk: d, Room: r, WindowBytes: 256 << 10, ChunkBytes: 64 << 10,
				Streams: streams})
			err := within(t, func() error {
				if write {
					return e.Write(ctx, &WriteJob{Object: alpha, Bytes: 1 << 20, From: p})
				}
				return e.Read(ctx, &ReadJob{Object: alpha, Bytes: 1 << 20, To: p})
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("write %v, %v: got %v", write, streams, err)
			}
			quietEnd(t, d, p, r)
			if err := e.Read(ctx, &ReadJob{Object: alpha, Bytes: 1, To: p}); err == nil {
				t.Fatal("a context that has ended is no obstacle")
			}
		}
	}
}

// Many requests share few workers, and every one ends: the caller's goroutine is enough.
func TestFewWorkersServeMany(t *testing.T) {
	d, s := newDisk(t)
	ctx := context.Background()
	content := fill(256<<10, 1)
	err := s.WriteAt(ctx, alpha, [][]byte{content}, 0, wire.Stamp{}, stripe.Volatile)
	if err != nil {
		t.Fatal(err)
	}
	r := &room{}
	e := start(t, Options{Disk: d, Room: r, ChunkBytes: 16 << 10, WindowBytes: 128 << 10,
		Workers: 1, Place: places{3, 64 << 10}})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				p := newPeer(t, 256<<10)
				job := ReadJob{Object: alpha, Bytes: 256 << 10, To: p,
					How: How{Streams: Streams(1 + i%3)}}
				if err := e.Read(ctx, &job); err != nil {
					t.Error(err)
					return
				}
				p.all()
			}
		})
	}
	wg.Wait()
	st := e.Stats()
	if st.Reads != 40 || st.Bytes != 40*256<<10 {
		t.Fatalf("the statistics are %+v", st)
	}
	if now, most := r.outstanding(); now != 0 || most > 8*128<<10 {
		t.Fatalf("memory: %d now, %d at most", now, most)
	}
}

// Close waits for what is under way; whoever comes later is refused.
func TestCloseWaits(t *testing.T) {
	d, _ := newDisk(t)
	p := newPeer(t, 256<<10)
	inside, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.on = func(context.Context, int64) error {
		once.Do(func() { close(inside) })
		<-free
		return nil
	}
	e := start(t, Options{Disk: d, Room: &room{}})
	read, closed := make(chan error, 1), make(chan struct{})
	ctx := context.Background()
	go func() { read <- e.Read(ctx, &ReadJob{Object: alpha, Bytes: 256 << 10, To: p}) }()
	<-inside
	go func() {
		e.Close()
		close(closed)
	}()
	refused := func() bool {
		return errors.Is(e.Read(ctx, &ReadJob{Object: alpha}), errs.Closed)
	}
	for !refused() {
	}
	select {
	case <-closed:
		t.Fatal("closed while a request was under way")
	default:
	}
	close(free)
	if err := within(t, func() error { return <-read }); err != nil {
		t.Fatal(err)
	}
	<-closed
	e.Close() // again
}

// still is a disk that does nothing.
type still struct{}

func (s *still) ReadSums(context.Context, stripe.ObjectID, [][]byte, int64, []uint32) error {
	return nil
}

func (s *still) WriteSums(context.Context, stripe.ObjectID, [][]byte, int64, []uint32,
	[]wire.Stamp, stripe.Durability) error {
	return nil
}

func (s *still) Sync(context.Context, stripe.ObjectID) error { return nil }

func TestNothingIsAllocated(t *testing.T) {
	r := &room{}
	e := start(t, Options{Disk: &still{}, Room: r, Place: places{3, 64 << 10}})
	ctx := context.Background()
	sums := make([]uint32, SumCount(1<<20))
	deaf := silent{}
	for _, streams := range []Streams{Plain, Single, Multiple} {
		how := How{Streams: streams}
		read := ReadJob{Object: alpha, Bytes: 1 << 20, To: deaf, Sums: sums, How: how}
		write := WriteJob{Object: alpha, Bytes: 1 << 20, From: deaf, How: how,
			Stamp: wire.Stamp{Session: 1, Seq: 1}, Durability: stripe.Durable}
		for name, fn := range map[string]func() error{
			"read":  func() error { return e.Read(ctx, &read) },
			"write": func() error { return e.Write(ctx, &write) },
		} {
			for range 50 {
				_ = fn()
			}
			n := alloctest.PerRun(0, 200, func() {
				if err := fn(); err != nil {
					t.Fatal(err)
				}
			})
			if n >= 1 && !raceEnabled { // the race detector makes pools drop what they are given
				t.Errorf("%v %s: %v allocations", streams, name, n)
			}
		}
	}
}
