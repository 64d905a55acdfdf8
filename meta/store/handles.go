package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// Open files live in memory only: opening for reading commits nothing, and no cost depends on how
// many handles there are. What the store keeps is whether an inode without a name must be destroyed
// ('U') and whether somebody writes (flagWriters). After a restart clients claim their handles
// (claim.go).
//
// Two things hang on an inode being open, and both need an order with commits:
//
// A removal that takes the last name asks first whether the inode is open (dropping). If it is not,
// the inode counts as dying until the removal is over, and whoever wants to open it waits for that.
// If it is, the removal keeps the inode itself while it is committed, so that the last Close knows
// of the orphan.
//
// flagWriters is set in the commit of the first writer and cleared in that of the last one. Both
// hold the turn of the inode meanwhile, so that the number of writers does not change under them.

// handle is an open file. Its fields but own are not changed.
type handle struct {
	id      uint64
	session uint64
	ino     meta.Ino
	flags   meta.OpenFlags
	uid     uint32   // who opened it
	own     appended // the latest reservation; guarded by sessions.mu
}

func (h *handle) writes() bool { return h.flags&meta.OpenWrite != 0 }

// appended is a reservation, with the request that made it, so that the request can be repeated.
type appended struct {
	ReqID    [16]byte
	TruncSeq uint64
	Off, End int64
}

// reserved is how far a file is reserved by appends. It means nothing once the file has been
// truncated.
type reserved struct {
	TruncSeq uint64
	End      int64
}

// latestMax is how many reservations of a file are remembered: more than one only counts where
// other clients have appended between the death of a process and the repetition by its successor.
const latestMax = 8

// opens is what is open of one inode.
type opens struct {
	handles int
	holders holders // whose these are
	refs    int     // handles, and operations that need the inode to stay
	writers map[uint64]*writing
	writes  int       // handles of all writers
	orphan  bool      // has no name: whoever lets go of it last destroys it
	timed   time.Time // when its times were set last while it was written; see timed.go
	ends    reserved
	pending []pending     // reservations in the order of their places; see appended.go
	landed  chan struct{} // closed when the first of them is there; nil: nobody waits
	latest  []appended    // reservations: their requests may be repeated by another session
	turn    chan struct{} // one token: held while writers come and go; nil: nobody has wanted it
	lane    lane          // of those who want to write; nil likewise

	dying int           // removals under way that found nothing open
	dead  chan struct{} // closed when the last of them is over
}

// writing are the handles of one session that write to a file, by user.
type writing struct {
	handles int
	users   map[uint32]int
}

// openLocked finds or makes the entry of an inode.
func (x *sessions) openLocked(ino meta.Ino) *opens {
	o := x.inodes[ino]
	if o == nil {
		o = &opens{}
		x.inodes[ino] = o
	}
	return o
}

// tidyLocked forgets an entry that says nothing.
func (x *sessions) tidyLocked(ino meta.Ino, o *opens) {
	if o.refs == 0 && o.dying == 0 && !o.orphan {
		delete(x.inodes, ino)
	}
}

// keep makes an inode stay until letGo, whatever happens to its names. It waits for removals that
// are under way; whether the inode is there is for the caller to look at afterwards.
func (x *sessions) keep(ctx context.Context, ino meta.Ino) error {
	for {
		x.mu.Lock()
		o := x.openLocked(ino)
		if o.dying == 0 {
			o.refs++
			x.mu.Unlock()
			return nil
		}
		dead := o.dead
		x.mu.Unlock()
		select {
		case <-dead:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// letGo ends keep. true: it was the last one of an orphan, which counts as dying now: the caller
// must destroy it and call dropped.
func (x *sessions) letGo(ino meta.Ino) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.letGoLocked(ino)
}

func (x *sessions) letGoLocked(ino meta.Ino) bool {
	o := x.inodes[ino]
	o.refs--
	if o.refs > 0 || o.dying > 0 {
		return false
	}
	if o.orphan && x.unsettled == 0 {
		x.dieLocked(o)
		return true
	}
	x.tidyLocked(ino, o)
	return false
}

func (x *sessions) dieLocked(o *opens) {
	if o.dying++; o.dying == 1 {
		o.dead = make(chan struct{})
	}
}

// dropping begins the removal of an inode's last name. open tells that it must become an orphan: it
// is open, or a client of the last process may have it open. dropped or orphaned must follow.
func (x *sessions) dropping(ino meta.Ino) (open bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.openLocked(ino)
	if o.handles > 0 || o.refs > 0 || x.unsettled > 0 {
		o.refs++
		return true
	}
	x.dieLocked(o)
	return false
}

// dropped ends a removal that found the inode not open, or the destruction of an orphan. gone: the
// inode is no more.
func (x *sessions) dropped(ino meta.Ino, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	if gone {
		o.orphan = false
		delete(x.nameless, ino)
	}
	if o.dying--; o.dying == 0 {
		close(o.dead)
		x.tidyLocked(ino, o)
	}
}

// orphaned ends a removal that found the inode open; done: it has no name any more. As letGo, true
// means that the caller must destroy it.
func (x *sessions) orphaned(ino meta.Ino, done bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if done {
		x.adoptLocked(ino)
	}
	return x.letGoLocked(ino)
}

// adopt notes an orphan of the last process.
func (x *sessions) adopt(ino meta.Ino) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.adoptLocked(ino)
}

func (x *sessions) adoptLocked(ino meta.Ino) {
	o := x.openLocked(ino)
	o.orphan = true
	x.nameless[ino] = o
}

// orphans lists orphans that nobody has open, at most max; each counts as dying from now on, and
// the caller must destroy it and call dropped. None while a client of the last process may claim.
func (x *sessions) orphans(max int) (list []meta.Ino) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unsettled > 0 {
		return nil
	}
	for ino, o := range x.nameless {
		if len(list) == max {
			break
		}
		if o.refs == 0 && o.dying == 0 {
			x.dieLocked(o)
			list = append(list, ino)
		}
	}
	return list
}

// enter takes the turn of an inode that the caller keeps.
func (x *sessions) enter(ctx context.Context, ino meta.Ino) error {
	x.mu.Lock()
	o := x.inodes[ino]
	if o.turn == nil {
		o.turn = make(chan struct{}, 1)
	}
	turn := o.turn
	x.mu.Unlock()
	return takeTurn(ctx, turn)
}

// takeTurn puts the token into a channel that has room for one. Whoever has to wait gives its place
// at the server back meanwhile: who has the turn may wait for clients that need one.
func takeTurn(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	default:
	}
	if p := wait.ParkerOf(ctx); p != nil {
		p.Park()
		defer func() { _ = p.Unpark(ctx) }()
	}
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave ends enter.
func (x *sessions) leave(ino meta.Ino) {
	x.mu.Lock()
	defer x.mu.Unlock()
	<-x.inodes[ino].turn
}

// lane finds the lane of an inode. One that nobody has open by then may get another: that is unfair
// for once.
func (x *sessions) lane(ino meta.Ino) lane {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	if o == nil {
		return make(lane, 1)
	}
	if o.lane == nil {
		o.lane = make(lane, 1)
	}
	return o.lane
}

// errThere does not leave the package.
var errThere = errors.New("the handle is there")

// open adds a handle whose place was reserved. errs.Stale: its session has ended. errs.Closed: the
// opening was taken back. errThere: somebody else has added it.
func (x *sessions) open(h *handle) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[h.session]
	switch {
	case a == nil || a.ending:
		return stale(h.session)
	case a.taken[h.id]:
		return errs.Newf(errs.Closed, "meta.open", "", "the opening was taken back")
	case a.open[h.id] != nil:
		return errThere
	}
	if a.open == nil {
		a.open = map[uint64]*handle{}
	}
	a.open[h.id] = h
	o := x.openLocked(h.ino)
	o.handles++
	o.holders.add(h.session, h.uid)
	o.refs++
	if !h.writes() {
		return nil
	}
	if o.writers == nil {
		o.writers = map[uint64]*writing{}
	}
	w := o.writers[h.session]
	if w == nil {
		w = &writing{users: map[uint32]int{}}
		o.writers[h.session] = w
	}
	o.writes++
	w.handles++
	w.users[h.uid]++
	return nil
}

// close takes a handle away; false if somebody else did. As letGo, destroy means that the caller
// must destroy the inode.
func (x *sessions) close(h *handle) (closed, destroy bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[h.session]
	if a == nil || a.open[h.id] != h {
		return false, false
	}
	delete(a.open, h.id)
	a.over(h.id)
	a.handles--
	x.handles--
	o := x.inodes[h.ino]
	o.handles--
	o.holders.remove(h.session)
	o.doneLocked(h, time.Time{})
	if h.writes() {
		w := o.writers[h.session]
		o.writes--
		w.handles--
		if w.users[h.uid]--; w.users[h.uid] == 0 {
			delete(w.users, h.uid)
		}
		if w.handles == 0 {
			delete(o.writers, h.session)
		}
		if len(o.writers) == 0 {
			o.ends, o.latest = reserved{}, nil
		}
	}
	return true, x.letGoLocked(h.ino)
}

// find finds a handle; nil: there is none. errs.Stale: its session has ended. errs.Again: the
// session has not claimed its handles yet.
func (x *sessions) find(session, id uint64) (*handle, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[session]
	switch {
	case a == nil || a.ending:
		return nil, stale(session)
	case a.open[id] == nil && a.unclaimed:
		return nil, unclaimed()
	}
	return a.open[id], nil
}

// opened finds the handle of an opening that may be a repetition.
func (x *sessions) opened(session, id uint64) (*handle, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[session]
	if a == nil || a.ending {
		return nil, stale(session)
	}
	return a.open[id], nil
}

// mayClaim tells whether a session of the last process has not said yet what it has.
func (x *sessions) mayClaim(session uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[session]
	return a != nil && a.unclaimed
}

func unclaimed() error {
	return errs.Newf(errs.Again, "meta.claim", "", "the client has not claimed its open files yet")
}

// writer tells whether a session has a file open for writing, and whether another one has; errs.
// Again while it may have claimed it only later.
func (x *sessions) writer(ino meta.Ino, session uint64) (own, others bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.inodes[ino]; o != nil {
		own = o.writers[session] != nil
		others = len(o.writers) > 1 || len(o.writers) == 1 && !own
	}
	if a := x.byID[session]; !own && a != nil && a.unclaimed {
		err = unclaimed()
	}
	return own, others, err
}

// writes tells whether a user of a session has a file open for writing.
func (x *sessions) writes(ino meta.Ino, session uint64, uid uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	return o != nil && o.writers[session] != nil && o.writers[session].users[uid] > 0
}

// writers counts the handles that write to a file. known: no other client can have it open for
// writing, because all that were there before the process have said what they have open.
func (x *sessions) writers(ino meta.Ino) (n int, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.inodes[ino]; o != nil {
		n = o.writes
	}
	return n, x.unsettled == 0
}

// writerOf finds a client that has an inode open for writing, or may have, other than the one that
// the given session belongs to. Sessions of one name belong to one client.
func (x *sessions) writerOf(ino meta.Ino, own uint64) (client string, found bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	self := x.byID[own]
	if o := x.inodes[ino]; o != nil {
		for id := range o.writers {
			a := x.byID[id]
			if id != own && a != nil && !a.ending && (a.client == "" || !a.sameClient(self)) {
				return a.client, true
			}
		}
	}
	return "", false
}

// strangers tells whether a client of another name may still claim what it had open.
func (x *sessions) strangers(own uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unsettled == 0 {
		return false
	}
	self := x.byID[own]
	for id, a := range x.byID {
		if a.earlier && id != own && (a.client == "" || !a.sameClient(self)) {
			return true
		}
	}
	return false
}

// isOpen tells whether an inode is open, or may be.
func (x *sessions) isOpen(ino meta.Ino) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	return o != nil && o.handles > 0
}

// tracks tells whether an inode is open or on its way to be destroyed.
func (x *sessions) tracks(ino meta.Ino) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inodes[ino] != nil || x.nameless[ino] != nil
}

// takeBack notes that an opening that may still be on its way must open nothing, and returns the
// handle if it was done. A request can only be late as long as its connection lives, which has a
// bounded number of them: so the oldest notes are forgotten.
func (x *sessions) takeBack(session, id uint64) (*handle, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[session]
	if a == nil || a.ending {
		return nil, stale(session)
	}
	a.over(id)
	return a.open[id], nil
}

// over notes that a handle must not be opened any more, or not again: an opening that was repeated
// may come late.
func (a *alive) over(id uint64) {
	if a.taken == nil {
		a.taken = map[uint64]bool{}
	}
	if a.taken[id] {
		return
	}
	if len(a.tookBack) >= takenMax {
		delete(a.taken, a.tookBack[0])
		a.tookBack = a.tookBack[1:]
	}
	a.taken[id] = true
	a.tookBack = append(a.tookBack, id)
}

// reserveEnd takes n bytes behind end, all of a file's reservations and nothing else. A repetition
// gets what it got the first time.
func (x *sessions) reserveEnd(h *handle, req [16]byte, seq uint64, end, n, limit int64,
	now, until time.Time) (appended, error) {

	x.mu.Lock()
	defer x.mu.Unlock()
	if req != ([16]byte{}) && h.own.ReqID == req {
		return h.own, nil
	}
	o := x.inodes[h.ino]
	if o == nil || o.writers[h.session] == nil {
		return appended{}, errs.Closed
	}
	for _, was := range o.latest { // of a process that has died, and whose successor asks once more
		if req != ([16]byte{}) && was.ReqID == req && was.TruncSeq == seq {
			h.own = was
			return was, nil
		}
	}
	switch {
	case o.ends.TruncSeq == seq:
		end = max(end, o.ends.End)
	case o.ends.TruncSeq > seq:
		return appended{}, errTruncated
	}
	if n > limit || end > limit-n {
		return appended{}, errs.TooBig
	}
	h.own = appended{ReqID: req, TruncSeq: seq, Off: end, End: end + n}
	o.ends = reserved{TruncSeq: seq, End: end + n}
	o.pendingLocked(h, now, until)
	if len(o.latest) == latestMax {
		o.latest = slices.Delete(o.latest, 0, 1)
	}
	o.latest = append(o.latest, h.own)
	return h.own, nil
}

// giveBack ends the latest reservation of a handle, if nothing was reserved behind it.
func (x *sessions) giveBack(h *handle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[h.ino]
	if o == nil || h.own.End == 0 || o.ends != (reserved{h.own.TruncSeq, h.own.End}) {
		return
	}
	o.ends.End = h.own.Off
	o.doneLocked(h, time.Time{})
	o.latest = slices.DeleteFunc(o.latest, func(a appended) bool { return a == h.own })
	h.own = appended{}
}

// some lists some handles of a session.
func (x *sessions) some(session uint64, max int) (list []*handle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[session]; a != nil {
		for _, h := range a.open {
			if list = append(list, h); len(list) == max {
				break
			}
		}
	}
	return list
}
