package uring

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both runs a test through io_uring and through plain calls: the results must be the same. So must
// those of a ring that has to do without what newer kernels offer.
func both(t *testing.T, fn func(t *testing.T, open func(o Options) *Ring)) {
	for name, open := range map[string]func(o Options) (*Ring, error){
		"plain=false": Open,
		"plain=true": func(o Options) (*Ring, error) {
			o.Plain = true
			return Open(o)
		},
		"older": func(o Options) (*Ring, error) { return openWith(o, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			fn(t, func(o Options) *Ring {
				r, err := open(o)
				if err != nil {
					t.Fatal(err)
				}
				if why := r.Stats().Plain; why != "" && name != "plain=true" {
					t.Logf("no io_uring here: %s", why)
				}
				t.Cleanup(func() { r.Close() })
				return r
			})
		})
	}
}

// openWith is Open for a kernel that has no optional features but these.
func openWith(o Options, features uint32) (*Ring, error) {
	r := &Ring{opt: o.withDefaults()}
	t, err := startThread(r, features)
	if err != nil {
		return Open(o) // which says why not
	}
	r.engine = t
	return r, nil
}

func tempFile(t testing.TB, size int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

func mapped(t testing.TB, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m
}

func (r *Ring) one(op Op) *Op {
	r.Do([]*Op{&op})
	return &op
}

func TestWriteAndReadBack(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) *Ring) {
		f := tempFile(t, 0)
		mem := mapped(t, 1<<16)
		r := open(Options{Files: []int{int(f.Fd())}, Memory: [][]byte{mem}})
		src := bytes.Repeat([]byte("sluice"), 5000)
		cut := [][]byte{src[:1], nil, src[1:4097], {}, src[4097:]}
		if op := r.one(Op{Kind: Write, Off: 77, Bufs: cut, Stable: true}); op.Err != nil ||
			op.N != len(src) {
			t.Fatalf("wrote %d: %v", op.N, op.Err)
		}
		if op := r.one(Op{Kind: Sync}); op.Err != nil {
			t.Fatal(op.Err)
		}
		// Into registered memory, into heap, and into both.
		for _, bufs := range [][][]byte{
			{mem[:len(src)]}, {make([]byte, len(src))},
			{mem[100:5000], make([]byte, len(src)-4900)},
		} {
			op := r.one(Op{Kind: Read, Off: 77, Bufs: bufs})
			if op.Err != nil || !bytes.Equal(bytes.Join(bufs, nil), src) {
				t.Fatalf("read back %d bytes that differ: %v", op.N, op.Err)
			}
		}
		copy(mem, "from registered memory")
		if op := r.one(Op{Kind: Write, Off: 0, Bufs: [][]byte{mem[:22]}}); op.Err != nil {
			t.Fatal(op.Err)
		}
		got := make([]byte, 22)
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != "from registered memory" {
			t.Fatalf("%q: %v", got, err)
		}
	})
}

func TestShortReadsAndErrorsAreOfTheirOperation(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) *Ring) {
		f := tempFile(t, 10_000)
		ro, err := os.Open(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer ro.Close()
		r := open(Options{Files: []int{int(f.Fd()), int(ro.Fd())}})
		b := func(n int) [][]byte { return [][]byte{make([]byte, n)} }
		ops := []*Op{
			{Kind: Read, Off: 0, Bufs: b(10_000)},
			{Kind: Read, Off: 9_000, Bufs: b(5_000)},          // the end comes first
			{Kind: Read, Off: 20_000, Bufs: b(1)},             // nothing there
			{Kind: Write, File: 1, Off: 0, Bufs: b(1)},        // not open for writing
			{Kind: Read, File: 7, Off: 0, Bufs: b(1)},         // no such file
			{Kind: Read, File: -1, Off: 0, Bufs: b(1)},        // nor that
			{Kind: Read, Off: 5, Bufs: [][]byte{nil, {}}},     // nothing wanted
			{Kind: Write, Off: 1 << 62, Bufs: b(1)},           // too far
			{Kind: Sync},                                      // all of it
			{Kind: Write, Off: 9_999, Bufs: b(2)},             // grows the file
			{Kind: Read, File: 1, Off: 100, Bufs: [][]byte{}}, // no buffers at all
		}
		r.Do(ops)
		for i, want := range []struct {
			n   int
			err error
		}{
			{10_000, nil}, {1_000, io.ErrUnexpectedEOF}, {0, io.ErrUnexpectedEOF},
			{0, unix.EBADF}, {0, errs.Invalid}, {0, errs.Invalid}, {0, nil}, {0, unix.EFBIG},
			{0, nil}, {2, nil}, {0, nil},
		} {
			got := ops[i]
			// The second and the tenth run at the same time: one more byte may be there already.
			if n := got.N; n != want.n && !(i == 1 && n == 1001) || !errors.Is(got.Err, want.err) {
				t.Errorf("operation %d: %d, %v; want %d, %v", i, n, got.Err, want.n, want.err)
			}
		}
	})
}

// A pipe holds 64 KiB: every longer transfer is cut short and must be continued.
func TestTransfersCutShortAreContinued(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) *Ring) {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(p[0])
		defer unix.Close(p[1])
		r := open(Options{Files: p[:]})
		src := make([]byte, 1<<20)
		for i := range src {
			src[i] = byte(i * 7 >> 3)
		}
		dst := make([]byte, len(src))
		ops := []*Op{
			{Kind: Read, File: 0, Off: -1, Bufs: [][]byte{dst[:3], dst[3:70_000], dst[70_000:]}},
			{Kind: Write, File: 1, Off: -1, Bufs: [][]byte{src[:500_000], src[500_000:]}},
		}
		r.Do(ops)
		if ops[0].Err != nil || ops[1].Err != nil || !bytes.Equal(src, dst) {
			t.Fatalf("read %v, wrote %v, equal %v", ops[0].Err, ops[1].Err, bytes.Equal(src, dst))
		}
		if r.Stats().Continued == 0 {
			t.Error("nothing was continued: the test tests nothing")
		}
	})
}

func TestCloseCancelsAndRefuses(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	r, err := Open(Options{Files: p[:], Depth: 4})
	if err != nil || r.Stats().Plain != "" {
		t.Skipf("no io_uring here: %v, %s", err, r.Stats().Plain)
	}
	// More than the ring is deep, so that some are with the kernel and some are queued.
	ops := make([]*Op, 20)
	for i := range ops {
		ops[i] = &Op{Kind: Read, File: 0, Off: -1, Bufs: [][]byte{make([]byte, 1)}}
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.Do(ops) })
	for r.Stats().Enters == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond)
	wg.Go(func() { r.Close() })
	r.Close()
	wg.Wait()
	for i, op := range ops {
		if !errors.Is(op.Err, errs.Closed) {
			t.Errorf("operation %d: %v", i, op.Err)
		}
	}
	if op := r.one(Op{Kind: Sync}); !errors.Is(op.Err, errs.Closed) {
		t.Errorf("after Close: %v", op.Err)
	}
}

func TestManyCallersAtOnce(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) *Ring) {
		const callers, rounds, each = 8, 60, 4096
		f := tempFile(t, callers*rounds*each)
		r := open(Options{Files: []int{int(f.Fd())}, Depth: 8, Workers: 3})
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(c), 1))
				var ops []*Op
				for k := range rounds {
					b := bytes.Repeat([]byte{byte(c*rounds + k)}, each)
					ops = append(ops, &Op{Kind: Write, Off: int64(c*rounds+k) * each,
						Bufs: [][]byte{b[:k+1], b[k+1:]}})
				}
				for len(ops) > 0 {
					n := 1 + rnd.IntN(min(len(ops), 20))
					r.Do(ops[:n])
					for _, op := range ops[:n] {
						if op.Err != nil || op.N != each {
							t.Errorf("wrote %d: %v", op.N, op.Err)
						}
					}
					ops = ops[n:]
				}
			})
		}
		wg.Wait()
		all, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range all {
			if v != byte(i/each) {
				t.Fatalf("byte %d is %d", i, v)
			}
		}
	})
}

func TestBeginAndWait(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) *Ring) {
		const n, each = 24, 8192
		f := tempFile(t, n*each)
		r := open(Options{Files: []int{int(f.Fd())}, Depth: 4})
		var ops []*Op
		for i := range n {
			b := bytes.Repeat([]byte{byte(i + 1)}, each)
			ops = append(ops, &Op{Kind: Write, Off: int64(i) * each, Bufs: [][]byte{b}})
		}
		ops = append(ops, &Op{Kind: Write, File: 9, Bufs: [][]byte{{1}}})
		r.Begin(nil)
		r.Begin(ops)
		for i := n; i >= 0; i-- { // in any order
			r.Wait(ops[i])
			if i < n && (ops[i].Err != nil || ops[i].N != each) {
				t.Errorf("operation %d: %d, %v", i, ops[i].N, ops[i].Err)
			}
		}
		if !errors.Is(ops[n].Err, errs.Invalid) {
			t.Errorf("an unknown file: %v", ops[n].Err)
		}
		all, err := os.ReadFile(f.Name())
		if err != nil || len(all) != n*each || all[0] != 1 || all[n*each-1] != n {
			t.Fatalf("%d bytes, %v", len(all), err)
		}
		if n := alloctest.PerRun(1, 100, func() {
			r.Begin(ops[:1])
			r.Wait(ops[0])
		}); n > 1 { // a sync.Pool forgets at random under the race detector
			t.Errorf("%v allocations", n)
		}
		r.Close()
		r.Begin(ops[:2])
		for _, op := range ops[:2] {
			if r.Wait(op); !errors.Is(op.Err, errs.Closed) {
				t.Errorf("after Close: %v", op.Err)
			}
		}
	})
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) *Ring) {
		f := tempFile(t, 1<<20)
		r := open(Options{Files: []int{int(f.Fd())}})
		a := &Op{Kind: Read, Bufs: [][]byte{make([]byte, 4096)}}
		b := &Op{Kind: Read, Off: 4096, Bufs: [][]byte{make([]byte, 99), make([]byte, 4096)}}
		ops := []*Op{a, b}
		// Two operations that allocated would make two. One is allowed: under the race detector a
		// sync.Pool forgets at random.
		if n := alloctest.PerRun(1, 200, func() { r.Do(ops) }); n > 1 {
			t.Fatalf("%v allocations a batch", n)
		}
	})
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for _, o := range []Options{
		{}, {Files: []int{1}, Depth: 3}, {Files: []int{1}, Depth: 1}, {Files: []int{1}, Depth: 8192},
		{Files: []int{1}, Workers: -1},
	} {
		if r, err := Open(o); !errors.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v, %v", o, r, err)
		}
	}
}

// A descriptor that cannot be registered is no reason to fail: plain calls tell what is wrong.
func TestBadDescriptor(t *testing.T) {
	r, err := Open(Options{Files: []int{1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if op := r.one(Op{Kind: Read, Bufs: [][]byte{{1}}}); !errors.Is(op.Err, unix.EBADF) {
		t.Fatalf("got %v", op.Err)
	}
	if r.Stats().Plain == "" {
		t.Fatal("registered a descriptor that does not exist")
	}
}
