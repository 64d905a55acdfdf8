package store

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// errTruncated: the file was truncated since it was measured.
var errTruncated = errors.New("the file was truncated in between")

// Append implements meta.Appends.
//
// The end of a file that is open for writing is known to the I/O servers only, so it is measured
// first. Of two that measured the same end one reserves first, and the other one goes behind it.
// Reservations are not stored: a client whose service has restarted reserves again.
func (s *Store) Append(ctx context.Context, c meta.Caller, id uint64, n int64) (
	int64, meta.Attr, error) {

	fail := func(err error) (int64, meta.Attr, error) {
		return 0, meta.Attr{}, errs.Wrap("meta.Append", "", err)
	}
	if n < 0 {
		return fail(errs.Newf(errs.Invalid, "meta.size", "", "%d bytes", n))
	}
	h, err := s.handleOf(c.Session, id)
	if err == nil && !h.writes() {
		err = errs.Closed
	}
	if err != nil {
		return fail(err)
	}
	var own appended
	if n == 0 {
		s.sessions.giveBack(h)
	} else if own, err = s.reserve(ctx, &c, h, n); err != nil {
		return fail(err)
	}
	var a meta.Attr
	err = s.look(func(t *txn) (err error) {
		a, err = t.attrOf(h.ino)
		return err
	})
	if err != nil {
		return fail(err)
	}
	if n > 0 && a.TruncSeq != own.TruncSeq {
		// Voided already. Whoever writes under this sequence is refused, and reserves again.
		a.TruncSeq = own.TruncSeq
	}
	return own.Off, a, nil
}

// reserve measures and reserves until no truncation came in between.
func (s *Store) reserve(ctx context.Context, c *meta.Caller, h *handle, n int64) (
	appended, error) {

	for attempt := 0; ; attempt++ {
		if err := s.visit(ctx, c, h.ino); err != nil {
			return appended{}, err
		}
		a, err := s.endAttr(ctx, h.ino)
		if err != nil {
			return appended{}, err
		}
		if !a.Writers {
			return appended{}, errs.Perm // a volume
		}
		own, err := s.sessions.reserveEnd(h, c.ReqID, a.TruncSeq, a.Size, n, layout.FileSizeMax,
			s.steady(), s.pendingUntil(c, h.ino))
		if err != errTruncated {
			return own, err
		}
		if err := pause(ctx, attempt); err != nil {
			return appended{}, err
		}
	}
}
