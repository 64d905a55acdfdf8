package metatest

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// node is an inode of the model. It stays around when it is dead, so that the test goes on asking
// about it.
type node struct {
	ino     meta.Ino
	typ     meta.Type
	mode    uint32
	uid     uint32
	gid     uint32
	nlink   int // names; a directory has one
	opens   int
	size    int64
	parent  *node
	entries map[string]*node
}

func (n *node) isDir() bool { return n.typ == meta.Directory }
func (n *node) dead() bool  { return n.nlink == 0 && n.opens == 0 }

// links is the link count that programs see.
func (n *node) links() uint32 {
	if !n.isDir() {
		return uint32(n.nlink)
	}
	links := uint32(2)
	for _, e := range n.entries {
		if e.isDir() {
			links++
		}
	}
	return links
}

// model is a POSIX name space, written to be obviously right and nothing else: one pointer
// graph, no transactions, no concurrency.
type model struct{ root *node }

func newModel() *model {
	root := &node{ino: meta.RootIno, typ: meta.Directory, mode: 0o755, nlink: 1,
		entries: map[string]*node{}}
	root.parent = root
	return &model{root: root}
}

// may is access(2).
func may(c meta.Cred, n *node, want uint32) bool {
	if c.UID == 0 {
		return true
	}
	class := uint32(0)
	if c.UID == n.uid {
		class = 6
	} else if c.GID == n.gid || slices.Contains(c.Groups, n.gid) {
		class = 3
	}
	return n.mode>>class&want == want
}

func stickyForbids(c meta.Cred, dir, n *node) bool {
	return dir.mode&0o1000 != 0 && c.UID != 0 && c.UID != dir.uid && c.UID != n.uid
}

func search(c meta.Cred, dir *node) errs.Kind {
	switch {
	case dir.dead():
		return errs.NotFound
	case !dir.isDir():
		return errs.NotDir
	case !may(c, dir, 1):
		return errs.Access
	}
	return errs.OK
}

func (m *model) make(c meta.Cred, dir *node, name string, typ meta.Type, mode uint32) (
	*node, errs.Kind) {

	if k := search(c, dir); k != errs.OK {
		return nil, k
	}
	if dir.entries[name] != nil {
		return nil, errs.Exists
	}
	if !may(c, dir, 2) {
		return nil, errs.Access
	}
	n := &node{typ: typ, mode: mode, uid: c.UID, gid: c.GID, nlink: 1}
	if dir.mode&0o2000 != 0 {
		n.gid = dir.gid
	}
	if typ == meta.Directory {
		n.entries, n.parent = map[string]*node{}, dir
		n.mode |= dir.mode & 0o2000
	}
	dir.entries[name] = n
	return n, errs.OK
}

func (m *model) link(c meta.Cred, n, dir *node, name string) errs.Kind {
	if n.dead() {
		return errs.NotFound
	}
	if k := search(c, dir); k != errs.OK {
		return k
	}
	switch {
	case dir.entries[name] != nil:
		return errs.Exists
	case !may(c, dir, 2):
		return errs.Access
	case n.isDir():
		return errs.Perm
	case n.nlink == 0:
		return errs.NotFound
	}
	dir.entries[name] = n
	n.nlink++
	return errs.OK
}

func (m *model) remove(c meta.Cred, dir *node, name string, isDir bool) errs.Kind {
	if k := search(c, dir); k != errs.OK {
		return k
	}
	n := dir.entries[name]
	switch {
	case n == nil:
		return errs.NotFound
	case !may(c, dir, 2):
		return errs.Access
	case stickyForbids(c, dir, n):
		return errs.Perm
	case isDir && !n.isDir():
		return errs.NotDir
	case !isDir && n.isDir():
		return errs.IsDir
	case len(n.entries) > 0:
		return errs.NotEmpty
	}
	delete(dir.entries, name)
	n.nlink--
	return errs.OK
}

func (m *model) rename(c meta.Cred, from *node, name string, to *node, newName string,
	flags meta.RenameFlags) errs.Kind {

	if k := search(c, from); k != errs.OK {
		return k
	}
	if k := search(c, to); k != errs.OK {
		return k
	}
	exchange := flags == meta.RenameExchange
	n, old := from.entries[name], to.entries[newName]
	switch {
	case n == nil || exchange && old == nil:
		return errs.NotFound
	case flags == meta.RenameNoReplace && old != nil:
		return errs.Exists
	case n == old:
		return errs.OK
	case !may(c, from, 2) || !may(c, to, 2):
		return errs.Access
	case stickyForbids(c, from, n) || old != nil && stickyForbids(c, to, old):
		return errs.Perm
	case !exchange && old != nil && n.isDir() && !old.isDir():
		return errs.NotDir
	case !exchange && old != nil && !n.isDir() && old.isDir():
		return errs.IsDir
	}
	if k := m.mayMove(c, n, from, to); k != errs.OK {
		return k
	}
	if exchange {
		if k := m.mayMove(c, old, to, from); k != errs.OK {
			return k
		}
		from.entries[name], to.entries[newName] = old, n
		old.settle(from)
		n.settle(to)
		return errs.OK
	}
	if old != nil {
		if len(old.entries) > 0 {
			return errs.NotEmpty
		}
		old.nlink--
	}
	delete(from.entries, name)
	to.entries[newName] = n
	n.settle(to)
	return errs.OK
}

func (n *node) settle(dir *node) {
	if n.isDir() {
		n.parent = dir
	}
}

// mayMove is about directories that get another parent.
func (m *model) mayMove(c meta.Cred, n, from, to *node) errs.Kind {
	if !n.isDir() || from == to {
		return errs.OK
	}
	if !may(c, n, 2) {
		return errs.Access
	}
	for up := to; ; up = up.parent {
		if up == n {
			return errs.Invalid
		}
		if up == m.root {
			return errs.OK
		}
	}
}

func (m *model) chmod(c meta.Cred, n *node, mode uint32) errs.Kind {
	switch {
	case n.dead():
		return errs.NotFound
	case c.UID != 0 && c.UID != n.uid:
		return errs.Perm
	case n.typ == meta.Symlink:
		return errs.Unsupported
	}
	if c.UID != 0 && c.GID != n.gid && !slices.Contains(c.Groups, n.gid) {
		mode &^= 0o2000
	}
	n.mode = mode
	return errs.OK
}

func (m *model) truncate(c meta.Cred, n *node, size int64) errs.Kind {
	switch {
	case n.dead():
		return errs.NotFound
	case n.isDir():
		return errs.IsDir
	case n.typ != meta.Regular:
		return errs.Invalid
	case !may(c, n, 2):
		return errs.Access
	}
	n.size = size
	n.written(c)
	return errs.OK
}

// written takes away what a file that a user changes must not keep.
func (n *node) written(c meta.Cred) {
	if c.UID == 0 {
		return
	}
	n.mode &^= 0o4000
	if n.mode&0o10 != 0 {
		n.mode &^= 0o2000
	}
}

func (m *model) open(c meta.Cred, n *node, want uint32) errs.Kind {
	switch {
	case n.dead():
		return errs.NotFound
	case n.isDir():
		return errs.IsDir
	case n.typ == meta.Symlink:
		return errs.Loop
	case n.typ != meta.Regular:
		return errs.Unsupported
	case !may(c, n, want):
		return errs.Access
	}
	n.opens++
	return errs.OK
}
