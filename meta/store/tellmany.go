package store

import (
	"cmp"
	"context"
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
)

// What clients tell later (meta.Deferrals).
//
// A session that makes a directory is lent LeaseSole on it. Whoever else looks for something in the
// directory, or at it, has that recalled first (visitNames, visit), so that the session tells what
// it has done there. What it tells is carried out by transactions of as many operations as fit, in
// order; the parts have request ids of their own, so that a repetition finds those that were done.
//
// A directory that was lent like that is marked (flagSole), as files that are written are: in the
// grace time after a restart nobody looks at it before its holder has told what it had not.

// What operations add to a transaction at most, of kv.MaxOps: one that makes something has an entry
// and an inode to be checked, and four records to be put; one that removes something is that of a
// tree's; each directory has its inode checked, and times and counter written; and there are the
// counter of files and a quota.
const (
	tellMakeOps   = 7
	tellRemoveOps = treeEntryOps - quotaOps
	tellDirOps    = 3
	tellBaseOps   = 1 + quotaOps
	tellBytes     = kv.MaxTxnBytes * 3 / 4
	partMax       = 64 // bits of kv.Txn.Answer
)

// errRefused does not leave the package: nothing of a part could be done.
var errRefused = errs.New(errs.Invalid, "meta.TellMany", "", nil)

// single marks a directory whose maker is to be lent it alone: if what is made in it inherits
// nothing but its owner, so that the maker knows what that will be like.
func (n *inode) single(c *meta.Caller, f *meta.NewFile) {
	if c.Leases && f.Sole && n.simple() {
		n.Flags |= flagSole
	}
}

// visitNames makes sure that the service knows the names of directories: who holds one of them
// alone tells now what it has done there.
func (s *Store) visitNames(ctx context.Context, c *meta.Caller, dirs ...meta.Ino) error {
	if err := s.awaitWriters(ctx, dirs...); err != nil {
		return err
	}
	for _, dir := range dirs {
		for s.leases.Written(c.Session, dir) {
			w := s.leases.Look(c.Session, dir, meta.LeaseWrite, false, s.steady())
			if err := s.await(ctx, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// visitNamed is visitNames for a directory of which a name is about to be taken, too: whether that
// is empty its holder knows.
func (s *Store) visitNamed(ctx context.Context, c *meta.Caller, dir meta.Ino, name string) error {
	if err := s.visitNames(ctx, c, dir); err != nil {
		return err
	}
	var ino meta.Ino
	err := s.look(func(t *txn) error {
		e, err := t.entry(dir, name)
		if e != nil && e.Type == meta.Directory {
			ino = e.Ino
		}
		return err
	})
	if err != nil || ino == 0 {
		return err
	}
	return s.visitNames(ctx, c, ino)
}

// telling is a TellMany on its way.
type telling struct {
	s       *Store
	c       meta.Caller
	epoch   uint64
	earlier bool // it was done in an earlier life of the service, and nothing has changed since
	list    []meta.Deferred
	out     []meta.Settled
	made    map[meta.Ino]bool
}

// TellMany implements meta.Deferrals.
func (s *Store) TellMany(ctx context.Context, c meta.Caller, epoch uint64,
	list []meta.Deferred) ([]meta.Settled, error) {

	w := telling{s: s, c: c, epoch: epoch, list: list, out: make([]meta.Settled, len(list)),
		made: map[meta.Ino]bool{}}
	err := w.begin(ctx)
	if err == nil {
		defer w.end()
		err = w.tell(ctx)
	}
	if err != nil {
		return nil, errs.Wrap("meta.TellMany", "", err)
	}
	return w.out, nil
}

func (w *telling) begin(ctx context.Context) error {
	s := w.s
	if len(w.list) > meta.TellMax {
		return errs.Newf(errs.Invalid, "", "", "%d operations", len(w.list))
	}
	if w.c.ReqID == (meta.Caller{}).ReqID {
		return errs.Newf(errs.Invalid, "", "", "without a request id")
	}
	if err := s.sessions.touch(w.c.Session, s.steady()); err != nil {
		return err
	}
	w.earlier = w.epoch < s.leases.First() && s.sessions.mayClaim(w.c.Session) &&
		!s.sessions.isCalm.Load()
	if !w.earlier && !s.leases.Room(w.c.Session, len(w.list), s.steady()) {
		return errs.Newf(errs.Again, "", "", "the session has too many leases")
	}
	for i := range w.list {
		d := &w.list[i]
		if d.Kind == meta.DeferMake {
			w.made[d.Ino] = true
		}
	}
	if err := s.inFlight.enter(ctx, kv.ReqID(w.c.ReqID)); err != nil {
		return err
	}
	if err := w.allowed(w.list); err != nil {
		done, known := w.done(ctx, 0, w.part(0))
		if known != nil || !done {
			w.end()
			return cmp.Or(known, err)
		}
	}
	return nil
}

// done tells whether a part was carried out before, and somebody has not heard of it: the session
// need not hold the directories any more then, which may be gone.
func (w *telling) done(ctx context.Context, start, end int) (bool, error) {
	_, done, err := w.s.known(ctx, kv.ReqID(w.partID(start, end)))
	return done, err
}

// partID is the request id of a part.
func (w *telling) partID(start, end int) [16]byte {
	id := w.c.ReqID
	n := binary.BigEndian.Uint32(id[12:]) ^ uint32(start+1)<<16 ^ uint32(end)
	binary.BigEndian.PutUint32(id[12:], n)
	return id
}

func (w *telling) end() { w.s.inFlight.leave(kv.ReqID(w.c.ReqID)) }

// allowed demands that the session holds the directories alone that it has changed. Those that it
// makes here are lent to it when they are there.
func (w *telling) allowed(list []meta.Deferred) error {
	if w.earlier {
		return nil
	}
	var last meta.Ino
	for i := range list {
		dir := list[i].Dir
		if dir == last || w.made[dir] {
			continue
		}
		if last = dir; !w.s.leases.Sole(w.c.Session, dir, w.epoch) {
			if w.s.sessions.mayClaim(w.c.Session) && !w.s.sessions.isCalm.Load() {
				return unclaimed()
			}
			return errs.Newf(errs.Fenced, "meta.lease", "", "the lease on directory %d was lost", dir)
		}
	}
	return nil
}

func (w *telling) tell(ctx context.Context) error {
	for start := 0; start < len(w.list); {
		end := w.part(start)
		if err := w.allowed(w.list[start:end]); err != nil {
			done, known := w.done(ctx, start, end)
			if known != nil || !done {
				return cmp.Or(known, err)
			}
		}
		err := w.tellPart(ctx, start, end)
		k := errs.KindOf(err)
		if (k == errs.Quota || k == errs.NoSpace) && end > start+1 {
			// Nobody knows which of them met a limit. On a full disk some may be carried out alone.
			err = nil
			for i := start; i < end && err == nil; i++ {
				err = w.refuse(i, i+1, w.tellPart(ctx, i, i+1))
			}
		}
		if err = w.refuse(start, end, err); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// refuse notes why nothing of a part was done. It returns the error if that is not what came of the
// part, and the whole may be repeated, or is of no use.
func (w *telling) refuse(start, end int, err error) error {
	k := errs.KindOf(err)
	if k == errs.OK || k.Passing() || k == errs.MaybeDone || k == errs.Fenced || k == errs.Stale {
		return err
	}
	for i := start; i < end; i++ {
		w.out[i] = meta.Settled{Kind: k}
	}
	return nil
}

// part is the end of the operations from start on that fit one transaction: what one of them has
// written another one does not read, and no key is written twice.
func (w *telling) part(start int) (end int) {
	type name struct {
		dir  meta.Ino
		name string
	}
	names := map[name]bool{}
	dirs, made := map[meta.Ino]bool{}, map[meta.Ino]bool{}
	ops, bytes := tellBaseOps, 0
	for end = start; end < len(w.list) && end-start < partMax; end++ {
		d := &w.list[end]
		if d.Kind != meta.DeferTouch && names[name{d.Dir, d.Name}] ||
			d.Kind == meta.DeferRemove && (made[d.Ino] || dirs[d.Ino]) {
			break
		}
		switch d.Kind {
		case meta.DeferMake:
			ops += tellMakeOps
			made[d.Ino] = true
		case meta.DeferRemove:
			ops += tellRemoveOps
		}
		if !dirs[d.Dir] {
			ops += tellDirOps
			dirs[d.Dir] = true
		}
		bytes += 512 + 3*len(d.Name) + len(d.File.Target) + len(d.Change.Data)
		if end > start && (ops > kv.MaxOps || bytes > tellBytes) {
			break
		}
		names[name{d.Dir, d.Name}] = true
	}
	return end
}

// tellPart carries out a part by one commit. A repetition finds which of it were refused.
func (w *telling) tellPart(ctx context.Context, start, end int) error {
	s := w.s
	c := w.c
	c.ReqID = w.partID(start, end)
	p := part{telling: w, list: w.list[start:end], out: w.out[start:end]}
	defer p.letGo(ctx)
	if err := p.keep(ctx); err != nil {
		return err
	}
	var ch lease.Change
	defer ch.End()
	refused, replayed, err := s.apply(ctx, &c, &ch, func(t *txn) error { return p.build(t) })
	if err == errRefused {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range p.list {
		if p.list[i].Kind == meta.DeferMake {
			s.sessions.used(c.Session, p.list[i].Ino)
		}
		switch {
		case replayed && refused>>i&1 != 0:
			p.out[i].Kind = errs.IO // for a reason that is not known any more
		case replayed && p.list[i].Kind == meta.DeferMake:
			p.out[i].Kind = errs.OK
			p.out[i].Lease, p.out[i].Serial = s.leases.Held(c.Session, p.list[i].Ino)
		case replayed:
			p.out[i].Kind = errs.OK
		case p.loans[i] != nil:
			p.out[i].Lease, p.out[i].Serial = p.loans[i].Mode, p.loans[i].Serial
		}
	}
	return p.open()
}

// part are operations that are carried out by one commit.
type part struct {
	*telling
	list  []meta.Deferred
	out   []meta.Settled
	born  map[meta.Ino]*inode
	dirs  map[meta.Ino]*inode
	loans []*lease.Loan
	kept  []meta.Ino
}

// keep sees to it that nobody finds files that are being written by nobody: their handles come
// after the commit.
func (p *part) keep(ctx context.Context) error {
	for i := range p.list {
		d := &p.list[i]
		if d.Kind != meta.DeferMake || d.Open == 0 {
			continue
		}
		if err := p.s.keepTurn(ctx, d.Ino); err != nil {
			return err
		}
		p.kept = append(p.kept, d.Ino)
	}
	return nil
}

func (p *part) letGo(ctx context.Context) {
	for _, ino := range p.kept {
		p.s.sessions.leave(ino)
		p.s.letGo(ctx, ino)
	}
}

// open adds the handles of files that were made and are open. Those that were open before the
// service was restarted are claimed.
func (p *part) open() error {
	for i := range p.list {
		d := &p.list[i]
		if d.Kind != meta.DeferMake || d.Open == 0 || p.out[i].Kind != errs.OK {
			continue
		}
		err := p.s.sessions.reserve(p.c.Session, p.s.opt.HandlesMax, p.s.opt.HandlesAllMax)
		if err == nil {
			o := opening{c: &meta.Caller{Session: p.c.Session, Cred: meta.Cred{UID: d.UID}},
				id: d.Handle, ino: d.Ino, flags: d.Open}
			if err = p.s.addHandle(&o); err != nil {
				p.s.sessions.release(p.c.Session)
			}
		}
		if k := errs.KindOf(err); k == errs.Stale {
			return err
		} else if k != errs.OK && k != errs.Closed {
			// The client opens it anew when it finds that there is no such handle.
			p.s.opt.Log.Info("a file that was made is not open", "ino", d.Ino, "error", err)
		}
	}
	return nil
}

// build puts the transaction together. Its answer is which operations were refused.
func (p *part) build(t *txn) error {
	p.born, p.dirs = map[meta.Ino]*inode{}, map[meta.Ino]*inode{}
	p.loans = make([]*lease.Loan, len(p.list))
	t.quiet = p.earlier // nothing is lent in the grace time, and nobody can be asked
	t.kv.MakesRoom = true
	t.lends, t.kv.Answer = nil, 0
	now, some := t.now, false
	for i := range p.list {
		d := &p.list[i]
		t.now = d.At
		err := p.do(t, i, d)
		if errs.KindOf(err).Passing() { // as when no I/O server is up: all of it is told again
			return err
		}
		if p.out[i] = (meta.Settled{Kind: errs.KindOf(err)}); err != nil {
			t.kv.Answer |= 1 << i
			continue
		}
		some = true
		// A touch alone tells of what was made and removed: programs would go on doing that for ever
		// on a full disk, on room that is kept for removals.
		t.kv.MakesRoom = t.kv.MakesRoom && d.Kind == meta.DeferRemove
	}
	t.now = now
	if !some {
		return errRefused // unless it is a repetition
	}
	return nil
}

// do adds one operation.
func (p *part) do(t *txn, i int, d *meta.Deferred) error {
	dir, err := p.dir(t, d.Dir)
	if err != nil {
		return err
	}
	if d.Kind != meta.DeferTouch {
		if err := checkName(d.Name); err != nil {
			return err
		}
		if isDots(d.Name) {
			return errs.Invalid
		}
	}
	switch d.Kind {
	case meta.DeferMake:
		return p.make(t, i, d, dir)
	case meta.DeferRemove:
		return p.remove(t, d)
	case meta.DeferTouch:
		t.touch(d.Dir)
		return nil
	}
	return errs.Invalid
}

// dir is a directory, perhaps one that the part has made.
func (p *part) dir(t *txn, ino meta.Ino) (*inode, error) {
	if n := p.born[ino]; n != nil && n.isDir() {
		return n, nil
	}
	if n := p.dirs[ino]; n != nil {
		return n, nil
	}
	n, err := t.dir(ino, &meta.Cred{}, 0)
	if err == nil {
		p.dirs[ino] = n
	}
	return n, err
}

// make makes an inode with a name, as birth does.
func (p *part) make(t *txn, i int, d *meta.Deferred, dir *inode) error {
	f := d.File
	f.Checked, f.Umask, f.Unit, f.Width, f.Pool = true, 0, 0, 0, ""
	f.Sole = f.Type == meta.Directory
	c := meta.Caller{Session: p.c.Session, Cred: meta.Cred{UID: d.UID, GID: d.GID}, Leases: true}
	if err := checkMake(&c, d.Name, &f); err != nil {
		return err
	}
	if err := p.fresh(t, d); err != nil {
		return err
	}
	n, err := p.s.newInode(t, dir, &f)
	if err != nil {
		return err
	}
	inherit(&c.Cred, dir, n, &f)
	n.born(&c)
	n.single(&c, &f)
	if d.Gen != 0 && d.Gen <= 1<<31 {
		n.Gen = d.Gen
	}
	mode := meta.LeaseRead
	switch {
	case n.Type != meta.Regular:
		if n.has(flagSole) {
			mode = meta.LeaseSole
		}
	case d.Open&meta.OpenWrite != 0:
		mode = meta.LeaseWrite
		err = t.write(n)
	case d.Open == 0 && d.Dirty:
		w := p.s.closingOf(&d.Change)
		if err = w.check(); err == nil {
			err = p.written(t, &w, d, n, &c)
		}
	}
	if err != nil {
		return err
	}
	t.bear(d.Dir, d.Name, d.Ino, n)
	p.born[d.Ino] = n
	if !p.earlier {
		p.loans[i] = &lease.Loan{Ino: d.Ino, Mode: mode}
		t.lends = append(t.lends, p.loans[i])
	}
	return nil
}

// fresh demands that neither the name nor the number is taken, and that the number is the
// session's.
func (p *part) fresh(t *txn, d *meta.Deferred) error {
	old, err := t.entry(d.Dir, d.Name)
	if err != nil {
		return err
	}
	if old != nil {
		return errs.Exists
	}
	if p.born[d.Ino] != nil {
		return errs.Invalid
	}
	if p.s.sessions.owns(p.c.Session, d.Ino) {
		return nil
	}
	free := false
	if p.earlier { // which numbers are whose is not known any more
		taken, err := t.read(inodeKey(d.Ino))
		if err != nil {
			return err
		}
		next, _, _, err := numbersOf(t.snap)
		if err != nil {
			return err
		}
		free = taken == nil && uint64(d.Ino) < next && d.Ino > meta.RootIno
	}
	if !free {
		return errs.Newf(errs.Invalid, "meta.numbers", "", "number %d is not the session's", d.Ino)
	}
	return nil
}

// written notes what was written to a file before it was closed.
func (p *part) written(t *txn, w *closing, d *meta.Deferred, n *inode, c *meta.Caller) error {
	if !w.whole || w.size != int64(len(w.data)) || d.Change.TruncSeq != 0 {
		return errs.Newf(errs.Invalid, "meta.TellMany", "", "data of a new file that is not whole")
	}
	w.apply(n, &c.Cred, t.now)
	t.putSmall(d.Ino, n, w.data, c.Session)
	return nil
}

// remove takes a name away that stands for what the session says.
func (p *part) remove(t *txn, d *meta.Deferred) error {
	e, err := t.entry(d.Dir, d.Name)
	if err != nil {
		return err
	}
	if e == nil || e.Ino != d.Ino {
		return errs.NotFound
	}
	return t.unlink(&meta.Cred{}, d.Dir, d.Name, d.File.Type == meta.Directory)
}
