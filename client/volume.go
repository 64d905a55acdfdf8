package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// CreateVolume makes a block volume of a fixed size. unit and width choose its striping; zero means
// the default.
func (fs *FS) CreateVolume(ctx context.Context, name string, size, unit int64, width int) (
	meta.Volume, error) {
	nf := meta.NewFile{Type: meta.Regular, Mode: 0o600, Unit: unit, Width: width}
	v, err := fs.svc.CreateVolume(ctx, fs.self(), name, size, nf)
	return v, errs.Wrap("client.CreateVolume", name, err)
}

// ListVolumes returns all volumes, which it asks for in pages.
func (fs *FS) ListVolumes(ctx context.Context) ([]meta.Volume, error) {
	var all []meta.Volume
	for from := ""; ; {
		page, err := fs.svc.ListVolumes(ctx, fs.self(), from, meta.VolumePageMax)
		if err != nil || len(page) == 0 {
			return all, errs.Wrap("client.ListVolumes", "", err)
		}
		all = append(all, page...)
		from = meta.NextVolume(page[len(page)-1].Name)
	}
}

// RemoveVolume removes a volume and its data.
func (fs *FS) RemoveVolume(ctx context.Context, name string) error {
	return errs.Wrap("client.RemoveVolume", name, fs.svc.RemoveVolume(ctx, fs.self(), name))
}

// OpenVolume opens a volume. Its File neither grows nor shrinks: writes behind its end fail, and
// Sync makes data durable and nothing else, because nothing else changes. One client at a time has
// it open for writing (errs.Busy for others), so that Sync covers every write that was acknowledged
// to anybody: what other clients wrote before was synced when they closed it, as far as they lived
// to do so. A client of this host that is dead is taken over from at once.
func (fs *FS) OpenVolume(ctx context.Context, name string, readOnly bool) (
	*File, meta.Volume, error) {
	f, v, err := fs.openVolume(ctx, name, readOnly)
	if errs.KindOf(err) == errs.Busy {
		if dead := fs.deadWriter(ctx, name); dead != "" {
			f, v, err = fs.takeOver(ctx, name, dead)
		}
	}
	if err != nil {
		return nil, v, errs.Wrap("client.OpenVolume", name, err)
	}
	f.fixed = true
	return f, v, nil
}

func (fs *FS) openVolume(ctx context.Context, name string, readOnly bool) (
	*File, meta.Volume, error) {
	flags := meta.OpenRead
	if !readOnly {
		flags |= meta.OpenWrite
	}
	var v meta.Volume
	get := func(ctx context.Context, c meta.Caller) (h meta.Handle, err error) {
		v, h, err = fs.svc.OpenVolume(ctx, c, name, flags)
		h.Attr.Size = max(h.Attr.Size, v.Size)
		return h, err
	}
	o := opening{fs: fs, cred: *fs.opts.Cred, flags: flags, get: get}
	f, err := o.open(ctx)
	return f, v, err
}

// deadWriter names the client that has a volume open for writing, if it is known to be dead.
func (fs *FS) deadWriter(ctx context.Context, name string) string {
	found, err := fs.svc.ListVolumes(ctx, fs.self(), name, 1)
	if err != nil || len(found) == 0 || found[0].Name != name || !knownDead(found[0].Writer) {
		return ""
	}
	return found[0].Writer
}

// takeOverTries bounds how often a volume is opened again after the sessions of its dead writer
// were ended: the service has to close its handles, at once where the I/O servers answer.
const takeOverTries = 100

func (fs *FS) takeOver(ctx context.Context, name, dead string) (*File, meta.Volume, error) {
	fs.opts.Logger.Warn("taking a volume over from a client that is dead", "volume", name,
		"client", dead)
	err := fs.svc.EndClient(ctx, dead)
	if kind := errs.KindOf(err); kind == errs.Again || kind == errs.Perm {
		// The service does not see that it is dead: then it is not taken over from at once.
		err = errs.Newf(errs.Busy, "client.takeOver", name, "%v", err)
	}
	if err != nil {
		return nil, meta.Volume{}, err
	}
	for try := 0; ; try++ {
		f, v, err := fs.openVolume(ctx, name, false)
		if errs.KindOf(err) != errs.Busy || try == takeOverTries {
			return f, v, err
		}
		if !wait.Sleep(ctx, min(pauseFirst<<min(try, 8), pauseMax)) {
			return nil, v, errs.Wrap("client", "", ctx.Err())
		}
	}
}
