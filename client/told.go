package client

import (
	"context"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// telling is the metadata service as this client asks it: whatever concerns inodes of which
// something is not told has that told first (deferral.go), so that the answer is as if each
// operation had been told when it was done.
type telling struct {
	meta.Service
	fs *FS
}

// Lookup tells what concerns it first.
func (s telling) Lookup(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	a meta.Attr, err error) {
	err = s.found(ctx, dir, func() (*meta.Attr, error) {
		a, err = s.Service.Lookup(ctx, c, dir, name)
		return &a, err
	})
	return a, err
}

// Find tells what concerns it first.
func (s telling) Find(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	f meta.Found, err error) {
	err = s.found(ctx, dir, func() (*meta.Attr, error) {
		f, err = s.Service.Find(ctx, c, dir, name)
		return &f.Attr, err
	})
	return f, err
}

// found asks what a name stands for. If that is a directory of which something was not told when
// the service was asked it is asked again.
func (s telling) found(ctx context.Context, dir meta.Ino, ask func() (*meta.Attr, error)) error {
	d := &s.fs.deferral
	for {
		if err := s.fs.tellNames(ctx, dir); err != nil {
			return err
		}
		told, all := d.state()
		a, err := ask()
		if err != nil || all || a.Type != meta.Directory {
			return err
		}
		if err := s.fs.tellNames(ctx, a.Ino); err != nil {
			return err
		}
		if now, _ := d.state(); now == told {
			return nil
		}
	}
}

// state tells up to which operation all are told, and whether there are others.
func (d *deferral) state() (told uint64, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told, d.busy == nil && len(d.list) == 0
}

// Make tells what concerns it first.
func (s telling) Make(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile) (
	r0 meta.Attr, err error) {
	if err = s.fs.tellNames(ctx, dir); err != nil {
		return r0, err
	}
	return s.Service.Make(ctx, c, dir, name, f)
}

// Link tells what concerns it first.
func (s telling) Link(ctx context.Context, c meta.Caller, ino meta.Ino, dir meta.Ino,
	name string) (
	r0 meta.Attr, err error) {
	if err = s.fs.tellNames(ctx, ino, dir); err != nil {
		return r0, err
	}
	return s.Service.Link(ctx, c, ino, dir, name)
}

// Remove tells what concerns it first.
func (s telling) Remove(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	isDir bool) (
	r0 meta.Time, err error) {
	if err = s.fs.tellNames(ctx, dir); err != nil {
		return r0, err
	}
	return s.Service.Remove(ctx, c, dir, name, isDir)
}

// Rename tells what concerns it first.
func (s telling) Rename(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	newDir meta.Ino, newName string, flags meta.RenameFlags) (
	r0 meta.Time, err error) {
	if err = s.fs.tellNames(ctx, dir, newDir); err != nil {
		return r0, err
	}
	return s.Service.Rename(ctx, c, dir, name, newDir, newName, flags)
}

// Scan tells what concerns it first.
func (s telling) Scan(ctx context.Context, c meta.Caller, dir meta.Ino, w meta.Scan) (
	r0 meta.Scanned, err error) {
	if err = s.fs.tellAll(ctx); err != nil { // for what it says of directories that it has
		return r0, err
	}
	return s.Service.Scan(ctx, c, dir, w)
}

// ReadDir tells what concerns it first.
func (s telling) ReadDir(ctx context.Context, c meta.Caller, dir meta.Ino, cookie uint64,
	max int, withAttr bool) (
	r0 []meta.Entry, err error) {
	if err = s.fs.tellAll(ctx); err != nil {
		return r0, err
	}
	return s.Service.ReadDir(ctx, c, dir, cookie, max, withAttr)
}

// ReadLink tells what concerns it first.
func (s telling) ReadLink(ctx context.Context, c meta.Caller, ino meta.Ino) (
	r0 string, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	return s.Service.ReadLink(ctx, c, ino)
}

// GetAttr tells what concerns it first.
func (s telling) GetAttr(ctx context.Context, c meta.Caller, ino meta.Ino) (
	r0 meta.Attr, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	return s.Service.GetAttr(ctx, c, ino)
}

// SetAttr tells what concerns it first.
func (s telling) SetAttr(ctx context.Context, c meta.Caller, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (
	r0 meta.Attr, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	return s.Service.SetAttr(ctx, c, ino, mask, a)
}

// GetXattr tells what concerns it first.
func (s telling) GetXattr(ctx context.Context, c meta.Caller, ino meta.Ino, name string) (
	r0 []byte, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	return s.Service.GetXattr(ctx, c, ino, name)
}

// ListXattr tells what concerns it first.
func (s telling) ListXattr(ctx context.Context, c meta.Caller, ino meta.Ino) (
	r0 []string, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	return s.Service.ListXattr(ctx, c, ino)
}

// SetXattr tells what concerns it first.
func (s telling) SetXattr(ctx context.Context, c meta.Caller, ino meta.Ino, name string,
	value []byte, create bool, replace bool) (
	err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return err
	}
	defer s.fs.deferral.release(ino)
	return s.Service.SetXattr(ctx, c, ino, name, value, create, replace)
}

// RemoveXattr tells what concerns it first.
func (s telling) RemoveXattr(ctx context.Context, c meta.Caller, ino meta.Ino, name string) (
	err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return err
	}
	defer s.fs.deferral.release(ino)
	return s.Service.RemoveXattr(ctx, c, ino, name)
}

// Create tells what concerns it first.
func (s telling) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (
	r0 meta.Handle, err error) {
	if err = s.fs.tellNames(ctx, dir); err != nil {
		return r0, err
	}
	return s.Service.Create(ctx, c, dir, name, f, flags)
}

// Open tells what concerns it first.
func (s telling) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	r0 meta.Handle, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	if flags&meta.OpenWrite != 0 {
		s.fs.cache.Writes(ino)
	}
	return s.Service.Open(ctx, c, ino, flags)
}

// Commit tells what concerns it first.
func (s telling) Commit(ctx context.Context, c meta.Caller, w meta.Change, sync bool) (
	r0 meta.Attr, err error) {
	if err = s.fs.tellNames(ctx, w.Ino); err != nil {
		return r0, err
	}
	return s.Service.Commit(ctx, c, w, sync)
}

// Renew tells what concerns it first.
func (s telling) Renew(ctx context.Context, c meta.Caller, handles []uint64) (
	r0 []meta.Handle, err error) {
	if err = s.fs.tellHandles(ctx, handles...); err != nil {
		return r0, err
	}
	return s.Service.Renew(ctx, c, handles)
}

// Close tells what concerns it first.
func (s telling) Close(ctx context.Context, c meta.Caller, w meta.Closing) (err error) {
	if err = s.fs.tellHandles(ctx, w.Handle); err != nil {
		return err
	}
	return s.Service.Close(ctx, c, w)
}

// ReadSmall tells what concerns it first.
func (s telling) ReadSmall(ctx context.Context, c meta.Caller, ino meta.Ino) (
	r0 meta.Attr, r1 meta.SmallData, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, r1, err
	}
	return s.Service.ReadSmall(ctx, c, ino)
}

// MoveOut tells what concerns it first.
func (s telling) MoveOut(ctx context.Context, c meta.Caller, w meta.Change, dataVersion uint64) (
	r0 meta.Attr, err error) {
	if err = s.fs.tellNames(ctx, w.Ino); err != nil {
		return r0, err
	}
	return s.Service.MoveOut(ctx, c, w, dataVersion)
}

// Append tells what concerns it first.
func (s telling) Append(ctx context.Context, c meta.Caller, handle uint64, n int64) (
	r0 int64, r1 meta.Attr, err error) {
	if err = s.fs.tellHandles(ctx, handle); err != nil {
		return r0, r1, err
	}
	return s.Service.Append(ctx, c, handle, n)
}

// Lock tells what concerns it first.
func (s telling) Lock(ctx context.Context, c meta.Caller, l meta.Lock, mode meta.LockMode) (
	r0 meta.LockState, err error) {
	if err = s.fs.tellNames(ctx, l.Ino); err != nil {
		return r0, err
	}
	return s.Service.Lock(ctx, c, l, mode)
}

// TestLock tells what concerns it first.
func (s telling) TestLock(ctx context.Context, c meta.Caller, l meta.Lock) (
	r0 meta.Lock, r1 bool, err error) {
	if err = s.fs.tellNames(ctx, l.Ino); err != nil {
		return r0, r1, err
	}
	return s.Service.TestLock(ctx, c, l)
}

// Sync tells what concerns it first.
func (s telling) Sync(ctx context.Context) (err error) {
	if err = s.fs.tellAll(ctx); err != nil {
		return err
	}
	return s.Service.Sync(ctx)
}

// SetQuota tells what concerns it first.
func (s telling) SetQuota(ctx context.Context, c meta.Caller, dir meta.Ino, limit meta.Usage) (
	r0 meta.Quota, err error) {
	if err = s.fs.tellAll(ctx); err != nil {
		return r0, err
	}
	defer s.fs.deferral.release(0)
	return s.Service.SetQuota(ctx, c, dir, limit)
}

// GetQuota tells what concerns it first.
func (s telling) GetQuota(ctx context.Context, c meta.Caller, ino meta.Ino) (
	r0 meta.Quota, err error) {
	if err = s.fs.tellAll(ctx); err != nil {
		return r0, err
	}
	return s.Service.GetQuota(ctx, c, ino)
}

// Grow tells what concerns it first.
func (s telling) Grow(ctx context.Context, c meta.Caller, ino meta.Ino, end int64) (
	r0 int64, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	return s.Service.Grow(ctx, c, ino, end)
}

// GetLayout tells what concerns it first.
func (s telling) GetLayout(ctx context.Context, c meta.Caller, ino meta.Ino) (
	r0 meta.Placed, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	return s.Service.GetLayout(ctx, c, ino)
}

// SetLayout tells what concerns it first.
func (s telling) SetLayout(ctx context.Context, c meta.Caller, ino meta.Ino, p layout.Policy) (
	err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return err
	}
	defer s.fs.deferral.release(ino)
	return s.Service.SetLayout(ctx, c, ino, p)
}

// RemoveTree tells what concerns it first.
func (s telling) RemoveTree(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	err error) {
	if err = s.fs.tellAll(ctx); err != nil {
		return err
	}
	defer s.fs.deferral.release(0)
	return s.Service.RemoveTree(ctx, c, dir, name)
}

// StatFS tells what concerns it first.
func (s telling) StatFS(ctx context.Context, ino meta.Ino) (r0 meta.FSStat, err error) {
	if err = s.fs.tellNames(ctx, ino); err != nil {
		return r0, err
	}
	return s.Service.StatFS(ctx, ino)
}

// Dump tells what concerns it first.
func (s telling) Dump(ctx context.Context, c meta.Caller, view uint64, after []byte) (
	r0 meta.DumpPage, err error) {
	if err = s.fs.tellAll(ctx); err != nil {
		return r0, err
	}
	return s.Service.Dump(ctx, c, view, after)
}

// Check tells what concerns it first.
func (s telling) Check(ctx context.Context, c meta.Caller, w meta.CheckStep) (
	r0 meta.CheckPage, err error) {
	if err = s.fs.tellAll(ctx); err != nil {
		return r0, err
	}
	return s.Service.Check(ctx, c, w)
}

// CloseMany tells what concerns it first.
func (s telling) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	if s.fs.deferral.count.Load() > 0 {
		handles := make([]uint64, len(list))
		for i := range list {
			handles[i] = list[i].Handle
		}
		if err := s.fs.tellHandles(ctx, handles...); err != nil {
			return nil, err
		}
	}
	return s.Service.CloseMany(ctx, c, list)
}

// Accessed tells what concerns it first.
func (s telling) Accessed(ctx context.Context, c meta.Caller, list []meta.Access) error {
	if s.fs.deferral.count.Load() > 0 {
		inos := make([]meta.Ino, len(list))
		for i := range list {
			inos[i] = list[i].Ino
		}
		if err := s.fs.tellNames(ctx, inos...); err != nil {
			return err
		}
	}
	return s.Service.Accessed(ctx, c, list)
}
