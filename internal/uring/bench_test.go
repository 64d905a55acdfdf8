package uring

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkRandomRead compares the ring with goroutines that call pread, 4 KiB, O_DIRECT where the
// file system has it.
func BenchmarkRandomRead(b *testing.B) {
	const size = 256 << 20
	path := filepath.Join(b.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		b.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	mem := mapped(b, 64*4096)
	for _, depth := range []int{1, 32} {
		b.Run(fmt.Sprintf("ring/callers=%d", depth), func(b *testing.B) {
			r, err := Open(Options{Files: []int{fd}, Memory: [][]byte{mem}})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			eachCaller(b, depth, func(i int, off int64, op *Op) error {
				op.Off = off
				op.Bufs = append(op.Bufs[:0], mem[i*4096:(i+1)*4096])
				ops := [1]*Op{op}
				r.Do(ops[:])
				return op.Err
			})
		})
		b.Run(fmt.Sprintf("batch/depth=%d", depth), func(b *testing.B) {
			r, err := Open(Options{Files: []int{fd}, Memory: [][]byte{mem}})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			ops := make([]*Op, depth)
			for i := range ops {
				ops[i] = &Op{Bufs: [][]byte{mem[i*4096 : (i+1)*4096]}}
			}
			for n := 0; n < b.N; n += depth {
				for _, op := range ops {
					op.Off = rand.Int64N(size/4096) * 4096
				}
				r.Do(ops)
			}
		})
		b.Run(fmt.Sprintf("pread/callers=%d", depth), func(b *testing.B) {
			eachCaller(b, depth, func(i int, off int64, _ *Op) error {
				_, err := unix.Pread(fd, mem[i*4096:(i+1)*4096], off)
				return err
			})
		})
	}
}

func eachCaller(b *testing.B, callers int, fn func(i int, off int64, op *Op) error) {
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			op := &Op{}
			for n := i; n < b.N; n += callers {
				if err := fn(i, rand.Int64N(256<<20/4096)*4096, op); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
