package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"
)

// copyDepth is how many pieces of one file are under way at once: one being read while others are
// written is enough to keep both sides busy.
const copyDepth = 4

type copyOptions struct {
	recursive, sync, quiet bool
	workers                int
	way                    way // on the cluster
}

// copier copies files, several at once. Directories are made in order by whoever walks.
type copier struct {
	dst      tree
	opts     copyOptions
	progress progress

	jobs    chan func()
	working sync.WaitGroup // the workers
	pending sync.WaitGroup // the jobs

	mu     sync.Mutex
	failed error
}

func newCopier(dst tree, opts copyOptions, p progress) *copier {
	c := &copier{dst: dst, opts: opts, progress: p, jobs: make(chan func())}
	for range opts.workers {
		c.working.Go(func() {
			for job := range c.jobs {
				job()
				c.pending.Done()
			}
		})
	}
	return c
}

// finish waits for what is under way and returns the first error.
func (c *copier) finish(err error) error {
	c.pending.Wait()
	close(c.jobs)
	c.working.Wait()
	c.progress.end()
	if c.err() != nil {
		return c.err()
	}
	return err
}

func (c *copier) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *copier) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

// copy begins to copy what lies at from to to. Errors of files come from finish.
func (c *copier) copy(ctx context.Context, src tree, from, to string) error {
	n, err := src.stat(ctx, from)
	if err != nil {
		return err
	}
	if n.mode.IsDir() && !c.opts.recursive {
		return refuse(from+" is a directory", "Add -r to copy it with all it holds")
	}
	return c.node(ctx, src, n, from, to)
}

func (c *copier) node(ctx context.Context, src tree, n node, from, to string) error {
	if err := errors.Join(ctx.Err(), c.err()); err != nil {
		return err
	}
	switch {
	case n.mode.IsDir():
		return c.dir(ctx, src, n, from, to)
	case n.mode.IsRegular():
		c.progress.expect(n.size)
		c.pending.Add(1)
		c.jobs <- func() {
			if err := c.file(ctx, src, n, from, to); err != nil {
				c.fail(fmt.Errorf("%s: %w", from, err))
			}
		}
		return nil
	case n.mode&fs.ModeSymlink != 0:
		target, err := src.readlink(ctx, from)
		if err != nil {
			return err
		}
		return c.dst.symlink(ctx, target, to)
	}
	return refuse(from+" is neither file, directory nor symbolic link",
		"Leave it out; see its type: ls -l")
}

func (c *copier) dir(ctx context.Context, src tree, n node, from, to string) error {
	if err := c.dst.mkdir(ctx, to, n.mode.Perm()|0o700); err != nil {
		return err
	}
	entries, err := src.list(ctx, from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := c.node(ctx, src, e, path.Join(from, e.name), path.Join(to, e.name)); err != nil {
			return err
		}
	}
	return nil
}

// file copies one file. It is not closed well unless everything went well.
func (c *copier) file(ctx context.Context, src tree, n node, from, to string) error {
	in, err := src.open(ctx, from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.dst.create(ctx, to, n.mode.Perm())
	if err != nil {
		return err
	}
	err = c.pieces(ctx, in, out, n.size)
	if err == nil && c.opts.sync {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// pieces copies size bytes, and what a growing file has beyond them, copyDepth pieces at once.
func (c *copier) pieces(ctx context.Context, in source, out sink, size int64) error {
	var next atomic.Int64
	depth := int(min(copyDepth, size/copyBytes+1))
	fails := make([]error, depth)
	var wg sync.WaitGroup
	for w := range depth {
		wg.Go(func() {
			buf := make([]byte, min(copyBytes, max(size, 64<<10)))
			for fails[w] == nil {
				off := next.Add(int64(len(buf))) - int64(len(buf))
				if fails[w] = ctx.Err(); fails[w] != nil {
					return
				}
				n, err := in.ReadAt(buf, off)
				if n > 0 {
					_, fails[w] = out.WriteAt(buf[:n], off)
					c.progress.add(int64(n))
				}
				if err != nil && !errors.Is(err, io.EOF) {
					fails[w] = err
				}
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(fails...)
}
