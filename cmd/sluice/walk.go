package main

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"sort"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// visit is one step of walkTree.
type visit struct {
	path  string
	name  string // its last part
	depth int    // 0: where the walk began
	attr  meta.Attr
	err   error // why a directory could not be read; it was visited before
	leave bool  // the second visit of a directory, after what it holds
}

// walkTree visits root and everything below it, in the order of names; a directory before what it
// holds, and once more after that (leave). Symbolic links are not followed. A directory that cannot
// be read is visited again with err. fn may return fs.SkipDir for a directory, to leave out what it
// holds; any other error ends the walk.
func walkTree(ctx context.Context, c *client.FS, root string, fn func(visit) error) error {
	a, err := c.Lstat(ctx, root)
	if err != nil {
		return err
	}
	w := walk{ctx: ctx, c: c, fn: fn}
	return w.visit(visit{path: root, name: path.Base(root), attr: a})
}

type walk struct {
	ctx context.Context
	c   *client.FS
	fn  func(visit) error
}

func (w *walk) visit(v visit) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	err := w.fn(v)
	if v.attr.Type != meta.Directory || err != nil {
		if errors.Is(err, fs.SkipDir) {
			return nil
		}
		return err
	}
	entries, err := entriesOf(w.ctx, w.c, v.path)
	if err != nil {
		failed := v
		failed.err = err
		if err := w.fn(failed); err != nil && !errors.Is(err, fs.SkipDir) {
			return err
		}
	}
	for _, e := range entries {
		err := w.visit(visit{path: path.Join(v.path, e.Name), name: e.Name, depth: v.depth + 1,
			attr: *e.Attr})
		if err != nil {
			return err
		}
	}
	v.leave = true
	return w.fn(v)
}

// entriesOf are a directory's entries with attributes, by name.
func entriesOf(ctx context.Context, c *client.FS, dir string) ([]meta.Entry, error) {
	var entries []meta.Entry
	err := c.ReadDir(ctx, dir, func(e meta.Entry) error {
		if e.Attr != nil { // otherwise it was removed while the page was made
			entries = append(entries, e)
		}
		return nil
	})
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	return entries, err
}
