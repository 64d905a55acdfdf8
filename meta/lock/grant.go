package lock

import (
	"math"
	"slices"
	"sort"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// anySerial is above all serials.
const anySerial = math.MaxUint64

// against lists the trees of locks or requests that one of a type conflicts with. Exclusive ones
// come first: there are fewer of them.
func against(trees *[2]tree, typ meta.LockType) []*tree {
	if typ == meta.LockShared {
		return []*tree{&trees[1]}
	}
	return []*tree{&trees[1], &trees[0]}
}

// conflict is a held lock of another owner that conflicts with e; nil: there is none.
func (f *file) conflict(e *entry) *entry {
	for _, tr := range against(&f.held, e.typ) {
		b := tr.find(e.start, e.end, anySerial, func(x *entry) bool { return x.owner != e.owner })
		if b != nil {
			return b
		}
	}
	return nil
}

// firstConflict is the one that begins first in the file, which fcntl(2) tells with F_GETLK.
func (f *file) firstConflict(e *entry) (b *entry) {
	for _, tr := range against(&f.held, e.typ) {
		if x := tr.first(e.start, e.end, e.owner); x != nil && (b == nil || before(x, b)) {
			b = x
		}
	}
	return b
}

// conflicts visits all held locks of others that conflict with e, until visit returns true.
func (f *file) conflicts(e *entry, visit func(*entry) bool) bool {
	for _, tr := range against(&f.held, e.typ) {
		if tr.find(e.start, e.end, anySerial, func(x *entry) bool {
			return x.owner != e.owner && visit(x)
		}) != nil {
			return true
		}
	}
	return false
}

// earlier visits the requests of others that are older than e and conflict with it, until visit
// returns true for one, which it returns.
func (f *file) earlier(e *entry, visit func(*entry) bool) *entry {
	for _, tr := range against(&f.waiting, e.typ) {
		b := tr.find(e.start, e.end, e.serial, func(x *entry) bool {
			return x.owner != e.owner && visit(x)
		})
		if b != nil {
			return b
		}
	}
	return nil
}

// covered tells whether the owner has all that e asks for, and as strongly: then nobody can mind.
func (f *file) covered(e *entry) bool {
	next := e.start
	for _, x := range f.owned[e.owner][f.place(e.owner, e.start):] {
		if x.start > next || x.typ < e.typ {
			return false
		}
		if x.end >= e.end {
			return true
		}
		next = x.end + 1
	}
	return false
}

// place is where in the list of an owner's locks the first one is that ends at or behind a byte.
func (f *file) place(o owner, at int64) int {
	own := f.owned[o]
	return sort.Search(len(own), func(i int) bool { return own[i].end >= at })
}

// blockerOf is what a request has to wait for; nil: it can be granted. A held lock comes before an
// earlier request. Of earlier requests a new one hangs on the latest, so that a queue is a chain,
// and not a crowd that has to be looked at whenever the first one leaves. Earlier requests that
// wait for this owner do not count.
func (t *Table) blockerOf(e *entry) *entry {
	if b := e.file.conflict(e); b != nil {
		return b
	}
	if !e.queued {
		var b *entry
		for _, tr := range against(&e.file.waiting, e.typ) {
			b = tr.latest(e.start, e.end, e.owner, b)
		}
		if b == nil || !t.awaits(b, e.owner) {
			return b
		}
	}
	return e.file.earlier(e, func(x *entry) bool { return !t.awaits(x, e.owner) })
}

// hold gives an owner a lock. What it had there is replaced, joined or cut. Requests that its old
// locks blocked are looked at again.
func (t *Table) hold(e *entry) {
	f := e.file
	own := f.owned[e.owner]
	i := f.place(e.owner, e.start)
	if i < len(own) && own[i].typ == e.typ && own[i].start <= e.start && e.end <= own[i].end {
		t.hangOn(e.hanging, own[i]) // it has it already
		e.hanging = nil
		return
	}
	start, end := e.start, e.end
	for _, x := range t.touching(f, e) {
		if x.typ == e.typ {
			start, end = min(start, x.start), max(end, x.end)
			e.hanging = append(e.hanging, x.hanging...)
			x.hanging = nil
		}
	}
	freed := t.cut(f, e.owner, start, end)
	e.start, e.end, e.queued = start, end, false
	for j, w := range e.hanging {
		w.blocker, w.index = e, j
	}
	t.keep(e)
	t.resume(freed)
	t.recheck(e)
}

// touching lists an owner's locks that overlap e, and those of its type that end where it begins
// or begin where it ends.
func (t *Table) touching(f *file, e *entry) (list []*entry) {
	from := e.start
	if from > 0 {
		from--
	}
	for _, x := range f.owned[e.owner][f.place(e.owner, from):] {
		if x.start > e.end && (e.end == meta.LockEndMax || x.start > e.end+1) {
			break
		}
		list = append(list, x)
	}
	return list
}

// cut takes a range away from what an owner holds, and returns the requests that hung on what was
// changed.
func (t *Table) cut(f *file, o owner, start, end int64) (freed []*entry) {
	own := f.owned[o]
	i := f.place(o, start)
	j := i
	for j < len(own) && own[j].start <= end {
		j++
	}
	for _, x := range slices.Clone(own[i:j]) {
		freed = append(freed, x.hanging...)
		x.hanging = nil
		t.drop(x)
		if x.start < start {
			t.keep(t.piece(x, x.start, start-1))
		}
		if x.end > end {
			t.keep(t.piece(x, end+1, x.end))
		}
	}
	return freed
}

// piece is a part of a held lock.
func (t *Table) piece(x *entry, start, end int64) *entry {
	t.serial++
	return &entry{file: x.file, owner: x.owner, typ: x.typ, start: start, end: end, pid: x.pid,
		serial: t.serial}
}

// keep enters a lock as held.
func (t *Table) keep(e *entry) {
	f := e.file
	f.held[index(e.typ)].insert(e)
	i := f.place(e.owner, e.start)
	f.owned[e.owner] = slices.Insert(f.owned[e.owner], i, e)
	h := t.holderOf(e.owner)
	h.held++
	s := t.sessionOf(e.owner.session)
	s.locks++
	s.files[ownedBy{f, e.owner}] = struct{}{}
	t.count++
}

// drop removes a held lock.
func (t *Table) drop(e *entry) {
	f := e.file
	f.held[index(e.typ)].remove(e)
	own := f.owned[e.owner]
	i := f.place(e.owner, e.start)
	s := t.sessionOf(e.owner.session)
	if f.owned[e.owner] = slices.Delete(own, i, i+1); len(own) == 1 {
		delete(f.owned, e.owner)
		delete(s.files, ownedBy{f, e.owner})
	}
	s.locks--
	t.count--
	t.holderOf(e.owner).held--
	t.forgetHolder(e.owner)
}

func (t *Table) holderOf(o owner) *holder {
	h := t.owners[o]
	if h == nil {
		h = &holder{}
		t.owners[o] = h
	}
	return h
}

func (t *Table) forgetHolder(o owner) {
	if h := t.owners[o]; h.held == 0 && len(h.waits) == 0 {
		delete(t.owners, o)
	}
}

// enqueue lets a request wait.
func (t *Table) enqueue(s *session, e, blocker *entry) {
	e.queued = true
	e.file.waiting[index(e.typ)].insert(e)
	h := t.holderOf(e.owner)
	h.waits = append(h.waits, e)
	s.waits[e.id] = e
	s.locks++
	t.count++
	t.waiting++
	if blocker != nil {
		t.hangOn([]*entry{e}, blocker)
	}
}

// hangOn lets requests wait for an entry.
func (t *Table) hangOn(list []*entry, b *entry) {
	for _, w := range list {
		w.blocker, w.index = b, len(b.hanging)
		b.hanging = append(b.hanging, w)
	}
}

// unhang takes a request off its blocker.
func (e *entry) unhang() {
	b := e.blocker
	if b == nil {
		return
	}
	last := len(b.hanging) - 1
	b.hanging[e.index] = b.hanging[last]
	b.hanging[e.index].index = e.index
	b.hanging[last] = nil
	b.hanging = b.hanging[:last]
	e.blocker = nil
}

// leave ends the waiting of a request, and nothing else: what hangs on it stays.
func (t *Table) leave(e *entry) {
	e.unhang()
	e.queued = false
	e.file.waiting[index(e.typ)].remove(e)
	h := t.owners[e.owner]
	h.waits = slices.DeleteFunc(h.waits, func(x *entry) bool { return x == e })
	s := t.sessions[e.owner.session]
	delete(s.waits, e.id)
	s.locks--
	t.count--
	t.waiting--
}

// dequeue ends the waiting of a request that is not granted.
func (t *Table) dequeue(e *entry) {
	t.leave(e)
	t.forgetHolder(e.owner)
	freed := e.hanging
	e.hanging = nil
	t.resume(freed)
}

// admit grants a request that has waited.
func (t *Table) admit(e *entry) {
	s := t.sessions[e.owner.session]
	t.leave(e)
	s.remember(e.id, meta.LockGranted, nil)
	s.tell(meta.LockEvent{ID: e.id}) // before those that this one makes room for
	t.hold(e)
	t.forgetHolder(e.owner)
}

// resume looks again at requests whose blocker has changed, the oldest first.
func (t *Table) resume(freed []*entry) {
	if len(freed) == 0 {
		return
	}
	for _, e := range freed {
		e.blocker = nil
	}
	slices.SortFunc(freed, func(a, b *entry) int {
		if a.serial < b.serial {
			return -1
		}
		return 1
	})
	for _, e := range freed {
		if !e.queued || e.blocker != nil {
			continue // granted, refused or hung up again in between
		}
		if b := t.blockerOf(e); b != nil {
			t.hangOn([]*entry{e}, b)
			continue
		}
		t.admit(e)
	}
}

// refuse ends a request that has waited with an error.
func (t *Table) refuse(e *entry, kind errs.Kind) {
	s := t.sessions[e.owner.session]
	s.tell(meta.LockEvent{ID: e.id, Kind: kind})
	t.dequeue(e)
	s.remember(e.id, meta.LockGone, kind)
}
