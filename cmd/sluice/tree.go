package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-storage/sluice/client"
)

// node is what copying needs to know of a file.
type node struct {
	name         string
	mode         fs.FileMode
	size         int64
	atime, mtime time.Time
	uid, gid     uint32
	rdev         uint64 // of a device, as mknod(2) takes it
	dev, ino     uint64 // which one it is, in its tree
	links        uint64 // how many names it has
}

// tree is one side of a copy: a host's file system or a cluster's. Nothing but stat, open and
// create follows a symbolic link at the end of a path.
type tree interface {
	looks
	names
	attributes
	files
}

type looks interface {
	stat(ctx context.Context, path string) (node, error) // through symbolic links
	lstat(ctx context.Context, path string) (node, error)
	list(ctx context.Context, path string) ([]node, error)
	readlink(ctx context.Context, path string) (string, error)
}

type names interface {
	mkdir(ctx context.Context, path string, perm fs.FileMode) error
	symlink(ctx context.Context, target, path string) error
	link(ctx context.Context, from, to string) error
	rename(ctx context.Context, from, to string) error
	remove(ctx context.Context, path string) error // no directories
}

type attributes interface {
	chown(ctx context.Context, path string, uid, gid uint32) error
	chmod(ctx context.Context, path string, mode fs.FileMode) error // no links
	chtimes(ctx context.Context, path string, atime, mtime time.Time) error
	xattrs(ctx context.Context, path string) ([]client.Xattr, error)
	setXattr(ctx context.Context, path string, x client.Xattr) error
}

type files interface {
	open(ctx context.Context, path string) (source, error)

	// reopen opens for reading what was written and synced, past caches where that is possible.
	reopen(ctx context.Context, path string) (source, error)

	// create opens for writing. What is there is emptied, or with keep left as it is, and can be read.
	create(ctx context.Context, path string, perm fs.FileMode, keep bool) (sink, error)
	mknod(ctx context.Context, path string, n *node) error
}

// source is a file that is read.
type source interface {
	io.ReaderAt
	io.Closer

	// extent tells the first range of data that ends behind off, cut at size; an empty one at size if
	// there is none. What is before it from off on is a hole. It is not safe for concurrent use.
	extent(off, size int64) (from, to int64, err error)
}

// sink is a file that is written.
type sink interface {
	source
	io.WriterAt
	Sync() error
	length() (int64, error)
	resize(size int64) error
	punch(off, n int64) error // makes a hole; the length stays
}

// hintMissingParent knows why creating something answers that it was not found.
func hintMissingParent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return hint(err, "A directory above it is missing. Make it with: sluice mkdir -p")
	}
	return err
}
