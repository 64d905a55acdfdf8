package logstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Reserved space is clusters that belong to the object before anything is written to them: the
// index says which of their blocks are held, and reads find no data there. What is written to such
// a block goes the way of every block that has its cluster: through the log, whose room is there
// from the beginning, and then in place. That needs no second cluster, on the fullest disk. A large
// write takes free clusters where there are some, and goes through the log where there are none, as
// every overwrite does; what it took from free clusters it gives back by those that it replaces.
//
// A block stays held when it is written. So the space of a block that is blanked is held again, and
// nothing has to be counted elsewhere: clusters in use are the reservation.
//
// A record names as many clusters as fit into a batch; a long range takes several, and is undone
// by the pieces it got when one of them fails. A crash in between leaves a part of it, which
// nobody was told of, until the range is punched, cut or removed.

// Reserve implements stripe.Reserver.
func (s *Store) Reserve(ctx context.Context, id stripe.ObjectID, r stripe.Reservation,
	st wire.Stamp) (int64, []seg.Piece, error) {
	const op = "logstore.Reserve"
	if err := stripe.CheckRange(ctx, op, id, r.Off, r.Len); err != nil {
		return r.Off, nil, err
	}
	var clusters int64
	for _, m := range s.members {
		clusters += int64(m.g.clusters)
	}
	if r.Len/clusterBytes > clusters { // nobody walks over more than there can be
		return r.Off, nil, errs.Newf(errs.NoSpace, op, "", "%d bytes, the store has %d clusters", r.Len,
			clusters)
	}
	st.Session, st.Slot, st.Seq = 0, 0, 0
	end, err := s.reach(op, id, r)
	if err != nil {
		return r.Off, nil, err
	}
	last := s.memberOf(id, max(end-1, 0))
	fresh := make([][]seg.Piece, len(s.members))
	err = s.onEach(func(i int, m *member) (err error) {
		part := reserving{s: s, id: id, member: i, off: r.Off, end: end, leave: r.Leave}
		part.alive = i == last
		if r.Extend && i == last && end == r.Off+r.Len {
			part.size = end
		}
		fresh[i], err = m.reserve(ctx, op, &part, st)
		return err
	})
	if err != nil {
		undo := s.onEach(func(i int, m *member) error {
			return m.releaseAll(context.WithoutCancel(ctx), op, id, fresh[i], st)
		})
		return r.Off, nil, errors.Join(err, undo)
	}
	all := join(fresh)
	return end, all[:min(len(all), r.PiecesMax)], nil
}

// Release implements stripe.Reserver.
func (s *Store) Release(ctx context.Context, id stripe.ObjectID, off, length int64,
	st wire.Stamp) error {
	const op = "logstore.Release"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return err
	}
	return s.onEach(func(_ int, m *member) error {
		return m.releaseAll(ctx, op, id, []seg.Piece{{Off: off, Len: length}}, st)
	})
}

// Blank implements stripe.Reserver.
func (s *Store) Blank(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	d stripe.Durability) error {
	const op = "logstore.Blank"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return err
	}
	return s.onAll(func(m *member) error {
		return m.clearRange(ctx, op, id, off, length, clearsSpace, st, d)
	})
}

// onEach is onAll that tells which member it is.
func (s *Store) onEach(fn func(i int, m *member) error) error {
	return s.onAll(func(m *member) error { return fn(slices.Index(s.members, m), m) })
}

// reserved tells whether an object has space that nothing was written to.
func (s *Store) reserved(id stripe.ObjectID) bool {
	for _, m := range s.members {
		m.mu.Lock()
		o := m.objects[id]
		some := o != nil && o.reserved()
		m.mu.Unlock()
		if some {
			return true
		}
	}
	return false
}

func (o *object) reserved() bool { return o.blocks.reserved > 0 }

// reach finds out how much of a range can be reserved with PiecesMax pieces to tell of. Somebody
// may change the object before it is: then a few of them are not told.
func (s *Store) reach(op string, id stripe.ObjectID, r stripe.Reservation) (int64, error) {
	end := r.Off + r.Len
	if r.PiecesMax <= 0 {
		return end, nil
	}
	lists := make([][]seg.Piece, len(s.members))
	for i, m := range s.members {
		o, err := m.begin(op, id)
		if err != nil {
			return 0, err
		}
		part := reserving{s: s, id: id, member: i, off: r.Off, end: end}
		m.mu.Lock()
		lists[i], end = m.missingLocked(o, &part, r.PiecesMax)
		m.mu.Unlock()
		m.end()
	}
	all := join(lists)
	if len(all) > r.PiecesMax {
		end = min(end, all[r.PiecesMax].Off)
	}
	return end, nil
}

// join sorts pieces that do not overlap, and makes one of those that touch.
func join(lists [][]seg.Piece) []seg.Piece {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b seg.Piece) int { return cmp.Compare(a.Off, b.Off) })
	out := all[:0]
	for _, p := range all {
		out = appendPiece(out, p)
	}
	return out
}

func appendPiece(list []seg.Piece, p seg.Piece) []seg.Piece {
	if k := len(list) - 1; k >= 0 && list[k].End() == p.Off {
		list[k].Len += p.Len
		return list
	}
	return append(list, p)
}

// reserving is what one member has to reserve of a range.
type reserving struct {
	s        *Store
	id       stripe.ObjectID
	member   int
	off, end int64
	leave    int64
	size     int64 // what the object's becomes at least
	alive    bool  // the object comes to life, even if there is nothing to do
}

// each calls fn for the member's clusters of the range, beginning with one, with the blocks that
// the range touches, until it returns false.
func (r *reserving) each(from int64, fn func(index int64, blocks uint16) bool) {
	if r.off >= r.end {
		return
	}
	first, last := r.off/blockBytes, (r.end+blockBytes-1)/blockBytes
	for index := max(from, first/clusterBlocks); index*clusterBlocks < last; index++ {
		if r.s.memberOf(r.id, index*clusterBytes) == r.member &&
			!fn(index, blocksOf(index, first, last)) {
			return
		}
	}
}

// lackLocked tells which of some blocks of a cluster have no space; o may be nil.
func (m *member) lackLocked(o *object, index int64, blocks uint16) (lack uint16, c uint32,
	ok bool) {
	if o != nil {
		c, ok = o.cluster(index)
	}
	if !ok {
		return blocks, 0, false
	}
	e := m.table.clusterEntry(c)
	return blocks &^ (e.mask() | e.held()), c, true
}

// missingLocked lists what has no space, up to max pieces, and how far it has looked.
func (m *member) missingLocked(o *object, r *reserving, most int) (list []seg.Piece, end int64) {
	end = r.end
	r.each(0, func(index int64, blocks uint16) bool {
		if len(list) > most {
			end = index * clusterBytes
			return false
		}
		lack, _, _ := m.lackLocked(o, index, blocks)
		list = appendBlocks(list, index, lack)
		return true
	})
	return list, end
}

// appendBlocks appends blocks of a cluster as pieces of the object.
func appendBlocks(list []seg.Piece, index int64, blocks uint16) []seg.Piece {
	for b := range int64(clusterBlocks) {
		if blocks&(1<<b) != 0 {
			list = appendPiece(list, seg.Piece{Off: (index*clusterBlocks + b) * blockBytes,
				Len: blockBytes})
		}
	}
	return list
}

// reserve reserves the member's part and tells what had no space before. When it fails it has
// given all of that back.
func (m *member) reserve(ctx context.Context, op string, r *reserving, st wire.Stamp) (
	fresh []seg.Piece, err error) {
	mode := changeMode{exclusive: true, create: true, writes: true, epoch: st.Epoch}
	err = m.change(op, r.id, mode, func(o *object) (*waiter, error) {
		if err := m.checkStamp(op, o, st); err != nil {
			return nil, err
		}
		j := jobs.Get().(*job)
		defer m.done(j)
		for from := int64(0); ; {
			j.rec = record{kind: kindReserve, id: r.id, st: st, blocks: j.rec.blocks[:0],
				clusters: j.rec.clusters[:0]}
			next, more := m.nameReserved(o, j, r, from)
			w, err := m.commitReserved(ctx, o, j, r, more)
			if err != nil {
				undo := m.releaseOrdered(context.WithoutCancel(ctx), o, j, fresh, st)
				fresh = nil
				return nil, errors.Join(err, undo)
			}
			for i := range j.rec.clusters {
				fresh = appendBlocks(fresh, j.rec.clusters[i].index, j.rec.clusters[i].mask)
			}
			if !more {
				return w, nil
			}
			if err := m.waitReset(j, w); err != nil {
				return nil, err
			}
			from = next
		}
	})
	return fresh, err
}

// waitReset waits for one record of several and prepares the job for the next.
func (m *member) waitReset(j *job, w *waiter) error {
	err := m.wait(w)
	m.free(w)
	m.reset(j)
	return err
}

// checkStamp is admit for requests whose numbers are not looked at.
func (m *member) checkStamp(op string, o *object, st wire.Stamp) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return stripe.CheckStamp(op, o.id, o.truncSeq, st)
}

// clustersPerRecord is how many clusters a record can name.
func (g *geometry) clustersPerRecord() int {
	return (g.batchHeadMax - batchHead - recordHead) / clusterDesc
}

// nameReserved fills the record with clusters that lack space in some blocks, from one on. It tells
// where to go on if there are more than a record names.
func (m *member) nameReserved(o *object, j *job, r *reserving, from int64) (next int64, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.each(from, func(index int64, blocks uint16) bool {
		lack, c, ok := m.lackLocked(o, index, blocks)
		if lack == 0 {
			return true
		}
		if more = len(j.rec.clusters) == m.g.clustersPerRecord(); more {
			next = index
			return false
		}
		j.rec.clusters = append(j.rec.clusters,
			clusterPlace{index: index, cluster: c, mask: lack, fresh: !ok})
		return true
	})
	return next, more
}

// commitReserved finds clusters for the record and appends it; the last of several is durable, and
// all before with it. Without anything to say it waits for those who may have reserved the same.
func (m *member) commitReserved(ctx context.Context, o *object, j *job, r *reserving,
	more bool) (*waiter, error) {
	if len(j.rec.clusters) == 0 && r.size <= o.size && (!r.alive || m.isAlive(o)) {
		_, _, err := m.barrier(true)
		return nil, err
	}
	need := 0
	for i := range j.rec.clusters {
		if j.rec.clusters[i].fresh {
			need++
		}
	}
	if err := m.takeReserved(j, need, r.leave); err != nil {
		return nil, err
	}
	next := 0
	for i := range j.rec.clusters {
		if x := &j.rec.clusters[i]; x.fresh {
			x.cluster = j.clusters[next]
			next++
		}
	}
	d, size := stripe.Durable, max(o.size, r.size)
	if more {
		d, size = stripe.Volatile, o.size
	}
	return m.commitRange(ctx, o, j, size, o.truncSeq, d)
}

func (m *member) isAlive(o *object) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[o.id] == o
}

// takeReserved takes free clusters, and leaves so many bytes to others, beside what the file system
// keeps in reserve.
func (m *member) takeReserved(j *job, n int, leave int64) (err error) {
	if n == 0 {
		return nil
	}
	keep := (leave + clusterBytes - 1) / clusterBytes
	for range 8 { // others take clusters, too
		var ok bool
		m.mu.Lock()
		room, waiting := m.roomLocked(), len(m.alloc.quarantine)
		enough := room >= int64(n)+keep
		if enough {
			j.clusters, ok = m.alloc.take(j.clusters, n)
		}
		m.mu.Unlock()
		switch {
		case ok:
			return nil
		case enough && m.makeRoom(uint32(n)):
		case !enough && waiting > 0: // they are free after a checkpoint, or after the next
			if err := m.checkpoint(false); err != nil {
				return err
			}
		default:
			return errs.Newf(errs.NoSpace, "logstore.Reserve", m.dev.Name(), "%d clusters are free, %d "+
				"are wanted and %d must be left: remove files, or make a larger store", room, n, keep)
		}
	}
	return errs.Newf(errs.NoSpace, "logstore.Reserve", m.dev.Name(), "no %d free clusters", n)
}

// releaseAll gives the reserved blocks back that the member has in some pieces.
func (m *member) releaseAll(ctx context.Context, op string, id stripe.ObjectID, list []seg.Piece,
	st wire.Stamp) error {
	if len(list) == 0 {
		return nil
	}
	mode := changeMode{exclusive: true, writes: true, epoch: st.Epoch}
	return m.change(op, id, mode, func(o *object) (*waiter, error) {
		if err := m.checkStamp(op, o, st); err != nil {
			return nil, err
		}
		j := jobs.Get().(*job)
		defer m.done(j)
		return nil, m.releaseOrdered(ctx, o, j, list, st)
	})
}

// releaseOrdered runs under the object's order lock, and returns when everything is durable.
func (m *member) releaseOrdered(ctx context.Context, o *object, j *job, list []seg.Piece,
	st wire.Stamp) error {
	var todo []clusterPlace
	m.mu.Lock()
	for _, p := range list {
		first, last := p.Off/blockBytes, (p.End()+blockBytes-1)/blockBytes
		o.each(first/clusterBlocks, (last+clusterBlocks-1)/clusterBlocks, func(i int64, c uint32) {
			e := m.table.clusterEntry(c)
			if free := blocksOf(i, first, last) & e.held() &^ e.mask(); free != 0 {
				todo = append(todo, clusterPlace{index: i, cluster: c, mask: free})
			}
		})
	}
	m.mu.Unlock()
	st.Session, st.Slot, st.Seq = 0, 0, 0
	for len(todo) > 0 {
		n := min(len(todo), m.g.clustersPerRecord())
		m.reset(j)
		j.rec = record{kind: kindReserve, flags: flagFree, id: o.id, st: st,
			blocks: j.rec.blocks[:0], clusters: append(j.rec.clusters[:0], todo[:n]...)}
		w, err := m.commitRange(ctx, o, j, o.size, o.truncSeq, stripe.Volatile)
		if err == nil {
			err = m.waitReset(j, w)
		}
		if err != nil {
			return err
		}
		todo = todo[n:]
	}
	_, _, err := m.barrier(true)
	return err
}
