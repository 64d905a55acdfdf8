package paper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
)

// Local measures this host's own storage, as the tables of the PVFS and the Unifier paper do: what
// a file system on its disk does, one in memory, and a copy.
type Local struct {
	Dir    string // on a disk
	Memory string // a folder in memory; "": there is none
}

const (
	localBytes = 128 << 20
	localStep  = bench.MiB
)

// Cases are those of this host.
func (l *Local) Cases() []bench.Case {
	var cases []bench.Case
	for _, write := range []bool{true, false} {
		c := newCase(name(write), "a file of 128 MiB, 1 MiB each time", localStep, 1)
		c.Add(localFile("disk", l.Dir, unix.O_DIRECT|unix.O_DSYNC, write, localStep))
		if l.Memory != "" {
			c.Add(localFile("memory", l.Memory, 0, write, localStep))
		}
		cases = append(cases, c)
	}
	for _, size := range []int{16 * bench.KiB, 64 * bench.KiB, 256 * bench.KiB, 512 * bench.KiB,
		bench.MiB} {
		c := newCase("direct-"+bench.SizeName(size), "reads of a file of 128 MiB past the cache", size, 1)
		c.Add(localFile("disk", l.Dir, unix.O_DIRECT|unix.O_DSYNC, false, size))
		cases = append(cases, c)
	}
	c := newCase("copy", "20 MB from memory to memory", localStep, 1)
	c.Add(bench.Contender{Provider: "memory", Measure: copies})
	return append(cases, c)
}

// copies is more than any processor's cache holds, as the paper's.
func copies(ctx context.Context, d time.Duration) (bench.Result, error) {
	const size = 20_000_000
	from, to := make([]byte, size), make([]byte, size)
	for i := range from {
		from[i] = byte(i)
	}
	return bench.Load{Depth: 1, Size: size, Op: func(int, int) error {
		copy(to, from)
		return nil
	}}.Run(ctx, d)
}

// localFile is a file that is there, as large as it gets, and removed afterwards.
func localFile(provider, dir string, flags int, write bool, size int) bench.Contender {
	var f *os.File
	var buf []byte
	open := func() (err error) {
		if f != nil {
			return nil
		}
		path := filepath.Join(dir, "local-"+name(write))
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|flags, 0o600); err != nil {
			return err
		}
		// Memory of mmap lies at a page, as O_DIRECT wants it.
		if buf, err = unix.Mmap(-1, 0, localStep, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
			return err
		}
		for i := range buf {
			buf[i] = byte(i * 7)
		}
		for off := int64(0); off < localBytes; off += localStep {
			if _, err := f.WriteAt(buf, off); err != nil {
				return err
			}
		}
		return nil
	}
	return bench.Contender{Provider: provider, Optional: true,
		Measure: func(ctx context.Context, d time.Duration) (bench.Result, error) {
			if err := open(); err != nil {
				return bench.Result{}, err
			}
			return bench.Load{Depth: 1, Size: size, Op: func(_, i int) (err error) {
				off := int64(i) * int64(size) % localBytes
				if write {
					_, err = f.WriteAt(buf[:size], off)
				} else {
					_, err = f.ReadAt(buf[:size], off)
				}
				return err
			}}.Run(ctx, d)
		},
		Close: func() error {
			if f == nil {
				return nil
			}
			var unmapped error
			if buf != nil {
				unmapped = unix.Munmap(buf)
			}
			return errors.Join(unmapped, f.Close(), os.Remove(f.Name()))
		}}
}
