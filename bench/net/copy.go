package net

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/errs"
)

// SharedCopy is the ceiling of shared memory: the other process copies into memory that both have
// mapped, while this one looks at what was copied before. There are two buffers; a side that waits
// for one polls its flag.
//
//	0     64      128     4096     4096+size  4096+2*size
//	|stop |full 0 |full 1 |buffer 0 |buffer 1  |
const SharedCopy = "shared-memory copy"

const (
	copyStop    = 0
	copyFull    = 64 // of buffer 0; the next one's is a cache line further
	copyBuffers = 4096
)

// shared is the memory of a SharedCopy, in either process.
type shared struct {
	mem  []byte
	size int
	stop *atomic.Uint32
	full [2]*atomic.Uint32
}

func mapCopy(fd, size int) (*shared, error) {
	m, err := unix.Mmap(fd, 0, copyBuffers+2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // a wish, as arenas have it
	s := &shared{mem: m, size: size, stop: wordAt(m, copyStop)}
	for i := range s.full {
		s.full[i] = wordAt(m, copyFull+i*cacheLine)
	}
	return s, nil
}

func (s *shared) buffer(i int) []byte {
	from := copyBuffers + i*s.size
	return s.mem[from : from+s.size : from+s.size]
}

func (s *shared) close() error { return unix.Munmap(s.mem) }

// await polls a flag. It is false if the other side has stopped, or over says so.
func (s *shared) await(flag *atomic.Uint32, want uint32, over func() bool) bool {
	for i := 1; flag.Load() != want; i++ {
		if i%256 != 0 {
			continue
		}
		if s.stop.Load() != 0 || over() {
			return false
		}
		runtime.Gosched() // the other side may be waiting for this core
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	return true
}

// produce copies until it is told to stop.
func (s *shared) produce(from []byte, over func() bool) {
	for i := 0; s.await(s.full[i], 0, over); i = 1 - i {
		copy(s.buffer(i), from)
		s.full[i].Store(1)
	}
}

// consume takes one buffer after the other for d.
func (s *shared) consume(ctx context.Context, d time.Duration, look func([]byte)) (r bench.Result,
	err error) {
	begin := time.Now()
	over := func() bool { return ctx.Err() != nil }
	for i := 0; r.Took < d; i = 1 - i {
		if !s.await(s.full[i], 1, over) {
			return r, errs.Newf(errs.Disconnected, "bench net", SharedCopy, "nobody copies")
		}
		look(s.buffer(i))
		s.full[i].Store(0)
		r.Add(1, s.size)
		r.Took = time.Since(begin)
	}
	return r, ctx.Err()
}

type copyArgs struct {
	Path  string `json:"path"` // where the memory is
	Bytes int    `json:"bytes"`
}

// copies is the other process.
func copies(s *partner.Session, a copyArgs) (none struct{}, err error) {
	if err := checkBytes(a.Bytes); err != nil {
		return none, err
	}
	file, err := os.OpenFile(a.Path, os.O_RDWR, 0)
	if err != nil {
		return none, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() < int64(copyBuffers+2*a.Bytes) {
		return none, errs.Newf(errs.Invalid, "bench peer", a.Path, "it is too small (%v)", err)
	}
	m, err := mapCopy(int(file.Fd()), a.Bytes)
	if err != nil {
		return none, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.produce(plain.Touched(a.Bytes), func() bool { return s.Context.Err() != nil })
	}()
	s.Later(func() error {
		m.stop.Store(1)
		<-done
		return m.close()
	})
	return none, nil
}

// sharedCopies is a stream through shared memory. The other process copies only while it runs: it
// would take a core from the others.
func (b *Bench) sharedCopies(size int) bench.Measure {
	return func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
		fd, err := unix.MemfdCreate("sluice-bench", unix.MFD_CLOEXEC)
		if err != nil {
			return r, err
		}
		defer unix.Close(fd)
		if err := unix.Ftruncate(fd, int64(copyBuffers+2*size)); err != nil {
			return r, err
		}
		m, err := mapCopy(fd, size)
		if err != nil {
			return r, err
		}
		defer m.close()
		c, err := partner.Dial(ctx, b.Peer.Control)
		if err != nil {
			return r, err
		}
		defer c.Close()
		path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
		if err := c.Ask(doCopy, copyArgs{path, size}, &struct{}{}); err != nil {
			return r, err
		}
		defer m.stop.Store(1)
		look := func(b []byte) { touch(b) }
		if _, err := m.consume(ctx, d/16, look); err != nil { // its first pages have to be found
			return r, err
		}
		return m.consume(ctx, d, look)
	}
}
