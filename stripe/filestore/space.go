package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"golang.org/x/sys/unix"
)

// info asks the file system. The caller holds o.mu and the object is present.
func (o *object) info() (stripe.Info, error) { return infoOf(o.fd, o.path, o.hdr) }

func infoOf(fd int, path string, hdr header) (stripe.Info, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return stripe.Info{}, errs.New(errs.IO, "filestore.Stat", path, err)
	}
	return stripe.Info{
		ID:        hdr.id,
		Size:      max(st.Size-headerBytes, 0),
		Allocated: max(st.Blocks*512-headerBytes, 0),
		TruncSeq:  hdr.truncSeq,
	}, nil
}

// Stat implements stripe.Stater.
func (s *Store) Stat(ctx context.Context, id stripe.ObjectID) (stripe.Info, error) {
	const op = "filestore.Stat"
	if err := stripe.CheckID(ctx, op, id); err != nil {
		return stripe.Info{}, err
	}
	o, err := s.enter(op, id, toRead)
	if err != nil {
		return stripe.Info{}, err
	}
	defer s.leave(o)
	if o.state == absent {
		return stripe.Info{ID: id}, nil
	}
	return o.info()
}

// Map implements stripe.Mapper.
func (s *Store) Map(ctx context.Context, id stripe.ObjectID, off, length int64,
	max int) ([]stripe.Extent, error) {
	const op = "filestore.Map"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return nil, err
	}
	o, err := s.enter(op, id, toRead)
	if err != nil {
		return nil, err
	}
	defer s.leave(o)
	x := stripe.NewExtents(off, length, max)
	if o.state == present {
		if err := o.seekData(x, off, off+length); err != nil {
			return nil, errs.New(errs.IO, op, o.path, err)
		}
	}
	return x.Finish(), nil
}

// seekData names the runs of data in [at, end). The file's position, which the calls move, means
// nothing to anybody.
func (o *object) seekData(x *stripe.Extents, at, end int64) error {
	for at < end {
		data, err := unix.Seek(o.fd, headerBytes+at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole up to the end of the file, and no file behind it
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(o.fd, data, unix.SEEK_HOLE)
		if errors.Is(err, unix.ENXIO) {
			return nil // cut short between the two calls
		}
		if err != nil {
			return err
		}
		if !x.Data(data-headerBytes, hole-data) {
			return nil
		}
		at = hole - headerBytes
	}
	return nil
}

// List implements stripe.Lister. An object whose header is corrupt does not hide the others: the
// walk goes on, and its error comes at the end. fn is called without locks.
func (s *Store) List(ctx context.Context, fn func(stripe.Info) bool) error {
	const op = "filestore.List"
	var bad error
	for dir := range uint16(64 * 64) {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(op, s.opt.Dir, err)
		}
		infos, err := s.listDir(s.dirPath(dir))
		if errors.Is(err, errs.Closed) {
			return err
		}
		if bad == nil {
			bad = errs.Wrap(op, s.dirPath(dir), err)
		}
		for _, info := range infos {
			if !fn(info) {
				return nil
			}
		}
	}
	return bad
}

// listDir tells about the objects of one directory. Those that can be told come with the
// error that the first of the others has.
func (s *Store) listDir(dir string) (infos []stripe.Info, bad error) {
	if err := s.begin("filestore.List"); err != nil {
		return nil, err
	}
	defer s.end()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range list {
		info, ok, err := s.infoByName(dir, e.Name())
		if ok {
			infos = append(infos, info)
		}
		if bad == nil && err != nil {
			bad = errs.Wrap("", e.Name(), err)
		}
	}
	return infos, bad
}

// infoByName tells about one file without crowding the table: a walk over millions must not push
// out what is in use.
func (s *Store) infoByName(dir, name string) (stripe.Info, bool, error) {
	id, ok := parseName(name)
	if !ok {
		return stripe.Info{}, false, nil
	}
	if o := s.table.peek(id); o != nil {
		return s.infoOfCached(o)
	}
	path := filepath.Join(dir, name)
	fd, err := openFile(path, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return stripe.Info{}, false, nil
	}
	if err != nil {
		return stripe.Info{}, false, err
	}
	defer unix.Close(fd)
	hdr, ok, err := readHeader(fd, id)
	if err != nil || !ok {
		return stripe.Info{}, false, err
	}
	if hdr.pending {
		return s.infoOfCached(s.acquire(id))
	}
	info, err := infoOf(fd, path, hdr)
	return info, err == nil, err
}

// infoOfCached loads the object if need be and gives its reference back.
func (s *Store) infoOfCached(o *object) (stripe.Info, bool, error) {
	defer s.table.release(o)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := s.prepareLocked("filestore.List", o, toRead); err != nil || o.state == absent {
		return stripe.Info{}, false, err
	}
	info, err := o.info()
	return info, err == nil, err
}
