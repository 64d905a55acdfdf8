package client

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/journal"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	metaremote "github.com/sluice-storage/sluice/meta/remote"
)

// How what was done here is told: see deferral.go. One message at a time is under way, and what is
// in it does not change any more: after a lost answer it is sent again as it was, under the same
// request id, so that it is done once.

// tellAfter is for how long operations are gathered before they are told. Who waits for one does
// not wait for that.
const tellAfter = 8 * time.Millisecond

// tellBatch is how many operations a message has at most: as many files with data as are closed in
// one request.
const tellBatch = batchMax

// message are operations that are being told.
type message struct {
	deeds  []*deed
	list   []meta.Deferred
	caller meta.Caller
	epoch  uint64
	batch  batch // the files that are closed with it, whose telling it has
	noted  journal.Ref
}

// tellLater works until the FS is closed, which tells the rest by itself.
func (fs *FS) tellLater() {
	ctx := metaremote.InBackground(fs.life)
	for pause := pauseFirst; ; {
		select {
		case <-fs.life.Done():
			return
		case <-fs.deferral.token:
		}
		if !wait.Sleep(fs.life, tellAfter) {
			return
		}
		if err := fs.tellAll(ctx); err == nil {
			pause = pauseFirst
			continue
		} else if fs.life.Err() == nil {
			fs.opts.Logger.Debug("names could not be told", "err", err)
		}
		if !wait.Sleep(fs.life, pause) {
			return
		}
		fs.deferral.wake()
		pause = min(2*pause, endPauseMax)
	}
}

// tellAll tells everything that was done here until now.
func (fs *FS) tellAll(ctx context.Context) error {
	d := &fs.deferral
	if d.count.Load() == 0 {
		return nil
	}
	d.mu.Lock()
	upTo := d.seq
	d.mu.Unlock()
	return fs.tellUpTo(ctx, upTo)
}

// tellNames tells everything that concerns one of some inodes, before the service is asked
// something that depends on it.
func (fs *FS) tellNames(ctx context.Context, inos ...meta.Ino) error {
	d := &fs.deferral
	if d.count.Load() == 0 {
		return nil
	}
	d.mu.Lock()
	some, upTo := false, d.seq
	for _, ino := range inos {
		some = some || d.inodes[ino] > 0 && ino != 0
	}
	d.mu.Unlock()
	if !some {
		return nil
	}
	return fs.tellUpTo(ctx, upTo)
}

// tellHandles is tellNames for files that are open by handles.
func (fs *FS) tellHandles(ctx context.Context, handles ...uint64) error {
	d := &fs.deferral
	if d.count.Load() == 0 {
		return nil
	}
	d.mu.Lock()
	some, upTo := false, d.seq
	for _, h := range handles {
		some = some || d.handles[h] != nil
	}
	d.mu.Unlock()
	if !some {
		return nil
	}
	return fs.tellUpTo(ctx, upTo)
}

// tellUpTo tells the operations up to a number.
func (fs *FS) tellUpTo(ctx context.Context, seq uint64) error {
	d := &fs.deferral
	for {
		if err := d.round.take(ctx); err != nil {
			return err
		}
		m := fs.nextMessage(seq)
		if m == nil {
			d.round.giveBack()
			return nil
		}
		err := fs.send(ctx, m)
		d.round.giveBack()
		if err != nil {
			return errs.Wrap("client.tell", "", err)
		}
	}
}

// nextMessage is the one that is under way, or the next one; nil: all up to a number are told. The
// caller has the round.
func (fs *FS) nextMessage(seq uint64) *message {
	d := &fs.deferral
	d.mu.Lock()
	if d.told >= seq || d.busy == nil && len(d.list) == 0 {
		d.mu.Unlock()
		return nil
	}
	if m := d.busy; m != nil {
		d.mu.Unlock()
		return m
	}
	m := &message{epoch: d.list[0].epoch, batch: batch{fs: fs, born: true},
		caller: meta.Caller{Session: d.list[0].session, Leases: true, ReqID: newRequest()}}
	m.batch.caller = m.caller
	bytes := int64(0)
	for _, w := range d.list {
		if len(m.deeds) == tellBatch || bytes > batchBytes || w.session != m.caller.Session ||
			w.epoch != m.epoch {
			break
		}
		w.sent = true
		bytes += w.bytes + int64(len(w.File.Target))
		m.deeds = append(m.deeds, w)
	}
	d.list = d.list[len(m.deeds):]
	d.busy = m
	d.stats.Batches++
	d.mu.Unlock()
	m.build()
	d.noteMessage(m)
	return m
}

// build writes down what is told. Whoever else tells one of the files at this moment, or opens it,
// goes first: then that is told as open, and closed later.
func (m *message) build() {
	m.list = make([]meta.Deferred, len(m.deeds))
	for i, w := range m.deeds {
		at := &m.list[i]
		*at = w.Deferred
		if !w.closed {
			continue
		}
		n := len(m.batch.items)
		if !m.batch.add(&w.ending) || len(m.batch.items) == n {
			continue
		}
		w.item = n
		it := &m.batch.items[n]
		at.Open, at.Handle = 0, 0
		at.Dirty, at.Change = it.closing.Dirty, it.closing.Change
	}
	m.batch.later = nil
}

// send tells a message, and settles it unless it may be sent again.
func (fs *FS) send(ctx context.Context, m *message) error {
	out, err := fs.raw.TellMany(ctx, m.caller, m.epoch, m.list)
	if k := errs.KindOf(err); err != nil && (k.Passing() || k == errs.MaybeDone || ctx.Err() != nil) {
		return err
	}
	if err != nil {
		fs.opts.Logger.Error("what was done in directories that were held alone is lost",
			"operations", len(m.deeds), "err", err)
		err = errs.Newf(errs.IO, "client", "", "what was done could not be told: %w", err)
	}
	m.settle(fs, out, err)
	return nil
}

// settle notes what came of the operations of a message; err: of all of them.
func (m *message) settle(fs *FS, out []meta.Settled, err error) {
	forgets := map[meta.Ino]bool{}
	for i, w := range m.deeds {
		became, failed := meta.Settled{}, err
		if err == nil {
			became = out[i]
			if became.Kind != errs.OK {
				failed = errs.New(became.Kind, "client", w.Name, errors.New("told later"))
			}
		}
		m.settleOne(fs, w, &became, failed, forgets)
	}
	for i := range m.batch.items {
		it := &m.batch.items[i]
		m.batch.leaves(it)
		if it.gone {
			fs.unref(it.node)
		}
	}
	d := &fs.deferral
	d.mu.Lock()
	d.answeredLocked(m)
	for _, w := range m.deeds {
		d.endLocked(w)
		d.told = w.seq
	}
	d.strikeLocked(m)
	d.busy = nil
	for ino := range forgets {
		delete(d.dirs, ino)
		fs.cache.Recall(ino)
	}
	d.mu.Unlock()
	for ino := range forgets {
		if forget := fs.toForget(ino); forget != nil {
			fs.background(func() { forget(fs.life) })
		}
	}
}

// settleOne settles one operation. forgets are inodes of which something else is true than was
// thought here.
func (m *message) settleOne(fs *FS, w *deed, became *meta.Settled, failed error,
	forgets map[meta.Ino]bool) {
	k := errs.KindOf(failed)
	if w.Kind == meta.DeferMake && became.Lease == meta.LeaseNone ||
		w.File.Type == meta.Directory && w.Kind == meta.DeferMake && became.Lease != meta.LeaseSole {
		forgets[w.Ino] = true
		if n := fs.peek(w.Ino); n != nil {
			n.lapse()
		}
	}
	w.failed = failed != nil
	gone := k == errs.NotFound // with its directory, or removed before: there is nothing to report
	if failed != nil {
		forgets[w.Dir] = true
	}
	if failed != nil && w.Ino != 0 {
		forgets[w.Ino] = true
	}
	if failed != nil && !gone {
		fs.deferral.lose(fs, w, failed)
	}
	switch {
	case w.item >= 0:
		if failed != nil && !gone {
			k = errs.IO // whatever it was: it is not tried again
		}
		it := &m.batch.items[w.item]
		ended := meta.Ended{Kind: k}
		if k == errs.OK && it.closing.Dirty {
			ended.Version = 1 // nobody has changed it before it was there
		}
		_ = it.end(fs, ended)
		it.gone = true // it was never open at the service
	case w.closed:
		fs.endings.put(w.ending)
	}
	if failed != nil && w.Open != 0 && w.item < 0 {
		fs.dieUntold(w, failed)
	}
}

// lapse ends a lease that was thought to be held. If that is because the service was restarted, of
// which this client hears in a moment, it is claimed: what was written under it is not told.
func (n *inode) lapse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lease.state == leaseHeld {
		n.lease.end()
		n.lease.claims = true
	}
}

// dieUntold has the handles of a file fail that was not made after all.
func (fs *FS) dieUntold(w *deed, err error) {
	n := fs.ref(w.Ino)
	if n == nil {
		return
	}
	defer fs.unref(n)
	for _, f := range n.opened(0) {
		_ = f.die(f.grant.Load(), err)
	}
	n.discard()
	if errs.KindOf(err) != errs.NotFound {
		n.lose(err)
	}
}

// lose notes that something that was done is lost. Whoever syncs names next hears of it.
func (d *deferral) lose(fs *FS, w *deed, err error) {
	fs.opts.Logger.Error("what was done in a directory that was held alone is lost", "dir", w.Dir,
		"name", w.Name, "err", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Lost++
	if d.lost == nil {
		d.lost = errs.Wrap("client.SyncNames", w.Name, err)
	}
	d.off = time.Now().Add(deferAgain)
}

// deferAgain is after how long something is done here again when something was lost: on a full disk
// programs had better hear of it at once.
const deferAgain = 10 * time.Second

// lostNames is what was lost that nobody has heard of.
func (fs *FS) lostNames() error {
	d := &fs.deferral
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.lost
	d.lost = nil
	return err
}
