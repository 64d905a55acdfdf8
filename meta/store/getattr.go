package store

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// GetAttr implements meta.Attrs. The size of a file that is open for writing is the larger of
// the stored one and what its stripe objects imply. When an I/O server does not tell, the answer
// depends on who writes: if only the caller's own session does, it knows better than anybody
// what it wrote and gets the stored size, so that it can go on; if others do, an exact answer is
// impossible and the error says so (errs.Again if the time was up).
func (s *Store) GetAttr(ctx context.Context, c meta.Caller, ino meta.Ino) (meta.Attr, error) {
	var a meta.Attr
	var settled, foreign bool
	err := s.look(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if settled = n.settled(); !settled {
			if foreign, err = t.othersWrite(ino, c.Session); err != nil {
				return err
			}
		}
		a, err = t.attr(ino, n)
		return err
	})
	if err != nil {
		return meta.Attr{}, errs.Wrap("meta.GetAttr", "", err)
	}
	if settled {
		s.allocated(ctx, &a)
		return a, nil
	}
	exact, err := s.exactAttr(ctx, ino)
	switch {
	case err == nil:
		s.allocated(ctx, &exact)
		return exact, nil
	case foreign || errs.KindOf(err) == errs.NotFound:
		return meta.Attr{}, errs.Wrap("meta.GetAttr", "", err)
	}
	return a, nil
}

// settled tells whether the stored size is the size.
func (n *inode) settled() bool {
	return !n.has(flagWriters|flagPending) || n.has(flagVolume)
}

// othersWrite tells whether another session than the given one has the file open for writing.
func (t *txn) othersWrite(ino meta.Ino, session uint64) (bool, error) {
	all, own := writersOf(ino), writersBy(ino, session)
	found, err := t.firstIn(all, own)
	if err == nil && found == nil {
		found, err = t.firstIn(kv.PrefixEnd(own), kv.PrefixEnd(all))
	}
	return found != nil, err
}

// exactAttr measures until no truncation came in between, which would make the stored size and the
// measured one belong to different files, so to speak.
func (s *Store) exactAttr(ctx context.Context, ino meta.Ino) (meta.Attr, error) {
	bounded, cancel := context.WithTimeout(ctx, s.opt.MeasureMax)
	defer cancel()
	var a meta.Attr
	var n *inode
	again := func(measured int64, seq uint64) (done bool, err error) {
		err = s.look(func(t *txn) error {
			if n, err = t.inode(ino); err != nil {
				return err
			}
			a, err = t.attr(ino, n)
			return err
		})
		if err != nil || n.settled() {
			return true, err
		}
		a.Size = max(a.Size, measured)
		return n.TruncSeq == seq && !n.has(flagPending), nil
	}
	for measured, seq := int64(0), ^uint64(0); ; {
		done, err := again(measured, seq)
		if done || err != nil {
			return a, err
		}
		if n.has(flagPending) {
			err = s.settleTruncate(bounded, ino)
		} else {
			measured, err = s.opt.Objects.Measure(bounded, n.ref(ino))
			seq = n.TruncSeq
		}
		if err != nil {
			return a, sizeUnknown(ctx, err)
		}
	}
}

// sizeUnknown tells our own bound from the caller's.
func sizeUnknown(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return errs.Newf(errs.Again, "meta.measure", "",
			"the file is being written and an I/O server does not tell its size: %w", err)
	}
	return errs.Wrap("meta.measure", "", err)
}

// measureAttr brings a up to date if the file is open for writing; when I/O servers do not
// answer, a stays as it is stored. Nobody is asked what it takes: most callers do not want to know.
func (s *Store) measureAttr(ctx context.Context, a *meta.Attr) {
	if !a.Writers {
		if a.Holes {
			s.spaces.recall(a, s.steady())
		}
		return
	}
	if exact, err := s.exactAttr(ctx, a.Ino); err == nil {
		*a = exact
	} else {
		s.opt.Log.Debug("size not measured", "ino", a.Ino, "error", err)
	}
}
