package mount

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// How the kernel forgets what it was told under a lease that goes back.
//
// Attributes are dropped by a message that blocks for nobody. There is one for names, too, but it
// waits for the directory's lock, which a program holds that changes something in it, and that may
// wait for the very client that wants the lease; and a process that is killed while it waits so
// cannot end. So the kernel believes in names for a short time only, and the lease goes back when
// that is over.

// recalled is client.FS.OnRecall.
func (b *bridge) recalled(ino meta.Ino) (forget func(context.Context)) {
	if ino == 0 {
		b.recalls.note(anyIno)
		b.touched.note(anyIno)
		until := b.told.latest().Add(b.told.keep())
		return func(ctx context.Context) { wait.Sleep(ctx, time.Until(until)) }
	}
	b.recalls.note(ino)
	b.touched.note(ino) // pages of directories that were read before count no more
	k := b.told.take(ino, time.Now())
	if k.attrs.IsZero() && k.names.IsZero() {
		return nil
	}
	return func(ctx context.Context) { b.forget(ctx, ino, &k) }
}

// forget returns when the kernel believes nothing of what it was told of an inode any more.
func (b *bridge) forget(ctx context.Context, ino meta.Ino, k *belief) {
	if !k.attrs.IsZero() {
		if !wait.Sleep(ctx, time.Until(k.behind.Add(answerGrace))) {
			return
		}
		b.server.InodeNotify(b.node(ino), -1, 0) // fails where the kernel has forgotten the inode
	}
	if !k.names.IsZero() {
		wait.Sleep(ctx, time.Until(k.names.Add(b.told.names+2*answerGrace)))
	}
}
