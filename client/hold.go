package client

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// What WriteBehind took is known to this client only. So that others see every write that has
// returned, it takes something only under LeaseWrite on a file that is not small: the service lends
// that to one session, while no other one has the file open, and asks it back before it tells
// anybody else how long the file is, or lets him open it. Before the lease goes back (giveUp) what
// was taken is sent to the I/O servers, which is where others look then. Without the lease writes
// are at the servers when they return.
//
// Draining a file while its lease is recalled cannot wait for that recall itself. The data is not
// that of a small file, so it is sent (Put) without inode.telling, and without any lease. It needs
// the I/O servers, and of the metadata service at most fresh capabilities (Renew, which waits for
// nobody), attributes (GetAttr, which asks the others, but not a session whose own lease is
// recalled: lease.Table.Busy), and room in a quota (Grow, which asks those back who have leases:
// there are none beside LeaseWrite). What was written before in the same stream, and waits for
// memory with its turn, needs the same of other files. giveUp has nothing that these need: it
// drains before it takes inode.telling. And the drain is bounded, because I/O servers may be away.

// Holds tells whether nobody can look at the file without this client being asked: then a write
// may return before its data is at the servers. It is for WriteBehind.
func (f *File) Holds() bool { return !f.node.small.Load() && f.node.leased(f.fs) }

// drainPart is what part of the time of a lease whoever gives one back waits for I/O servers:
// whoever wants it waits for as long, and all leases of this client are lost after the whole.
const drainPart = 4

// drainLeaving sends what is held back of a file whose lease was recalled: nothing more is. It
// waits for an append that is under way, too, as others may append behind it from then on (landed):
// that needs no more than what write-behind sends. (One to a small file ends without servers, or
// begins anew when the lease is gone.)
func (fs *FS) drainLeaving(ctx context.Context, s *session, n *inode) {
	ctx, cancel := context.WithTimeout(ctx, s.leases/drainPart)
	defer cancel()
	err := fs.behind.Drain(ctx, n.ino)
	if err == nil && !n.small.Load() {
		if err = n.appendMu.take(ctx); err == nil {
			n.appendMu.giveBack()
		}
	}
	if err != nil {
		fs.opts.Logger.Warn("what was written is not at the servers yet, and others ask for the file",
			"ino", n.ino, "err", err)
	}
}

// How often a writer asks for the lease that it has lost: while others look at the file all the
// time, or have it open, it is better off without.
const (
	askFirst = 50 * time.Millisecond
	askLast  = 2 * time.Second
)

// holding is when a writer that may hold nothing back asks for that next.
type holding struct {
	next  time.Time
	pause time.Duration
}

// askToHold asks for LeaseWrite in the background, now and then.
func (fs *FS) askToHold(n *inode) {
	now := time.Now()
	n.mu.Lock()
	due := now.After(n.holding.next)
	if due {
		n.holding.pause = min(max(2*n.holding.pause, askFirst), askLast)
		n.holding.next = now.Add(n.holding.pause)
		n.refs++
	}
	n.mu.Unlock()
	if !due {
		return
	}
	started := fs.background(func() {
		defer fs.unref(n)
		ctx, cancel := context.WithTimeout(fs.life, askLast)
		defer cancel()
		if _, err := fs.askAttr(ctx, meta.Cred{}, n.ino); err != nil {
			fs.opts.Logger.Debug("a writer asks for its lease", "ino", n.ino, "err", err)
			return
		}
		if n.leased(fs) {
			n.mu.Lock()
			n.holding.pause /= 4 // it doubles with each loss: who is left alone has it soon again
			n.mu.Unlock()
		}
	})
	if !started {
		fs.unref(n)
	}
}
