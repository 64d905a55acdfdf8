package logstore

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// changeMode says what a change needs of its object.
type changeMode struct {
	exclusive bool // no other change of the object at the same time
	create    bool // the object comes to life if it does not exist
	fenced    bool // allowed for fenced generations too
	writes    bool // of a writer, whose epoch must not be fenced

	epoch uint32 // of the writer
}

// change runs fn in the object's order and waits for the record that it appended, if any. Without
// create, fn is not called for an object that does not exist.
func (m *member) change(op string, id stripe.ObjectID, mode changeMode,
	fn func(o *object) (*waiter, error)) error {
	m.life.RLock()
	defer m.life.RUnlock()
	o, err := m.enter(op, id, mode)
	if o == nil || err != nil {
		return err
	}
	w, err := fn(o)
	m.leave(o, mode)
	if w == nil || err != nil {
		return err
	}
	err = m.wait(w)
	m.free(w)
	return err
}

// enter finds the object, or makes one in memory, and locks its order.
func (m *member) enter(op string, id stripe.ObjectID, mode changeMode) (*object, error) {
	for {
		m.mu.Lock()
		o, err := m.findLocked(op, id)
		if mode.fenced && errs.KindOf(err) == errs.Fenced {
			o, err = m.objects[id], nil
		}
		if err == nil && mode.writes {
			err = m.checkEpochLocked(op, id, mode.epoch)
		}
		if err == nil {
			err = m.writableLocked()
		}
		if err == nil && o == nil && mode.create {
			o = m.newborn[id]
			if o == nil {
				o = newObject(id)
				m.newborn[id] = o
			}
		}
		if o != nil && err == nil {
			o.users++
		}
		m.mu.Unlock()
		if o == nil || err != nil {
			return nil, err
		}
		if mode.exclusive {
			o.order.Lock()
		} else {
			o.order.RLock()
		}
		m.mu.Lock()
		same := !o.gone
		m.mu.Unlock()
		if same {
			return o, nil
		}
		m.leave(o, mode)
	}
}

// leave unlocks the order. When the last one leaves an object that nobody has brought to life,
// there is none.
func (m *member) leave(o *object, mode changeMode) {
	m.mu.Lock()
	o.users--
	if o.users == 0 && m.newborn[o.id] == o {
		delete(m.newborn, o.id)
		if m.objects[o.id] != o && o.slot != noSlot {
			m.slots.put(o.slot)
		}
	}
	m.mu.Unlock()
	if mode.exclusive {
		o.order.Unlock()
	} else {
		o.order.RUnlock()
	}
}

// admit checks a request's stamp against the object. done with a waiter means that the request is
// a repeat, which waits for the durability it asks for.
func (m *member) admit(o *object, st wire.Stamp, d stripe.Durability) (w *waiter, done bool,
	err error) {
	if m.sessions.Repeated(st) {
		w, err = m.repeated(d)
		return w, true, err
	}
	m.mu.Lock()
	have := o.truncSeq
	m.mu.Unlock()
	return nil, false, stripe.CheckStamp("logstore", o.id, have, st)
}

// repeated answers a request that was applied before: it waits for the durability it asks for.
func (m *member) repeated(d stripe.Durability) (*waiter, error) {
	m.count.repeats.Add(1)
	if d == stripe.Volatile {
		return nil, nil
	}
	_, _, err := m.barrier(true)
	return nil, err
}

// truncate cuts or extends the object, which comes to life if it does not exist.
func (m *member) truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	return m.truncateTo(ctx, id, size, st, true)
}

func (m *member) truncateTo(ctx context.Context, id stripe.ObjectID, size int64, st wire.Stamp,
	create bool) error {
	mode := changeMode{exclusive: true, create: create}
	return m.change("logstore.Truncate", id, mode, func(o *object) (*waiter, error) {
		if w, done, err := m.admit(o, st, stripe.Durable); done || err != nil {
			return w, err
		}
		if st.TruncSeq > 0 && st.TruncSeq == o.truncSeq {
			_, _, err := m.barrier(true) // applied before; whoever did it may still wait
			return nil, err
		}
		j := jobs.Get().(*job)
		defer m.done(j)
		j.rec = record{kind: kindTruncate, id: id, st: st, blocks: j.rec.blocks[:0],
			clusters: j.rec.clusters[:0]}
		if size < o.size && size%blockBytes != 0 {
			// The rest of the last block becomes zeroes, so that growing shows nothing old.
			if err := m.zeroPart(ctx, o, j, size, (size/blockBytes+1)*blockBytes); err != nil {
				return nil, err
			}
		}
		return m.commitRange(ctx, o, j, size, st.TruncSeq, stripe.Durable)
	})
}

// zeroPart appends a block to the job in which [off, end) is zero and the rest is what is there.
// Nothing is appended where the block is a hole anyway.
func (m *member) zeroPart(ctx context.Context, o *object, j *job, off, end int64) error {
	blk := off / blockBytes
	m.mu.Lock()
	c, ok := o.cluster(blk / clusterBlocks)
	ok = ok && m.table.clusterEntry(c).mask()&(1<<(blk%clusterBlocks)) != 0
	m.mu.Unlock()
	if !ok {
		return nil
	}
	if err := m.takeBlocks(ctx, j, 2); err != nil { // both ends in one step
		return err
	}
	zero := gather{bufs: [][]byte{zeroBlock[:]}}
	return m.fillBlocks(ctx, o, j, &zero, off, end)
}

var zeroBlock [blockBytes]byte

// clearing is what becomes of a range that is cleared.
type clearing uint8

const (
	clearsHole   clearing = iota // a hole; the size stays
	clearsSpace                  // the same, but the space of what was data is kept
	clearsExtend                 // it is a write of zeroes
)

// clearRange makes [off, off+length) read as zeroes.
func (m *member) clearRange(ctx context.Context, op string, id stripe.ObjectID, off, length int64,
	how clearing, st wire.Stamp, d stripe.Durability) error {
	return m.clearWith(ctx, op, id, off, length, how, &input{st: st, d: d})
}

// clearWith is clearRange whose stamps are the input's.
func (m *member) clearWith(ctx context.Context, op string, id stripe.ObjectID, off, length int64,
	how clearing, in *input) error {
	extend := how == clearsExtend
	mode := changeMode{exclusive: true, create: extend || stripe.Numbered(in.st), writes: true,
		epoch: in.st.Epoch}
	return m.change(op, id, mode, func(o *object) (*waiter, error) {
		if w, done, err := m.admit(o, in.st, in.d); done || err != nil {
			return w, err
		}
		size, end := o.size, off+length // nobody else changes it
		if extend && length > 0 {
			size = max(size, end)
		}
		if end >= o.size {
			end = (max(o.size, off) + blockBytes - 1) / blockBytes * blockBytes
		}
		j := jobs.Get().(*job)
		defer m.done(j)
		j.rec = record{kind: kindWrite, id: id, st: in.st, requests: in.more,
			blocks: j.rec.blocks[:0], clusters: j.rec.clusters[:0]}
		if off < end {
			if err := m.zeroEnds(ctx, o, j, off, end); err != nil {
				return nil, err
			}
		}
		if how == clearsHole && o.reserved() {
			end = max(end, off+length) // what is reserved may lie behind the object's end
		}
		if off < end {
			j.rec.flags, j.rec.off, j.rec.len = flagClear, off, end-off
			if how == clearsSpace {
				j.rec.flags |= flagKeep
			}
		}
		return m.commitRange(ctx, o, j, size, o.truncSeq, in.d)
	})
}

// zeroEnds zeroes the parts of blocks at both ends of a range.
func (m *member) zeroEnds(ctx context.Context, o *object, j *job, off, end int64) error {
	if off%blockBytes != 0 {
		stop := min(end, (off/blockBytes+1)*blockBytes)
		if err := m.zeroPart(ctx, o, j, off, stop); err != nil {
			return err
		}
		if stop == end {
			return nil
		}
	}
	if end%blockBytes != 0 {
		return m.zeroPart(ctx, o, j, end/blockBytes*blockBytes, end)
	}
	return nil
}

// commitRange appends a record that sets size and truncate sequence.
func (m *member) commitRange(ctx context.Context, o *object, j *job, size int64, seq uint64,
	d stripe.Durability) (*waiter, error) {
	return m.commitWith(ctx, o, j, d, func() { j.rec.size, j.rec.st.TruncSeq = size, seq })
}

// remove forgets the object.
func (m *member) remove(ctx context.Context, id stripe.ObjectID) error {
	mode := changeMode{exclusive: true, fenced: true}
	there := false
	err := m.change("logstore.Remove", id, mode, func(o *object) (*waiter, error) {
		there = true
		j := jobs.Get().(*job)
		defer m.done(j)
		j.rec = record{kind: kindRemove, id: id, blocks: j.rec.blocks[:0],
			clusters: j.rec.clusters[:0]}
		return m.commitRange(ctx, o, j, 0, 0, stripe.Durable)
	})
	if err != nil || there {
		return err
	}
	// Whoever has removed it may still wait for the disk, and so must everybody who is told.
	if _, err := m.begin("logstore.Remove", stripe.ObjectID{Gen: ^uint32(0)}); err != nil {
		return err
	}
	defer m.end()
	_, _, err = m.barrier(true)
	return err
}

// setFence refuses what is older than a bar at once, lets the requests that are under way end, and
// makes it durable.
func (m *member) setFence(ctx context.Context, op string, file uint64, to bar) error {
	m.life.Lock() // everything older is over
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		m.life.Unlock()
		return errs.New(errs.Closed, op, m.dev.Name(), nil)
	}
	f := m.fences[file]
	known := f.logged.covers(to)
	if !f.bar.covers(to) {
		f.bar = f.bar.raised(to)
		m.fences[file] = f
	}
	m.mu.Unlock()
	m.life.Unlock()
	if _, err := m.begin(op, stripe.ObjectID{File: file, Gen: ^uint32(0)}); err != nil {
		return err // closed in between
	}
	defer m.end()
	if known {
		_, _, err := m.barrier(true)
		return err
	}
	rec := record{kind: kindFence, id: stripe.ObjectID{File: file}, slot: f.slot}
	need := logNeed(&rec)
	if err := m.reserveLog(ctx, need); err != nil {
		return err
	}
	w := m.waiter()
	err := m.appendFence(op, &rec, need, w)
	if err == nil {
		err = m.wait(w)
	} else {
		m.unreserveLog(need)
	}
	m.free(w)
	return err
}

// appendFence gives the fence a slot, if it has none, and appends its record.
func (m *member) appendFence(op string, rec *record, need int64, w *waiter) error {
	for {
		m.mu.Lock()
		now := m.fences[rec.id.File]
		rec.id.Gen, rec.st.Epoch = now.gen, now.epoch // of two at the same time the higher one wins
		err := m.writableLocked()
		ok := now.slotted
		if rec.slot = now.slot; err == nil && !ok {
			rec.slot, ok = m.slots.take()
		}
		if err == nil && ok {
			m.appendLocked(rec, need, w, stripe.Durable)
			m.mu.Unlock()
			return nil
		}
		m.mu.Unlock()
		switch {
		case err != nil:
			return err
		case m.growSlots() != nil:
			return errs.Newf(errs.NoSpace, op, m.dev.Name(), "all slots are taken")
		}
	}
}
