package cache

import (
	"cmp"
	"slices"

	"github.com/sluice-storage/sluice/meta"
)

// list reads a directory of the model, or the rest of it, by pages of two entries.
func (s *sim) list(u *user, dir meta.Ino, cookie uint64) {
	t := u.c.Begin()
	s.in(60, func() {
		page := meta.Scanned{Dir: s.attr(u, dir), Entries: s.page(dir, cookie, 2)}
		page.End = len(s.page(dir, cookie, 3)) < 3
		for i := range page.Entries {
			e := &page.Entries[i]
			if a := s.attr(u, e.Ino); s.rng.IntN(8) > 0 {
				e.Attr = &a
			}
			if e.Attr != nil && e.Attr.Lease != meta.LeaseNone && s.rng.IntN(2) > 0 {
				e.Data = s.inodes[e.Ino].data
			}
		}
		s.in(60, func() {
			u.c.PutScan(t, &meta.Scan{Cookie: cookie}, &page)
			if !page.End {
				s.list(u, dir, page.Entries[len(page.Entries)-1].Cookie)
			}
		})
	})
}

func (s *sim) page(dir meta.Ino, cookie uint64, most int) (page []meta.Entry) {
	for name, ino := range s.inodes[dir].names {
		if uint64(ino) > cookie {
			page = append(page, meta.Entry{Name: name, Ino: ino, Type: s.inodes[ino].attr.Type,
				Cookie: uint64(ino)})
		}
	}
	slices.SortFunc(page, func(a, b meta.Entry) int { return cmp.Compare(a.Cookie, b.Cookie) })
	return page[:min(len(page), most)]
}
