package mount

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

// removed remembers directories that are gone, by this mount or by another, while a program has
// them open, or works in them: to the metadata service they do not exist, to the program they are
// still there, without a name, and with a way up. (Files need none of this: their handles keep them
// alive at the service.) The kernel says when nobody uses them any more.
type removed struct {
	mu    sync.Mutex
	attrs map[meta.Ino]meta.Attr

	// What the kernel was told of directories, the last ones: one of them may have been removed by
	// another mount.
	young, old map[meta.Ino]meta.Attr
}

// Bounds: where the kernel did not know a directory that is replaced it never says that it has
// forgotten it.
const (
	removedMax = 64 << 10
	shownMax   = 4 << 10
)

// show notes what the kernel is told of a directory.
func (r *removed) show(a *meta.Attr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.young == nil || len(r.young) >= shownMax {
		r.old, r.young = r.young, make(map[meta.Ino]meta.Attr)
	}
	r.young[a.Ino] = *a
}

// bury is for a directory that is gone. It tells what it was, if that is known.
func (r *removed) bury(ino meta.Ino) (a meta.Attr, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, known = r.attrs[ino]; known {
		return a, true
	}
	if a, known = r.young[ino]; !known {
		a, known = r.old[ino]
	}
	if !known {
		return a, false
	}
	if r.attrs == nil || len(r.attrs) >= removedMax {
		r.attrs = make(map[meta.Ino]meta.Attr)
	}
	a.Nlink, a.Lease = 0, meta.LeaseNone
	a.Ctime = meta.Now()
	r.attrs[ino] = a
	return a, true
}

func (r *removed) forget(ino meta.Ino) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.attrs, ino)
}

// Forget is the kernel's word that it does not know an inode any more.
func (b *bridge) Forget(node, _ uint64) { b.removed.forget(b.ino(node)) }

// bury is removed.bury that is noted for the next process, too.
func (b *bridge) bury(ino meta.Ino) {
	a, known := b.removed.bury(ino)
	if !known || b.kept == nil {
		return
	}
	for _, number := range b.openAs(ino) {
		b.kept.bury(number, &a)
	}
}

// openAs lists the numbers by which a directory is open.
func (b *bridge) openAs(ino meta.Ino) (numbers []uint64) {
	b.dirs.mu.RLock()
	defer b.dirs.mu.RUnlock()
	for number, d := range b.dirs.open {
		if d.ino == ino {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// list is an access control list of a directory that is gone, which the kernel needs to let anybody
// else than the owner out of it; other attributes are gone as well, as err says.
func (r *removed) list(ino meta.Ino, name string, err error) ([]byte, error) {
	a, known := r.bury(ino)
	switch {
	case !known:
		return nil, err
	case name == acl.Access && a.ACL != "":
		return []byte(a.ACL), nil
	}
	return nil, errs.New(errs.NoData, "getxattr", name, nil)
}

// attrOf is GetAttr that finds removed directories, too.
func (b *bridge) attrOf(ctx context.Context, ino meta.Ino) (meta.Attr, error) {
	a, err := b.fs.GetAttr(ctx, b.as(ctx), ino)
	if errs.KindOf(err) == errs.NotFound {
		if was, ok := b.removed.bury(ino); ok {
			return was, nil
		}
	}
	return a, err
}
