package client

import (
	"context"
	"crypto/rand"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// WithLayout says how a file is striped that OpenFile makes; what the policy leaves open the
// directory says. Its width is followed exactly, or the opening fails. A file that is there stays
// as it is.
func WithLayout(p layout.Policy) OpenOption { return func(o *openOptions) { o.policy = p } }

// Layout tells the policy of a file or directory, and how a file is striped.
func (fs *FS) Layout(ctx context.Context, path string) (meta.Placed, error) {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, true)
	var out meta.Placed
	if err == nil {
		out, err = fs.svc.GetLayout(ctx, c, p.attr.Ino)
	}
	return out, errs.Wrap("client.Layout", path, err)
}

// SetLayout gives a directory a policy for what is made in it from then on, or has a file striped
// by it that nothing was ever written to (errs.NotEmpty otherwise). See meta.Layouts.
func (fs *FS) SetLayout(ctx context.Context, path string, policy layout.Policy) error {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, true)
	if err == nil {
		err = fs.stripeAnew(ctx, p.attr.Ino, true, &c, func(ctx context.Context) error {
			return fs.svc.SetLayout(ctx, c, p.attr.Ino, policy)
		})
	}
	return errs.Wrap("client.SetLayout", path, err)
}

// Pools lists the pools of I/O servers.
func (fs *FS) Pools(ctx context.Context) ([]meta.Pool, error) {
	all, err := fs.svc.ListPools(ctx, fs.self())
	return all, errs.Wrap("client.Pools", "", err)
}

// CreatePool makes a pool of servers. See meta.Pools.
func (fs *FS) CreatePool(ctx context.Context, name string, servers []uint32) (meta.Pool, error) {
	p, err := fs.svc.CreatePool(ctx, fs.self(), name, servers)
	return p, errs.Wrap("client.CreatePool", name, err)
}

// ChangePool adds servers to a pool and takes some out.
func (fs *FS) ChangePool(ctx context.Context, name string, add, remove []uint32) (
	meta.Pool, error) {
	p, err := fs.svc.ChangePool(ctx, fs.self(), name, add, remove)
	return p, errs.Wrap("client.ChangePool", name, err)
}

// RemovePool removes a pool. Files stay where they are.
func (fs *FS) RemovePool(ctx context.Context, name string) error {
	return errs.Wrap("client.RemovePool", name, fs.svc.RemovePool(ctx, fs.self(), name))
}

// stripeAnew has do change how an inode is striped. A file that this client has open is small, or
// it is refused: nothing but who moves it out writes to I/O servers by what its handles know, and
// that needs telling, which is held until they know better. strict: a file that something was
// written to here, which the service may not know yet, is refused, too.
func (fs *FS) stripeAnew(ctx context.Context, ino meta.Ino, strict bool, c *meta.Caller,
	do func(ctx context.Context) error) error {
	if c.ReqID == (meta.Caller{}).ReqID { // it may have to be done again, and not twice
		rand.Read(c.ReqID[:])
	}
	change := fs.cache.Change().Inode(ino)
	n := fs.ref(ino)
	if n == nil {
		err := do(ctx)
		change.End(settled(ctx, outcome(err, nil)))
		return err
	}
	defer fs.unref(n)
	if fs.endings.has(n, fs.sess.Load().id) {
		fs.flushEndings(ctx)
	}
	err := n.whileTelling(ctx, func() error {
		if strict && n.begun() {
			return errs.Newf(errs.NotEmpty, "client.layout", "", "the file has data: only a new file is "+
				"striped anew")
		}
		asking, done := n.asks(ctx)
		err := do(asking)
		interrupted := asking.Err() != nil && ctx.Err() == nil
		done()
		if rerr := fs.relearn(ctx, n); err == nil {
			err = rerr
		}
		if err != nil && interrupted {
			return errLeaving
		}
		return err
	})
	change.End(settled(ctx, outcome(err, nil)))
	return err
}

// begun tells whether something was written to a file.
func (n *inode) begun() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.size > 0 || n.content.spilled != 0
}

// relearn renews all handles of a file that may be striped in another way now, whether its change
// was answered or not. One that cannot be is not used any more: it would write where nobody looks.
func (fs *FS) relearn(ctx context.Context, n *inode) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callMax(fs.opts.WaitMax))
	defer cancel()
	defer context.AfterFunc(fs.life, cancel)()
	var failed error
	for _, f := range n.opened(0) {
		g := f.grant.Load()
		if g.handle == 0 {
			continue // it is opened before it is used for more than what is known here
		}
		if err := f.renewFrom(ctx, g); err != nil {
			failed = f.die(g, err)
			continue
		}
		n.widen(f.grant.Load().layout.Width())
	}
	return failed
}

// widen makes room for the stripes of a file.
func (n *inode) widen(width int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.stripes) < width {
		n.stripes = append(n.stripes, make([]unsynced, width-len(n.stripes))...)
	}
}
