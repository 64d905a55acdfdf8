package store

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// GetAttr implements meta.Attrs. The size of a file that is open for writing is the larger of
// the stored one and what its stripe objects imply. When an I/O server does not tell, the answer
// depends on who writes: if only the caller's own session does, it knows better than anybody
// what it wrote and gets the stored size, so that it can go on; if others do, an exact answer is
// impossible and the error says so (errs.Again if the time was up).
func (s *Store) GetAttr(ctx context.Context, c meta.Caller, ino meta.Ino) (meta.Attr, error) {
	a, n, err := s.lookAt(ctx, &c, ino)
	if err != nil {
		return meta.Attr{}, errs.Wrap("meta.GetAttr", "", err)
	}
	if n.settled() || a.Small { // what is at I/O servers of a small file does not count
		s.allocated(ctx, &a)
		return a, nil
	}
	exact, err := s.exactAttr(ctx, ino)
	if err == nil {
		exact.Lease, exact.Serial = a.Lease, a.Serial
		s.allocated(ctx, &exact)
		return exact, nil
	}
	own, others, _ := s.sessions.writer(ino, c.Session)
	if others || !own || errs.KindOf(err) == errs.NotFound {
		return meta.Attr{}, errs.Wrap("meta.GetAttr", "", err)
	}
	return a, nil
}

// seen is what lookInto reads.
type seen struct {
	a    meta.Attr
	n    *inode
	data meta.SmallData
}

// lookAt reads the attributes of an inode with a lease on them.
func (s *Store) lookAt(ctx context.Context, c *meta.Caller, ino meta.Ino) (
	a meta.Attr, n *inode, err error) {

	got, err := s.lookWith(ctx, c, ino, false)
	return got.a, got.n, err
}

// lookInto is lookAt with the data of a small file.
func (s *Store) lookInto(ctx context.Context, c *meta.Caller, ino meta.Ino) (seen, error) {
	return s.lookWith(ctx, c, ino, true)
}

func (s *Store) lookWith(ctx context.Context, c *meta.Caller, ino meta.Ino, data bool) (
	got seen, err error) {

	if err := s.visit(ctx, c, ino); err != nil {
		return seen{}, err
	}
	serial := s.borrow(c, ino)
	read := func(t *txn) (err error) {
		if got.a, got.n, err = t.signed(ino); err == nil && data && got.n.has(flagSmall) {
			got.data, err = t.small(ino)
		}
		return err
	}
	if err = s.look(read); err != nil {
		if serial != 0 {
			s.leases.Release(c.Session, ino, serial)
		}
		return seen{}, err
	}
	s.settle(c, &got.a, got.n, serial)
	if got.a.Small && got.a.Writers && got.a.Lease == meta.LeaseNone {
		wait.Announce(ctx)
		s.repair(ctx, &got.a)
	}
	return got, nil
}

// tell is lookAt for answers in which a size that cannot be measured does not matter.
func (s *Store) tell(ctx context.Context, c *meta.Caller, ino meta.Ino) (meta.Attr, error) {
	a, _, err := s.lookAt(ctx, c, ino)
	if err == nil && !a.Small {
		s.measure(ctx, &a)
	}
	return a, err
}

// measure is measureAttr for attributes that come with a lease.
func (s *Store) measure(ctx context.Context, a *meta.Attr) {
	mode, serial := a.Lease, a.Serial
	s.measureAttr(ctx, a)
	a.Lease, a.Serial = mode, serial
}

// settled tells whether the stored size is the size.
func (n *inode) settled() bool {
	return !n.has(flagWriters|flagPending) || n.has(flagVolume)
}

// exactAttr is the attributes with the size that others see: what lies behind an append that is on
// its way is not counted, as there are zeroes before it.
func (s *Store) exactAttr(ctx context.Context, ino meta.Ino) (meta.Attr, error) {
	return s.measured(ctx, ino, func(size int64, seq uint64) int64 {
		return s.sessions.shown(ino, seq, size, s.steady())
	})
}

// endAttr is exactAttr with the end of all data.
func (s *Store) endAttr(ctx context.Context, ino meta.Ino) (meta.Attr, error) {
	return s.measured(ctx, ino, func(size int64, _ uint64) int64 { return size })
}

// measured measures until no truncation came in between, which would make the stored size and the
// measured one belong to different files, so to speak. Shown is how much of it counts.
func (s *Store) measured(ctx context.Context, ino meta.Ino, shown func(int64, uint64) int64) (
	meta.Attr, error) {

	wait.Announce(ctx)
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
		if n.has(flagSmall) {
			return true, nil // what I/O servers have of it does not count
		}
		a.Size = max(a.Size, shown(measured, seq))
		return n.TruncSeq == seq && !n.has(flagPending), nil
	}
	for measured, seq := int64(0), ^uint64(0); ; {
		done, err := again(measured, seq)
		if done && err == nil && a.Writers {
			s.repair(ctx, &a)
		}
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
