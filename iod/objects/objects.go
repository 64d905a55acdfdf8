// Package objects is what the metadata service needs of the I/O servers: it measures, truncates and
// removes the stripe objects of a file, at all its servers at once, by capabilities that it signs
// itself because it holds the cluster's key.
//
// Only the process of the metadata service uses it. It keeps no state; every call is idempotent.
package objects

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Servers is what is needed of iod/remote.
type Servers interface {
	iod.Manager
	iod.Lister
	Stat(ctx context.Context, t iod.Target) (stripe.Info, error)
}

// Objects implements meta.Objects. Safe for concurrent use.
type Objects struct {
	servers Servers
	sign    *capability.Signers
	clock   func() time.Time
}

var (
	_ meta.Objects = (*Objects)(nil)

	_ meta.WriterFencer = (*Objects)(nil)

	_ meta.Allocator = (*Objects)(nil)
	_ meta.Collector = (*Objects)(nil)
	_ meta.Examiner  = (*Objects)(nil)
)

// New makes the service's view of the I/O servers. keys are the cluster's, and may change; clock is
// what the service measures capabilities by (nil: the time of day), of which only its steady part
// counts.
func New(servers Servers, keys capability.Keys, clock func() time.Time) *Objects {
	if clock == nil {
		clock = time.Now
	}
	return &Objects{servers: servers, sign: capability.NewSigners(keys),
		clock: capability.Steady(clock)}
}

// target makes stripe i's target with a right that lasts for this request. Session 0 is the
// service.
func (o *Objects) target(f *meta.FileRef, i int) iod.Target {
	server := f.Layout.Servers[i]
	c := capability.Capability{File: uint64(f.Ino), Gen: f.Gen, Rights: capability.Manage,
		Server: server, Layout: f.Layout.Version, Expiry: o.clock().Add(capability.TTLMax)}
	return iod.Target{
		Server: server,
		Object: stripe.ObjectID{File: uint64(f.Ino), Gen: f.Gen, Stripe: uint32(i)},
		Layout: f.Layout.Version,
		Cap:    o.sign.Sign(&c),
		Stamp:  wire.Stamp{Gen: f.Gen, TruncSeq: f.TruncSeq},
	}
}

// each calls fn for every stripe at once and joins the errors.
func (o *Objects) each(f *meta.FileRef, fn func(i int, t iod.Target) error) error {
	fails := make([]error, f.Layout.Width())
	var wg sync.WaitGroup
	for i := range fails {
		wg.Go(func() { fails[i] = fn(i, o.target(f, i)) })
	}
	wg.Wait()
	return errors.Join(fails...)
}

// Measure implements meta.Objects.
func (o *Objects) Measure(ctx context.Context, f meta.FileRef) (int64, error) {
	sizes := make([]int64, f.Layout.Width())
	err := o.each(&f, func(i int, t iod.Target) error {
		info, err := o.servers.Stat(ctx, t)
		sizes[i] = f.Layout.FileSize(i, info.Size)
		return err
	})
	if err != nil {
		return 0, err
	}
	var size int64
	for _, s := range sizes {
		size = max(size, s)
	}
	return size, nil
}

// Allocated implements meta.Allocator.
func (o *Objects) Allocated(ctx context.Context, f meta.FileRef) (int64, error) {
	var sum atomic.Int64
	err := o.each(&f, func(_ int, t iod.Target) error {
		info, err := o.servers.Stat(ctx, t)
		sum.Add(info.Allocated)
		return err
	})
	return sum.Load(), err
}

// Truncate implements meta.Objects.
func (o *Objects) Truncate(ctx context.Context, f meta.FileRef, size int64) error {
	return o.each(&f, func(i int, t iod.Target) error {
		return o.servers.Truncate(ctx, t, f.Layout.ObjectSize(i, size))
	})
}

// FenceWriters implements meta.WriterFencer.
func (o *Objects) FenceWriters(ctx context.Context, f meta.FileRef, epoch uint32) error {
	return o.each(&f, func(_ int, t iod.Target) error {
		t.Stamp.Epoch = epoch
		return o.servers.Fence(ctx, t)
	})
}

// Remove implements meta.Objects. A write that is still on its way can bring an object back to life
// for as long as its capability lasts; inode numbers are never reused, so nobody will see it.
func (o *Objects) Remove(ctx context.Context, f meta.FileRef, stripe int) error {
	return o.servers.Remove(ctx, o.target(&f, stripe))
}

// one is the target of one object, as a server names it.
func (o *Objects) one(server uint32, r meta.ObjectRef) iod.Target {
	c := capability.Capability{File: uint64(r.Ino), Gen: r.Gen, Rights: capability.Manage,
		Server: server, Expiry: o.clock().Add(capability.TTLMax)}
	return iod.Target{
		Server: server,
		Object: stripe.ObjectID{File: uint64(r.Ino), Gen: r.Gen, Stripe: r.Stripe},
		Cap:    o.sign.Sign(&c),
		Stamp:  wire.Stamp{Gen: r.Gen},
	}
}

// ListObjects implements meta.Collector.
func (o *Objects) ListObjects(ctx context.Context, server uint32, after meta.ObjectRef) (
	[]meta.ObjectRef, error) {

	ids, err := o.servers.List(ctx, o.one(server, after))
	refs := make([]meta.ObjectRef, len(ids))
	for i, id := range ids {
		refs[i] = meta.ObjectRef{Ino: meta.Ino(id.File), Gen: id.Gen, Stripe: id.Stripe}
	}
	return refs, err
}

// RemoveObject implements meta.Collector.
func (o *Objects) RemoveObject(ctx context.Context, server uint32, r meta.ObjectRef) error {
	return o.servers.Remove(ctx, o.one(server, r))
}

// ObjectSize implements meta.Examiner.
func (o *Objects) ObjectSize(ctx context.Context, f meta.FileRef, stripe int) (int64, error) {
	info, err := o.servers.Stat(ctx, o.target(&f, stripe))
	return info.Size, err
}
