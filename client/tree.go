package client

import (
	"context"
	"errors"
	iofs "io/fs"
	"os"
	"path"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// MkdirAll makes a directory and those above it that are missing. An existing directory is fine.
func (fs *FS) MkdirAll(ctx context.Context, dir string, perm os.FileMode) error {
	if a, err := fs.Stat(ctx, dir); err == nil {
		if a.Type == meta.Directory {
			return nil
		}
		return errs.New(errs.NotDir, "client.MkdirAll", dir, nil)
	}
	clean := strings.TrimRight(dir, "/")
	if i := strings.LastIndexByte(clean, '/'); i > 0 {
		if err := fs.MkdirAll(ctx, clean[:i], perm); err != nil {
			return err
		}
	}
	err := fs.Mkdir(ctx, clean, perm)
	if errs.KindOf(err) == errs.Exists {
		a, serr := fs.Stat(ctx, clean)
		if serr == nil && a.Type == meta.Directory {
			return nil
		}
	}
	return err
}

// ReadDir calls fn for every entry of a directory, in no particular order, with attributes. An
// entry that exists all the time is seen exactly once. An error of fn ends it and is returned.
func (fs *FS) ReadDir(ctx context.Context, dir string, fn func(meta.Entry) error) error {
	c := fs.self()
	p, err := fs.existing(ctx, c, dir, true)
	if err != nil {
		return errs.Wrap("client.ReadDir", dir, err)
	}
	return fs.readDir(ctx, c, dir, p.attr.Ino, fn)
}

func (fs *FS) readDir(ctx context.Context, c meta.Caller, dir string, ino meta.Ino,
	fn func(meta.Entry) error) error {
	for cookie := uint64(0); ; {
		page, err := fs.ReadDirPage(ctx, c.Cred, ino, cookie, meta.DirPageMax, true)
		if err != nil {
			return errs.Wrap("client.ReadDir", dir, err)
		}
		if len(page) == 0 {
			return nil
		}
		for _, e := range page {
			if err := fn(e); err != nil {
				return err
			}
			cookie = e.Cookie
		}
	}
}

// Walk calls fn for root and everything below it, a directory before its entries. Symbolic links
// are not followed. fn may return fs.SkipDir (leave out this directory, or the rest of the
// directory that holds this file) and fs.SkipAll of package io/fs.
func (fs *FS) Walk(ctx context.Context, root string,
	fn func(path string, a meta.Attr) error) error {
	a, err := fs.Lstat(ctx, root)
	if err != nil {
		return err
	}
	err = fs.walk(ctx, root, a, fn)
	if errors.Is(err, iofs.SkipDir) || errors.Is(err, iofs.SkipAll) {
		return nil
	}
	return err
}

func (fs *FS) walk(ctx context.Context, at string, a meta.Attr,
	fn func(path string, a meta.Attr) error) error {
	if err := fn(at, a); err != nil || a.Type != meta.Directory {
		return err
	}
	err := fs.readDir(ctx, fs.self(), at, a.Ino, func(e meta.Entry) error {
		if e.Attr == nil {
			return nil // removed while the page was made
		}
		err := fs.walk(ctx, path.Join(at, e.Name), *e.Attr, fn)
		if errors.Is(err, iofs.SkipDir) && e.Type == meta.Directory {
			return nil
		}
		return err
	})
	return err
}

// RemoveAll removes what a path names and everything below it. A path that names nothing is fine.
// The name is gone when it returns, and nothing is if the caller may not remove all of it; what was
// below is removed by the metadata service in the background: see meta.Trees.
func (fs *FS) RemoveAll(ctx context.Context, dir string) error {
	c := fs.self()
	p, err := fs.find(ctx, c, dir, false)
	if k := errs.KindOf(err); k == errs.NotFound || err == nil && p.attr.Ino == 0 {
		return nil
	}
	if err == nil && p.name == "." {
		err = errs.Newf(errs.Invalid, "", "", "the path ends in a directory by itself")
	}
	if err == nil {
		err = fs.RemoveTreeIno(ctx, c.Cred, p.dir, p.name)
	}
	if errs.KindOf(err) == errs.NotFound {
		err = nil // somebody else was faster
	}
	return errs.Wrap("client.RemoveAll", dir, err)
}
