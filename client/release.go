package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// A release always succeeds: nobody would repeat one that has failed, and others would wait for the
// lock until this client ends. Where the service does not answer, or the caller cannot wait for it,
// the lock is not held any more as far as this client is concerned, and the service hears of it
// later. Until then the same owner gets no other lock in the file, which that would release, too.

// partings are the releases of one owner in one file that the service has not heard of yet.
type partings struct {
	count int
	over  chan struct{} // closed when there are none
}

// Holds tells whether an owner holds something of one kind in a file.
func (fs *FS) Holds(ino meta.Ino, kind meta.LockKind, owner uint64) bool {
	return fs.locks.holds(lockKey{ino, kind, owner})
}

// late tells whether a release that has failed is to be carried out later.
func late(err error) bool {
	k := errs.KindOf(err)
	return k.Passing() || k == errs.MaybeDone
}

// releaseLater forgets a lock and has the service hear of it in the background.
func (fs *FS) releaseLater(session uint64, l meta.Lock) {
	fs.locks.part(keyOf(&l))
	fs.locks.forget(&l)
	ok := fs.background(func() {
		defer fs.locks.parted(keyOf(&l))
		fs.restoreLater(session, l)
	})
	if !ok { // the session is about to end, and all its locks with it
		fs.locks.parted(keyOf(&l))
	}
}

// awaitReleases waits until the service has heard of all that an owner has released, at most as
// long as an operation waits for the service.
func (fs *FS) awaitReleases(ctx context.Context, k lockKey) error {
	over := fs.locks.parting(k)
	if over == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callMax(fs.opts.WaitMax))
	defer cancel()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return errs.Wrap("client.Lock", "", ctx.Err())
	}
}

func (x *locks) part(k lockKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.leaving[k]
	if p == nil {
		p = &partings{over: make(chan struct{})}
		if x.leaving == nil {
			x.leaving = map[lockKey]*partings{}
		}
		x.leaving[k] = p
	}
	p.count++
}

func (x *locks) parted(k lockKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.leaving[k]
	if p.count--; p.count == 0 {
		close(p.over)
		delete(x.leaving, k)
	}
}

// parting is closed when the releases of an owner are over; nil: there are none.
func (x *locks) parting(k lockKey) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.leaving[k]; p != nil {
		return p.over
	}
	return nil
}
