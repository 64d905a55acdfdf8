package capi

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-storage/sluice/client/clustertest"
	"github.com/sluice-storage/sluice/seg"
)

// program is a program's view of the library: real memory, real cluster.
type program struct {
	t   *testing.T
	lib *Lib
	fs  Handle
}

func newProgram(t *testing.T, servers uint32) *program {
	t.Helper()
	url, stop, err := clustertest.Start(servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	p := &program{t: t, lib: New(Process{})}
	if p.fs, err = p.lib.Connect(p.text(url), 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.lib.CloseAll(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// alloc is memory as a program in C has it: no part of Go's heap.
func (p *program) alloc(n int) []byte {
	p.t.Helper()
	b, err := mapBytes(n)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { unmap(b) })
	return b
}

// put has bytes lie in such memory, and returns where.
func (p *program) put(b []byte) uintptr {
	m := p.alloc(len(b))
	copy(m, b)
	return address(m)
}

func (p *program) text(s string) uintptr { return p.put(append([]byte(s), 0)) }

// words are a structure.
func (p *program) words(v ...uint64) uintptr {
	b := make([]byte, 8*len(v))
	for i, x := range v {
		native.PutUint64(b[8*i:], x)
	}
	return p.put(b)
}

// access is a struct sluice_access by pieces.
func (p *program) access(pieces []seg.Piece) uintptr {
	var list []uint64
	for _, x := range pieces {
		list = append(list, uint64(x.Off), uint64(x.Len))
	}
	return p.words(p.head(accessList, len(pieces)), uint64(p.words(append(list, 0)...)), 0, 0)
}

// head is two fields of 32 bits.
func (p *program) head(a, b int) uint64 {
	var two [8]byte
	native.PutUint32(two[:], uint32(a))
	native.PutUint32(two[4:], uint32(b))
	return native.Uint64(two[:])
}

func (p *program) open(path string, flags int) Handle {
	p.t.Helper()
	h, err := p.lib.Open(p.fs, p.text(path), flags, 0o644, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// cut makes random pieces of n bytes that do not overlap, in random order, below end.
func cutUp(rnd *rand.Rand, n, end int64) (pieces []seg.Piece) {
	gaps := end - n
	for at := int64(0); n > 0; {
		gap, size := rnd.Int64N(gaps/4+1), 1+rnd.Int64N(min(n, 5000))
		pieces = append(pieces, seg.Piece{Off: at + gap, Len: size})
		at, n, gaps = at+gap+size, n-size, gaps-gap
	}
	rnd.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	return pieces
}

// TestListModel writes and reads random lists, at once and by a queue, and compares with an array.
func TestListModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := newProgram(t, 2)
	f := p.open("/model", syscall.O_RDWR|syscall.O_CREAT)
	q, err := p.lib.CreateQueue(p.fs, 4)
	if err != nil {
		t.Fatal(err)
	}
	const end = 3 << 20
	model, memory := make([]byte, end), p.alloc(1<<20)
	if _, err := p.lib.Pwrite(f, p.put(model), end, 0); err != nil {
		t.Fatal(err)
	}
	for round := range 60 {
		n := 1 + rnd.Int64N(200<<10)
		in, at := cutUp(rnd, n, int64(len(memory))), cutUp(rnd, n, end)
		m := p.words(uint64(address(memory)))
		acc := p.access(in)
		mem := append(bytes.Clone(p.lib.space.Trusted(m, 8)), p.lib.space.Trusted(acc, AccessBytes)...)
		writes := rnd.IntN(2) == 0
		if writes {
			for i := range memory {
				memory[i] = byte(rnd.Uint32())
			}
		}
		want := bytes.Clone(memory)
		seg.Zip(seg.List(in), seg.List(at), func(a, b seg.Piece) bool {
			if writes {
				copy(model[b.Off:], memory[a.Off:a.End()])
			} else {
				copy(want[a.Off:], model[b.Off:b.End()])
			}
			return true
		})
		got := p.transfer(f, q, rnd.IntN(2) == 0, writes, p.put(mem), p.access(at))
		if got != n {
			t.Fatalf("round %d: %d of %d bytes", round, got, n)
		}
		if !bytes.Equal(memory, want) {
			t.Fatalf("round %d: memory differs", round)
		}
	}
	all := p.alloc(end)
	n, err := p.lib.Pread(f, address(all), end, 0)
	if n != end || err != nil || !bytes.Equal(all, model) {
		t.Fatalf("%d bytes, %v, equal %v", n, err, bytes.Equal(all, model))
	}
}

// transfer moves a list by a call or by a queue.
func (p *program) transfer(f, q Handle, queued, writes bool, memory, access uintptr) int64 {
	p.t.Helper()
	var n int64
	var err error
	switch {
	case queued:
		op := opReadList
		if writes {
			op = opWriteList
		}
		r := p.words(p.head(RequestBytes, op), uint64(f), 5, 0, 0, 0, uint64(memory), uint64(access), 0)
		if n, err = p.lib.Submit(q, r, 1); n != 1 || err != nil {
			p.t.Fatal(n, err)
		}
		c := p.alloc(CompletionBytes)
		if n, err = p.lib.Complete(q, address(c), 1, 1, -1); n != 1 || err != nil {
			p.t.Fatal(n, err)
		}
		return int64(native.Uint64(c[8:]))
	case writes:
		n, err = p.lib.WriteList(f, memory, access, 0)
	default:
		n, err = p.lib.ReadList(f, memory, access, 0)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// TestLocks has two handles of one file.
func TestLocks(t *testing.T) {
	p := newProgram(t, 1)
	a, b := p.open("/locks", syscall.O_RDWR|syscall.O_CREAT), p.open("/locks", syscall.O_RDWR)
	if err := p.lib.Lock(a, 0, 10, lockExclusive); err != nil {
		t.Fatal(err)
	}
	wantErrno(t, "a lock that is taken", p.lib.Lock(b, 5, 10, lockExclusive|lockTry), syscall.EAGAIN)
	if err := p.lib.Lock(b, 10, 0, lockExclusive|lockTry); err != nil {
		t.Fatal(err)
	}
	if err := p.lib.Close(a); err != nil { // it releases
		t.Fatal(err)
	}
	if err := p.lib.Lock(b, 0, 10, lockExclusive|lockTry); err != nil {
		t.Fatal(err)
	}
	wantErrno(t, "a lock that makes no sense", p.lib.Lock(b, -1, 3, 0), syscall.EINVAL)
}

// TestFolder connects by a cluster's folder.
func TestFolder(t *testing.T) {
	url, stop, err := clustertest.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(url, scheme) + "\n"
	if err := os.WriteFile(filepath.Join(dir, "run", "meta.addr"), []byte(addr), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, lib: New(Process{})}
	if p.fs, err = p.lib.Connect(p.text(dir), 0, 0); err != nil {
		t.Fatal(err)
	}
	p.open("/x", syscall.O_RDWR|syscall.O_CREAT)
	if err := p.lib.Disconnect(p.fs); err != nil {
		t.Fatal(err)
	}
	_, err = p.lib.Connect(p.text(t.TempDir()), 0, 0)
	wantErrno(t, "an empty folder", err, syscall.ENOENT)
}

// TestDisconnectMeanwhile ends a connection while others work with it.
func TestDisconnectMeanwhile(t *testing.T) {
	p := newProgram(t, 2)
	f := p.open("/busy", syscall.O_RDWR|syscall.O_CREAT)
	m, err := p.lib.Alloc(p.fs, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.lib.Pwrite(f, m, 4<<20, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	began := make(chan struct{}, 4)
	for i := range 4 {
		wg.Go(func() {
			at := m + uintptr(i)<<20
			for n := 0; ; n++ {
				_, err := p.lib.Pread(f, at, 1<<20, 0)
				if n == 0 {
					began <- struct{}{}
				}
				if err != nil {
					if Errno(err) != syscall.EBADF {
						t.Errorf("a read: %v", err)
					}
					return
				}
			}
		})
	}
	for range 4 {
		<-began
	}
	if err := p.lib.Disconnect(p.fs); err != nil {
		t.Error(err)
	}
	wg.Wait()
	wantErrno(t, "memory that went", p.lib.Free(m), syscall.EINVAL)
}

// TestListWithGap has pieces on both sides of memory that is not there.
func TestListWithGap(t *testing.T) {
	p := newProgram(t, 1)
	f := p.open("/gap", syscall.O_RDWR|syscall.O_CREAT)
	all, err := mapBytes(3 * pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	copy(all, "one")
	copy(all[2*pageBytes:], "other")
	memory := func(pieces ...seg.Piece) uintptr {
		acc := p.lib.space.Trusted(p.access(pieces), AccessBytes)
		return p.put(append(bytes.Clone(p.lib.space.Trusted(p.words(uint64(address(all))), 8)), acc...))
	}
	file := p.access([]seg.Piece{{Off: 0, Len: 8}})
	around := memory(seg.Piece{Off: 0, Len: 3}, seg.Piece{Off: 2 * pageBytes, Len: 5})
	into := memory(seg.Piece{Off: 0, Len: 3}, seg.Piece{Off: 2*pageBytes - 1, Len: 5})
	got := p.alloc(8)
	middle := address(all[pageBytes:]) // nothing else is mapped from here on, which could come there
	if _, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, middle, pageBytes, 0); errno != 0 {
		t.Fatal(errno)
	}
	if n, err := p.lib.WriteList(f, around, file, 0); n != 8 || err != nil {
		t.Fatal(n, err)
	}
	_, err = p.lib.WriteList(f, into, file, 0)
	wantErrno(t, "a piece that is not there", err, syscall.EFAULT)
	if _, err := p.lib.Pread(f, address(got), 8, 0); err != nil || string(got[:8]) != "oneother" {
		t.Errorf("%q, %v", got[:8], err)
	}
}
