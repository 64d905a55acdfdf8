package client

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/journal"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// What a dead process has written down (journal.go) is told in the name of its session, which still
// has the leases: first the message that was under way, as it was, whether it was answered or not,
// then the rest, in order. That is noted as ever, so that it may be repeated by yet another process
// if this one dies, too. What cannot be told, because somebody else has waited for the leases and
// has them by now, is lost, which is logged and counted, and told by the next sync of names.

// tellInherited tells what dead processes have left in the journal.
func (fs *FS) tellInherited(ctx context.Context) error {
	d := &fs.deferral
	if d.journal == nil {
		return nil
	}
	d.mu.Lock()
	left := d.loadLocked()
	d.mu.Unlock()
	if left.damaged > 0 {
		fs.opts.Logger.Error("what the process before this one has left in its journal is not "+
			"understood, and lost", "records", left.damaged)
	}
	if len(left.deeds) == 0 {
		return nil
	}
	if err := fs.tellAgain(ctx); err != nil {
		return errs.Wrap("client.Recover", "", err)
	}
	fs.settleInherited(ctx, left)
	return nil
}

// tellAgain tells what there is to tell, as long as an operation waits for the service.
func (fs *FS) tellAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callMax(fs.opts.WaitMax))
	defer cancel()
	for pause := pauseFirst; ; pause = min(2*pause, pauseMax) {
		err := fs.tellAll(ctx)
		if err == nil || !wait.Sleep(ctx, pause) {
			return err
		}
	}
}

// settleInherited sees to what became of it.
func (fs *FS) settleInherited(ctx context.Context, left *inheritance) {
	told := uint64(0)
	fs.heritage.rescued = map[meta.Ino]bool{}
	for _, w := range left.deeds {
		if w.failed {
			continue
		}
		told++
		if w.Dirty || left.late[w] != nil && fs.closeInherited(ctx, w, left.late[w]) {
			fs.heritage.rescued[w.Ino] = true
		}
	}
	d := &fs.deferral
	d.mu.Lock()
	d.stats.Inherited += told
	d.mu.Unlock()
	fs.opts.Logger.Info("names that the process before this one had not told are told",
		"operations", told, "lost", uint64(len(left.deeds))-told)
}

// closeInherited closes a file that was told as open, and closed by then, with its data. Others may
// have asked for it meanwhile: then they had it as it was told.
func (fs *FS) closeInherited(ctx context.Context, w *deed, c *meta.Change) bool {
	out, err := fs.raw.CloseMany(ctx, meta.Caller{Session: w.session, Leases: true},
		[]meta.Closing{{Handle: w.Handle, Dirty: true, Change: *c}})
	if err == nil && out[0].Kind != errs.OK {
		err = out[0].Kind
	}
	if err != nil {
		fs.opts.Logger.Error("what was written to a file that was closed is lost", "ino", w.Ino,
			"err", err)
	}
	return err == nil
}

// Rescued tells whether the data of a file that a dead process had closed, and not told, was in the
// journal, so that it is there.
func (fs *FS) Rescued(ino meta.Ino) bool { return fs.heritage.rescued[ino] }

// inheritance is what was found in a journal.
type inheritance struct {
	deeds   []*deed                // in order
	late    map[*deed]*meta.Change // data of those that were told as open, and were closed
	damaged int
}

// found are the records of a journal.
type found struct {
	journal *journal.Journal
	records map[journal.Ref]any // *deed, *closedForm or *sending
	deeds   map[uint64]*deed    // by their numbers
	damaged int
}

// closedForm is how a file is told that is closed.
type closedForm struct {
	seq uint64
	as  meta.Deferred
}

// sending is a message that was under way.
type sending struct {
	message
	refs []journal.Ref
}

// loadLocked makes what is in the journal what is to be told. What cannot be read, and what belongs
// to nothing, is removed.
func (d *deferral) loadLocked() *inheritance {
	f := &found{journal: d.journal, records: map[journal.Ref]any{}, deeds: map[uint64]*deed{},
		damaged: d.journal.Damaged()}
	var messages []*sending
	for _, r := range d.journal.Records() {
		switch x := f.read(&r).(type) {
		case *sending:
			if x.noted = r.Ref; r.Marked {
				f.strike(x)
			} else {
				messages = append(messages, x)
			}
		case nil:
			f.damaged++
			d.journal.Remove(r.Ref)
		}
	}
	f.match()
	left := &inheritance{late: map[*deed]*meta.Change{}}
	for i, m := range messages {
		if i == 0 && f.restore(m) {
			d.busy = &m.message
			left.deeds = append(left.deeds, m.deeds...)
		} else {
			f.damaged++
			d.journal.Remove(m.noted)
		}
	}
	d.adoptLocked(f, left)
	left.damaged = f.damaged
	return left
}

// adoptLocked makes deeds this process's own.
func (d *deferral) adoptLocked(f *found, left *inheritance) {
	all := slices.SortedFunc(maps.Values(f.deeds), func(a, b *deed) int {
		return cmp.Compare(a.seq, b.seq)
	})
	for _, w := range all {
		if w.sent {
			if w.Open != 0 && w.notedClosed != (journal.Ref{}) && w.closedAs.Whole {
				data := w.closedAs // which is forgotten with the record
				left.late[w] = &data
			}
		} else {
			if as, ok := f.records[w.notedClosed].(*closedForm); ok {
				w.Deferred = as.as
			}
			d.list = append(d.list, w)
			left.deeds = append(left.deeds, w)
		}
		d.seq = max(d.seq, w.seq)
		d.inodes[w.Dir]++
		d.inodes[w.Ino]++
		d.count.Add(1)
	}
}

// read reads a record; nil: it is not understood.
func (f *found) read(r *journal.Record) (x any) {
	dec := wire.NewDec(r.Bytes)
	format, kind := dec.U8(), dec.U8()
	if format != journalFormat {
		return nil
	}
	switch kind {
	case recordDeed:
		w := &deed{item: -1, noted: r.Ref, inherited: true}
		w.session, w.epoch, w.seq = dec.U64(), dec.U64(), dec.U64()
		w.Deferred.Decode(&dec)
		if x = w; dec.Done() == nil && f.deeds[w.seq] == nil {
			f.deeds[w.seq] = w
			break
		}
		return nil
	case recordClosed:
		c := &closedForm{seq: dec.U64()}
		c.as.Decode(&dec)
		x = c
	case recordMessage:
		m := &sending{}
		copy(m.caller.ReqID[:], dec.Raw(len(m.caller.ReqID)))
		m.caller.Session, m.caller.Leases = dec.U64(), true
		m.epoch = dec.U64()
		m.refs = make([]journal.Ref, dec.Count(meta.TellMax, entryBytes))
		for i := range m.refs {
			m.refs[i] = journal.Ref{Unit: dec.U32(), Number: dec.U64()}
		}
		x = m
	}
	if dec.Done() != nil || x == nil {
		return nil
	}
	f.records[r.Ref] = x
	return x
}

// deedOf is the deed that a record of a message is about, and how that is told.
func (f *found) deedOf(r journal.Ref) (w *deed, as *meta.Deferred) {
	switch x := f.records[r].(type) {
	case *deed:
		return x, &x.Deferred
	case *closedForm:
		return f.deeds[x.seq], &x.as
	}
	return nil, nil
}

// strike finishes what its process was about to do when it died: it removes a message that was
// answered.
func (f *found) strike(m *sending) {
	for _, r := range m.refs {
		if w, _ := f.deedOf(r); w != nil {
			f.journal.Remove(w.noted)
			delete(f.records, w.noted)
			delete(f.deeds, w.seq)
		}
	}
	f.journal.Remove(m.noted) // closed forms without a deed are removed by match
}

// match gives deeds what is said of how they are told. Of two records the later one counts; it was
// to be told, and the one before it was about to be removed.
func (f *found) match() {
	refs := slices.SortedFunc(maps.Keys(f.records), func(a, b journal.Ref) int {
		return cmp.Compare(a.Number, b.Number)
	})
	for _, r := range refs {
		c, ok := f.records[r].(*closedForm)
		if !ok {
			continue
		}
		w := f.deeds[c.seq]
		if w == nil {
			f.journal.Remove(r)
			delete(f.records, r)
			continue
		}
		f.journal.Remove(w.notedClosed)
		delete(f.records, w.notedClosed)
		w.notedClosed, w.closedAs = r, c.as.Change
	}
}

// restore puts a message together as it was; false: that is not possible.
func (f *found) restore(m *sending) bool {
	for _, r := range m.refs {
		w, as := f.deedOf(r)
		if w == nil || w.sent {
			break
		}
		w.sent = true
		m.deeds, m.list = append(m.deeds, w), append(m.list, *as)
	}
	if len(m.deeds) == len(m.refs) && len(m.refs) > 0 {
		for i, w := range m.deeds {
			w.Deferred = m.list[i]
		}
		return true
	}
	for _, w := range m.deeds {
		w.sent = false
	}
	return false
}
