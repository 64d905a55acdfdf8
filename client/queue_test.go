package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/seg"
)

// flight is a request of the model test that is under way.
type flight struct {
	file   int
	span   seg.Piece
	writes bool
	buf    []byte // of a read
	want   []byte // what it must find
	n      int64
	err    error
}

// flights are what is under way, and byte arrays that say what the files must hold.
type flights struct {
	q      *Queue
	rng    *rand.Rand
	files  []*File
	models [][]byte
	under  map[uint64]*flight
	tag    uint64
}

// free tells whether a range may be read, or written: what is under way together has no order.
func (s *flights) free(file int, span seg.Piece, writes bool) bool {
	for _, x := range s.under {
		if x.file == file && (x.writes || writes) && x.span.Off < span.End() &&
			span.Off < x.span.End() {
			return false
		}
	}
	return true
}

// next is a random request; nil where others have to end before.
func (s *flights) next() *Request {
	rng := s.rng
	file := rng.IntN(len(s.files))
	f, model := s.files[file], s.models[file]
	switch k := rng.IntN(20); {
	case k == 0:
		s.under[s.tag] = &flight{file: file}
		return &Request{Op: OpSync, File: f}
	case k == 1:
		s.under[s.tag] = &flight{file: file, n: 5}
		return &Request{Op: OpCall, Call: func(context.Context) (int64, error) { return 5, nil }}
	case k < 6:
		t := &Transfer{Write: rng.IntN(2) == 0, File: shape(rng, 100<<10), Method: Method(rng.IntN(3))}
		t.Durable = rng.IntN(3) == 0
		t.Bufs = [][]byte{make([]byte, t.File.Len())}
		return s.add(file, t.File, t.Write, t.Bufs[0], &Request{Op: OpTransfer, File: f, Transfer: t})
	}
	a := seg.Contig(rng.Int64N(int64(len(model))+1000), 1+rng.Int64N(1+rng.Int64N(120<<10)))
	buf := make([]byte, a.Len())
	r := &Request{Op: []RequestOp{OpRead, OpRead, OpWrite, OpWriteDurable}[rng.IntN(4)], File: f,
		Buf: buf, Off: a.Span().Off}
	return s.add(file, a, r.Op != OpRead, buf, r)
}

func (s *flights) add(file int, a seg.Access, writes bool, buf []byte, r *Request) *Request {
	span := a.Span()
	x := &flight{file: file, span: span, writes: writes, n: a.Len()}
	if span.End() > int64(len(s.models[file])) { // the end of the file moves, or must be still
		x.span = seg.Piece{Off: min(span.Off, int64(len(s.models[file]))), Len: 1 << 40}
	}
	if !s.free(file, x.span, writes) {
		return nil
	}
	t := &Transfer{Write: writes, Bufs: [][]byte{buf}, File: a}
	if writes {
		fill(buf, s.rng)
		if grown := span.End() - int64(len(s.models[file])); grown > 0 {
			s.models[file] = append(s.models[file], make([]byte, grown)...)
		}
		carry(t, s.models[file])
	} else {
		model := s.models[file]
		if span.End() > int64(len(model)) {
			x.n, x.err = before(a, int64(len(model))), io.EOF
			model = append(slices.Clone(model), make([]byte, span.End()-int64(len(model)))...)
		}
		x.buf, x.want = buf, make([]byte, len(buf))
		carry(&Transfer{Bufs: [][]byte{x.want}, File: a}, model)
		if r.Op == OpRead {
			x.want = x.want[:x.n] // what lies behind is not touched
		}
	}
	s.under[s.tag] = x
	return r
}

// take takes completions and compares.
func (s *flights) take(ctx context.Context, least int) error {
	var done [7]Completion
	n, err := s.q.Wait(ctx, done[:], least)
	if err != nil {
		return err
	}
	if n < min(least, len(s.under)) {
		return fmt.Errorf("%d completions where there are at least %d", n, least)
	}
	for _, c := range done[:n] {
		tag := c.Tag.(uint64)
		x := s.under[tag]
		switch {
		case x == nil:
			return fmt.Errorf("a completion of request %d, which is none", tag)
		case c.N != x.n || c.Err != x.err:
			return fmt.Errorf("%+v: %d, %v, want %d, %v", x.span, c.N, c.Err, x.n, x.err)
		case !bytes.Equal(x.buf[:len(x.want)], x.want):
			return fmt.Errorf("%+v: other bytes", x.span)
		}
		delete(s.under, tag)
	}
	return nil
}

// run submits steps requests and takes their completions.
func (s *flights) run(ctx context.Context, steps int) error {
	for range steps {
		s.tag++
		if r := s.next(); r != nil {
			r.Tag = s.tag
			err := s.q.Submit(r)
			for errs.KindOf(err) == errs.Again {
				if err := s.take(ctx, 1); err != nil {
					return err
				}
				err = s.q.Submit(r)
			}
			if err != nil {
				return err
			}
		}
		if s.rng.IntN(4) == 0 {
			if err := s.take(ctx, s.rng.IntN(5)); err != nil {
				return err
			}
		}
	}
	for len(s.under) > 0 {
		if err := s.take(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// TestQueueModel: random requests, many at a time and submitted by one goroutine, against byte
// arrays, while I/O servers lose what they have not written back. When the client is gone all is
// there.
func TestQueueModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) { queueModel(t, seed+uint64(round), round != 1) })
	}
}

func queueModel(t *testing.T, seed uint64, crashes bool) {
	w := newWired(t, 0)
	const servers = 3
	for id := uint32(1); id <= servers; id++ {
		w.addLazy(id)
	}
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(seed, 1))
	fs, err := Dial(ctx, "sluice://"+w.addr, Options{Providers: w.far(), Cred: &meta.Cred{},
		Retain: 8 << 20, WaitMax: time.Minute})
	must(t, err)
	q := fs.NewQueue(ctx, QueueOptions{Depth: 1 + rng.IntN(200)})
	s := &flights{q: q, rng: rng, under: map[uint64]*flight{}}
	for i := range 4 {
		f, err := fs.OpenFile(ctx, fmt.Sprint("/f", i), os.O_CREATE|os.O_RDWR, 0o644,
			WithLayout(layout.Policy{Unit: unit, Width: 1 + i%3}))
		must(t, err)
		model := make([]byte, []int{100, 40 << 10, 300 << 10, 1 << 20}[i])
		fill(model, rng)
		write(t, f, model, 0)
		s.files, s.models = append(s.files, f), append(s.models, model)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	if crashes {
		wg.Go(func() {
			crash := rand.New(rand.NewPCG(seed, 2))
			for range 15 {
				id := uint32(1 + crash.IntN(servers))
				w.stop[id]()
				w.start[id]()
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(10+crash.IntN(60)) * time.Millisecond):
				}
			}
		})
	}
	err = s.run(ctx, 600)
	close(stop)
	wg.Wait()
	if err != nil {
		t.Error(err)
	}
	q.Close()
	for _, f := range s.files {
		must(t, f.Close(ctx))
	}
	must(t, fs.Close())
	if t.Failed() {
		return
	}
	for id := uint32(1); id <= servers; id++ {
		w.stop[id]()
		w.start[id]()
	}
	w.checkFiles(s.models)
}

// busyInQueue counts the goroutines that run code of queues, besides the test's own, that of each
// queue, and those of the transport that say that something has come.
func busyInQueue() int {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	busy := 0
	for _, g := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(g, "client.(*Queue)") && !strings.Contains(g, "busyInQueue") &&
			!strings.Contains(g, "(*Queue).answered") && !strings.Contains(g, "(*Queue).tend") {
			busy++
		}
	}
	return busy
}

// TestQueueGoroutines: reads and writes that are under way cost no goroutine, whatever they are of,
// and more of them than there are credits do not either.
func TestQueueGoroutines(t *testing.T) {
	w := newWired(t, 4)
	ctx := context.Background()
	fs, err := Dial(ctx, "sluice://"+w.addr, Options{Providers: w.far(), Cred: &meta.Cred{}})
	must(t, err)
	defer fs.Close()
	f, err := fs.OpenFile(ctx, "/f", os.O_CREATE|os.O_RDWR, 0o644,
		WithLayout(layout.Policy{Unit: unit, Width: 4}))
	must(t, err)
	const depth, size = 120, 3 * unit // a server is asked 90 times, and has 64 credits
	want := make([]byte, depth*size)
	fill(want, rand.New(rand.NewPCG(1, 1)))
	write(t, f, want, 0)
	must(t, f.Sync(ctx))
	got := make([]byte, len(want))
	q := fs.NewQueue(ctx, QueueOptions{Depth: depth})
	for _, op := range []RequestOp{OpRead, OpWrite, OpTransfer} {
		most := 0
		for i := range depth {
			at := int64(i) * size
			r := &Request{Op: op, File: f, Buf: got[at : at+size], Off: at, Tag: uint64(i)}
			switch op {
			case OpWrite:
				r.Buf = want[at : at+size]
			case OpTransfer:
				clear(got[at : at+size])
				r.Transfer = &Transfer{Bufs: [][]byte{r.Buf}, File: seg.Contig(at, size)}
			}
			must(t, q.Submit(r))
			if i%20 == 0 || i == depth-1 {
				most = max(most, busyInQueue())
			}
		}
		q.mu.Lock()
		jobs := q.calls.workers + q.rests.workers
		q.mu.Unlock()
		done := make([]Completion, depth)
		n, err := q.Wait(ctx, done, depth)
		must(t, err)
		for _, c := range done[:n] {
			if c.Err != nil || c.N != size {
				t.Fatalf("%+v", c)
			}
		}
		if n != depth || !bytes.Equal(got, want) {
			t.Errorf("operation %d: %d completions, equal %v", op, n, bytes.Equal(got, want))
		}
		// One that waits for something else, as for rights that are renewed, has a goroutine.
		if most > depth/20 || jobs > depth/20 {
			t.Errorf("operation %d: %d goroutines and %d jobs", op, most, jobs)
		}
	}
	q.Close()
	must(t, f.Close(ctx))
}

// TestQueueBounds: a full queue takes no more, a closed one nothing; misuse is refused; Readable
// says when there is something, and only then.
func TestQueueBounds(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "f", 2)
	write(t, f, pattern(3*unit, 1), 0)
	readable, changes := false, 0
	q := fs.NewQueue(ctx, QueueOptions{Depth: 2, Readable: func(some bool) {
		if some == readable {
			t.Errorf("told twice: %v", some)
		}
		readable = some
		changes++
	}})
	for _, r := range []*Request{{}, {Op: OpRead}, {Op: OpCall, File: f}, {Op: OpTransfer, File: f},
		{Op: 99, File: f}, {Op: OpCall}} {
		if err := q.Submit(r); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v", r, err)
		}
	}
	must(t, q.Submit(&Request{Op: OpRead, File: f, Buf: make([]byte, 10), Tag: 1}))
	must(t, q.Submit(&Request{Op: OpRead, File: f, Buf: make([]byte, 10), Off: -1, Tag: 2}))
	if err := q.Submit(&Request{Op: OpSync, File: f}); errs.KindOf(err) != errs.Again {
		t.Errorf("a full queue: %v", err)
	}
	var done [3]Completion
	n, err := q.Wait(ctx, done[:], 3)
	if n != 2 || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	slices.SortFunc(done[:2], func(a, b Completion) int { return a.Tag.(int) - b.Tag.(int) })
	if done[0].N != 10 || done[0].Err != nil || errs.KindOf(done[1].Err) != errs.Invalid {
		t.Errorf("%+v", done)
	}
	if n := q.Poll(done[:]); n != 0 || q.Free() != 2 || readable || changes < 2 {
		t.Errorf("%d completions, room for %d, readable %v after %d changes", n, q.Free(), readable,
			changes)
	}
	q.Close()
	q.Close()
	if err := q.Submit(&Request{Op: OpSync, File: f}); errs.KindOf(err) != errs.Closed {
		t.Errorf("a closed queue: %v", err)
	}
	if _, err := q.Wait(ctx, done[:], 1); errs.KindOf(err) != errs.Closed {
		t.Errorf("a closed queue: %v", err)
	}
	must(t, f.Close(ctx))
}

// TestQueueEnds: waits end with their context, requests with the queue's; who does neither call
// Wait nor Poll does not keep others from their credits.
func TestQueueEnds(t *testing.T) {
	w := newWired(t, 1)
	ctx := context.Background()
	fs, err := Dial(ctx, "sluice://"+w.addr, Options{Providers: w.far(), Cred: &meta.Cred{}})
	must(t, err)
	defer fs.Close()
	f, err := fs.Create(ctx, "/f")
	must(t, err)
	want := pattern(1<<20, 3)
	write(t, f, want, 0)
	must(t, f.Sync(ctx))
	life, end := context.WithCancel(ctx)
	defer end()
	q := fs.NewQueue(life, QueueOptions{Depth: 1000})
	got := make([]byte, len(want))
	for i := range 256 { // more than a connection has credits
		at := i * 4096
		must(t, q.Submit(&Request{Op: OpRead, File: f, Buf: got[at : at+4096], Off: int64(at)}))
	}
	for range 100 { // nobody takes what has come, and yet these are answered
		if _, err := f.ReadAt(ctx, make([]byte, 100), 5); err != nil {
			t.Fatal(err)
		}
	}
	var done [300]Completion
	if n, err := q.Wait(ctx, done[:], 300); n != 256 || err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d completions, %v", n, err)
	}
	w.stop[1]() // now nothing is answered any more
	for i := range 100 {
		must(t, q.Submit(&Request{Op: []RequestOp{OpRead, OpWrite, OpSync}[i%3], File: f,
			Buf: got[:4096]}))
	}
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	n, err := q.Wait(soon, done[:], 300)
	if errs.KindOf(err) != errs.TimedOut {
		t.Errorf("%d completions, %v", n, err)
	}
	cancel()
	end()
	k, err := q.Wait(ctx, done[n:], 300)
	if n+k != 100 || err != nil {
		t.Errorf("%d completions, %v", n+k, err)
	}
	for _, c := range done[n : n+k] {
		idle := c.Op == OpSync && c.Err == nil // nothing had completed that it covers
		if errs.KindOf(c.Err) != errs.Canceled && !idle {
			t.Errorf("%+v", c)
			break
		}
	}
	q.Close()
	w.start[1]()
	must(t, f.Close(ctx))
}

// TestQueueShortWay: a request that was begun and finished without waiting is one request to each
// server, as that of a call is.
func TestQueueShortWay(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "f", 3)
	write(t, f, pattern(6*unit, 1), 0)
	q := fs.NewQueue(ctx, QueueOptions{})
	defer q.Close()
	asked := c.counted(iod.OpRead, func() {
		must(t, q.Submit(&Request{Op: OpRead, File: f, Buf: make([]byte, 6*unit)}))
		var done [1]Completion
		if n, err := q.Wait(ctx, done[:], 1); n != 1 || err != nil || done[0].N != 6*unit {
			t.Errorf("%d, %v: %+v", n, err, done)
		}
	})
	for server, n := range asked {
		if n != 1 {
			t.Errorf("server %d was asked %d times", server, n)
		}
	}
	if len(asked) != 3 {
		t.Errorf("%d servers were asked", len(asked))
	}
	must(t, f.Close(ctx))
}
