package cache

import (
	"math"
	"slices"

	"github.com/sluice-storage/sluice/meta"
)

// What to fetch ahead.
//
// Programs that walk over a directory look names up, or read small files, one behind the other: in
// the order of a listing, or of names. When some had to be asked for one by one (a miss), further
// ones are asked for together with the next: a window, which grows as long as what it brought is
// used. Where it is not, there is none for a while, and then a small one.
//
// Who walks over many directories misses in each of them. So a first miss is enough while windows
// of other directories are used (trust).

// walk is how programs go over a directory.
type walk struct {
	cookie   uint64 // of the last miss
	name     string
	byCookie int // misses in a row that lay behind the one before, by cookies,
	byName   int // and by names

	window  int // of the last fetch: entries
	poor    int // windows in a row that were hardly used
	fetched int // by the last one,
	used    int // and of that used
	good    bool
	busy    bool // one is being fetched
}

// Bounds of windows: what is fetched at once delays a program by about a millisecond.
const (
	missesMin  = 2 // after the first one
	windowMin  = 8 // entries of a first window
	looksMax   = 512
	readsMax   = 128
	readsBytes = 512 << 10
	knownMax   = 4 // files in a row that are known already: there a window ends
	poorMax    = 6 // each poor window doubles the misses that it takes, up to 2^poorMax times

	trustMin = 2
	trustMax = 8
	onTrust  = 8 // windows of which it may not be known yet whether they are used
)

// trusted is what is known of windows that were fetched with the first miss.
type trusted struct {
	level  int
	byName bool       // the last good one was
	open   []meta.Ino // directories of the last ones, oldest first
}

func (n *node) looksOf() *walk { return &n.looks }
func (n *node) readsOf() *walk { return &n.reads }

// usedLocked notes that something that was fetched ahead is used.
func (c *Cache) usedLocked(dir meta.Ino, which func(*node) *walk) {
	d := c.nodes[dir]
	if d == nil {
		return
	}
	w := which(d)
	w.used++
	if !w.good && 2*w.used >= w.fetched {
		w.good = true
		if w == &d.reads && c.trust.level < trustMax {
			c.trust.level++
		}
	}
}

// step notes a miss.
func (w *walk) step(cookie uint64, name string) {
	w.byCookie++
	w.byName++
	if cookie <= w.cookie {
		w.byCookie = 0
	}
	if name <= w.name {
		w.byName = 0
	}
	w.cookie, w.name = cookie, name
}

// judge looks at what has become of the last window. It tells whether that was good for something.
func (w *walk) judge() bool {
	if w.window == 0 || w.good {
		w.poor = 0
		return true
	}
	w.poor = min(w.poor+1, poorMax)
	w.window, w.fetched, w.used = 0, 0, 0
	w.byCookie, w.byName = 0, 0
	return false
}

// next begins a window; ok: there is to be one. most bounds it.
func (w *walk) next(at spot, first, byName bool, most int) (s meta.Scan, ok bool) {
	need := missesMin << w.poor
	switch {
	case w.byCookie >= need:
		byName = false
	case w.byName >= need:
		byName = true
	case !first:
		return s, false
	}
	w.window = min(max(2*w.window, windowMin), most)
	w.fetched, w.used, w.good, w.busy = 0, 0, false, true
	s = meta.Scan{Max: w.window, Attrs: true, ByName: byName}
	if byName {
		s.Name = at.name
	} else {
		s.Cookie = at.cookie - 1
	}
	return s, true
}

// Missed is called when a program reads a small file whose data is not known. It tells what to ask
// for in place of that file alone, if that makes sense: a page of its directory that begins with
// it. FetchedAhead must follow.
func (c *Cache) Missed(ino meta.Ino) (dir meta.Ino, s meta.Scan, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.useLocked(ino)
	if n == nil || !n.exact || !n.attr.Small || n.at.cookie == 0 || c.bytesMax < 4*readsBytes {
		return 0, s, false
	}
	d := c.nodes[n.at.dir]
	if d == nil {
		return 0, s, false
	}
	w := &d.reads
	if w.step(n.at.cookie, n.at.name); w.busy {
		return 0, s, false
	}
	if !w.judge() {
		c.trust.level = max(c.trust.level-2, 0)
	}
	first := w.window > 0 || w.poor == 0 && c.trust.level >= trustMin
	if first && w.window == 0 {
		w.window = readsMax / 4
	}
	if s, ok = w.next(n.at, first, c.trust.byName, readsMax); !ok {
		return 0, s, false
	}
	c.trust.byName = s.ByName
	c.sizeLocked(d, &s)
	c.trustLocked(d.ino)
	return d.ino, s, true
}

// trustLocked notes a window, and judges the one that was fetched some time ago.
func (c *Cache) trustLocked(dir meta.Ino) {
	t := &c.trust
	if slices.Contains(t.open, dir) {
		return
	}
	if t.open = append(t.open, dir); len(t.open) <= onTrust {
		return
	}
	old := c.nodes[t.open[0]]
	t.open = slices.Delete(t.open, 0, 1)
	if old != nil && !old.reads.good && old.reads.fetched > 0 {
		t.level = max(t.level-2, 0)
	}
}

// Listing is called when a program lists a directory that is not known. It tells what to ask for:
// how many entries, at most max, how much data of small files with them (none, unless programs read
// what they list), and which other directories with it. FetchedAhead must follow.
func (c *Cache) Listing(dir meta.Ino, max int) meta.Scan {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.nodes[dir]
	w := meta.Scan{Max: max, Attrs: true}
	if d == nil || !d.exact || c.bytesMax < 4*readsBytes {
		return w
	}
	w.Also = c.descendLocked(d)
	if d.reads.busy || d.reads.poor > 0 || c.trust.level < trustMin {
		return w
	}
	d.reads = walk{window: readsMax / 4, busy: true}
	c.trustLocked(dir)
	names := d.attr.Size + 1 // there may be one more by now
	w.Max, w.Bytes = int(min(int64(max), names)), int(min(readsBytes, names*meta.SmallMax))
	if len(w.Also) > 0 {
		w.Bytes = readsBytes
	}
	return w
}

// descent is how programs go down a tree: whoever lists one directory after the other that he has
// learnt of by a listing gets the next ones beside each with it, more of them each time. Those may
// be listed much later, behind all that is below the first one; so there are none while too many
// were fetched that nobody has listed yet, and where that is all, few.
type descent struct {
	run    int // directories in a row that had to be asked for
	window int // how many were fetched with the last one, at most
	ahead  int // fetched, and not listed
}

// Bounds of a descent.
const (
	descentMin = 2   // directories in a row, before others are fetched
	alsoMin    = 4   // with the first one
	aheadMax   = 256 // that nobody has listed
)

// descendLocked tells which directories are worth to be asked for with one.
func (c *Cache) descendLocked(d *node) []meta.Ino {
	x := &c.descent
	parent := c.nodes[d.at.dir]
	if parent == nil || !parent.names.listed {
		x.run, x.window = 0, 0
		return nil
	}
	if x.run++; x.run <= descentMin {
		return nil
	}
	if x.ahead > aheadMax {
		x.ahead--
		x.window = 0
		return nil
	}
	x.window = min(max(2*x.window, alsoMin), meta.ScanAlso)
	var also []meta.Ino
	order := parent.names.order
	i, _ := slices.BinarySearchFunc(order, d.at.cookie+1, byCookie)
	for ; i < len(order) && len(also) < x.window; i++ {
		e := parent.names.names[order[i].name]
		if e.cookie != order[i].cookie || e.ino == 0 || e.typ != meta.Directory {
			continue
		}
		if n := c.nodes[e.ino]; n == nil || !n.names.listed {
			also = append(also, e.ino)
		}
	}
	return also
}

// Ahead is how many directories were fetched that nobody has listed.
func (c *Cache) Ahead() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.descent.ahead
}

// PutAlso takes in a page of a directory that came with another one's.
func (c *Cache) PutAlso(t Token, w *meta.Scan, s *meta.Scanned) {
	c.mu.Lock()
	d := c.nodes[s.Dir.Ino]
	if d != nil && w.Bytes > 0 && !d.reads.busy && d.reads.poor == 0 {
		d.reads = walk{window: readsMax / 4, busy: true}
		c.trustLocked(s.Dir.Ino)
	}
	c.mu.Unlock()
	c.PutScan(t, &meta.Scan{Attrs: w.Attrs}, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if d = c.nodes[s.Dir.Ino]; d != nil {
		d.looks.busy, d.reads.busy = false, false
		if !d.foreseen {
			d.foreseen = true
			c.descent.ahead++
		}
	}
}

// sizeLocked says how much data a window brings: where the listing is known, just what is not known
// yet, up to what is.
func (c *Cache) sizeLocked(d *node, s *meta.Scan) {
	s.Bytes = readsBytes
	if !d.names.listed || s.ByName {
		return
	}
	sum, count, known := 0, 0, 0
	i, _ := slices.BinarySearchFunc(d.names.order, s.Cookie+1, byCookie)
	for ; i < len(d.names.order) && count < s.Max; i++ {
		p := d.names.order[i]
		e := d.names.names[p.name]
		if e.cookie != p.cookie || e.ino == 0 {
			continue
		}
		if n := c.nodes[e.ino]; n != nil && n.exact && n.attr.Small && n.attr.Size > 0 {
			if known++; !n.hasData {
				known = 0
			}
			if known > knownMax || sum+int(n.attr.Size) > readsBytes {
				break
			}
			sum += int(n.attr.Size)
		}
		count++
	}
	s.Max, s.Bytes = max(count, 1), min(max(sum, 1), readsBytes)
}

// Looked is called when a program has looked a name up that had to be asked for, and is there. It
// tells what to ask for besides, if that makes sense: a page of the directory behind the name.
// FetchedAhead must follow.
func (c *Cache) Looked(dir meta.Ino, name string, cookie uint64) (s meta.Scan, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.nodes[dir]
	if d == nil || cookie == 0 || cookie == math.MaxUint64 || c.bytesMax < 4*readsBytes {
		return s, false
	}
	w := &d.looks
	if w.step(cookie, name); w.busy {
		return s, false
	}
	w.judge()
	s, ok = w.next(spot{dir, cookie + 1, meta.NextName(name)}, w.window > 0, false, looksMax)
	if ok && d.reads.good {
		s.Bytes = readsBytes
	}
	return s, ok
}

// FetchedAhead ends what Missed or Looked has begun.
func (c *Cache) FetchedAhead(dir meta.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.nodes[dir]; d != nil {
		d.looks.busy, d.reads.busy = false, false
	}
}
