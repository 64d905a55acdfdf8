package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// SharedCopy is the ceiling of shared memory: the other process copies into memory that both have
// mapped, while this one looks at what was copied before. There are two buffers; who has to wait
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
func (s *shared) consume(ctx context.Context, d time.Duration, look func([]byte)) (moved, error) {
	m := moved{begin: time.Now()}
	over := func() bool { return ctx.Err() != nil }
	for i := 0; m.took < d; i = 1 - i {
		if !s.await(s.full[i], 1, over) {
			return m, errs.Newf(errs.Disconnected, "bench net", SharedCopy, "nobody copies")
		}
		look(s.buffer(i))
		s.full[i].Store(0)
		m.add(1, s.size)
		m.took = time.Since(m.begin)
	}
	return m, ctx.Err()
}

// copies is the other process.
func (p *netPeer) copies(s *spec) error {
	file, err := os.OpenFile(s.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() < int64(copyBuffers+2*s.Bytes) {
		return errs.Newf(errs.Invalid, "bench peer", s.Path, "it is too small (%v)", err)
	}
	m, err := mapCopy(int(file.Fd()), s.Bytes)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.produce(touched(s.Bytes), func() bool { return p.ctx.Err() != nil })
	}()
	p.later(func() error {
		m.stop.Store(1)
		<-done
		return m.close()
	})
	return nil
}

// sharedCopies is a stream through shared memory. The other process copies only while it runs: it
// would take a core from the others.
func (n *Net) sharedCopies(size int) stream {
	return func(ctx context.Context, d time.Duration) (moved, error) {
		fd, err := unix.MemfdCreate("sluice-bench", unix.MFD_CLOEXEC)
		if err != nil {
			return moved{}, err
		}
		defer unix.Close(fd)
		if err := unix.Ftruncate(fd, int64(copyBuffers+2*size)); err != nil {
			return moved{}, err
		}
		m, err := mapCopy(fd, size)
		if err != nil {
			return moved{}, err
		}
		defer m.close()
		c, err := dialControl(ctx, n.Control)
		if err != nil {
			return moved{}, err
		}
		defer c.close()
		_, err = c.ask(spec{
			Do: doCopy, Bytes: size, Path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd),
		})
		if err != nil {
			return moved{}, err
		}
		defer m.stop.Store(1)
		look := func(b []byte) { touch(b) }
		if _, err := m.consume(ctx, d/16, look); err != nil { // its first pages have to be found
			return moved{}, err
		}
		return m.consume(ctx, d, look)
	}
}
