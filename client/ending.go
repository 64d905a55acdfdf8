package client

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	metaremote "github.com/sluice-storage/sluice/meta/remote"
)

// Every handle at the metadata service has one owner here: the File whose grant names it, or this
// queue. A File gives its handle up when it is closed; a handle that was opened for a File
// which is closed by then, or has another one, goes to the queue, and so does one that could not be
// closed, or of which nobody knows whether it was opened. The queue closes many with one request,
// which tells what was written to their files, too. It asks the service until it says that the
// handle is gone, or that the session is.

// endingsMax is how many handles may wait in the queue before nothing more is opened.
const endingsMax = 64 << 10

// endPauseMax is the longest pause between two attempts to close what could not be closed.
const endPauseMax = 5 * time.Second

// gatherTime is for how long handles are gathered before they are closed together. Who waits for
// one does not wait for that.
const gatherTime = time.Millisecond

// Bounds of one request: handles, so that its answer comes soon, and data of small files.
const (
	batchMax   = 128
	batchBytes = 256 << 10
)

// closeEndings works through the queue until the FS is closed, which does the rest by itself.
func (fs *FS) closeEndings() {
	ctx := metaremote.InBackground(fs.life)
	for pause := pauseFirst; ; {
		select {
		case <-fs.life.Done():
			return
		case <-fs.endings.token:
		}
		if !wait.Sleep(fs.life, gatherTime) || fs.endings.round.take(fs.life) != nil {
			return
		}
		r := fs.closeRound(ctx, nil)
		fs.endings.round.giveBack()
		if r.some || !r.left {
			pause = pauseFirst
		}
		if !r.left {
			continue
		}
		if !fs.endings.rest(fs.life, pause, r.refused) {
			return
		}
		pause = min(2*pause, endPauseMax)
	}
}

// flushEndings closes what is in the queue now.
func (fs *FS) flushEndings(ctx context.Context) {
	if fs.endings.count() == 0 || fs.endings.round.take(ctx) != nil {
		return
	}
	defer fs.endings.round.giveBack()
	if r := fs.closeRound(ctx, nil); r.left {
		fs.endings.wake()
	}
}

// flushEndingsOf closes what is in the queue of one file, unless somebody is just closing some: who
// does may wait for what others wait for.
func (fs *FS) flushEndingsOf(ctx context.Context, n *inode) {
	if !fs.endings.waits(n) || n.unowned() || !fs.endings.round.try() {
		return
	}
	defer fs.endings.round.giveBack()
	if r := fs.closeRound(ctx, n); r.left {
		fs.endings.wake()
	}
}

// FinishCloses returns when the service knows of the handles of a file that were closed, unless the
// file is small: whoever opens it next then gets the version of its data that this client's own
// writes have made.
func (fs *FS) FinishCloses(ctx context.Context, ino meta.Ino) {
	if n := fs.peek(ino); n != nil && !n.small.Load() && fs.endings.has(n, fs.sess.Load().id) {
		fs.flushEndings(ctx)
	}
}

// closed is the outcome of a round.
type closed struct {
	some    bool // handles were closed
	left    bool // others were not
	refused bool // because of the service: it should have a rest
}

// closeRound tries to close everything in the queue, or with n the handles of one file. Whoever
// refuses one is asked again later, not once for each.
func (fs *FS) closeRound(ctx context.Context, n *inode) (r closed) {
	var left []ending
	all := fs.endings.take(n)
	for len(all) > 0 {
		if all[0].node == nil {
			if r.refused = r.refused || !fs.takeBack(ctx, &all[0]); r.refused {
				left = append(left, all[0])
			} else {
				r.some = true
			}
			all = all[1:]
			continue
		}
		if fs.tellsFirst(&all[0]) {
			fs.flushing.put(all[0].node) // it may have to wait for other clients, and others for this
			left, all = append(left, all[0]), all[1:]
			continue
		}
		b := batch{fs: fs, caller: all[0].caller}
		for len(all) > 0 && b.add(&all[0]) {
			all = all[1:]
		}
		rest := b.close(ctx)
		left = append(left, rest...)
		r.some = r.some || len(rest) < len(b.items)+len(b.later)
		if r.refused = r.refused || b.refused; ctx.Err() != nil || b.refused {
			left = append(left, all...)
			break
		}
	}
	fs.endings.giveBack(left)
	r.left = len(left) > 0
	return r
}

// tellsFirst tells whether what was written through a handle must be told under another lease than
// the one that it was written under, before the handle is closed.
func (fs *FS) tellsFirst(e *ending) bool {
	return e.flags&meta.OpenWrite != 0 && e.caller.Session == fs.sess.Load().id && e.node.unowned()
}

// takeBack undoes an opening whose outcome is not known. It tells whether there is certainly no
// handle.
func (fs *FS) takeBack(ctx context.Context, e *ending) bool {
	ctx, cancel := context.WithTimeout(ctx, callMax(fs.opts.WaitMax))
	defer cancel()
	err := fs.svc.Close(ctx, e.caller, meta.Closing{Handle: e.handle})
	switch errs.KindOf(err) {
	case errs.OK, errs.Closed, errs.Stale, errs.NotFound:
		return true
	}
	fs.opts.Logger.Debug("a handle could not be closed", "handle", e.handle, "err", err)
	return false
}

// batch is a number of handles of one session that are closed together.
type batch struct {
	fs      *FS
	caller  meta.Caller
	items   []item
	later   []ending // of files that somebody tells the service of at this moment
	bytes   int
	born    bool // of files that the service does not know yet
	refused bool
}

// item is one of them. The batch has the telling of its file where it tells something.
type item struct {
	ending
	closing meta.Closing
	change  *cache.Change // nil: it tells nothing
	grants  uint64        // of the lease that it is told under
	version uint64        // of the data that it began with
	heard   uint64        // data version of the attributes that were known when it was taken
	first   bool          // of those of its file that may write: it has inode.coming
	last    bool          // no other handle that may write is known to the service
	gone    bool
}

// add adds a handle, if it belongs to the batch and has room in it.
func (b *batch) add(e *ending) bool {
	if e.node == nil || e.caller.Session != b.caller.Session || len(b.items) == batchMax ||
		b.bytes > batchBytes || !b.born && b.fs.tellsFirst(e) {
		return false
	}
	it := item{ending: *e, closing: meta.Closing{Handle: e.handle}}
	it.closing.Spilled = e.node.halfOut()
	if e.flags&meta.OpenWrite != 0 && !b.enters(&it) {
		b.later = append(b.later, *e)
		return true
	}
	if e.flags&meta.OpenWrite != 0 && !b.tells(e.node) {
		if !e.node.telling.try() {
			b.leaves(&it)
			b.later = append(b.later, *e)
			return true
		}
		e.node.takeForClose(&it, b.born)
		if !it.closing.Dirty {
			e.node.telling.giveBack()
		} else {
			it.change = b.fs.cache.Change().Inode(e.node.ino)
			b.bytes += len(it.closing.Change.Data)
		}
	}
	b.items = append(b.items, it)
	return true
}

// enters begins to close a handle that may write. It is false while the file is being opened to
// write: whether the service takes the lease away depends on which of them it hears of first.
func (b *batch) enters(it *item) bool {
	n := it.node
	for i := range b.items {
		if o := &b.items[i]; o.node == n && o.flags&meta.OpenWrite != 0 {
			return true
		}
	}
	if !n.coming.try() {
		return false
	}
	queued := b.fs.endings.waits(n)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lease.closing = true
	it.first, it.last = true, !queued && !n.writesLocked()
	if it.last {
		it.grants = n.lease.grants
	}
	return true
}

// leaves ends enters.
func (b *batch) leaves(it *item) {
	if !it.first {
		return
	}
	n := it.node
	n.mu.Lock()
	n.lease.closing, n.lease.floor = false, b.fs.cache.Now()
	n.mu.Unlock()
	n.coming.giveBack()
}

// writesLocked tells whether a handle that may write is open, or was until a moment ago.
func (n *inode) writesLocked() bool {
	for f := n.files.First(); f != nil; f = f.ofInode.Next() {
		if f.flags&meta.OpenWrite != 0 {
			return true
		}
	}
	return false
}

// tells tells whether the batch has the telling of a file already.
func (b *batch) tells(n *inode) bool {
	for i := range b.items {
		if b.items[i].node == n && b.items[i].change != nil {
			return true
		}
	}
	return false
}

// takeForClose takes what must be told when a handle is closed: nothing while another one is open,
// or where the lease is gone that it was written under, unless nobody can have had another one: the
// file is born with this.
func (n *inode) takeForClose(it *item, born bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writers > 0 || !born && n.small.Load() && n.lease.state == leaseNone {
		return
	}
	it.grants, it.version, it.heard = n.lease.grants, n.content.version, n.attr.DataVersion
	it.closing.Change, it.closing.Dirty = n.takeDirtyLocked()
}

// close closes them and returns those that it could not close.
func (b *batch) close(ctx context.Context) (left []ending) {
	left = b.later
	if len(b.items) == 0 {
		return left
	}
	ctx, stop := b.fs.leases.within(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, callMax(b.fs.opts.WaitMax))
	defer cancel()
	list := make([]meta.Closing, len(b.items))
	for i := range b.items {
		list[i] = b.items[i].closing
	}
	ended, err := b.fs.svc.CloseMany(ctx, b.caller, list)
	for i := range b.items {
		e := meta.Ended{Kind: errs.KindOf(err)}
		if err == nil {
			e = ended[i]
		}
		if b.items[i].gone = b.items[i].end(b.fs, e); !b.items[i].gone {
			left = append(left, b.items[i].ending)
			b.refused = b.refused || e.Kind != errs.Fenced
		}
	}
	b.fs.endings.ended(b.items)
	for i := range b.items {
		b.leaves(&b.items[i])
	}
	for i := range b.items {
		if b.items[i].gone {
			b.fs.unref(b.items[i].node)
		}
	}
	if b.refused {
		b.fs.opts.Logger.Debug("handles could not be closed", "first", left[0].handle, "err", err)
	}
	return left
}

// end settles an item by what became of it, and tells whether its handle is gone.
func (it *item) end(fs *FS, e meta.Ended) (gone bool) {
	n, k := it.node, e.Kind
	var o cache.Outcome
	n.mu.Lock()
	switch {
	case k == errs.OK:
		gone = true
		if it.closing.Dirty {
			o = n.closedLocked(it)
		}
		if it.last && n.lease.grants == it.grants {
			n.lease.end()
		}
	case k == errs.NotFound:
		gone = true // the file is gone, and what was written to it
	case k == errs.Closed || k == errs.Stale:
		gone = true // the session is, or an earlier attempt has succeeded
		if it.closing.Dirty {
			n.giveBackLocked(it.closing.Change.Whole)
			n.lease.end()
		}
	case k.Passing() || k == errs.MaybeDone:
		if it.closing.Dirty {
			n.giveBackLocked(it.closing.Change.Whole)
		}
	case k == errs.Fenced && it.closing.Dirty:
		// The file was cut, or others have had it: whoever tells it under another lease finds out.
		n.giveBackLocked(it.closing.Change.Whole)
		if n.lease.grants == it.grants {
			n.lease.end()
		}
	case it.closing.Dirty:
		n.taken = false
		n.lease.end()
		n.followLocked()
		n.loseLocked(errs.Newf(k, "client.Close", "", "what was written before could not be told"))
		fs.opts.Logger.Error("what was written to a closed file is lost", "ino", n.ino, "err", k)
	}
	dirty := n.dirty && n.small.Load()
	n.mu.Unlock()
	if gone && dirty {
		fs.flushing.put(n)
	}
	if it.change != nil {
		it.change.End(o)
		if e.Version != 0 { // before somebody else tells something: see Telling
			w := &it.closing.Change
			fs.versioned(&meta.Attr{Ino: n.ino, DataVersion: e.Version, TruncSeq: w.TruncSeq, Size: w.Size})
		}
		n.telling.giveBack()
	}
	return gone
}

// closedLocked notes that the service has closed the last handle that could write, with what was
// written under the lease. It returns what the service knows of a small file now: the lease is one
// for reading from then on. Of other files it has set the time of change. What else there is to
// know the cache knows, or nobody does: not all that this client does is heard of here.
func (n *inode) closedLocked(it *item) (o cache.Outcome) {
	w := &it.closing.Change
	n.toldLocked(w)
	held := n.lease.state == leaseHeld
	n.content.version = max(n.content.version, it.version+1)
	if held && n.lease.grants != it.grants && w.Whole {
		n.attr.DataVersion = max(n.attr.DataVersion, it.version+1)
	}
	if !held || n.lease.grants != it.grants || w.TruncSeq != n.truncSeq ||
		n.attr.DataVersion != it.heard {
		return o // an answer has come meanwhile, which may be older than the closing or newer
	}
	n.attr.DataVersion, n.attr.Writers = n.attr.DataVersion+1, false
	n.attr.Size, n.attr.TruncSeq = w.Size, w.TruncSeq
	n.attr.Mtime, n.attr.Ctime = w.Mtime, meta.Later(n.attr.Ctime, w.Mtime)
	if w.Whole && n.writers == 0 && !n.dirty {
		o.Told = &cache.Told{Ino: n.ino, Size: w.Size, TruncSeq: w.TruncSeq, Mtime: w.Mtime, Data: w.Data}
	}
	return o
}

// openIn opens a file in a session. Where the answer leaves open whether there is a handle now, the
// opening is taken back.
func (fs *FS) openIn(ctx context.Context, s *session,
	get func(context.Context, meta.Caller) (meta.Handle, error)) (meta.Handle, error) {
	h, undo, err := fs.openOnce(ctx, s, newRequest(), get)
	if undo != nil {
		fs.endings.put(*undo)
	}
	return h, err
}

// roomToOpen waits while too many handles wait to be closed. Who gives a lease back, or opens again
// what was open, does not: others wait for that.
func (fs *FS) roomToOpen(ctx context.Context) error {
	if metaremote.IsUpkeep(ctx) {
		return nil
	}
	var paused time.Duration
	for try := 0; fs.endings.count() >= endingsMax; try++ {
		if fs.flushEndings(ctx); fs.endings.count() < endingsMax {
			break
		}
		pause := min(pauseFirst<<min(try, 8), pauseMax)
		if paused += pause; paused > callMax(fs.opts.WaitMax) {
			return errs.Newf(errs.TimedOut, "client.Open", "",
				"%d files wait to be closed at the metadata service", fs.endings.count())
		}
		if !wait.Sleep(ctx, pause) {
			return errs.Wrap("client.Open", "", ctx.Err())
		}
	}
	return nil
}

// refusal tells whether an opening that failed like that was not done.
func refusal(k errs.Kind) bool {
	switch k {
	case errs.NotFound, errs.Exists, errs.NotDir, errs.IsDir, errs.Access, errs.Perm, errs.Invalid,
		errs.NameTooLong, errs.Stale, errs.Loop, errs.Unsupported, errs.NoMemory, errs.TooManyOpen:
		return true
	}
	return false
}
