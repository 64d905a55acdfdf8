package filestore

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
	"golang.org/x/sys/unix"
)

// ReadAt implements stripe.Store.
func (s *Store) ReadAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64) error {
	const op = "filestore.ReadAt"
	if err := stripe.CheckRange(ctx, op, id, off, stripe.BufBytes(bufs)); err != nil {
		return err
	}
	o, err := s.enter(op, id, toRead)
	if err != nil {
		return err
	}
	defer s.leave(o)
	if o.state == absent {
		for _, b := range bufs {
			clear(b)
		}
		return nil
	}
	if err := preadFull(o.fd, bufs, headerBytes+off); err != nil {
		return errs.New(errs.IO, op, o.path, err)
	}
	return nil
}

// WriteAt implements stripe.Store.
func (s *Store) WriteAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	st wire.Stamp, d stripe.Durability) error {
	const op = "filestore.WriteAt"
	if err := stripe.CheckRange(ctx, op, id, off, stripe.BufBytes(bufs)); err != nil {
		return err
	}
	o, err := s.enter(op, id, toCreate)
	if err != nil {
		return err
	}
	defer s.leave(o)
	if err := stripe.CheckStamp(op, id, o.hdr.truncSeq, st); err != nil {
		return err
	}
	err = s.step("pwritev", o.path)
	if err == nil {
		err = pwriteFull(o.fd, bufs, headerBytes+off)
	}
	o.dirty.Store(true) // after the write, and before it is acknowledged: see flush
	if err != nil {
		return s.changed("WriteAt", o.path, err)
	}
	if d != stripe.Volatile {
		return s.flush(ctx, o)
	}
	return nil
}

// Punch implements stripe.Puncher.
func (s *Store) Punch(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	d stripe.Durability) error {
	const op = "filestore.Punch"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return err
	}
	o, err := s.enter(op, id, toChange)
	if err != nil {
		return err
	}
	defer s.leave(o)
	if o.state == absent {
		return nil
	}
	if err := stripe.CheckStamp(op, id, o.hdr.truncSeq, st); err != nil {
		return err
	}
	info, err := o.info()
	if err != nil {
		return err
	}
	if length = min(length, info.Size-off); length > 0 {
		err = s.punch(o, off, length)
		o.dirty.Store(true)
	}
	if err != nil {
		return s.changed("Punch", o.path, err)
	}
	if d != stripe.Volatile {
		return s.flush(ctx, o)
	}
	return nil
}

// punch frees the range, or writes zeroes where the file system knows no holes.
func (s *Store) punch(o *object, off, length int64) error {
	if err := s.step("fallocate", o.path); err != nil {
		return err
	}
	err := again(func() error {
		return unix.Fallocate(o.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE,
			headerBytes+off, length)
	})
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	zeroes := make([]byte, min(length, 1<<20))
	for length > 0 {
		n := min(length, int64(len(zeroes)))
		if err := pwriteFull(o.fd, [][]byte{zeroes[:n]}, headerBytes+off); err != nil {
			return err
		}
		off += n
		length -= n
	}
	return nil
}
