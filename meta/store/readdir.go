package store

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
	"github.com/sluice-storage/sluice/wire"
)

// measuresMax is how many files of one page are measured at once.
const measuresMax = 16

// ReadDir implements meta.Dirs. It reads 'C' behind the cookie: a cookie belongs to one entry
// for ever, so that nothing is returned twice and nothing that stays is left out, whatever comes
// and goes.
func (s *Store) ReadDir(ctx context.Context, c meta.Caller, dir meta.Ino, cookie uint64, max int,
	withAttr bool) ([]meta.Entry, error) {

	var page []meta.Entry
	err := checkCaller(&c)
	if err == nil && max <= 0 {
		err = errs.Newf(errs.Invalid, "meta.page", "", "a page of %d entries", max)
	}
	if err == nil {
		err = s.visitNames(ctx, &c, dir)
	}
	for more := true; err == nil && more; {
		err = s.look(func(t *txn) error {
			if _, err := t.dir(dir, &c.Cred, mayRead); err != nil {
				return err
			}
			page, err = t.page(dir, cookie, min(max, meta.DirPageMax))
			return err
		})
		if more = err == nil && withAttr && len(page) > 0; !more {
			break
		}
		// Names that are gone by the time that their inodes are looked at are left out. A page of
		// which nothing is left is not the end.
		cookie = page[len(page)-1].Cookie
		page, err = s.pageAttrs(ctx, &c, page)
		more = len(page) == 0
	}
	if err != nil {
		return nil, errs.Wrap("meta.ReadDir", "", err)
	}
	if withAttr {
		s.measurePage(ctx, page)
	}
	return page, nil
}

func (t *txn) page(dir meta.Ino, cookie uint64, max int) ([]meta.Entry, error) {
	if cookie == ^uint64(0) {
		return nil, nil
	}
	var page []meta.Entry
	var bad error
	end := kv.PrefixEnd(key1(kindCookie, uint64(dir)))
	err := t.snap.Scan(cookieKey(dir, cookie+1), end, func(key, value []byte, _ kv.Version) bool {
		var e namedEntry
		if bad = parse(key, value, &e); bad != nil {
			return false
		}
		page = append(page, meta.Entry{Name: e.name, Ino: e.Ino, Type: e.Type, Cookie: number(key, 1)})
		return len(page) < max
	})
	if err == nil {
		err = bad
	}
	return page, err
}

// namedEntry reads the records of 'C'.
type namedEntry struct {
	entry
	name string
}

func (n *namedEntry) decode(d *wire.Dec) {
	n.Type = meta.Type(d.U8())
	n.Ino = meta.Ino(d.U64())
	n.name = string(d.Raw(len(d.Rest())))
}

// pageAttrs adds attributes, with leases, and returns the entries that are still there. Files that
// others write are asked for together.
func (s *Store) pageAttrs(ctx context.Context, c *meta.Caller, page []meta.Entry) (
	[]meta.Entry, error) {

	inos := make([]meta.Ino, len(page))
	for i := range page {
		inos[i] = page[i].Ino
	}
	if err := s.awaitWriters(ctx, inos...); err != nil {
		return nil, err
	}
	now := s.steady()
	var waits []*lease.Wait
	for i := range page {
		if w := s.leases.Look(c.Session, page[i].Ino, meta.LeaseWrite, false, now); w != nil {
			waits = append(waits, w)
		}
	}
	for _, w := range waits {
		if err := s.await(ctx, w); err != nil {
			return nil, err
		}
	}
	serials := make([]uint64, len(page))
	for i := range page {
		serials[i] = s.borrow(c, page[i].Ino)
	}
	attrs := make([]meta.Attr, len(page))
	left := page[:0]
	err := s.look(func(t *txn) error {
		for i, e := range page {
			a, n, err := t.signed(e.Ino)
			if err != nil {
				if serials[i] != 0 {
					s.leases.Release(c.Session, e.Ino, serials[i])
				}
				if errs.KindOf(err) != errs.NotFound {
					return err
				}
				continue
			}
			attrs[i] = a
			s.settle(c, &attrs[i], n, serials[i])
			e.Attr = &attrs[i]
			left = append(left, e)
		}
		return nil
	})
	return left, err
}

// measurePage asks for the sizes of files that are open for writing, several at a time, and recalls
// what is known of those with holes.
func (s *Store) measurePage(ctx context.Context, page []meta.Entry) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, measuresMax)
	ctx = wait.Alone(ctx)
	for i := range page {
		if a := page[i].Attr; (a.Writers || a.Holes) && !a.Small {
			slots <- struct{}{}
			wg.Go(func() {
				s.measure(ctx, a)
				<-slots
			})
		}
	}
	wg.Wait()
}

// ReadLink implements meta.Dirs.
func (s *Store) ReadLink(_ context.Context, c meta.Caller, ino meta.Ino) (string, error) {
	var target string
	err := s.look(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if n.Type != meta.Symlink {
			return errs.Invalid
		}
		target = n.Target
		return nil
	})
	return target, errs.Wrap("meta.ReadLink", "", err)
}
