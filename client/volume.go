package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
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

// ListVolumes returns all volumes.
func (fs *FS) ListVolumes(ctx context.Context) ([]meta.Volume, error) {
	v, err := fs.svc.ListVolumes(ctx, fs.self())
	return v, errs.Wrap("client.ListVolumes", "", err)
}

// RemoveVolume removes a volume and its data.
func (fs *FS) RemoveVolume(ctx context.Context, name string) error {
	return errs.Wrap("client.RemoveVolume", name, fs.svc.RemoveVolume(ctx, fs.self(), name))
}

// OpenVolume opens a volume. Its File neither grows nor shrinks: writes behind its end fail, and
// Sync makes data durable and nothing else, because nothing else changes.
func (fs *FS) OpenVolume(ctx context.Context, name string, readOnly bool) (
	*File, meta.Volume, error) {
	flags := meta.OpenRead
	if !readOnly {
		flags |= meta.OpenWrite
	}
	var v meta.Volume
	f, err := fs.open(ctx, flags, func(ctx context.Context, c meta.Caller) (h meta.Handle, err error) {
		c.Cred = *fs.opts.Cred
		v, h, err = fs.svc.OpenVolume(ctx, c, name, flags)
		h.Attr.Size = max(h.Attr.Size, v.Size)
		return h, err
	})
	if err != nil {
		return nil, v, errs.Wrap("client.OpenVolume", name, err)
	}
	f.fixed = true
	return f, v, nil
}
