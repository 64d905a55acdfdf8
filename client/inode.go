package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/meta"
)

// inode is what all handles of one file in this client share: how long it is, which truncations
// are known, and which acknowledged writes are not yet on stable storage. It lives from the first
// open to the last close, and on while there are unsynced writes: whoever opens the file later
// and syncs it means those too.
type inode struct {
	ino meta.Ino

	appendMu turn        // held during an append, so that each one finds the end of the one before
	telling  turn        // held while the service is told of a change: changes follow each other
	coming   turn        // held while handles that may write are opened or closed at the service
	small    atomic.Bool // the data lies with the metadata (see small.go); once false it stays so

	mu       sync.Mutex
	refs     int
	files    list.List[File]
	writers  int       // handles of programs that may write
	author   meta.Cred // who had it open for writing last, other than root
	attr     meta.Attr // as last heard of; Size, TruncSeq and Mtime below count
	recalled bool      // a lease was recalled since, nobody answered, or a truncation was heard of
	size     int64
	truncSeq uint64
	mtime    meta.Time
	wroteAt  time.Time // when mtime was taken, by the steady clock
	dirty    bool      // size, mtime or small data is not yet told
	taken    bool      // it is being told, and may have to be told again
	written  bool      // by this client, since it was opened
	changes  uint64    // raised with every write and truncation that this client knows of
	gaps     gaps
	growth   growth
	lease    lease
	holding  holding
	content  content

	stripes []unsynced // by stripe
	unknown bool       // there may be unsynced writes from before this record: sync all stripes
	lost    lossRecord
}

// lease is the right to change a file without telling at once: meta.LeaseWrite.
type lease struct {
	state   leaseState
	epoch   uint64      // of the session's leases, in which it was given
	grants  uint64      // raised whenever it is given
	recalls int         // that are being carried out
	claims  bool        // it was held when the service ended, and can be claimed
	closing bool        // a handle that may write is being closed: with the last one the lease goes
	floor   cache.Token // only who has asked later, or has opened the file, hears of another one
	asking  func()      // ends what who has inode.telling waits for; nil: for nobody
}

// end notes that the lease is gone.
func (l *lease) end() { l.state, l.claims = leaseNone, false }

// give notes that it is given.
func (l *lease) give(state leaseState, epoch uint64) {
	l.state, l.epoch, l.claims = state, epoch, false
	l.grants++
	l.hurry()
}

// hurry ends what is waited for with inode.telling if the lease is to go back: whoever carries that
// out needs it.
func (l *lease) hurry() {
	if l.state == leaseLeaving && l.asking != nil {
		l.asking()
	}
}

type leaseState uint8

const (
	leaseNone    leaseState = iota
	leaseLeaving            // it is being given back: what was done under it is told, no more is done
	leaseHeld
)

// unsynced is what a client remembers of one stripe's volatile writes.
type unsynced struct {
	pending bool
	count   uint64 // raised with every write, so that a sync knows what it did not cover
	under   uint64 // the server's life in which a dead process has written; 0: none has (lives.go)
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
	if !a.Small && n.small.Load() && a.TruncSeq >= n.truncSeq {
		n.outLocked(a)
	}
	switch {
	case a.TruncSeq > n.truncSeq:
		n.truncSeq = a.TruncSeq
		if !n.keepsLocked(a) {
			n.cutLocked(a)
		}
	case a.TruncSeq == n.truncSeq:
		n.grewLocked(a)
	default:
		return // an answer that was overtaken
	}
	if !n.overtakenLocked(a) {
		n.attr, n.recalled = *a, false
	}
	if !a.Small {
		n.small.Store(false)
	}
	if len(n.stripes) < a.Layout.Width() {
		n.stripes = append(n.stripes, make([]unsynced, a.Layout.Width()-len(n.stripes))...)
	}
}

// keepsLocked tells whether the file has small data that was not told: the sequence may have been
// raised to fence a writer off, maybe this client itself as it was before, and nobody has changed
// anything. accept decides on that, or the answer to a truncation of this client (cut). Until then
// the data is told under the sequence that it has followed, so that the service decides, too.
func (n *inode) keepsLocked(a *meta.Attr) bool {
	return a.Small && n.content.known && (n.dirty || n.taken)
}

// behindLocked tells whether there was a truncation that small data has not followed.
func (n *inode) behindLocked(seq uint64) bool {
	return n.small.Load() && n.content.known && n.content.seq < seq
}

// mayBeCut tells whether an answer knows of a truncation that what was not told has not followed.
// One that only fences a writer off leaves the version of the data alone.
func (n *inode) mayBeCut(a *meta.Attr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dirty && n.behindLocked(a.TruncSeq) && a.DataVersion != n.content.version
}

// grewLocked takes over the length from an answer that knows of the same truncations, unless what
// is here is still that of before.
func (n *inode) grewLocked(a *meta.Attr) {
	if !n.behindLocked(a.TruncSeq) {
		n.size = max(n.size, a.Size)
	}
}

// followLocked follows a truncation that came while there was something to tell: that was told
// before, or is gone.
func (n *inode) followLocked() {
	if !n.dirty && !n.taken && n.behindLocked(n.truncSeq) {
		n.content.data, n.content.known, n.content.seq = nil, false, n.truncSeq
		n.size, n.growth.to = n.attr.Size, 0
		n.gaps = gaps{}
	}
}

// cutLocked follows a truncation.
func (n *inode) cutLocked(a *meta.Attr) {
	n.size = a.Size
	n.changes++
	n.gaps.cut(a.Size)
	n.growth.to = 0
	n.content.cut(a)
}

// cut takes over the answer to a truncation of this client itself: what it has written before is
// cut, too, also where nobody was told of it yet.
func (n *inode) cut(a *meta.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.learnLocked(a)
	if !n.small.Load() {
		return
	}
	n.content.version = max(n.content.version, a.DataVersion) // also where that has followed it
	if s := n.content.spilled; s != 0 && s < meta.SpilledUnder(a.TruncSeq) {
		n.content.spilled, n.content.longer = meta.SpilledUnder(n.truncSeq), true
	}
	if a.TruncSeq > n.content.seq {
		n.cutLocked(a)
		if a.Size == 0 { // as at the service: nothing is left to be told, nor to be overtaken by others
			n.dirty, n.taken = false, false
		}
	}
}

func (n *inode) learn(a *meta.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.learnLocked(a)
}

// doubt notes that others may have changed the file since it was heard of.
func (n *inode) doubt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recalled = true
}

// hear takes over attributes from an answer that came by the way. It may know of a truncation
// that is still being carried out: a write under that sequence now would be cut by it later, so
// the sequence is left alone until a server refuses the old one and the size is asked for. Whoever
// reads before that asks, too: the file may be shorter.
func (n *inode) hear(a *meta.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hearLocked(a)
}

func (n *inode) hearLocked(a *meta.Attr) {
	switch {
	case a.TruncSeq > n.truncSeq:
		n.recalled = true
	case a.TruncSeq == n.truncSeq:
		n.grewLocked(a)
		if !n.overtakenLocked(a) {
			n.attr = *a
		}
	}
}

// overtakenLocked tells whether an answer is older than what was heard of last: the data has had
// another version since, or a later lease came with attributes that were read later.
func (n *inode) overtakenLocked(a *meta.Attr) bool {
	return a.DataVersion < n.attr.DataVersion || a.Serial != 0 && a.Serial < n.attr.Serial
}

// overlay corrects a's size and time by what this client has written and the service may not know.
func (n *inode) overlay(a *meta.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hearLocked(a)
	n.overlayLocked(a)
}

// attrLocked is the attributes as last heard of, with what this client has written.
func (n *inode) attrLocked() meta.Attr {
	a := n.attr
	a.Size, a.TruncSeq = n.size, n.truncSeq
	if n.dirty {
		n.timesLocked(&a)
	}
	return a
}

func (n *inode) overlayLocked(a *meta.Attr) {
	if a.TruncSeq <= n.truncSeq {
		a.Size, a.TruncSeq = n.size, n.truncSeq
	}
	if n.dirty || n.taken {
		n.timesLocked(a)
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
	n.wroteLocked(from, end, seq)
}

func (n *inode) wroteLocked(from, end int64, seq uint64) {
	if seq == n.truncSeq {
		n.gaps.wrote(n.size, from, end)
		n.size = max(n.size, end)
	}
	n.dirty, n.written, n.content.out = true, true, 0
	n.changes++
	n.mtime, n.wroteAt = meta.Later(n.mtime, meta.Now()), time.Now()
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
	n.loseLocked(err)
}

func (n *inode) loseLocked(err error) {
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

// lostSince is report for who may have to report it again.
func (n *inode) lostSince(seen uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost.seq == seen {
		return nil
	}
	return n.lost.err
}

// baselineLocked is the number that a new handle starts from: an error that nobody has seen yet is
// reported to it too.
func (n *inode) baselineLocked() uint64 {
	if n.lost.seq > 0 && !n.lost.seen {
		return n.lost.seq - 1
	}
	return n.lost.seq
}

// unlease notes that a lease is gone.
func (n *inode) unlease() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lease.end()
}

// left notes that a recall was carried out. The service may have asked once more meanwhile: then
// the lease has not gone back.
func (n *inode) left() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lease.recalls--; n.lease.recalls == 0 && n.lease.state == leaseLeaving {
		n.lease.end()
	}
}

// drop notes that all leases are gone, without having been asked for: what local handles show may
// not be the last that was in the file. restart: the service has ended, and hears claims.
func (n *inode) drop(restart bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	claims := restart && (n.lease.state != leaseNone || n.lease.claims)
	n.lease.end()
	n.lease.claims = claims
	n.recalled = true
	n.content.kept = nil
}

// recalling tells whether a recall is being carried out.
func (n *inode) recalling() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lease.recalls > 0
}

// leaving stops what is done under a lease that was recalled. It tells whether there is something
// to be done before the lease can go back; then left must follow. claiming: leases are just being
// claimed. The cache hears of the recall in the same moment: of an answer that grants the lease
// either comes first.
func (n *inode) leaving(fs *FS, claiming bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	fs.cache.Recall(n.ino)
	n.recalled = true
	if n.lease.state == leaseHeld {
		n.lease.state = leaseLeaving
	}
	n.lease.hurry()
	untold := claiming && (n.dirty || n.taken)
	if n.lease.state != leaseLeaving && n.content.local == 0 && !untold {
		n.lease.claims = n.lease.claims && !claiming // it goes back, whatever the claim is answered
		return false
	}
	n.lease.recalls++
	return true
}

// asks returns a context for what may have to wait for others, as a request for the lease. The
// caller has inode.telling, and calls done afterwards. The context ends when a lease is recalled,
// perhaps one that another request of this client has brought meanwhile.
func (n *inode) asks(ctx context.Context) (asking context.Context, done func()) {
	asking, cancel := context.WithCancel(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lease.asking = cancel
	n.lease.hurry()
	return asking, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lease.asking = nil
		cancel()
	}
}

// grantedLocked takes over LeaseWrite from an answer, if the answer is not out of date. The service
// takes the lease away with the last handle that may write: an answer that was on its way
// meanwhile says nothing, unless it has opened the next one.
func (n *inode) grantedLocked(fs *FS, t cache.Token, a *meta.Attr, by source) bool {
	if a.Lease != meta.LeaseWrite || !fs.cache.Granted(t, n.ino) ||
		by != byOpen && (n.lease.closing || t < n.lease.floor) {
		return false
	}
	n.lease.give(leaseHeld, fs.leases.current())
	return true
}

// node finds or makes the shared state of an inode and takes a reference. While the FS is being
// closed only upkeep gets one: what was written must be told.
func (fs *FS) node(a *meta.Attr, upkeep bool) (*inode, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.over || fs.closed && !upkeep {
		return nil, errs.New(errs.Closed, "client.Open", "", nil)
	}
	n := fs.inodes[a.Ino]
	if n == nil {
		if fs.past.correct(a) {
			a.Lease, a.Serial = meta.LeaseNone, 0 // it was told under the lease that is gone
		}
		empty := a.DataVersion == 0 && a.Size == 0
		n = &inode{ino: a.Ino, truncSeq: a.TruncSeq, mtime: notAhead(a.Mtime),
			unknown: !empty && !a.Small, appendMu: newTurn(), telling: newTurn(), coming: newTurn()}
		n.small.Store(a.Small)
		fs.inodes[a.Ino] = n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refs++
	n.learnLocked(a)
	return n, nil
}

// ref finds the shared state of an inode that is open here and takes a reference; nil: there is
// none.
func (fs *FS) ref(ino meta.Ino) *inode {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.inodes[ino]
	if n != nil {
		n.hold()
	}
	return n
}

// opened lists the handles of a file that have all of the flags.
func (n *inode) opened(flags meta.OpenFlags) (all []*File) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := n.files.First(); f != nil; f = f.ofInode.Next() {
		if f.flags&flags == flags {
			all = append(all, f)
		}
	}
	return all
}

// hold takes another reference.
func (n *inode) hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refs++
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
		fs.forgetLocked(n)
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
		fs.forgetUnder(n)
	}
}

// forgetLocked forgets an inode that is not open any more.
func (fs *FS) forgetLocked(n *inode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fs.forgetUnder(n)
}

// forgetUnder is forgetLocked for who has the inode's lock.
func (fs *FS) forgetUnder(n *inode) {
	if n.written {
		a := n.attr
		a.Size, a.TruncSeq = n.size, n.truncSeq
		n.timesLocked(&a)
		if n.small.Load() {
			a.DataVersion = max(a.DataVersion, n.content.version)
		}
		fs.past.put(&a)
	}
	if fs.inodes[n.ino] == n {
		delete(fs.inodes, n.ino)
	}
}
