package cache

import (
	"cmp"
	"slices"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/perm"
)

// entry is what a name stands for. ino 0: there is no such name. cookie 0: its place in the
// directory is not known.
type entry struct {
	ino    meta.Ino
	typ    meta.Type
	cookie uint64
}

// directory is what is known of a directory's names.
//
// A listing is put together from pages that follow or overlap each other: next is the cookie up to
// which it has come, 0 that it was not begun. Once the page that is empty is in, complete says that
// what is not in names is not there, and listed that order has all of it. Changes of this client
// keep it complete, and listed where the place of a new name is known.
type directory struct {
	names    map[string]entry
	order    []place // by cookie; names that are gone, or have another cookie by now, do not count
	next     uint64
	complete bool
	listed   bool
	bytes    int64

	misses int // names that had to be asked for and are not there, since a listing was wanted last
	wanted int // how often one was
}

// place is where a name stands in the directory.
type place struct {
	cookie uint64
	name   string
}

func (d *directory) find(name string) (entry, bool) {
	e, ok := d.names[name]
	return e, ok || d.complete
}

// learn takes in what a name stands for. A place that is known stays where it is the same name.
func (d *directory) learn(name string, e entry) {
	was, ok := d.names[name]
	if e.ino == 0 && d.complete { // what is not there needs no entry
		d.drop(name)
		return
	}
	if e.ino != 0 && e.cookie == 0 {
		if was.ino == e.ino {
			e.cookie = was.cookie
		} else {
			d.unlist()
		}
	}
	if d.names == nil {
		d.names = map[string]entry{}
	}
	if !ok {
		d.bytes += nameBytes + int64(len(name))
	}
	d.names[name] = e
	if d.listed && e.cookie != was.cookie {
		d.arrange(place{e.cookie, name})
	}
}

// arrange adds a place. What is made later has a higher cookie.
func (d *directory) arrange(p place) {
	d.bytes += nameBytes / 2
	if n := len(d.order); n == 0 || d.order[n-1].cookie < p.cookie {
		d.order = append(d.order, p)
		return
	}
	i, _ := slices.BinarySearchFunc(d.order, p.cookie, byCookie)
	d.order = slices.Insert(d.order, i, p)
}

func byCookie(p place, cookie uint64) int { return cmp.Compare(p.cookie, cookie) }

// drop forgets a name; in a complete directory that means that there is none.
func (d *directory) drop(name string) {
	if _, ok := d.names[name]; ok {
		delete(d.names, name)
		d.bytes -= nameBytes + int64(len(name))
	}
}

// unlist has the directory listed anew when somebody wants a listing.
func (d *directory) unlist() {
	d.bytes -= nameBytes / 2 * int64(len(d.order))
	d.order, d.next, d.listed = nil, 0, false
}

// unsure makes what is not known count for nothing again.
func (d *directory) unsure() {
	d.unlist()
	d.complete = false
}

// Bounds of when a listing is wanted.
const (
	ListMax    = 1024 // names that a directory may have for that
	listMisses = 2    // absent names that must have been asked for, and
	listShare  = 64   // one more for so many names: reading those takes about as long as a question
	listTries  = 10   // each time that it comes to nothing it takes twice as many, up to 2^listTries
)

// missed notes that a name had to be asked for that is not there, in a directory of so many names.
// It tells whether a listing is wanted, by which further ones are known.
func (d *directory) missed(names int64) bool {
	d.misses++
	if d.complete || names > ListMax ||
		d.misses < (listMisses+int(names)/listShare)<<min(d.wanted, listTries) {
		return false
	}
	d.misses = 0
	d.wanted++
	return true
}

// Page answers as ReadDir would, with fewer entries where the attributes of one are not known.
// known is false where the service must be asked.
func (c *Cache) Page(u *meta.Cred, dir meta.Ino, cookie uint64, max int, withAttr bool) (
	page []meta.Entry, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.useLocked(dir)
	if d == nil || !d.known || !d.names.listed || c.busy[subject{ino: dir, what: attributes}] > 0 ||
		!perm.Allowed(u, perm.Of(&d.attr), perm.Read) || cookie == ^uint64(0) {
		return nil, false
	}
	if d.foreseen {
		d.foreseen = false
		c.descent.ahead--
	}
	i, _ := slices.BinarySearchFunc(d.names.order, cookie+1, byCookie)
	for ; i < len(d.names.order) && len(page) < max; i++ {
		p := d.names.order[i]
		e := d.names.names[p.name]
		if e.cookie != p.cookie || e.ino == 0 {
			continue
		}
		out := meta.Entry{Name: p.name, Ino: e.ino, Type: e.typ, Cookie: p.cookie}
		if withAttr {
			n := c.useLocked(e.ino)
			if n == nil || !n.exact {
				return page, len(page) > 0
			}
			a := n.attr
			out.Attr = &a
		}
		page = append(page, out)
	}
	return page, true
}

// PutScan takes in a page that Scan has returned. Names count if the directory's lease came with
// them. They become a listing where pages follow or overlap each other.
func (c *Cache) PutScan(t Token, w *meta.Scan, s *meta.Scanned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.putLocked(t, &s.Dir)
	for i := range s.Entries {
		c.putEntryLocked(t, d, s.Dir.Ino, &s.Entries[i])
	}
	if d == nil || c.nodes[d.ino] != d { // there is no room for it
		return
	}
	follows := !w.ByName && w.Cookie <= d.names.next
	if d.names.listed {
		return
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		d.names.learn(e.Name, entry{e.Ino, e.Type, e.Cookie})
		if follows {
			d.names.next = max(d.names.next, e.Cookie)
		}
	}
	if follows && s.End {
		d.names.finish()
	}
	c.boundLocked(d)
}

// putEntryLocked takes in what a page says of the inode behind a name.
func (c *Cache) putEntryLocked(t Token, d *node, dir meta.Ino, e *meta.Entry) {
	if e.Attr == nil {
		return
	}
	had := c.nodes[e.Ino]
	fresh := had == nil || !had.exact
	n := c.putLocked(t, e.Attr)
	if n == nil {
		return
	}
	n.at = spot{dir, e.Cookie, e.Name}
	if e.Data != nil || e.Attr.Size == 0 {
		if n.attr.Serial == e.Attr.Serial {
			had := n.hasData
			n.setData(e.Data)
			if d != nil && (d.reads.busy || d.looks.busy) && !had && len(n.data) > 0 {
				n.unread = true
				d.reads.fetched++
			}
		}
	}
	if d != nil && d.looks.busy && fresh {
		n.unseen = true
		d.looks.fetched++
	}
	c.weighLocked(n)
}

// boundLocked is weighLocked for a directory whose names have become more. One that is too large
// to be kept whole begins anew, so that there is room for others.
func (c *Cache) boundLocked(d *node) {
	if d.weigh() > c.bytesMax/4 {
		d.names = directory{}
	}
	c.weighLocked(d)
}

// finish notes that the listing has come to its end: names that are not in it are not there.
func (d *directory) finish() {
	for name, e := range d.names {
		if e.ino == 0 || e.cookie == 0 {
			d.drop(name)
			continue
		}
		d.order = append(d.order, place{e.cookie, name})
	}
	slices.SortFunc(d.order, func(a, b place) int { return cmp.Compare(a.cookie, b.cookie) })
	d.bytes += nameBytes / 2 * int64(len(d.order))
	d.complete, d.listed = true, true
}
