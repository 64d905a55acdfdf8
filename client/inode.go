package client

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// inode is what all handles of one file in this client share: how long it is, which truncations
// are known, and which acknowledged writes are not yet on stable storage. It lives from the first
// open to the last close, and on while there are unsynced writes: whoever opens the file later
// and syncs it means those too.
type inode struct {
	ino meta.Ino

	appendMu turn // held during an append, so that each one finds the end of the one before

	mu       sync.Mutex
	refs     int
	attr     meta.Attr // as last heard of; Size, TruncSeq and Mtime below count
	heard    time.Time // when
	size     int64
	truncSeq uint64
	mtime    int64
	dirty    bool // size or mtime is not yet committed
	gaps     gaps
	growth   growth

	stripes []unsynced // by stripe
	unknown bool       // there may be unsynced writes from before this record: sync all stripes
	lost    lossRecord
}

// unsynced is what a client remembers of one stripe's volatile writes.
type unsynced struct {
	pending bool
	count   uint64 // raised with every write, so that a sync knows what it did not cover
}

// lossRecord is an error that concerns the file as a whole, numbered so that each handle reports it
// once, like the kernel's writeback errors.
type lossRecord struct {
	seq  uint64
	err  error
	seen bool // somebody has reported it: files opened later need not
}

// learnLocked takes over attributes from an answer that vouches for its truncate sequence: the
// truncation has been carried out at the I/O servers. A later truncation decides the size;
// otherwise it only grows, because this client may know of writes that the answer is too old for.
func (n *inode) learnLocked(a *meta.Attr) {
	switch {
	case a.TruncSeq > n.truncSeq:
		n.truncSeq, n.size = a.TruncSeq, a.Size
		n.gaps.cut(a.Size)
		n.growth.to = 0
	case a.TruncSeq == n.truncSeq:
		n.size = max(n.size, a.Size)
	default:
		return // an answer that was overtaken
	}
	n.attr = *a
	n.heard = time.Now()
	if len(n.stripes) < a.Layout.Width() {
		n.stripes = append(n.stripes, make([]unsynced, a.Layout.Width()-len(n.stripes))...)
	}
}

func (n *inode) learn(a *meta.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.learnLocked(a)
}

// doubt lets the next read that meets the end of the file ask for its length.
func (n *inode) doubt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = time.Time{}
}

// hear takes over attributes from an answer that came by the way. It may know of a truncation
// that is still being carried out: a write under that sequence now would be cut by it later, so
// the sequence is left alone until a server refuses the old one and the size is asked for.
func (n *inode) hear(a *meta.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.TruncSeq == n.truncSeq {
		n.attr = *a
		n.size = max(n.size, a.Size)
	}
}

// overlay corrects a's size and time by what this client has written and the service may not know.
func (n *inode) overlay(a *meta.Attr) {
	n.hear(a)
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.TruncSeq <= n.truncSeq {
		a.Size, a.TruncSeq = n.size, n.truncSeq
	}
	if n.dirty {
		a.Mtime = max(a.Mtime, n.mtime)
		a.Ctime = max(a.Ctime, n.mtime)
	}
}

// sequence is the truncate sequence that requests must carry.
func (n *inode) sequence() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.truncSeq
}

// wrote notes that [from, end) was acknowledged under truncate sequence seq. If the file was
// truncated since, the write lies before the truncation and its end means nothing any more.
func (n *inode) wrote(from, end int64, seq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if seq == n.truncSeq {
		n.gaps.wrote(n.size, from, end)
		n.size = max(n.size, end)
	}
	n.dirty = true
	n.mtime = max(n.mtime, time.Now().UnixNano())
}

// acked notes that a server has acknowledged a volatile change of a stripe.
func (n *inode) acked(stripe int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	u := &n.stripes[stripe]
	u.pending = true
	u.count++
}

// lose records an error that every handle must report once.
func (n *inode) lose(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost.seq++
	n.lost.err = err
	n.lost.seen = false
}

// report returns the error that a handle has not reported yet, if there is one, and the number up
// to which it has.
func (n *inode) report(seen uint64) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost.seq == seen {
		return seen, nil
	}
	n.lost.seen = true
	return n.lost.seq, n.lost.err
}

// baselineLocked is the number that a new handle starts from: an error that nobody has seen yet is
// reported to it too.
func (n *inode) baselineLocked() uint64 {
	if n.lost.seq > 0 && !n.lost.seen {
		return n.lost.seq - 1
	}
	return n.lost.seq
}

// change is what a commit tells the service.
type change struct {
	size     int64
	truncSeq uint64
	mtime    int64
}

// takeDirty claims the uncommitted change; whoever fails to commit it gives it back.
func (n *inode) takeDirty() (change, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.dirty
	n.dirty = false
	return change{n.size, n.truncSeq, n.mtime}, was
}

func (n *inode) giveBack() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirty = true
}

// node finds or makes the shared state of an inode and takes a reference.
func (fs *FS) node(a *meta.Attr) (*inode, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.closed {
		return nil, errs.New(errs.Closed, "client.Open", "", nil)
	}
	n := fs.inodes[a.Ino]
	if n == nil {
		empty := a.DataVersion == 0 && a.Size == 0
		n = &inode{ino: a.Ino, truncSeq: a.TruncSeq, mtime: a.Mtime, unknown: !empty,
			appendMu: newTurn()}
		fs.inodes[a.Ino] = n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refs++
	n.learnLocked(a)
	return n, nil
}

// peek finds the shared state of an inode that is open here, without a reference: it is good for
// reading and for learning, which is harmless on one that is being closed.
func (fs *FS) peek(ino meta.Ino) *inode {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.inodes[ino]
}

// idleMax is how many closed files with unsynced writes are remembered. What falls out is only
// slower to sync: its past is unknown then.
const idleMax = 16 << 10

func (fs *FS) unref(n *inode) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n.mu.Lock()
	n.refs--
	idle := n.refs == 0
	pending := n.pendingLocked()
	n.mu.Unlock()
	if !idle {
		return
	}
	if !pending {
		delete(fs.inodes, n.ino)
		return
	}
	fs.idle = append(fs.idle, n)
	if len(fs.idle) > idleMax {
		fs.dropIdleLocked(fs.idle[0])
		fs.idle = fs.idle[1:]
	}
}

func (n *inode) pendingLocked() bool {
	for i := range n.stripes {
		if n.stripes[i].pending {
			return true
		}
	}
	return n.lost.seq > 0 && !n.lost.seen
}

// dropIdleLocked forgets a closed file, unless it was opened again.
func (fs *FS) dropIdleLocked(n *inode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refs == 0 && fs.inodes[n.ino] == n {
		delete(fs.inodes, n.ino)
	}
}

// commit tells the service what was written, if there is something to tell. With sync everything
// that the service was told before is on stable storage when it returns.
func (fs *FS) commit(ctx context.Context, n *inode, sync bool) error {
	if err := fs.tellHoles(ctx, n); err != nil {
		return err
	}
	c, dirty := n.takeDirty()
	if !dirty {
		if !sync {
			return nil
		}
		return errs.Wrap("client.Sync", "", fs.svc.Sync(ctx))
	}
	s := fs.sess.Load()
	a, err := fs.svc.Commit(ctx, fs.trusted(), n.ino, c.size, c.truncSeq, c.mtime, sync)
	if err != nil && fs.checkSession(ctx, s, err) {
		a, err = fs.svc.Commit(ctx, fs.trusted(), n.ino, c.size, c.truncSeq, c.mtime, sync)
	}
	if err != nil {
		n.giveBack()
		return errs.Wrap("client.Commit", "", err)
	}
	n.hear(&a)
	return nil
}
