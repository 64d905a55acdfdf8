package remote

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Lookup implements meta.Names.
func (s *Service) Lookup(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	meta.Attr, error) {
	r, err := s.call(ctx, meta.OpLookup, meta.Args{Caller: c, Dir: dir, Name: name})
	return r.Attr, err
}

// Make implements meta.Names.
func (s *Service) Make(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile) (meta.Attr, error) {
	r, err := s.call(ctx, meta.OpMake, meta.Args{Caller: c, Dir: dir, Name: name, File: f})
	return r.Attr, err
}

// Link implements meta.Names.
func (s *Service) Link(ctx context.Context, c meta.Caller, ino, dir meta.Ino, name string) (
	meta.Attr, error) {
	r, err := s.call(ctx, meta.OpLink, meta.Args{Caller: c, Ino: ino, Dir: dir, Name: name})
	return r.Attr, err
}

// Remove implements meta.Names.
func (s *Service) Remove(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	isDir bool) (meta.Time, error) {
	r, err := s.call(ctx, meta.OpRemove, meta.Args{Caller: c, Dir: dir, Name: name, IsDir: isDir})
	return r.At, err
}

// Rename implements meta.Names.
func (s *Service) Rename(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	newDir meta.Ino, newName string, flags meta.RenameFlags) (meta.Time, error) {
	r, err := s.call(ctx, meta.OpRename, meta.Args{Caller: c, Dir: dir, Name: name,
		NewDir: newDir, NewName: newName, Rename: flags})
	return r.At, err
}

// ReadDir implements meta.Dirs. A page may be shorter than max because of its size in bytes.
func (s *Service) ReadDir(ctx context.Context, c meta.Caller, dir meta.Ino, cookie uint64,
	max int, withAttr bool) ([]meta.Entry, error) {
	if max <= 0 {
		return nil, errs.Newf(errs.Invalid, "meta.readdir", "", "a page of %d entries", max)
	}
	r, err := s.call(ctx, meta.OpReadDir, meta.Args{Caller: c, Dir: dir, Cookie: cookie,
		Max: uint32(min(max, meta.DirPageMax)), WithAttr: withAttr})
	return r.Entries, err
}

// ReadLink implements meta.Dirs.
func (s *Service) ReadLink(ctx context.Context, c meta.Caller, ino meta.Ino) (string, error) {
	r, err := s.call(ctx, meta.OpReadLink, meta.Args{Caller: c, Ino: ino})
	return r.Target, err
}

// GetAttr implements meta.Attrs.
func (s *Service) GetAttr(ctx context.Context, c meta.Caller, ino meta.Ino) (meta.Attr, error) {
	r, err := s.call(ctx, meta.OpGetAttr, meta.Args{Caller: c, Ino: ino})
	return r.Attr, err
}

// SetAttr implements meta.Attrs.
func (s *Service) SetAttr(ctx context.Context, c meta.Caller, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {
	r, err := s.call(ctx, meta.OpSetAttr, meta.Args{Caller: c, Ino: ino, Mask: mask, Attr: a})
	return r.Attr, err
}

// GetXattr implements meta.Xattrs.
func (s *Service) GetXattr(ctx context.Context, c meta.Caller, ino meta.Ino, name string) (
	[]byte, error) {
	r, err := s.call(ctx, meta.OpGetXattr, meta.Args{Caller: c, Ino: ino, Name: name})
	return r.Value, err
}

// ListXattr implements meta.Xattrs.
func (s *Service) ListXattr(ctx context.Context, c meta.Caller, ino meta.Ino) ([]string, error) {
	r, err := s.call(ctx, meta.OpListXattr, meta.Args{Caller: c, Ino: ino})
	return r.Names, err
}

// SetXattr implements meta.Xattrs.
func (s *Service) SetXattr(ctx context.Context, c meta.Caller, ino meta.Ino, name string,
	value []byte, create, replace bool) error {
	_, err := s.call(ctx, meta.OpSetXattr, meta.Args{Caller: c, Ino: ino, Name: name,
		Value: value, Create: create, Replace: replace})
	return err
}

// RemoveXattr implements meta.Xattrs.
func (s *Service) RemoveXattr(ctx context.Context, c meta.Caller, ino meta.Ino,
	name string) error {
	_, err := s.call(ctx, meta.OpRemoveXattr, meta.Args{Caller: c, Ino: ino, Name: name})
	return err
}

// Create implements meta.Files.
func (s *Service) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {
	r, err := s.call(ctx, meta.OpCreate, meta.Args{Caller: c, Dir: dir, Name: name, File: f,
		Open: flags})
	return r.Handle, err
}

// Open implements meta.Files.
func (s *Service) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	r, err := s.call(ctx, meta.OpOpen, meta.Args{Caller: c, Ino: ino, Open: flags})
	return r.Handle, err
}

// Commit implements meta.Files.
func (s *Service) Commit(ctx context.Context, c meta.Caller, w meta.Change, sync bool) (
	meta.Attr, error) {
	r, err := s.call(ctx, meta.OpCommit, meta.Args{Caller: c, Change: w, Sync: sync})
	return r.Attr, err
}

// Append implements meta.Appends.
func (s *Service) Append(ctx context.Context, c meta.Caller, handle uint64, n int64) (
	int64, meta.Attr, error) {
	r, err := s.call(ctx, meta.OpAppend, meta.Args{Caller: c, Handle: handle, Size: n})
	return r.Off, r.Attr, err
}

// Appended implements meta.Appends.
func (s *Service) Appended(ctx context.Context, c meta.Caller, handle uint64) error {
	_, err := s.call(ctx, meta.OpAppended, meta.Args{Caller: c, Handle: handle})
	return err
}

// Renew implements meta.Files. A long list goes in several requests.
func (s *Service) Renew(ctx context.Context, c meta.Caller, handles []uint64) (
	[]meta.Handle, error) {
	var all []meta.Handle
	for first := true; first || len(handles) > 0; first = false {
		n := min(len(handles), meta.RenewMax)
		r, err := s.call(ctx, meta.OpRenew, meta.Args{Caller: c, Handles: handles[:n]})
		if err != nil {
			return nil, err
		}
		all = append(all, r.Handles...)
		handles = handles[n:]
	}
	return all, nil
}

// Close implements meta.Files.
func (s *Service) Close(ctx context.Context, c meta.Caller, w meta.Closing) error {
	_, err := s.call(ctx, meta.OpClose, meta.Args{Caller: c, Closing: w})
	return err
}

// CloseMany implements meta.Batches.
func (s *Service) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	r, err := s.call(ctx, meta.OpCloseMany, meta.Args{Caller: c, Closings: list})
	if err == nil && len(r.Ended) != len(list) {
		err = errs.Newf(errs.Protocol, "meta.closemany", "", "%d answers for %d handles",
			len(r.Ended), len(list))
	}
	return r.Ended, err
}

// Scan implements meta.Scans.
func (s *Service) Scan(ctx context.Context, c meta.Caller, dir meta.Ino, w meta.Scan) (
	meta.Scanned, error) {
	if w.Max <= 0 || w.Bytes < 0 {
		return meta.Scanned{}, errs.Newf(errs.Invalid, "meta.scan", "",
			"a page of %d entries with %d bytes", w.Max, w.Bytes)
	}
	w.Max, w.Bytes = min(w.Max, meta.DirPageMax), min(w.Bytes, meta.ScanBytes)
	w.Also = w.Also[:min(len(w.Also), meta.ScanAlso)]
	r, err := s.call(ctx, meta.OpScan, meta.Args{Caller: c, Dir: dir, Scan: w})
	return r.Scanned, err
}

// ReadSmall implements meta.Smalls.
func (s *Service) ReadSmall(ctx context.Context, c meta.Caller, ino meta.Ino) (
	meta.Attr, meta.SmallData, error) {
	r, err := s.call(ctx, meta.OpReadSmall, meta.Args{Caller: c, Ino: ino})
	return r.Attr, r.Small, err
}

// MoveOut implements meta.Smalls.
func (s *Service) MoveOut(ctx context.Context, c meta.Caller, w meta.Change, dataVersion uint64) (
	meta.Attr, error) {
	r, err := s.call(ctx, meta.OpMoveOut, meta.Args{Caller: c, Change: w, Version: dataVersion})
	return r.Attr, err
}

// Find implements meta.Finds.
func (s *Service) Find(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	meta.Found, error) {
	r, err := s.call(ctx, meta.OpFind, meta.Args{Caller: c, Dir: dir, Name: name})
	return r.Found, err
}

// Listen implements meta.Leases.
func (s *Service) Listen(ctx context.Context, l meta.Listening) (meta.Heard, error) {
	r, err := s.call(ctx, meta.OpListen, meta.Args{Listen: l})
	return r.Heard, err
}

// Claim implements meta.Leases.
func (s *Service) Claim(ctx context.Context, session uint64, life uint32, list []meta.Claimed,
	last bool) ([]meta.Regained, error) {
	r, err := s.call(ctx, meta.OpClaim, meta.Args{Session: session, Life: life, Claims: list,
		Last: last})
	if err == nil && len(r.Claims) != len(list) {
		err = errs.Newf(errs.Protocol, "meta.claim", "", "%d answers for %d handles",
			len(r.Claims), len(list))
	}
	return r.Claims, err
}

// NewSession implements meta.Sessions. A repetition after a lost answer makes another session; the
// first one ends by its lease.
func (s *Service) NewSession(ctx context.Context, client string) (meta.SessionInfo, error) {
	r, err := s.call(ctx, meta.OpNewSession, meta.Args{Client: client})
	return r.Session, err
}

// KeepAlive implements meta.Sessions.
func (s *Service) KeepAlive(ctx context.Context, session uint64) error {
	_, err := s.call(ctx, meta.OpKeepAlive, meta.Args{Session: session})
	return err
}

// EndSession implements meta.Sessions.
func (s *Service) EndSession(ctx context.Context, session uint64) error {
	_, err := s.call(ctx, meta.OpEndSession, meta.Args{Session: session})
	return err
}

// EndClient implements meta.Sessions.
func (s *Service) EndClient(ctx context.Context, client string) error {
	_, err := s.call(ctx, meta.OpEndClient, meta.Args{Client: client})
	return err
}

// Sync implements meta.Sessions.
func (s *Service) Sync(ctx context.Context) error {
	_, err := s.call(ctx, meta.OpSync, meta.Args{})
	return err
}

// CreateVolume implements meta.Volumes.
func (s *Service) CreateVolume(ctx context.Context, c meta.Caller, name string, size int64,
	f meta.NewFile) (meta.Volume, error) {
	r, err := s.call(ctx, meta.OpCreateVolume, meta.Args{Caller: c, Name: name, Size: size,
		File: f})
	return r.Volume, err
}

// ListVolumes implements meta.Volumes.
func (s *Service) ListVolumes(ctx context.Context, c meta.Caller, from string, max int) (
	[]meta.Volume, error) {
	a := meta.Args{Caller: c, Name: from, Max: uint32(min(max, meta.VolumePageMax))}
	r, err := s.call(ctx, meta.OpListVolumes, a)
	return r.Volumes, err
}

// RemoveVolume implements meta.Volumes.
func (s *Service) RemoveVolume(ctx context.Context, c meta.Caller, name string) error {
	_, err := s.call(ctx, meta.OpRemoveVolume, meta.Args{Caller: c, Name: name})
	return err
}

// OpenVolume implements meta.Volumes.
func (s *Service) OpenVolume(ctx context.Context, c meta.Caller, name string,
	flags meta.OpenFlags, epoch uint32) (meta.Volume, meta.Handle, error) {
	r, err := s.call(ctx, meta.OpOpenVolume, meta.Args{Caller: c, Name: name, Open: flags,
		Epoch: epoch})
	return r.Volume, r.Handle, err
}

// Join implements meta.Cluster.
func (s *Service) Join(ctx context.Context, srv meta.Server, mac [32]byte) error {
	_, err := s.call(ctx, meta.OpJoin, meta.Args{Server: srv, Mac: mac})
	return err
}

// Servers implements meta.Cluster.
func (s *Service) Servers(ctx context.Context) ([]meta.Server, error) {
	r, err := s.call(ctx, meta.OpServers, meta.Args{})
	return r.Servers, err
}

// StatFS implements meta.Cluster.
func (s *Service) StatFS(ctx context.Context, ino meta.Ino) (meta.FSStat, error) {
	r, err := s.call(ctx, meta.OpStatFS, meta.Args{Ino: ino})
	return r.FS, err
}

// Time implements meta.Cluster.
func (s *Service) Time(ctx context.Context) (time.Time, error) {
	r, err := s.call(ctx, meta.OpTime, meta.Args{})
	return time.UnixMilli(r.Time), err
}
