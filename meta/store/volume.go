package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// CreateVolume implements meta.Volumes. The volume belongs to the caller; without a mode only the
// owner may open it.
func (s *Store) CreateVolume(ctx context.Context, c meta.Caller, name string, size int64,
	f meta.NewFile) (meta.Volume, error) {

	f.Type = meta.Regular
	if f.Mode == 0 {
		f.Mode = 0o600
	}
	var out meta.Volume
	var ino meta.Ino
	err := checkVolume(&c, name, size, &f)
	if err == nil {
		var made uint64
		var replayed bool
		made, replayed, err = s.answer(ctx, &c, func(t *txn) error {
			t.kv.Sync = true
			out, err = s.newVolume(ctx, t, &c, name, size, &f, &ino)
			t.kv.Answer = uint64(ino)
			return err
		})
		if replayed && err == nil {
			if err = s.kv.Sync(ctx); err == nil {
				out, err = s.volumeBefore(name, meta.Ino(made), size, &f)
			}
		}
	}
	if err != nil {
		return meta.Volume{}, errs.Wrap("meta.CreateVolume", name, err)
	}
	return out, nil
}

// volumeBefore is the answer of a CreateVolume that was done earlier. A volume that somebody has
// removed since, and perhaps made another one of that name, is shown as it was made.
func (s *Store) volumeBefore(name string, ino meta.Ino, size int64, f *meta.NewFile) (
	v meta.Volume, err error) {

	err = s.look(func(t *txn) error {
		v, _, err = t.volume(name)
		if err == nil && v.Ino == ino || err != nil && errs.KindOf(err) != errs.NotFound {
			return err
		}
		n, err := s.newInode(t, nil, f)
		if err == nil {
			v = meta.Volume{Name: name, Ino: ino, Size: size, Created: t.now.UnixNano(), Layout: n.Layout}
		}
		return err
	})
	return v, err
}

func checkVolume(c *meta.Caller, name string, size int64, f *meta.NewFile) error {
	switch {
	case isDots(name) || size <= 0:
		return errs.Invalid
	case size > layout.FileSizeMax:
		return errs.TooBig
	}
	return checkMake(c, name, f)
}

func (s *Store) newVolume(ctx context.Context, t *txn, c *meta.Caller, name string, size int64,
	f *meta.NewFile, ino *meta.Ino) (meta.Volume, error) {

	key := volumeKey(name)
	old, err := t.read(key)
	if err != nil {
		return meta.Volume{}, err
	}
	if old != nil {
		return meta.Volume{}, errs.Exists
	}
	if err := s.number(ctx, ino); err != nil {
		return meta.Volume{}, err
	}
	n, err := s.newSized(t, nil, f, size)
	if err != nil {
		return meta.Volume{}, err
	}
	n.UID, n.GID = c.Cred.UID, c.Cred.GID
	n.Flags |= flagVolume
	t.putInode(*ino, n)
	t.put(key, (&volume{Ino: *ino, Created: t.now.UnixNano()}).encode())
	t.add([]byte(keyFiles), 1)
	return meta.Volume{Name: name, Ino: *ino, Size: size, Created: t.now.UnixNano(),
		Layout: n.Layout}, nil
}

// volume reads a volume and its inode.
func (t *txn) volume(name string) (meta.Volume, *inode, error) {
	key := volumeKey(name)
	value, err := t.read(key)
	if err != nil {
		return meta.Volume{}, nil, err
	}
	if value == nil {
		return meta.Volume{}, nil, errs.NotFound
	}
	return t.parseVolume(key, value)
}

func (t *txn) parseVolume(key, value []byte) (meta.Volume, *inode, error) {
	var v volume
	if err := parse(key, value, &v); err != nil {
		return meta.Volume{}, nil, err
	}
	n, err := t.inode(v.Ino)
	if err != nil {
		return meta.Volume{}, nil, lost(err, v.Ino)
	}
	return meta.Volume{
		Name: string(key[1:]), Ino: v.Ino, Size: n.Size, Created: v.Created, Layout: n.Layout,
		Epoch: n.Epoch, First: n.first(), Shared: n.has(flagShared),
	}, n, nil
}

func (s *Store) findVolume(name string) (v meta.Volume, err error) {
	err = s.look(func(t *txn) error {
		v, _, err = t.volume(name)
		return err
	})
	return v, err
}

// ListVolumes implements meta.Volumes.
func (s *Store) ListVolumes(_ context.Context, _ meta.Caller, from string, max int) (
	[]meta.Volume, error) {

	if max <= 0 {
		return nil, errs.Newf(errs.Invalid, "meta.ListVolumes", "", "a page of %d volumes", max)
	}
	max = min(max, meta.VolumePageMax)
	var page []meta.Volume
	err := s.look(func(t *txn) error {
		var bad error
		end := kv.PrefixEnd([]byte{kindVolume})
		err := t.snap.Scan(volumeKey(from), end, func(key, value []byte, _ kv.Version) bool {
			var v meta.Volume
			var n *inode
			if v, n, bad = t.parseVolume(key, value); bad == nil {
				s.describe(&v, n)
			}
			if bad == nil {
				page = append(page, v)
			}
			return bad == nil && len(page) < max
		})
		if err == nil {
			err = bad
		}
		return err
	})
	return page, errs.Wrap("meta.ListVolumes", "", err)
}

// soleWriter refuses a second client that would write to a volume. A session that has ended does
// not count, though it may send something until its capabilities have run out: the I/O servers
// refuse that. After a restart nobody can tell until the clients have said what they have open.
func (t *txn) soleWriter(session uint64, ino meta.Ino) error {
	if other, found := t.open.writerOf(ino, session); found {
		return errs.Newf(errs.Busy, "meta.volume", "", "it is open for writing by %s", other)
	}
	if t.open.strangers(session) {
		return errs.Newf(errs.Again, "meta.volume", "",
			"the service has just started, and a client may have it open")
	}
	return nil
}

// RemoveVolume implements meta.Volumes. A volume that is open is not removed (errs.Busy).
func (s *Store) RemoveVolume(ctx context.Context, c meta.Caller, name string) error {
	var ino meta.Ino
	replayed, err := s.update(ctx, &c, func(t *txn) error {
		t.kv.MakesRoom = true
		t.kv.Sync = true
		v, n, err := t.volume(name)
		if err != nil {
			return err
		}
		if !isOwner(&c.Cred, n) {
			return errs.Perm
		}
		if t.dropping(v.Ino) {
			return t.refuseOpen(v.Ino)
		}
		t.remove(volumeKey(name))
		t.destroy(v.Ino, n)
		ino = v.Ino
		return nil
	})
	s.watched.wake(ino)
	if err == nil && replayed {
		err = s.kv.Sync(ctx)
	}
	return errs.Wrap("meta.RemoveVolume", name, err)
}

// refuseOpen says why a volume is not removed.
func (t *txn) refuseOpen(ino meta.Ino) error {
	if t.open.isOpen(ino) {
		return errs.Busy
	}
	return errs.Newf(errs.Again, "meta.volume", "", "somebody opens it, or may have it open")
}

// OpenVolume implements meta.Volumes.
func (s *Store) OpenVolume(ctx context.Context, c meta.Caller, name string, flags meta.OpenFlags,
	epoch uint32) (meta.Volume, meta.Handle, error) {

	o, err := newOpening(&c, flags)
	shared := flags&meta.OpenShared != 0 && flags&meta.OpenWrite == 0
	if err == nil && (flags&(meta.OpenTruncate|meta.OpenExclusive) != 0 || shared) {
		err = errs.Invalid
	}
	var v meta.Volume
	if err == nil {
		v, err = s.findVolume(name)
	}
	var h meta.Handle
	if err == nil {
		o.named, o.epoch = true, epoch
		h, err = s.open(ctx, o, func() error { return s.openInode(ctx, o, v.Ino) })
	}
	if err != nil {
		return meta.Volume{}, meta.Handle{}, errs.Wrap("meta.OpenVolume", name, err)
	}
	v.Epoch, v.First, v.Shared = o.n.Epoch, o.n.first(), o.n.has(flagShared)
	return v, h, nil
}
