package client

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// bare is a service that grants no leases: a client must do right without, asking each time.
type bare struct{ meta.Service }

func (b bare) Find(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	f meta.Found, err error) {
	f.Attr, err = b.Service.Lookup(ctx, c, dir, name)
	if f.Present = err == nil; errs.KindOf(err) == errs.NotFound {
		_, err = b.Service.GetAttr(ctx, c, dir)
	}
	f.Attr.Lease, f.Dir.Lease = meta.LeaseNone, meta.LeaseNone
	return f, err
}

func (b bare) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	kinds []errs.Kind, err error) {
	for _, w := range list {
		kinds = append(kinds, errs.KindOf(b.Service.Close(ctx, c, w)))
	}
	return kinds, nil
}

func (b bare) Listen(ctx context.Context, l meta.Listening) (h meta.Heard, err error) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
	return h, b.Service.KeepAlive(ctx, l.Session)
}
