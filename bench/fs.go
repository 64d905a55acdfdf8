package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/client"
)

// FileBytes is the size of the files that sequential reads and writes go through, over and over. It
// is large against what is under way, and small enough for a cluster in memory.
const FileBytes = 128 << 20

// ClientRead reads a file in pieces of size bytes through the client library, depth at once.
func ClientRead(f *client.File, size int64, depth int) Contender {
	return clientMoves(size, depth, f.ReadAt)
}

// ClientWrite writes it.
func ClientWrite(f *client.File, size int64, depth int) Contender {
	return clientMoves(size, depth, f.WriteAt)
}

func clientMoves(size int64, depth int,
	move func(ctx context.Context, p []byte, off int64) (int, error)) Contender {
	bufs := make([][]byte, depth)
	for i := range bufs {
		bufs[i] = make([]byte, size)
	}
	pieces := int64(FileBytes) / size
	return Contender{Provider: "client", Depth: depth, Measure: func(ctx context.Context,
		d time.Duration) (float64, error) {
		return Throughput(ctx, d, depth, size, func(worker, i int) error {
			piece := (int64(i)*int64(depth) + int64(worker)) % pieces
			_, err := move(ctx, bufs[worker], piece*size)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		})
	}}
}

// FileWrite writes a file of the host's file system sequentially in pieces of size bytes. It is how
// a mount is measured, ours and the ceiling's.
func FileWrite(provider, name string, size int64) Contender {
	return Contender{Provider: provider, Measure: func(ctx context.Context,
		d time.Duration) (float64, error) {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		return sequential(ctx, f, d, size, f.WriteAt)
	}}
}

// FileRead reads it, past what the kernel has cached of it.
func FileRead(provider, name string, size int64) Contender {
	return Contender{Provider: provider, Measure: func(ctx context.Context,
		d time.Duration) (float64, error) {
		f, err := os.Open(name)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		return sequential(ctx, f, d, size, f.ReadAt)
	}}
}

// sequential goes through the file from its start to its end, again and again. At each start the
// kernel forgets its pages, so that every byte comes from the file system.
func sequential(ctx context.Context, f *os.File, d time.Duration, size int64,
	move func(p []byte, off int64) (int, error)) (float64, error) {
	buf := make([]byte, size)
	pieces := int64(FileBytes) / size
	return Throughput(ctx, d, 1, size, func(_, i int) error {
		piece := int64(i) % pieces
		if piece == 0 {
			if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				return err
			}
		}
		_, err := move(buf, piece*size)
		return err
	})
}

// FillFile writes a file of FileBytes so that it can be read.
func FillFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for off := int64(0); off < FileBytes && err == nil; off += int64(len(buf)) {
		_, err = f.WriteAt(buf, off)
	}
	return errors.Join(err, f.Close())
}
