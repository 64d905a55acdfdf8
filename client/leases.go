package client

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// leases is what a client knows of the leases of its session: see meta.Leases. What they are on
// lies in FS.cache, and of files that are written here in their inodes.
//
// One goroutine listens all the time. It takes the inodes of recalls out of the cache at once.
// Where a file has something to be told, it is told by a goroutine of its own, and acknowledged
// then.
type leases struct {
	mu      sync.Mutex
	session uint64
	own     map[uint64]bool // the sessions of this client, those that were lost too
	time    time.Duration
	life    uint32
	epoch   uint64
	claims  chan struct{}   // closed when what was open is claimed in this life; nil: nothing was
	over    func()          // ends what must not outlive the service's life
	during  context.Context // that it ends
	seen    uint64          // the highest recall
	doing   map[uint64]bool // recalls that are being carried out, by their serial numbers
	done    []meta.Recall   // those that the service must hear of
	told    uint32          // the life of the service in which the session has told of itself
}

// begin starts with the leases of a new session.
func (l *leases) begin(info *meta.SessionInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.life, l.epoch = info.ID, info.Life, info.Epoch
	if l.own == nil {
		l.own = map[uint64]bool{}
	}
	l.own[info.ID] = true
	l.time = time.Duration(info.LeaseTimeMs) * time.Millisecond
	l.seen, l.done, l.doing, l.told = 0, nil, map[uint64]bool{}, 0
	l.anewLocked()
	l.claims = nil
}

// claiming is closed when the claims that are under way have been answered; nil: there are none.
func (l *leases) claiming() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claims
}

// claimed notes that the claims in a life are over.
func (l *leases) claimed(done chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(done)
	if l.claims == done {
		l.claims = nil
	}
}

// anewLocked begins another life of the service.
func (l *leases) anewLocked() {
	if l.over != nil {
		l.over()
	}
	l.during, l.over = context.WithCancel(context.Background())
}

// within returns a context that ends with the service's life, too: what names an epoch of the
// leases is of no use in another one.
func (l *leases) within(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	during := l.during
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(during, cancel)
	return ctx, func() { stop(); cancel() }
}

// mine tells whether a session is or was this client's.
func (l *leases) mine(session uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own[session]
}

// current is the epoch that changes under a lease carry.
func (l *leases) current() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// lives is the life of the service that was heard of last.
func (l *leases) lives() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life
}

// say puts together what is said to the service. A session that was replaced, for which somebody
// has still carried a recall out, has nothing to say: what there is belongs to the one that came.
func (l *leases) say(session uint64, wait bool) meta.Listening {
	l.mu.Lock()
	defer l.mu.Unlock()
	said, more := meta.Listening{Session: session}, false
	if l.session == session {
		n := min(len(l.done), meta.RecallsMax)
		said.Seen, said.Acks, l.done = l.seen, l.done[:n:n], l.done[n:]
		more = len(l.done) > 0
	}
	if wait && !more {
		said.WaitMs = uint32(max(l.time/3, time.Millisecond) / time.Millisecond)
	}
	return said
}

// unsaid takes acknowledgements back that may not have arrived.
func (l *leases) unsaid(session uint64, acks []meta.Recall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == session {
		l.done = append(l.done, acks...)
	}
}

// carriedOut notes the end of a recall.
func (l *leases) carriedOut(session uint64, r meta.Recall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == session {
		delete(l.doing, r.Serial)
		l.done = append(l.done, r)
	}
}

// owes tells whether there are recalls that were carried out and not acknowledged.
func (l *leases) owes(session uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session == session && len(l.done) > 0
}

// news is what an answer changes.
type news struct {
	recalls []meta.Recall // those that were not heard of before
	drop    bool          // all leases are gone
	restart bool          // because the service was restarted
	claims  chan struct{} // then: to be closed when all is claimed
	extend  bool
}

// take reads an answer. Several may come in any order.
func (l *leases) take(session uint64, h *meta.Heard) (n news) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != session || h.Life < l.life || h.Life == l.life && h.Epoch < l.epoch {
		return n // of another session, or overtaken by one that says that leases are gone
	}
	n.restart = h.Life > l.life
	n.drop = n.restart || h.Epoch > l.epoch
	n.extend = h.Extended
	if n.restart {
		l.anewLocked()
		n.claims = make(chan struct{})
		l.claims = n.claims
	}
	l.life, l.epoch = h.Life, h.Epoch
	for _, r := range h.Recalls {
		if r.Serial > l.seen && !l.doing[r.Serial] {
			l.doing[r.Serial] = true
			n.recalls = append(n.recalls, r)
		}
	}
	for _, r := range n.recalls {
		l.seen = max(l.seen, r.Serial)
	}
	return n
}

// listen keeps the session and its leases alive. While the service is away it goes on trying,
// without a limit of its own, so that a service that comes back hears of the session at once; a
// session that ended in between is noticed by the answer.
func (fs *FS) listen() {
	for fs.life.Err() == nil {
		s := fs.sess.Load()
		err := fs.listenOnce(s.current, s, true)
		switch errs.KindOf(err) {
		case errs.OK, errs.Canceled:
			continue
		case errs.Stale, errs.NotFound:
			if err = fs.replaceSession(fs.life, s); err == nil {
				continue
			}
			fs.opts.Logger.Warn("session lost and not replaced", "err", err)
		default:
			fs.opts.Logger.Warn("keeping the session alive failed", "err", err)
		}
		if !wait.Sleep(fs.life, max(min(s.lease/3, pauseMax), pauseFirst)) {
			return
		}
	}
}

// listenOnce says what there is to say, and acts upon the answer. With wait the service may keep
// the request until there is something to tell.
func (fs *FS) listenOnce(ctx context.Context, s *session, wait bool) error {
	said := fs.leases.say(s.id, wait)
	fs.introduce(&said)
	sent := time.Now()
	h, err := fs.svc.Listen(ctx, said)
	if err != nil {
		fs.leases.unsaid(s.id, said.Acks)
		return err
	}
	fs.introduced(&said, &h)
	n := fs.leases.take(s.id, &h)
	if n.drop {
		fs.dropLeases(n.restart)
	}
	if n.drop && !n.restart { // after a restart they are claimed
		fs.background(func() { fs.announceLocal(s) })
	}
	for _, r := range n.recalls {
		fs.recalled(s, r)
	}
	if n.extend {
		fs.cache.Extend(sent.Add(s.leases))
	}
	if n.restart {
		fs.workers.Go(func() {
			defer fs.leases.claimed(n.claims)
			fs.forget(fs.life, 0) // who has claimed cannot be asked to
			fs.claim(s, h.Life)
		})
	}
	return nil
}

// dropLeases forgets everything that rests on leases. What was written under one stays, and is told
// when the client has found out whether somebody else was there meanwhile.
func (fs *FS) dropLeases(restart bool) {
	fs.deferral.drop(fs.cache)
	for _, n := range fs.allInodes() {
		n.drop(restart)
	}
}

func (fs *FS) allInodes() []*inode {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	all := make([]*inode, 0, len(fs.inodes))
	for _, n := range fs.inodes {
		all = append(all, n)
	}
	return all
}

// recalled gives a lease back. One that is being claimed may be recalled before this client knows
// that it has it: what was written under it is told then.
func (fs *FS) recalled(s *session, r meta.Recall) {
	if !fs.deferral.leaves(fs.cache, r.Ino) {
		fs.recalledTold(s, r)
		return
	}
	fs.workers.Go(func() {
		ctx, cancel := context.WithTimeout(fs.life, 2*s.leases)
		defer cancel()
		if err := fs.tellNames(ctx, r.Ino); err != nil {
			fs.opts.Logger.Warn("what was done in a directory could not be told when it was recalled",
				"ino", r.Ino, "err", err)
		}
		fs.recalledTold(s, r)
		fs.sayAcks(ctx, s)
	})
}

// recalledTold is recalled for an inode of which all that was done is told.
func (fs *FS) recalledTold(s *session, r meta.Recall) {
	n := fs.ref(r.Ino)
	if n == nil {
		fs.cache.Recall(r.Ino)
		n = fs.ref(r.Ino) // it may have been opened this moment
	}
	claiming := fs.leases.claiming()
	if n == nil || !n.leaving(fs, claiming != nil) {
		r.MoveOut = n != nil && n.halfOut() != 0
		if n != nil {
			fs.unref(n)
		}
		fs.forgotten(s, r)
		return
	}
	fs.workers.Go(func() {
		defer fs.unref(n)
		ctx, cancel := context.WithTimeout(fs.life, 2*s.leases) // nobody waits for it any longer
		defer cancel()
		if claiming != nil {
			select {
			case <-claiming:
			case <-ctx.Done():
			}
		}
		if err := fs.giveUp(ctx, s, n, r.MoveOut); err != nil {
			fs.opts.Logger.Warn("what was written under a lease could not be told when it was recalled",
				"ino", n.ino, "err", err)
		}
		r.MoveOut = n.halfOut() != 0
		n.left()
		fs.forget(ctx, r.Ino)
		fs.acknowledge(ctx, s, r)
	})
}

// acknowledge says that a recall was carried out, at once, unless another goroutine is about to say
// so: many are said together.
func (fs *FS) acknowledge(ctx context.Context, s *session, r meta.Recall) {
	fs.leases.carriedOut(s.id, r)
	fs.sayAcks(ctx, s)
	if ctx.Err() != nil && fs.life.Err() == nil && fs.leases.owes(s.id) {
		// The time of this recall is over, but not that of those that were left to this goroutine.
		late, cancel := context.WithTimeout(fs.life, s.leases)
		defer cancel()
		fs.sayAcks(late, s)
	}
}

func (fs *FS) sayAcks(ctx context.Context, s *session) {
	for fs.leases.owes(s.id) && s.acking.CompareAndSwap(false, true) {
		err := fs.listenOnce(ctx, s, false)
		s.acking.Store(false)
		if err != nil {
			fs.opts.Logger.Debug("acknowledging a recall failed", "err", err) // the next one says it
			return
		}
	}
}

// OnRecall has fn called when what this client has said of an inode may not be true much longer,
// because the service asks for its lease back; with 0 when that holds for all inodes, because the
// service was restarted. From then on nothing is leased until there is another lease. The service
// is answered when what fn returns has returned, too; nil: there is nothing to wait for. fn must
// not block.
func (fs *FS) OnRecall(fn func(ino meta.Ino) (forget func(context.Context))) {
	fs.onRecall.Store(&fn)
}

// Leased is for how long attributes that this client has said stay true unless it changes them or
// hears of a recall before. 0: others may have changed them.
func (fs *FS) Leased(a *meta.Attr) time.Duration { return fs.cache.Leased(a) }

// LeasedName is Leased for what a name in a directory stands for; 0: nothing.
func (fs *FS) LeasedName(dir meta.Ino, name string, ino meta.Ino) time.Duration {
	return fs.cache.LeasedName(dir, name, ino)
}

// LeaseTime is how long the service waits for a lease that it has asked back.
func (fs *FS) LeaseTime() time.Duration { return fs.sess.Load().leases }

// forgotten acknowledges a recall of a lease under which nothing was written, when those who have
// heard from this client have forgotten it.
func (fs *FS) forgotten(s *session, r meta.Recall) {
	forget := fs.toForget(r.Ino)
	if forget == nil {
		fs.leases.carriedOut(s.id, r)
		return
	}
	fs.workers.Go(func() {
		ctx, cancel := context.WithTimeout(fs.life, 2*s.leases) // nobody waits for it any longer
		defer cancel()
		forget(ctx)
		fs.acknowledge(ctx, s, r)
	})
}

// toForget asks for what has to be done before an inode is forgotten; nil: nothing.
func (fs *FS) toForget(ino meta.Ino) (forget func(context.Context)) {
	if fn := fs.onRecall.Load(); fn != nil {
		return (*fn)(ino)
	}
	return nil
}

func (fs *FS) forget(ctx context.Context, ino meta.Ino) {
	if forget := fs.toForget(ino); forget != nil {
		forget(ctx)
	}
}

// giveUp tells what was changed under a lease that goes back, and makes handles that nobody but
// this client knows of known to the service: the file may be about to be removed. What is told is
// safe, whatever becomes of a small file that is to be moved out: it may stay small.
func (fs *FS) giveUp(ctx context.Context, s *session, n *inode, out bool) error {
	err := fs.announceAll(ctx, n)
	if n.state() == leaseNone { // nothing was written under it; who asks for another may wait for it
		return err
	}
	fs.drainLeaving(ctx, s, n)
	w := fs.writer(n.ino)
	if w == nil { // a closing tells what was written, and that nobody writes any more
		fs.flushEndingsOf(ctx, n)
	}
	if werr := n.telling.take(ctx); werr != nil {
		return werr
	}
	defer n.telling.giveBack()
	terr := fs.tellLeaving(ctx, n)
	if terr == nil && out && w != nil {
		fs.moveOutRecalled(ctx, s, w)
	}
	if err == nil {
		err = terr
	}
	return err
}

// claim names all open handles to a service that was restarted, with the leases that something was
// written under. It is tried until it succeeds, or the session or the life is over: the service
// answers nothing that depends on it before, and after the time of leases it lets others go on.
func (fs *FS) claim(s *session, life uint32) {
	for try := 0; fs.leases.lives() == life && fs.sess.Load() == s; try++ {
		err := fs.tellAll(fs.life) // the service takes it from who has not claimed
		if err == nil {
			err = fs.claimOnce(s, life)
		}
		if err == nil {
			return
		}
		fs.opts.Logger.Warn("claiming open files failed", "err", err)
		if !wait.Sleep(fs.life, min(pauseFirst<<min(try, 8), pauseMax)) {
			return
		}
	}
}

// claimOnce is one attempt. A file that is gone fails from then on; the others go on.
func (fs *FS) claimOnce(s *session, life uint32) error {
	claims := fs.claimed(s)
	list := make([]meta.Claimed, len(claims))
	for i := range claims {
		list[i] = claims[i].Claimed
	}
	tok := fs.cache.Begin()
	var regained []meta.Regained
	for first := true; first || len(regained) < len(list); first = false {
		part := list[len(regained):min(len(list), len(regained)+meta.ClaimMax)]
		last := len(regained)+len(part) == len(list)
		got, err := fs.svc.Claim(fs.life, s.id, life, part, last)
		if err != nil {
			return err
		}
		regained = append(regained, got...)
	}
	for i := range claims {
		c := &claims[i]
		switch {
		case regained[i].Gone && c.file != nil:
			c.file.die(c.file.grant.Load(), errs.New(errs.NotFound, "client.Claim", "", nil))
		case regained[i].Lease == meta.LeaseWrite:
			c.node.regained(fs, tok, life, regained[i].DataVersion)
		}
	}
	return nil
}

// claim is a handle that is claimed: of a file, or one that waits to be closed.
type claim struct {
	meta.Claimed
	node *inode
	file *File // nil: it is being closed
}

// claimed lists the handles of a session. Those that the service did not know of get a number.
func (fs *FS) claimed(s *session) (list []claim) {
	for _, f := range fs.openFiles() {
		g := f.grant.Load()
		if g.handle == 0 {
			g = f.number(g)
		}
		if g.session == s.id {
			c := f.node.claim(g.handle, f.flags, f.cred.UID)
			c.Epoch = g.epoch
			list = append(list, claim{c, f.node, f})
		}
	}
	for _, e := range fs.endings.all() {
		if e.caller.Session == s.id && e.node != nil {
			list = append(list, claim{e.node.claim(e.handle, e.flags, e.uid), e.node, nil})
		}
	}
	return list
}

// regained notes that a service that was restarted has given a lease back under which something was
// written. It may have been told, with an answer that was lost: then a small file has another
// version, and the same data. Of other files that is asked for with the other attributes.
//
// It may be recalled already. Whoever carries that out tells what was written, so the lease counts
// as held until he comes to it, whatever the cache has heard of; if he was there he tells under it.
func (n *inode) regained(fs *FS, t cache.Token, life uint32, version uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.lease.claims || fs.leases.lives() != life {
		return // it has gone back, or is lost, or claimed once more
	}
	state := leaseHeld
	if n.lease.recalls > 0 && !fs.cache.Granted(t, n.ino) {
		state = leaseLeaving
	}
	n.lease.give(state, fs.leases.current())
	if n.small.Load() {
		n.content.version = max(n.content.version, version)
		n.attr.DataVersion = max(n.attr.DataVersion, version)
	}
}

// claim is what is said of a handle to a service that was restarted. Which version the data of a
// file that is not small has is not always known here, as an answer may have been lost.
func (n *inode) claim(handle uint64, flags meta.OpenFlags, uid uint32) meta.Claimed {
	n.mu.Lock()
	defer n.mu.Unlock()
	version := meta.AnyVersion
	if n.small.Load() {
		version = n.content.version
	}
	return meta.Claimed{Handle: handle, Ino: n.ino, Flags: flags, UID: uid,
		Write:       flags&meta.OpenWrite != 0 && (n.dirty || n.taken) && n.lease.claims,
		DataVersion: version, Spilled: n.halfOutLocked()}
}
