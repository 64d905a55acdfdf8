package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// Scan implements meta.Scans. The directory's lease is asked for before its names are read, and
// those of its inodes before these are: as everywhere, an answer that is older than a change is
// followed by a recall.
func (s *Store) Scan(ctx context.Context, c meta.Caller, dir meta.Ino, w meta.Scan) (
	meta.Scanned, error) {

	err := checkCaller(&c)
	if err == nil && (w.Max <= 0 || w.Bytes < 0) {
		err = errs.Newf(errs.Invalid, "meta.page", "", "a page of %d entries with %d bytes",
			w.Max, w.Bytes)
	}
	if err == nil && w.ByName && len(w.Name) > meta.NameMax+1 {
		err = errs.NameTooLong
	}
	if err == nil && len(w.Also) > meta.ScanAlso {
		err = errs.Newf(errs.Invalid, "meta.page", "", "%d directories besides", len(w.Also))
	}
	if err == nil {
		err = s.visitNames(ctx, &c, dir)
	}
	var page meta.Scanned
	if err == nil {
		w.Max, w.Bytes = min(w.Max, meta.DirPageMax), min(w.Bytes, meta.ScanBytes)
		page, err = s.scanPage(ctx, &c, dir, w)
	}
	if err != nil {
		return meta.Scanned{}, errs.Wrap("meta.Scan", "", err)
	}
	s.scanAlso(&c, &w, &page)
	return page, nil
}

// scanPage reads a page that is not empty, or the end.
func (s *Store) scanPage(ctx context.Context, c *meta.Caller, dir meta.Ino, w meta.Scan) (
	meta.Scanned, error) {

	for {
		page, seek, err := s.scanNames(c, dir, &w)
		if err != nil || !w.Attrs || len(page.Entries) == 0 {
			return page, err
		}
		last := page.Entries[len(page.Entries)-1]
		if !seek {
			w.Bytes = 0
		}
		if err = s.scanInodes(c, &page, w.Bytes); err == nil && (len(page.Entries) > 0 || page.End) {
			return page, nil
		}
		// All of its inodes are gone, and with them the names. What follows is not.
		w.Cookie, w.Name = last.Cookie, meta.NextName(last.Name)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return meta.Scanned{}, err
		}
	}
}

// scanAlso adds the first pages of other directories, as far as there is room. Those that somebody
// else holds alone, or that the caller may not read, are left to who asks for them.
func (s *Store) scanAlso(c *meta.Caller, w *meta.Scan, page *meta.Scanned) {
	room, bytes := meta.ScanAlsoEntries, w.Bytes
	take := func(p *meta.Scanned) {
		room -= len(p.Entries)
		for i := range p.Entries {
			bytes -= len(p.Entries[i].Data)
		}
	}
	take(page)
	for _, dir := range w.Also {
		if room <= 0 || w.Bytes > 0 && bytes <= 0 || !s.sessions.isCalm.Load() {
			return
		}
		if s.leases.Written(c.Session, dir) {
			continue
		}
		p, seek, err := s.scanNames(c, dir, &meta.Scan{Max: min(room, meta.DirPageMax)})
		if err != nil || p.Dir.Lease == meta.LeaseNone {
			continue
		}
		if data := bytes; w.Attrs && len(p.Entries) > 0 {
			if !seek {
				data = 0
			}
			if err := s.scanInodes(c, &p, data); err != nil || len(p.Entries) == 0 && !p.End {
				continue
			}
		}
		take(&p)
		page.Also = append(page.Also, p)
	}
}

// scanNames reads the directory and its names. seek: the caller may search in it.
func (s *Store) scanNames(c *meta.Caller, dir meta.Ino, w *meta.Scan) (page meta.Scanned,
	seek bool, err error) {

	serial := s.borrow(c, dir)
	var d *inode
	err = s.look(func(t *txn) (err error) {
		if d, err = t.dir(dir, &c.Cred, mayRead); err != nil {
			return err
		}
		if page.Dir, err = t.attr(dir, d); err != nil {
			return err
		}
		// One more says whether this is the end.
		if w.ByName {
			page.Entries, err = t.pageByName(dir, w.Name, w.Max+1)
		} else {
			page.Entries, err = t.page(dir, w.Cookie, w.Max+1)
		}
		return err
	})
	if err != nil {
		if serial != 0 {
			s.leases.Release(c.Session, dir, serial)
		}
		return meta.Scanned{}, false, err
	}
	s.settle(c, &page.Dir, d, serial)
	page.End = len(page.Entries) <= w.Max
	page.Entries = page.Entries[:min(len(page.Entries), w.Max)]
	return page, allowed(&c.Cred, d, maySeek), nil
}

// pageByName is page in the order of names.
func (t *txn) pageByName(dir meta.Ino, name string, max int) (page []meta.Entry, err error) {
	prefix := entriesOf(dir)
	var bad error
	start, end := entryKey(dir, name), kv.PrefixEnd(prefix)
	err = t.snap.Scan(start, end, func(key, value []byte, _ kv.Version) bool {
		var e entry
		if bad = parse(key, value, &e); bad != nil {
			return false
		}
		page = append(page, meta.Entry{Name: string(key[len(prefix):]), Ino: e.Ino, Type: e.Type,
			Cookie: e.Cookie})
		return len(page) < max
	})
	if err == nil {
		err = bad
	}
	return page, err
}

// scanned is an inode of a page.
type scanned struct {
	serial uint64 // of its lease; 0: none
	n      *inode // nil: it is gone
	told   bool   // its attributes are
	over   bool   // there is no room for its data
	attr   meta.Attr
	data   []byte
}

// scanInodes adds attributes, leases, and up to so many bytes of data to a page. Names whose inodes
// are gone are left out.
func (s *Store) scanInodes(c *meta.Caller, page *meta.Scanned, bytes int) error {
	entries := page.Entries
	all := make([]scanned, len(entries))
	for i := range entries {
		all[i].serial = s.borrow(c, entries[i].Ino)
	}
	kept := 0 // entries whose leases are the caller's
	defer func() {
		for i := kept; i < len(all); i++ {
			s.giveBack(c, entries[i].Ino, &all[i])
		}
	}()
	err := s.look(func(t *txn) error { return s.readScanned(t, c, entries, all, bytes) })
	if err != nil {
		return err
	}
	left := make([]meta.Entry, 0, len(entries))
	for ; kept < len(all); kept++ {
		e, x := entries[kept], &all[kept]
		if !x.told {
			s.giveBack(c, e.Ino, x)
		}
		if x.n == nil {
			continue
		}
		if x.over && len(left) > 0 { // a page has something
			break
		}
		if x.told {
			e.Attr = &x.attr
		}
		e.Data = x.data
		left = append(left, e)
	}
	page.End = page.End && kept == len(all)
	page.Entries = left
	return nil
}

// giveBack releases a lease of which the caller is not told.
func (s *Store) giveBack(c *meta.Caller, ino meta.Ino, x *scanned) {
	if x.serial != 0 {
		s.leases.Release(c.Session, ino, x.serial)
	}
}

// readScanned reads the inodes of a page, and then the data of small files, as far as there is room
// for. Attributes that others could contradict, or that have to be measured, are not told.
func (s *Store) readScanned(t *txn, c *meta.Caller, entries []meta.Entry, all []scanned,
	room int) error {

	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	byNumber := func(i, j int) int { return cmp.Compare(entries[i].Ino, entries[j].Ino) }
	slices.SortFunc(order, byNumber)
	err := t.each(kindInode, entries, order, func(i int, key, value []byte) error {
		n := &inode{}
		all[i].n = n
		err := parse(key, value, n)
		n.was = n.charge()
		return err
	})
	if err != nil {
		return err
	}
	small, wanted := order[:0], room > 0
	for i := range all {
		x, ino := &all[i], entries[i].Ino
		if x.n == nil || !x.n.settled() || x.serial == 0 && s.leases.Written(c.Session, ino) {
			continue
		}
		if x.attr, err = t.attr(ino, x.n); err != nil {
			return err
		}
		x.told = true
		s.settle(c, &x.attr, x.n, x.serial)
		if x.attr.Holes {
			s.spaces.recall(&x.attr, s.steady())
		}
		if !wanted || !x.attr.Small || x.attr.Lease == meta.LeaseNone ||
			!allowed(&c.Cred, x.n, mayRead) {
			continue
		}
		if x.over = x.attr.Size > int64(room); !x.over {
			x.data = make([]byte, 0, x.attr.Size)
			room -= int(x.attr.Size)
			small = append(small, i)
		}
	}
	slices.SortFunc(small, byNumber)
	return t.each(kindSmall, entries, small, func(i int, key, value []byte) error {
		d, err := smallData(key, value)
		all[i].data = append(all[i].data, d.Bytes...)
		return err
	})
}

// A run is as many records as are cheaper to be read one behind the other, with those in between,
// than each by itself.
const runGap = 16

// each reads one record of a kind of each of the entries in order, which is that of their inode
// numbers. Most of those of one directory lie beside each other. What is not there is left out. key
// and value are valid during the call only.
func (t *txn) each(kind byte, entries []meta.Entry, order []int,
	fn func(i int, key, value []byte) error) error {

	for len(order) > 0 {
		first := entries[order[0]].Ino
		last, n := first, 1
		for n < len(order) && entries[order[n]].Ino-last <= runGap {
			last = entries[order[n]].Ino
			n++
		}
		run := order[:n]
		order = order[n:]
		var bad error
		end := key1(kind, uint64(last))
		err := t.snap.Scan(key1(kind, uint64(first)), append(end, 0),
			func(key, value []byte, _ kv.Version) bool {
				ino := meta.Ino(number(key, 0))
				for len(run) > 0 && entries[run[0]].Ino < ino {
					run = run[1:]
				}
				for len(run) > 0 && entries[run[0]].Ino == ino && bad == nil { // two names of one file
					bad = fn(run[0], key, value)
					run = run[1:]
				}
				return bad == nil && len(run) > 0
			})
		if err == nil {
			err = bad
		}
		if err != nil {
			return err
		}
	}
	return nil
}
