package cache

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/perm"
)

// node is what is known of an inode that the client has a lease on.
type node struct {
	ino  meta.Ino
	link list.Link[node]
	size int64 // bytes that it was last taken for

	// attr is as the service told. Of a directory in which this client has made or removed names
	// since, only type, mode and owner count: exact is false.
	attr  meta.Attr
	known bool
	exact bool
	first uint64 // serial of the answer that brought the lease

	data    []byte // of a small file; nobody changes it
	hasData bool
	target  string // of a link; never empty there
	names   directory

	tenure uint64 // of the directory in which this client has made it; see Cache.Tenure
	lent   bool   // it was there before: its own lease says that nobody else knows of it

	at     spot // where a listing showed it last
	unread bool // its data was fetched ahead, and nobody has asked for it
	unseen bool // likewise its attributes

	foreseen bool // a directory's listing was fetched ahead, and nobody has asked for it

	looks walk // of a directory: how programs look up names in it,
	reads walk // and read small files
}

// spot is a place in a directory; zero: not known.
type spot struct {
	dir    meta.Ino
	cookie uint64
	name   string
}

// What the parts of a node are taken for, in bytes, with what the maps need.
const (
	nodeBytes = 640
	nameBytes = 112
)

func (n *node) weigh() int64 {
	return nodeBytes + int64(len(n.data)+len(n.target)+len(n.attr.ACL)+len(n.attr.Default)) +
		n.names.bytes
}

// useLocked finds an inode whose lease is valid.
func (c *Cache) useLocked(ino meta.Ino) *node {
	n := c.nodes[ino]
	if n == nil || !c.validLocked() {
		return nil
	}
	c.lru.Remove(&n.link)
	c.lru.PushFirst(&n.link, n)
	return n
}

func (c *Cache) makeLocked(ino meta.Ino) *node {
	n := c.nodes[ino]
	if n == nil {
		n = &node{ino: ino}
		c.nodes[ino] = n
		c.lru.PushFirst(&n.link, n)
	}
	return n
}

// weighLocked brings the account up to date after a change of n, and makes room.
func (c *Cache) weighLocked(n *node) {
	if c.nodes[n.ino] != n {
		return
	}
	now := n.weigh()
	c.bytes += now - n.size
	n.size = now
	for c.bytes > max(c.bytesMax, 0) {
		c.forgetLocked(c.lru.Last())
	}
}

func (c *Cache) forgetLocked(n *node) {
	if n == nil {
		return
	}
	if n.foreseen {
		c.descent.ahead--
	}
	delete(c.nodes, n.ino)
	c.lru.Remove(&n.link)
	c.bytes -= n.size
}

// Held tells whether there is a valid lease on an inode.
func (c *Cache) Held(ino meta.Ino) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.useLocked(ino) != nil
}

// Leased is for how long attributes that came with a lease are true unless that is recalled; 0:
// they did not, or it is not the one that there is now.
func (c *Cache) Leased(a *meta.Attr) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.useLocked(a.Ino)
	if n == nil || !n.known || a.Lease == meta.LeaseNone || a.Serial < n.first {
		return 0
	}
	return c.until.Sub(c.now())
}

// LeasedName is Leased for what a name in a directory stands for, 0 for nothing: where it is known.
func (c *Cache) LeasedName(dir meta.Ino, name string, ino meta.Ino) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.useLocked(dir)
	if d == nil || c.busy[subject{dir, naming, name}] > 0 {
		return 0
	}
	if e, ok := d.names.find(name); !ok || e.ino != ino {
		return 0
	}
	return c.until.Sub(c.now())
}

// Attr returns an inode's attributes.
func (c *Cache) Attr(ino meta.Ino) (meta.Attr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.useLocked(ino)
	if n == nil || !n.exact {
		return meta.Attr{}, false
	}
	return n.attr, true
}

// Accessed brings the time of access of an inode up to date. It is the only one that leases do not
// cover: whoever reads something goes on to know it.
func (c *Cache) Accessed(x *meta.Access) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[x.Ino]; n != nil && n.known && x.Meets(&n.attr) {
		n.attr.Atime = x.At
	}
}

// Rights returns what permission checks need of an inode, whose times may have changed since.
func (c *Cache) Rights(ino meta.Ino) (meta.Attr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.useLocked(ino)
	if n == nil || !n.known {
		return meta.Attr{}, false
	}
	return n.attr, true
}

// Data returns a small file's attributes and data, which must not be changed.
func (c *Cache) Data(ino meta.Ino) (meta.Attr, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.useLocked(ino)
	if n == nil || !n.exact || !n.hasData {
		return meta.Attr{}, nil, false
	}
	if n.unread {
		n.unread = false
		c.usedLocked(n.at.dir, (*node).readsOf)
	}
	return n.attr, n.data, true
}

// Target returns where a symbolic link points.
func (c *Cache) Target(ino meta.Ino) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.useLocked(ino)
	if n == nil || n.target == "" {
		return "", false
	}
	return n.target, true
}

// Lookup answers as the service's Lookup would: with attributes, with errs.NotFound where there is
// no such name, errs.Access where the user may not search the directory, errs.NotDir. known is
// false where the service must be asked. Dots are always asked for, and what cannot be a name: the
// service says why. Without exact only type, mode and owner count of the attributes.
func (c *Cache) Lookup(u *meta.Cred, dir meta.Ino, name string, exact bool) (
	a meta.Attr, err error, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.useLocked(dir)
	if d == nil || !d.known || name == "." || name == ".." || len(name) > meta.NameMax ||
		strings.ContainsAny(name, "/\x00") {
		return a, nil, false
	}
	switch {
	case d.attr.Type != meta.Directory:
		return a, errs.NotDir, true
	case !perm.Allowed(u, perm.Of(&d.attr), perm.Search):
		return a, errs.Access, true
	case c.busy[subject{dir, naming, name}] > 0:
		return a, nil, false
	}
	e, ok := d.names.find(name)
	switch {
	case !ok:
		return a, nil, false
	case e.ino == 0:
		return a, errs.NotFound, true
	}
	n := c.useLocked(e.ino)
	if n == nil || !n.known || exact && !n.exact {
		return a, nil, false
	}
	if n.unseen {
		n.unseen = false
		c.usedLocked(n.at.dir, (*node).looksOf)
	}
	return n.attr, nil, true
}

// Ino tells which inode a name stands for; 0: none.
func (c *Cache) Ino(dir meta.Ino, name string) (ino meta.Ino, typ meta.Type, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.useLocked(dir)
	if d == nil || c.busy[subject{dir, naming, name}] > 0 {
		return 0, 0, false
	}
	e, ok := d.names.find(name)
	return e.ino, e.typ, ok
}

// Tenure is the number of the time for which a directory is, or was, held alone in which this
// client has made an inode that has one name, and had no other since: while the directory is held
// nobody else can know of it. Likewise of what was there before, and nobody else uses (Alone). 0:
// others may.
func (c *Cache) Tenure(ino meta.Ino) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.useLocked(ino)
	if n == nil || !n.exact || n.attr.Nlink != 1 && n.attr.Type != meta.Directory {
		return 0
	}
	return n.tenure
}

// Alone notes the answer to a question: nobody else has a lease on files, or has them open, which
// are in a directory that is held alone. See Tenure.
func (c *Cache) Alone(t Token, tenure uint64, files []meta.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ino := range files {
		if n := c.nodes[ino]; n != nil && c.freshLocked(t, subject{ino: ino, what: attributes}) &&
			!c.recent.since(t, subject{ino: ino, what: writing}) {
			n.tenure, n.lent = tenure, true
		}
	}
}

// Writes says that this client opens a file for writing: when that is closed its lease is like any
// other.
func (c *Cache) Writes(ino meta.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent.note(subject{ino: ino, what: writing})
	if n := c.nodes[ino]; n != nil && n.lent {
		n.tenure, n.lent = 0, false
	}
}

// Files lists up to max files in a directory of which all is known, and that have this one name,
// but for those of a tenure. whole: all names of the directory are known; then it is first and
// those that follow it in the order of the directory, else first and any others.
func (c *Cache) Files(dir, first meta.Ino, tenure uint64, max int) (files []meta.Ino, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.useLocked(dir)
	if d == nil || !d.known {
		return nil, false
	}
	fits := func(ino meta.Ino) bool {
		n := c.nodes[ino]
		return n != nil && n.exact && n.attr.Type != meta.Directory && n.attr.Nlink == 1 &&
			(tenure == 0 || n.tenure != tenure)
	}
	if !d.names.complete || !d.names.listed {
		return d.names.some(first, max, fits), false
	}
	start := 0
	if n := c.nodes[first]; n != nil && n.at.dir == dir {
		start, _ = slices.BinarySearchFunc(d.names.order, n.at.cookie, byCookie)
	}
	for i := start; i < len(d.names.order) && len(files) < max; i++ {
		p := d.names.order[i]
		if e := d.names.names[p.name]; e.cookie == p.cookie && fits(e.ino) {
			files = append(files, e.ino)
		}
	}
	return files, true
}

// someLook bounds how many names are looked at for each that is wanted.
const someLook = 8

// some is first, if it fits, and up to max in all of the others that do.
func (d *directory) some(first meta.Ino, max int, fits func(meta.Ino) bool) (files []meta.Ino) {
	if max > 0 && fits(first) {
		files = append(files, first)
	}
	looked := 0
	for _, e := range d.names {
		if looked++; len(files) >= max || looked > someLook*max {
			break
		}
		if e.ino != first && fits(e.ino) {
			files = append(files, e.ino)
		}
	}
	return files
}

// Reveal says that others may know of an inode from now on.
func (c *Cache) Reveal(ino meta.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[ino]; n != nil {
		n.tenure = 0
	}
}

// Empty tells whether a directory is known to have no names.
func (c *Cache) Empty(dir meta.Ino) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.useLocked(dir)
	if d == nil || !d.exact || !d.names.complete || d.attr.Size != 0 ||
		c.busy[subject{ino: dir, what: attributes}] > 0 {
		return false
	}
	return len(d.names.names) == 0
}

// PutAttr takes in attributes, if they came with a lease.
func (c *Cache) PutAttr(t Token, a *meta.Attr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.putLocked(t, a); n != nil {
		c.weighLocked(n)
	}
}

// PutData takes in attributes and data of a small file. The data becomes the cache's.
func (c *Cache) PutData(t Token, a *meta.Attr, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.putLocked(t, a); n != nil {
		n.setData(data)
		c.weighLocked(n)
	}
}

// PutTarget takes in where a link points. It adds to what is known under a lease: the answer that
// it comes with has none.
func (c *Cache) PutTarget(t Token, ino meta.Ino, target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[ino]
	if n == nil || !c.freshLocked(t, subject{ino: ino, what: attributes}) {
		return
	}
	n.target = target
	c.weighLocked(n)
}

// PutFound takes in the answer to Find. It tells whether the caller should list the directory
// (PutScan, without attributes), because names are looked for that are not there.
func (c *Cache) PutFound(t Token, dir meta.Ino, name string, f *meta.Found) (list bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Present {
		if n := c.putLocked(t, &f.Attr); n != nil {
			n.setData(f.Data)
			if f.Target != "" {
				n.target = f.Target
			}
			c.weighLocked(n)
		}
	}
	if f.Dir.Lease == meta.LeaseNone || name == "." || name == ".." {
		return false
	}
	d := c.putLocked(t, &f.Dir)
	if d == nil { // this client changes other names in it, which says nothing about this one
		d = c.nodes[dir]
	}
	if d == nil || !c.freshLocked(t, subject{dir, naming, name}) {
		return false
	}
	e := entry{}
	if f.Present {
		e = entry{f.Attr.Ino, f.Attr.Type, f.Cookie}
		if n := c.nodes[f.Attr.Ino]; n != nil && f.Cookie != 0 {
			n.at = spot{dir, f.Cookie, name}
		}
	}
	d.names.learn(name, e)
	list = !f.Present && d.names.missed(f.Dir.Size)
	c.weighLocked(d)
	return list
}

// putLocked takes in attributes; nil if it must not.
func (c *Cache) putLocked(t Token, a *meta.Attr) *node {
	s := subject{ino: a.Ino, what: attributes}
	if a.Lease == meta.LeaseNone || !c.freshLocked(t, s) {
		return nil
	}
	n := c.makeLocked(a.Ino)
	if n.known && n.attr.Serial > a.Serial {
		return n // a later answer was here first
	}
	n.set(a)
	return n
}

// set takes over attributes. Data of another version is of no use.
func (n *node) set(a *meta.Attr) {
	if n.hasData && (!a.Small || a.DataVersion != n.attr.DataVersion ||
		a.TruncSeq != n.attr.TruncSeq) {
		n.data, n.hasData = nil, false
	}
	if !n.known {
		n.first = a.Serial
	}
	n.attr, n.known, n.exact = *a, true, true
}

// setData takes over what a small file holds; nil: the answer did not say.
func (n *node) setData(data []byte) {
	switch {
	case !n.attr.Small:
	case data != nil:
		n.data, n.hasData = data, true
	case n.attr.Size == 0:
		n.data, n.hasData = nil, true
	}
}
