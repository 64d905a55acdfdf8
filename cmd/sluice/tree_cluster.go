package main

import (
	"context"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/stripe"
)

// clusterTree is a cluster, the way that data takes there, and how new files are striped.
type clusterTree struct {
	fs     *client.FS
	way    way
	policy layout.Policy
}

func clusterNode(name string, a *meta.Attr) node {
	return node{name: name, mode: client.FileMode(a), size: a.Size, atime: a.Atime.Time(),
		mtime: a.Mtime.Time(), uid: a.UID, gid: a.GID, rdev: uint64(a.Rdev), ino: uint64(a.Ino),
		links: uint64(a.Nlink)}
}

func (t clusterTree) stat(ctx context.Context, name string) (node, error) {
	a, err := t.fs.Stat(ctx, name)
	return clusterNode(path.Base(name), &a), err
}

func (t clusterTree) lstat(ctx context.Context, name string) (node, error) {
	a, err := t.fs.Lstat(ctx, name)
	return clusterNode(path.Base(name), &a), err
}

func (t clusterTree) list(ctx context.Context, name string) ([]node, error) {
	entries, err := entriesOf(ctx, t.fs, name)
	if err != nil {
		return nil, err
	}
	nodes := make([]node, len(entries))
	for i, e := range entries {
		nodes[i] = clusterNode(e.Name, e.Attr)
	}
	return nodes, nil
}

func (t clusterTree) readlink(ctx context.Context, name string) (string, error) {
	return t.fs.Readlink(ctx, name)
}

func (t clusterTree) mkdir(ctx context.Context, name string, perm fs.FileMode) error {
	return hintMissingParent(t.fs.Mkdir(ctx, name, perm&^umask()))
}

func (t clusterTree) symlink(ctx context.Context, target, name string) error {
	return hintMissingParent(t.fs.Symlink(ctx, target, name))
}

func (t clusterTree) link(ctx context.Context, from, to string) error {
	return t.fs.Link(ctx, from, to)
}

func (t clusterTree) rename(ctx context.Context, from, to string) error {
	return t.fs.Rename(ctx, from, to)
}

func (t clusterTree) remove(ctx context.Context, name string) error {
	if a, err := t.fs.Lstat(ctx, name); err == nil && a.Type == meta.Directory {
		return errs.New(errs.IsDir, "remove", name, nil)
	}
	return t.fs.Remove(ctx, name)
}

func (t clusterTree) chown(ctx context.Context, name string, uid, gid uint32) error {
	return t.fs.Lchown(ctx, name, int(uid), int(gid))
}

func (t clusterTree) chmod(ctx context.Context, name string, mode fs.FileMode) error {
	return t.fs.Chmod(ctx, name, mode)
}

func (t clusterTree) chtimes(ctx context.Context, name string, atime, mtime time.Time) error {
	return t.fs.Lchtimes(ctx, name, atime, mtime)
}

func (t clusterTree) xattrs(ctx context.Context, name string) ([]client.Xattr, error) {
	return t.fs.Lxattrs(ctx, name)
}

func (t clusterTree) setXattr(ctx context.Context, name string, x client.Xattr) error {
	return t.fs.LsetXattr(ctx, name, x)
}

func (t clusterTree) open(ctx context.Context, name string) (source, error) {
	f, err := t.fs.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	t.way.apply(f)
	return newClusterFile(ctx, f), nil
}

func (t clusterTree) reopen(ctx context.Context, name string) (source, error) {
	f, err := t.fs.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	f.SetHow(client.How{Mode: client.Direct})
	return newClusterFile(ctx, f), nil
}

func (t clusterTree) create(ctx context.Context, name string, perm fs.FileMode, keep bool) (
	sink, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if keep {
		flags = os.O_CREATE | os.O_RDWR
	}
	f, err := t.fs.OpenFile(ctx, name, flags, perm&^umask(), client.WithLayout(t.policy))
	if err != nil {
		return nil, hintMissingParent(err)
	}
	t.way.apply(f)
	return newClusterFile(ctx, f), nil
}

func (t clusterTree) mknod(ctx context.Context, name string, n *node) error {
	typ := meta.BlockDevice
	switch {
	case n.mode&fs.ModeNamedPipe != 0:
		typ = meta.Fifo
	case n.mode&fs.ModeSocket != 0:
		typ = meta.Socket
	case n.mode&fs.ModeCharDevice != 0:
		typ = meta.CharDevice
	}
	if n.rdev > math.MaxUint32 {
		return refuse(name+" has a device number that does not fit", "Leave it out")
	}
	return hintMissingParent(t.fs.Mknod(ctx, name, typ, n.mode.Perm()&^umask(), uint32(n.rdev)))
}

// clusterFile is a file of a cluster.
type clusterFile struct {
	ctx     context.Context
	f       *client.File
	extents []stripe.Extent // a window of the file's map
}

func newClusterFile(ctx context.Context, f *client.File) *clusterFile {
	return &clusterFile{ctx: ctx, f: f}
}

func (c *clusterFile) ReadAt(p []byte, off int64) (int, error) { return c.f.ReadAt(c.ctx, p, off) }

func (c *clusterFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := c.f.WriteAt(c.ctx, p, off)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

func (c *clusterFile) Sync() error              { return c.f.Sync(c.ctx) }
func (c *clusterFile) length() (int64, error)   { return c.f.Size(), nil }
func (c *clusterFile) resize(size int64) error  { return c.f.Truncate(c.ctx, size) }
func (c *clusterFile) punch(off, n int64) error { return c.f.Punch(c.ctx, off, n) }

// Close says what was written even to who was interrupted, so that it can be gone on with.
func (c *clusterFile) Close() error { return c.f.Close(context.WithoutCancel(c.ctx)) }

// extent asks the servers only for files that may have holes.
func (c *clusterFile) extent(off, size int64) (from, to int64, err error) {
	if a := c.f.Attr(); !a.Holes {
		return off, size, nil
	}
	for off < size {
		for len(c.extents) > 0 && c.extents[0].Off+c.extents[0].Len <= off {
			c.extents = c.extents[1:]
		}
		if len(c.extents) == 0 {
			if c.extents, err = c.f.Map(c.ctx, off, size-off); err != nil {
				return 0, 0, err
			}
			if len(c.extents) == 0 {
				return size, size, nil // the file was cut meanwhile
			}
		}
		e := c.extents[0]
		if !e.Hole {
			return max(off, e.Off), min(e.Off+e.Len, size), nil
		}
		off = e.Off + e.Len
	}
	return size, size, nil
}
