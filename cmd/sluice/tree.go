package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// node is what copying needs to know of a file.
type node struct {
	name string
	mode fs.FileMode
	size int64
}

// tree is one side of a copy: a host's file system or a cluster's.
type tree interface {
	links
	stat(ctx context.Context, path string) (node, error) // through symbolic links
	list(ctx context.Context, path string) ([]node, error)
	mkdir(ctx context.Context, path string, perm fs.FileMode) error
	open(ctx context.Context, path string) (source, error)
	create(ctx context.Context, path string, perm fs.FileMode) (sink, error)
}

type links interface {
	readlink(ctx context.Context, path string) (string, error)
	symlink(ctx context.Context, target, path string) error
}

type source interface {
	io.ReaderAt
	io.Closer
}

type sink interface {
	io.WriterAt
	io.Closer
	Sync() error
}

// hostTree is this host.
type hostTree struct{}

func (hostTree) stat(_ context.Context, name string) (node, error) {
	info, err := os.Stat(name)
	if err != nil {
		return node{}, err
	}
	return node{filepath.Base(name), info.Mode(), info.Size()}, nil
}

func (hostTree) list(_ context.Context, name string) ([]node, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var nodes []node
	for _, e := range entries {
		info, err := e.Info()
		if os.IsNotExist(err) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node{e.Name(), info.Mode(), info.Size()})
	}
	return nodes, nil
}

// mkdir is fine with a directory that exists.
func (hostTree) mkdir(_ context.Context, name string, perm fs.FileMode) error {
	return os.MkdirAll(name, perm)
}

func (hostTree) open(_ context.Context, name string) (source, error) { return os.Open(name) }

func (hostTree) create(_ context.Context, name string, perm fs.FileMode) (sink, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, perm)
}

func (hostTree) readlink(_ context.Context, name string) (string, error) {
	return os.Readlink(name)
}

func (hostTree) symlink(_ context.Context, target, name string) error {
	return os.Symlink(target, name)
}

// clusterTree is a cluster, and the way that data takes there.
type clusterTree struct {
	fs  *client.FS
	way way
}

func (t clusterTree) stat(ctx context.Context, name string) (node, error) {
	a, err := t.fs.Stat(ctx, name)
	if err != nil {
		return node{}, err
	}
	return node{path.Base(name), fileMode(&a), a.Size}, nil
}

func (t clusterTree) list(ctx context.Context, name string) ([]node, error) {
	var nodes []node
	err := t.fs.ReadDir(ctx, name, func(e meta.Entry) error {
		a := e.Attr
		if a == nil {
			a = &meta.Attr{Type: e.Type}
		}
		nodes = append(nodes, node{e.Name, fileMode(a), a.Size})
		return nil
	})
	return nodes, err
}

func (t clusterTree) mkdir(ctx context.Context, name string, perm fs.FileMode) error {
	return t.fs.MkdirAll(ctx, name, perm)
}

func (t clusterTree) open(ctx context.Context, name string) (source, error) {
	f, err := t.fs.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	t.way.apply(f)
	return f.IO(ctx), nil
}

func (t clusterTree) create(ctx context.Context, name string, perm fs.FileMode) (sink, error) {
	f, err := t.fs.OpenFile(ctx, name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, perm)
	if err != nil {
		return nil, hintMissingParent(err)
	}
	t.way.apply(f)
	return f.IO(ctx), nil
}

func (t clusterTree) readlink(ctx context.Context, name string) (string, error) {
	return t.fs.Readlink(ctx, name)
}

func (t clusterTree) symlink(ctx context.Context, target, name string) error {
	return t.fs.Symlink(ctx, target, name)
}

// hintMissingParent knows why creating something answers that it was not found.
func hintMissingParent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return hint(err, "A directory above it is missing. Make it with: sluice mkdir -p")
	}
	return err
}
