// Package fs is bench fs: the client library beside plain TCP, and the mount beside a FUSE file
// system that serves memory. Clusters and mounts are package main's.
package fs

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/client"
)

const (
	// fileBytes is the size of the files that reads and writes go through, over and over. It is
	// large against what is under way, and small enough for a cluster in memory.
	fileBytes = 128 << 20
	size      = bench.MiB
	ahead     = 4 // requests that the plain ceiling has under way
	memory    = "FUSE in memory"
)

func newCase(name, ceiling string) bench.Case {
	return bench.Case{Bench: "fs", Name: name, Size: size, Depth: 1, Metric: bench.Bandwidth,
		Ceiling: ceiling}
}

// ClientCases hold the client library against plain TCP, one and several requests under way. f is
// written first, so that it can be read.
func ClientCases(ctx context.Context, f *client.File, plainAddr string) ([]bench.Case, error) {
	buf := make([]byte, size)
	for off := int64(0); off < fileBytes; off += size {
		if _, err := f.WriteAt(ctx, buf, off); err != nil {
			return nil, err
		}
	}
	read, write := newCase("client, sequential read", plain.TCP),
		newCase("client, sequential write", plain.TCP)
	ceiling := bench.Contender{Provider: plain.TCP, Depth: ahead,
		Measure: plain.Trades(plainAddr, plain.AskBytes, size, ahead)}
	read.Add(ceiling, byClient(1, f.ReadAt), byClient(4, f.ReadAt))
	write.Add(ceiling, byClient(1, f.WriteAt), byClient(4, f.WriteAt))
	return []bench.Case{read, write}, nil
}

// byClient goes through the file from its start to its end, again and again.
func byClient(depth int, move func(ctx context.Context, p []byte, off int64) (int,
	error)) bench.Contender {
	bufs := make([][]byte, depth)
	for i := range bufs {
		bufs[i] = make([]byte, size)
	}
	return bench.Contender{Provider: "client", Depth: depth,
		Measure: func(ctx context.Context, d time.Duration) (bench.Result, error) {
			return bench.Load{Depth: depth, Size: size, Op: func(worker, i int) error {
				_, err := move(ctx, bufs[worker], int64(i*depth+worker)*size%fileBytes)
				if errors.Is(err, io.EOF) {
					err = nil
				}
				return err
			}}.Run(ctx, d)
		}}
}

// MountCases hold a file of a mount against one of the ceiling's. Both are written first.
func MountCases(ours, theirs string) ([]bench.Case, error) {
	for _, name := range []string{ours, theirs} {
		if err := fill(name); err != nil {
			return nil, err
		}
	}
	read, write := newCase("mount, sequential read", memory),
		newCase("mount, sequential write", memory)
	for _, by := range []struct{ provider, file string }{{memory, theirs}, {"mount", ours}} {
		read.Add(byFile(by.provider, by.file, os.O_RDONLY, (*os.File).ReadAt))
		write.Add(byFile(by.provider, by.file, os.O_RDWR, (*os.File).WriteAt))
	}
	return []bench.Case{read, write}, nil
}

// byFile goes through a file of the host's file system from its start to its end, again and again.
// At each start the kernel forgets its pages, so that every byte comes from the file system.
func byFile(provider, name string, flags int,
	move func(f *os.File, p []byte, off int64) (int, error)) bench.Contender {
	return bench.Contender{Provider: provider,
		Measure: func(ctx context.Context, d time.Duration) (bench.Result, error) {
			f, err := os.OpenFile(name, flags, 0)
			if err != nil {
				return bench.Result{}, err
			}
			defer f.Close()
			buf := make([]byte, size)
			return bench.Load{Depth: 1, Size: size, Op: func(_, i int) error {
				off := int64(i) * size % fileBytes
				if off == 0 {
					if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
						return err
					}
				}
				_, err := move(f, buf, off)
				return err
			}}.Run(ctx, d)
		}}
}

func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	buf := make([]byte, size)
	for off := int64(0); off < fileBytes && err == nil; off += size {
		_, err = f.WriteAt(buf, off)
	}
	return errors.Join(err, f.Close())
}
