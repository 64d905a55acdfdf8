package server

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// dispatch asks the service. room is how many bytes an answer can have: pages of directories
// and of volumes are cut to it.
func (s *Server) dispatch(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	c := a.Caller
	switch op {
	case meta.OpLookup:
		r.Attr, err = s.service.Lookup(ctx, c, a.Dir, a.Name)
	case meta.OpMake:
		r.Attr, err = s.service.Make(ctx, c, a.Dir, a.Name, a.File)
	case meta.OpLink:
		r.Attr, err = s.service.Link(ctx, c, a.Ino, a.Dir, a.Name)
	case meta.OpRemove:
		r.At, err = s.service.Remove(ctx, c, a.Dir, a.Name, a.IsDir)
	case meta.OpRename:
		r.At, err = s.service.Rename(ctx, c, a.Dir, a.Name, a.NewDir, a.NewName, a.Rename)
	case meta.OpReadDir:
		max := int(min(a.Max, meta.DirPageMax))
		r.Entries, err = s.service.ReadDir(ctx, c, a.Dir, a.Cookie, max, a.WithAttr)
		r.Entries = cutPage(r.Entries, room, func(e []meta.Entry) int {
			return len((&meta.Result{Entries: e}).Append(op, nil))
		})
	case meta.OpReadLink:
		r.Target, err = s.service.ReadLink(ctx, c, a.Ino)
	case meta.OpGetAttr:
		r.Attr, err = s.service.GetAttr(ctx, c, a.Ino)
	case meta.OpSetAttr:
		r.Attr, err = s.service.SetAttr(ctx, c, a.Ino, a.Mask, a.Attr)
	case meta.OpGetXattr:
		r.Value, err = s.service.GetXattr(ctx, c, a.Ino, a.Name)
	case meta.OpListXattr:
		r.Names, err = s.service.ListXattr(ctx, c, a.Ino)
	case meta.OpSetXattr:
		err = s.service.SetXattr(ctx, c, a.Ino, a.Name, a.Value, a.Create, a.Replace)
	case meta.OpRemoveXattr:
		err = s.service.RemoveXattr(ctx, c, a.Ino, a.Name)
	default:
		return s.dispatchFiles(ctx, op, a, room, r)
	}
	return err
}

// dispatchFiles is the second part of dispatch: open files, sessions, volumes and servers.
func (s *Server) dispatchFiles(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	c := a.Caller
	switch op {
	case meta.OpCreate:
		r.Handle, err = s.service.Create(ctx, c, a.Dir, a.Name, a.File, a.Open)
		dropData(op, r, &r.Handle.Data, room)
	case meta.OpOpen:
		r.Handle, err = s.service.Open(ctx, c, a.Ino, a.Open)
		dropData(op, r, &r.Handle.Data, room)
	case meta.OpCommit:
		r.Attr, err = s.service.Commit(ctx, c, a.Change, a.Sync)
	case meta.OpAppend:
		r.Off, r.Attr, err = s.service.Append(ctx, c, a.Handle, a.Size)
	case meta.OpAppended:
		err = s.service.Appended(ctx, c, a.Handle)
	case meta.OpRenew:
		r.Handles, err = s.service.Renew(ctx, c, a.Handles)
	case meta.OpClose:
		err = s.service.Close(ctx, c, a.Closing)
	case meta.OpNewSession:
		r.Session, err = s.service.NewSession(ctx, a.Client)
	case meta.OpKeepAlive:
		err = s.service.KeepAlive(ctx, a.Session)
	case meta.OpEndSession:
		err = s.service.EndSession(ctx, a.Session)
	case meta.OpEndClient:
		err = s.service.EndClient(ctx, a.Client)
	case meta.OpSync:
		err = s.service.Sync(ctx)
	case meta.OpCreateVolume:
		r.Volume, err = s.service.CreateVolume(ctx, c, a.Name, a.Size, a.File)
	case meta.OpListVolumes:
		max := int(min(a.Max, meta.VolumePageMax))
		r.Volumes, err = s.service.ListVolumes(ctx, c, a.Name, max)
		r.Volumes = cutPage(r.Volumes, room, func(v []meta.Volume) int {
			return len((&meta.Result{Volumes: v}).Append(op, nil))
		})
	case meta.OpRemoveVolume:
		err = s.service.RemoveVolume(ctx, c, a.Name)
	case meta.OpOpenVolume:
		r.Volume, r.Handle, err = s.service.OpenVolume(ctx, c, a.Name, a.Open, a.Epoch)
	case meta.OpJoin:
		err = s.service.Join(ctx, a.Server, a.Mac)
	case meta.OpServers:
		r.Servers, err = s.service.Servers(ctx)
	case meta.OpStatFS:
		r.FS, err = s.service.StatFS(ctx, a.Ino)
	case meta.OpTime:
		var now time.Time
		now, err = s.service.Time(ctx)
		r.Time = now.UnixMilli()
	default:
		return s.dispatchLeases(ctx, op, a, room, r)
	}
	return err
}

// dispatchLeases is the rest of dispatch: what clients need that keep what they are told.
func (s *Server) dispatchLeases(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	c := a.Caller
	switch op {
	case meta.OpFind:
		r.Found, err = s.service.Find(ctx, c, a.Dir, a.Name)
		dropData(op, r, &r.Found.Data, room)
	case meta.OpScan:
		r.Scanned, err = s.service.Scan(ctx, c, a.Dir, a.Scan)
		r.Scanned.Cut(room)
	case meta.OpListen:
		r.Heard, err = s.service.Listen(ctx, a.Listen)
	case meta.OpClaim:
		r.Claims, err = s.service.Claim(ctx, a.Session, a.Life, a.Claims, a.Last)
	case meta.OpCloseMany:
		r.Ended, err = s.service.CloseMany(ctx, c, a.Closings)
	case meta.OpTellMany:
		r.Settled, err = s.service.TellMany(ctx, c, a.Version, a.Deferred)
	case meta.OpHold:
		r.Settled, err = s.service.Hold(ctx, c, a.Dir, a.Files)
	case meta.OpNumbers:
		first, n, failed := s.service.Numbers(ctx, c, int(min(a.Max, meta.NumbersMax)))
		r.First, r.Off, err = uint64(first), int64(n), failed
	case meta.OpReadSmall:
		r.Attr, r.Small, err = s.service.ReadSmall(ctx, c, a.Ino)
	case meta.OpMoveOut:
		r.Attr, err = s.service.MoveOut(ctx, c, a.Change, a.Version)
	case meta.OpResizeVolume:
		r.Volume, err = s.service.ResizeVolume(ctx, c, a.Name, a.Size, a.Shrink)
	case meta.OpHandOver:
		r.Volume, err = s.service.HandOver(ctx, c, a.Name, a.Force)
	case meta.OpAwaitVolume:
		wait := time.Duration(a.WaitMs) * time.Millisecond
		r.Volume, err = s.service.AwaitVolume(ctx, c, a.Name, a.Seen, wait)
	default:
		return s.dispatchLocks(ctx, op, a, room, r)
	}
	return err
}

// dispatchLocks is the part of dispatch for locks.
func (s *Server) dispatchLocks(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	c := a.Caller
	switch op {
	case meta.OpLock:
		r.State, err = s.service.Lock(ctx, c, a.Lock, a.Mode)
	case meta.OpUnlock:
		err = s.service.Unlock(ctx, c, a.Lock)
	case meta.OpTestLock:
		r.Lock, r.Held, err = s.service.TestLock(ctx, c, a.Lock)
	case meta.OpAwaitLocks:
		wait := time.Duration(a.WaitMs) * time.Millisecond
		r.News, err = s.service.AwaitLocks(ctx, c, a.LockLife, a.LockAfter, wait)
	case meta.OpClaimLocks:
		r.Locks, err = s.service.ClaimLocks(ctx, c, a.Session, a.Locks, a.More)
	case meta.OpSucceed:
		err = s.service.Succeed(ctx, c, a.Session, a.Last)
	case meta.OpHeldLocks:
		r.Locks, err = s.service.HeldLocks(ctx, c, a.Lock)
	default:
		return s.dispatchQuotas(ctx, op, a, room, r)
	}
	return err
}

// dispatchQuotas is the part of dispatch for quotas.
func (s *Server) dispatchQuotas(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	c := a.Caller
	switch op {
	case meta.OpGrow:
		r.Off, err = s.service.Grow(ctx, c, a.Ino, a.Size)
	case meta.OpSetQuota:
		r.Quota, err = s.service.SetQuota(ctx, c, a.Dir, a.Limit)
	case meta.OpGetQuota:
		r.Quota, err = s.service.GetQuota(ctx, c, a.Ino)
	case meta.OpListQuotas:
		max := int(min(a.Max, meta.QuotaPageMax))
		r.Quotas, err = s.service.ListQuotas(ctx, c, a.Cookie, max)
		r.Quotas = cutPage(r.Quotas, room, func(q []meta.Quota) int {
			return len((&meta.Result{Quotas: q}).Append(op, nil))
		})
	case meta.OpRemoveQuota:
		err = s.service.RemoveQuota(ctx, c, a.Dir)
	default:
		return s.dispatchLayouts(ctx, op, a, room, r)
	}
	return err
}

// dispatchLayouts is the part of dispatch for layouts and pools.
func (s *Server) dispatchLayouts(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) (err error) {

	c := a.Caller
	switch op {
	case meta.OpGetLayout:
		r.Placed, err = s.service.GetLayout(ctx, c, a.Ino)
	case meta.OpSetLayout:
		err = s.service.SetLayout(ctx, c, a.Ino, a.Policy)
	case meta.OpCreatePool:
		r.Pool, err = s.service.CreatePool(ctx, c, a.Name, a.Add)
	case meta.OpChangePool:
		r.Pool, err = s.service.ChangePool(ctx, c, a.Name, a.Add, a.Drop)
	case meta.OpRemovePool:
		err = s.service.RemovePool(ctx, c, a.Name)
	case meta.OpListPools:
		r.Pools, err = s.service.ListPools(ctx, c)
	default:
		return s.dispatchUpkeep(ctx, op, a, room, r)
	}
	return err
}

// dropData leaves a small file's data out of an answer that would not fit the room with it: who
// needs it asks for it. Most answers are far from that, so that few are encoded twice.
func dropData(op meta.Op, r *meta.Result, data *[]byte, room int) {
	if len(*data) > room/2 && len(r.Append(op, nil)) > room {
		*data = nil
	}
}

// cutPage shortens a page until it fits; size is how long its encoding is. One item always does:
// two names and the longest layout are less than the smallest body of a message.
func cutPage[T any](page []T, room int, size func([]T) int) []T {
	for len(page) > 1 {
		n := size(page)
		if n <= room {
			break
		}
		// In proportion, and one less, so that it comes to an end.
		page = page[:max(1, min(len(page)*room/n, len(page)-1))]
	}
	return page
}
