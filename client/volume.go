package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// Volume is what is known of a volume, and VolumeState what may change of it.
type (
	Volume      = meta.Volume
	VolumeState = meta.VolumeState
)

// CreateVolume makes a block volume of a fixed size. unit and width choose its striping; zero means
// the default.
func (fs *FS) CreateVolume(ctx context.Context, name string, size, unit int64, width int) (
	meta.Volume, error) {
	return fs.CreateVolumeIn(ctx, name, size, layout.Policy{Unit: unit, Width: width})
}

// CreateVolumeIn is CreateVolume for who chooses the pool of servers, too.
func (fs *FS) CreateVolumeIn(ctx context.Context, name string, size int64, p layout.Policy) (
	meta.Volume, error) {
	nf := meta.NewFile{Type: meta.Regular, Mode: 0o600, Unit: p.Unit, Width: p.Width, Pool: p.Pool}
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

// VolumeOptions say how a volume is opened.
type VolumeOptions struct {
	ReadOnly bool // for reading only

	// Shared lets other clients that say so too write at the same time. Then every write must be
	// durable (File.WriteAtDurable), or a server's crash could take what somebody else has synced.
	// Whoever joins begins a generation of writers. The File of the others goes on in that one by
	// itself; what a client had under way that has died is refused from then on.
	Shared bool
}

// OpenVolume is OpenVolumeWith for who has the volume to himself, or reads it.
func (fs *FS) OpenVolume(ctx context.Context, name string, readOnly bool) (
	*File, meta.Volume, error) {
	return fs.OpenVolumeWith(ctx, name, VolumeOptions{ReadOnly: readOnly})
}

// OpenVolumeWith opens a volume. Its File neither grows nor shrinks by what is written: writes
// behind its end fail, and Sync makes data durable and nothing else, because nothing else changes.
// One client at a time has it open for writing (errs.Busy for others), unless they share it, so
// that Sync covers every write that was acknowledged to anybody: what other clients wrote before
// was synced when they closed it, as far as they lived to do so. When it returns no I/O server
// takes anything of an earlier writer any more. A client of this host that is dead is taken over
// from at once. A writer that somebody else has taken over from gets errs.Fenced.
func (fs *FS) OpenVolumeWith(ctx context.Context, name string, o VolumeOptions) (
	*File, meta.Volume, error) {
	f, v, err := fs.openVolume(ctx, name, o)
	if errs.KindOf(err) == errs.Busy {
		if dead := fs.deadWriter(ctx, name); dead != "" {
			f, v, err = fs.takeOver(ctx, name, dead, o)
		}
	}
	if err != nil {
		return nil, v, errs.Wrap("client.OpenVolume", name, err)
	}
	f.fixed = true
	return f, v, nil
}

func (o *VolumeOptions) flags() meta.OpenFlags {
	flags := meta.OpenRead
	if !o.ReadOnly {
		flags |= meta.OpenWrite
		if o.Shared {
			flags |= meta.OpenShared
		}
	}
	return flags
}

func (fs *FS) openVolume(ctx context.Context, name string, how VolumeOptions) (
	*File, meta.Volume, error) {
	var v meta.Volume
	get := func(ctx context.Context, c meta.Caller) (h meta.Handle, err error) {
		v, h, err = fs.svc.OpenVolume(ctx, c, name, how.flags(), 0)
		h.Attr.Size = max(h.Attr.Size, v.Size)
		return h, err
	}
	o := opening{fs: fs, cred: *fs.opts.Cred, flags: how.flags(), get: get, named: true}
	f, err := o.open(ctx)
	if err == nil {
		f.volume, f.shared = name, how.Shared
	}
	return f, v, err
}

// openVolumeAgain opens a volume in another session, as what it was: a writer has the generation
// that it had, or none.
func (f *File) openVolumeAgain(ctx context.Context, s *session) (meta.Handle, error) {
	how := VolumeOptions{ReadOnly: f.flags&meta.OpenWrite == 0, Shared: f.shared}
	epoch := f.grant.Load().epoch
	return f.fs.openIn(ctx, s, func(ctx context.Context, c meta.Caller) (meta.Handle, error) {
		_, h, err := f.fs.svc.OpenVolume(ctx, c, f.volume, how.flags(), epoch)
		if errs.KindOf(err) == errs.Access && f.cred.UID != 0 { // root is not believed
			c.Cred = f.cred
			_, h, err = f.fs.svc.OpenVolume(ctx, c, f.volume, how.flags(), epoch)
		}
		return h, err
	})
}

// Epoch is the generation of writers that the handle of a volume belongs to, as far as it knows: of
// those who share it there may be a later one. 0: it only reads.
func (f *File) Epoch() uint32 { return f.grant.Load().epoch }

// Grow takes note that a volume has become larger, as AwaitVolume has told.
func (f *File) Grow(size int64) {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if f.fixed && size > f.node.size {
		f.node.size = size
	}
}

// ResizeVolume gives a volume another size. One that is in use can grow; its users hear of it by
// AwaitVolume. shrink: what lies behind the new size may be lost, and nobody may write to it.
func (fs *FS) ResizeVolume(ctx context.Context, name string, size int64, shrink bool) (
	meta.Volume, error) {
	v, err := fs.svc.ResizeVolume(ctx, fs.self(), name, size, shrink)
	return v, errs.Wrap("client.ResizeVolume", name, err)
}

// HandOverVolume asks who writes to a volume to give it up, and does not wait for that. force: he
// is not asked, and from now on no I/O server takes anything of him.
func (fs *FS) HandOverVolume(ctx context.Context, name string, force bool) (meta.Volume, error) {
	v, err := fs.svc.HandOver(ctx, fs.self(), name, force)
	return v, errs.Wrap("client.HandOverVolume", name, err)
}

// AwaitVolume returns when what is known of a volume differs from what the caller has seen, or
// after some time, half a minute at most, in which nothing has changed.
func (fs *FS) AwaitVolume(ctx context.Context, name string, seen meta.VolumeState) (
	meta.Volume, error) {
	v, err := fs.svc.AwaitVolume(ctx, fs.self(), name, seen, meta.VolumeAwaitMax)
	return v, errs.Wrap("client.AwaitVolume", name, err)
}

// Volume looks a volume up.
func (fs *FS) Volume(ctx context.Context, name string) (meta.Volume, error) {
	found, err := fs.svc.ListVolumes(ctx, fs.self(), name, 1)
	if err == nil && (len(found) == 0 || found[0].Name != name) {
		err = errs.New(errs.NotFound, "client.Volume", name, nil)
	}
	if err != nil {
		return meta.Volume{}, errs.Wrap("client.Volume", name, err)
	}
	return found[0], nil
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

func (fs *FS) takeOver(ctx context.Context, name, dead string, o VolumeOptions) (
	*File, meta.Volume, error) {
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
		f, v, err := fs.openVolume(ctx, name, o)
		if errs.KindOf(err) != errs.Busy || try == takeOverTries {
			return f, v, err
		}
		if !wait.Sleep(ctx, min(pauseFirst<<min(try, 8), pauseMax)) {
			return nil, v, errs.Wrap("client", "", ctx.Err())
		}
	}
}
