package client

import (
	"github.com/sluice-storage/sluice/internal/journal"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// What was done here and not told (deferral.go) is written down in memory that outlives this
// process, if there is such memory (Options.Journal): before an operation returns, and until the
// service has answered. Who runs in the place of this process when it has died tells it: see
// recover.go.
//
// A record has a format and a kind, and then:
//
//	deed     |format u8 |1 u8 |session u64 |epoch u64 |seq u64 |meta.Deferred |
//	closed   |format u8 |2 u8 |seq u64 |meta.Deferred |
//	message  |format u8 |3 u8 |request 16 |session u64 |epoch u64 |n u32 |n x |unit u32 |number u64 |
//
// A deed is an operation, of a file that is open with the handle. When the file is closed the same
// operation is there once more, as it is told from then on: closed, with its data. That counts as
// long as the deed is there. A message says which records it consists of, exactly, so that it can
// be sent again as it was. When it is answered it is marked, by one store; then its deeds are
// removed, and at last itself.
const (
	journalFormat = 1 // to be raised with the encoding of meta.Deferred

	recordDeed    = 1
	recordClosed  = 2
	recordMessage = 3

	entryBytes = 4 + 8
)

// deedBytes is more than a deed takes without what a link says: 25 bytes, meta.NameMax, and less
// than 100 for the rest of it.
const deedBytes = 400

// journalReserve are the units that only messages may take, of which one is there at a time: its
// own record, and files whose data is another one than when they were closed, at most batchBytes
// and one more, with the rest of a unit each, and what is not data.
const journalReserve = (batchBytes+meta.SmallMax)/journal.UnitBytes*9/8 + 3*tellBatch

// JournalBytes is how much memory Options.Journal needs so that nobody ever waits for room in it:
// deeds and closed files at one unit each and their data, with what units hold beside it.
const JournalBytes = (1 + journalReserve + 2*untoldMax + untoldBytesMax/journal.UnitBytes*9/8) *
	journal.UnitBytes

// begin starts a record.
func (d *deferral) begin(kind uint8) wire.Enc {
	e := wire.Enc{B: d.record[:0]}
	e.U8(journalFormat)
	e.U8(kind)
	return e
}

// mayNoteLocked tells whether there is room for an operation, and for one that says that its
// directory has changed.
func (d *deferral) mayNoteLocked(target string) bool {
	return d.journal == nil ||
		journal.Units(deedBytes+len(target))+1+journalReserve <= d.journal.Free()
}

// noteLocked writes an operation down. There is room for it.
func (d *deferral) noteLocked(w *deed) {
	if d.journal == nil {
		return
	}
	e := d.begin(recordDeed)
	e.U64(w.session)
	e.U64(w.epoch)
	e.U64(w.seq)
	w.Deferred.Append(&e)
	d.record = e.B
	w.noted, _ = d.journal.Put(e.B, 0)
}

// noteClosedLocked writes down that a file was closed, with its data; false: there is no room.
func (d *deferral) noteClosedLocked(w *deed, n *inode) bool {
	if d.journal == nil {
		return true
	}
	n.mu.Lock()
	change, dirty := n.dirtyLocked()
	whole := n.small.Load() && n.writers == 0 && n.lease.state != leaseNone
	n.mu.Unlock()
	if !whole {
		return true // it is told open, and what was written to it is lost: the mount knows that
	}
	return d.noteAsLocked(w, w.closedWith(&change, dirty), journalReserve)
}

// closedWith is how a file is told that is closed.
func (w *deed) closedWith(c *meta.Change, dirty bool) *meta.Deferred {
	as := w.Deferred
	as.Open, as.Handle, as.Dirty = 0, 0, dirty
	if as.Change = (meta.Change{}); dirty {
		as.Change = *c
	}
	return &as
}

// noteAsLocked writes down how a closed file is told, in place of what was said of that before.
func (d *deferral) noteAsLocked(w *deed, as *meta.Deferred, leave int) bool {
	e := d.begin(recordClosed)
	e.U64(w.seq)
	as.Append(&e)
	d.record = e.B
	r, ok := d.journal.Put(e.B, leave)
	if ok {
		d.journal.Remove(w.notedClosed)
		w.notedClosed, w.closedAs = r, as.Change
	}
	return ok
}

// noteMessage writes down what is about to be sent.
func (d *deferral) noteMessage(m *message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.journal == nil {
		return
	}
	refs := make([]journal.Ref, len(m.deeds))
	for i, w := range m.deeds {
		refs[i] = d.saidLocked(w, &m.list[i])
	}
	e := d.begin(recordMessage)
	e.Raw(m.caller.ReqID[:])
	e.U64(m.caller.Session)
	e.U64(m.epoch)
	e.U32(uint32(len(refs)))
	for _, r := range refs {
		e.U32(r.Unit)
		e.U64(r.Number)
	}
	d.record = e.B
	m.noted, _ = d.journal.Put(e.B, 0)
}

// saidLocked is the record of how an operation is told. Of a file that was closed that was written
// down then; how long ago it was written to is said anew each time, and does not count.
func (d *deferral) saidLocked(w *deed, as *meta.Deferred) journal.Ref {
	known := w.notedClosed != (journal.Ref{})
	switch {
	case w.item < 0 && !(w.inherited && known):
		return w.noted
	case !known || !w.inherited && !sameData(&w.closedAs, &as.Change):
		d.noteAsLocked(w, as, 0)
	}
	return w.notedClosed
}

// sameData tells whether two changes lead to the same file. Data that is shared does not change: it
// is the same if it is in the same place.
func sameData(a, b *meta.Change) bool {
	return a.Size == b.Size && a.Mtime == b.Mtime && a.TruncSeq == b.TruncSeq &&
		a.Whole == b.Whole && len(a.Data) == len(b.Data) &&
		(len(a.Data) == 0 || &a.Data[0] == &b.Data[0])
}

// answeredLocked notes that a message is answered: nothing of it is sent again, whatever happens.
func (d *deferral) answeredLocked(m *message) {
	if m.noted != (journal.Ref{}) {
		d.journal.Mark(m.noted)
	}
}

// strikeLocked takes operations, and then the message that they were told by, out of the journal.
func (d *deferral) strikeLocked(m *message) {
	for _, w := range m.deeds {
		d.strikeDeedLocked(w)
	}
	if m.noted != (journal.Ref{}) {
		d.journal.Remove(m.noted)
	}
}

// strikeDeedLocked takes an operation out: how it is told does not count without it.
func (d *deferral) strikeDeedLocked(w *deed) {
	if d.journal != nil {
		d.journal.Remove(w.noted)
		d.journal.Remove(w.notedClosed)
		w.noted, w.notedClosed, w.closedAs = journal.Ref{}, journal.Ref{}, meta.Change{}
	}
}
