package mount

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// removed remembers directories that this mount has removed while a program had them open: to the
// metadata service they are gone, to the program they are still there, without a name. (Files need
// none of this: their handles keep them alive at the service.)
type removed struct {
	mu    sync.Mutex
	attrs map[meta.Ino]meta.Attr
}

// get returns what a removed directory was, if somebody still has it open.
func (r *removed) get(ino meta.Ino) (meta.Attr, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.attrs[ino]
	return a, ok
}

func (r *removed) put(a meta.Attr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attrs == nil {
		r.attrs = make(map[meta.Ino]meta.Attr)
	}
	a.Nlink = 0
	a.Ctime = meta.Now()
	r.attrs[a.Ino] = a
}

func (r *removed) forget(ino meta.Ino) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.attrs, ino)
}

// isOpen tells whether a directory is open here.
func (b *bridge) isOpen(ino meta.Ino) bool {
	b.dirs.mu.RLock()
	defer b.dirs.mu.RUnlock()
	for _, d := range b.dirs.open {
		if d.ino == ino {
			return true
		}
	}
	return false
}

// victim looks at the directory that a name is about to be taken from, if any directory is open
// here at all. The answer goes to buried when the name is gone.
func (b *bridge) victim(ctx context.Context, dir meta.Ino, name string) *meta.Attr {
	if b.dirs.count() == 0 {
		return nil
	}
	a, err := b.fs.Lookup(ctx, meta.Cred{}, dir, name)
	if err != nil || a.Type != meta.Directory || !b.isOpen(a.Ino) {
		return nil
	}
	return &a
}

// buried remembers a victim whose removal has succeeded.
func (b *bridge) buried(a *meta.Attr, err error) {
	if a != nil && err == nil {
		b.removed.put(*a)
	}
}

// released forgets a directory that nobody has open any more.
func (b *bridge) released(ino meta.Ino) {
	if !b.isOpen(ino) {
		b.removed.forget(ino)
	}
}

// attrOf is GetAttr that finds removed directories, too.
func (b *bridge) attrOf(ctx context.Context, ino meta.Ino) (meta.Attr, error) {
	a, err := b.fs.GetAttr(ctx, meta.Cred{}, ino)
	if errs.KindOf(err) == errs.NotFound {
		if was, ok := b.removed.get(ino); ok {
			return was, nil
		}
	}
	return a, err
}

// stillThere tells whether the service still knows an inode.
func (b *bridge) stillThere(ctx context.Context, ino meta.Ino) bool {
	_, err := b.fs.GetAttr(ctx, meta.Cred{}, ino)
	return errs.KindOf(err) != errs.NotFound
}
