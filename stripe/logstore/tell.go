package logstore

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// Stat implements stripe.Stater.
func (s *Store) Stat(ctx context.Context, id stripe.ObjectID) (stripe.Info, error) {
	const op = "logstore.Stat"
	all := stripe.Info{ID: id}
	if err := stripe.CheckID(ctx, op, id); err != nil {
		return all, err
	}
	for _, m := range s.members {
		o, err := m.begin(op, id)
		if err != nil {
			return stripe.Info{}, err
		}
		if o != nil {
			m.mu.Lock()
			add(&all, o.info())
			m.mu.Unlock()
		} else {
			err = m.lostObject(op, id)
		}
		m.end()
		if err != nil {
			return stripe.Info{}, err
		}
	}
	return all, nil
}

// add puts together what two members know of an object.
func add(all *stripe.Info, x stripe.Info) {
	if x.TruncSeq >= all.TruncSeq {
		all.Epoch = max(all.Epoch, x.Epoch)
	}
	all.Lives.Note(x.Lives.Last)
	all.Lives.Note(x.Lives.Before)
	all.Size = max(all.Size, x.Size)
	all.TruncSeq = max(all.TruncSeq, x.TruncSeq)
	all.Allocated += x.Allocated
}

// Map implements stripe.Mapper.
func (s *Store) Map(ctx context.Context, id stripe.ObjectID, off, length int64,
	max int) ([]stripe.Extent, error) {
	const op = "logstore.Map"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return nil, err
	}
	info, err := s.Stat(ctx, id)
	if err != nil {
		return nil, err
	}
	x := stripe.NewExtents(off, length, max)
	end := off + length
	if !s.reserved(id) { // what is reserved may lie behind the object's end
		end = min(end, info.Size)
	}
	err = s.eachSpan(op, id, off, end, func(at, end int64) (bool, error) {
		return s.members[s.memberOf(id, at)].extents(op, id, x, at, end)
	})
	return x.Finish(), err
}

// eachSpan calls fn for the parts of [off, end) that one member has, in order, until it returns
// false. It leaves out gaps of the object's map: an object costs nothing to write that is so sparse
// that going through it by units would take seconds.
func (s *Store) eachSpan(op string, id stripe.ObjectID, off, end int64,
	fn func(at, end int64) (bool, error)) error {
	if len(s.members) == 1 {
		if off < end {
			_, err := fn(off, end)
			return err
		}
		return nil
	}
	const leafBytes = leafLength * clusterBytes
	keys, sure, err := s.leavesIn(op, id, off, end)
	for at, more := off, true; err == nil && more && at < end; {
		for sure && len(keys) > 0 && (keys[0]+1)*leafBytes <= at {
			keys = keys[1:]
		}
		if sure && len(keys) == 0 {
			break
		}
		if sure {
			at = max(at, keys[0]*leafBytes)
		}
		stop := min(at+s.unit-at%s.unit, end)
		more, err = fn(at, stop)
		at = stop
	}
	return err
}

// leavesIn lists the leaves of an object's map that some member has in [off, end), in order. They
// are not sure to be all when a member has lost entries.
func (s *Store) leavesIn(op string, id stripe.ObjectID, off, end int64) (keys []int64, sure bool,
	err error) {
	sure = true
	for _, m := range s.members {
		o, err := m.begin(op, id)
		if err != nil {
			return nil, false, err
		}
		m.mu.Lock()
		sure = sure && m.table.lost == 0
		if o != nil {
			keys = append(keys, o.leavesIn(off/clusterBytes, (end+clusterBytes-1)/clusterBytes)...)
		}
		m.mu.Unlock()
		m.end()
	}
	slices.Sort(keys)
	return slices.Compact(keys), sure, nil
}

// extents names the data of [off, end). Gaps of the object's map are skipped by leaves.
func (m *member) extents(op string, id stripe.ObjectID, x *stripe.Extents, off,
	end int64) (bool, error) {
	o, err := m.begin(op, id)
	if err != nil {
		return false, err
	}
	defer m.end()
	if o == nil {
		return true, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table.lost > 0 { // what looks like a hole may not be one
		return x.Data(off, end-off), nil
	}
	for _, key := range o.leavesIn(off/clusterBytes, (end+clusterBytes-1)/clusterBytes) {
		for i, c := range o.leaves[key] {
			if c == 0 {
				continue
			}
			base := (key<<leafShift + int64(i)) * clusterBytes
			if !clusterExtents(x, m.table.clusterEntry(c-1), base, off, end) {
				return false, nil
			}
		}
	}
	return true, nil
}

// clusterExtents names what a cluster at base has of [off, end).
func clusterExtents(x *stripe.Extents, e entry, base, off, end int64) bool {
	mask, held := e.mask(), e.held()
	for b := range int64(clusterBlocks) {
		at := base + b*blockBytes
		if (mask|held)&(1<<b) == 0 || at >= end || at+blockBytes <= off {
			continue
		}
		name := x.Data
		if mask&(1<<b) == 0 {
			name = x.Reserved
		}
		if !name(at, min(blockBytes, end-at)) {
			return false
		}
	}
	return true
}

// List implements stripe.Lister.
func (s *Store) List(ctx context.Context, fn func(stripe.Info) bool) error {
	const op = "logstore.List"
	all := map[stripe.ObjectID]stripe.Info{}
	for _, m := range s.members {
		m.mu.Lock()
		if m.closing {
			m.mu.Unlock()
			return errs.New(errs.Closed, op, m.dev.Name(), nil)
		}
		for id, o := range m.objects {
			info, ok := all[id]
			if !ok {
				info.ID = id
			}
			add(&info, o.info())
			all[id] = info
		}
		m.mu.Unlock()
	}
	for _, info := range all {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(op, "", err)
		}
		if !fn(info) {
			return nil
		}
	}
	return errs.Wrap(op, "", ctx.Err())
}

// Space implements stripe.Spacer.
func (s *Store) Space() (stripe.Space, error) {
	var sp stripe.Space
	for _, m := range s.members {
		m.mu.Lock()
		if m.closing {
			m.mu.Unlock()
			return stripe.Space{}, errs.New(errs.Closed, "logstore.Space", m.dev.Name(), nil)
		}
		sp.Total += m.room.usable(int64(m.g.clusters) * clusterBytes)
		// What is in quarantine is free with the next checkpoint.
		own := int64(m.alloc.free) + int64(len(m.alloc.quarantine))
		own = max(own-m.room.borrowed(), 0)
		given := m.room.clusters(m.alloc.bare, m.room.reserve)
		sp.Free += (own + given) * clusterBytes
		if m.room.sparse != nil {
			sp.Shared += given * clusterBytes
		}
		m.mu.Unlock()
	}
	return sp, nil
}

// Health is the reason why the store refuses changes, or nil.
func (s *Store) Health() error {
	for _, m := range s.members {
		if m.broken.Load() != nil {
			return m.brokenError()
		}
	}
	return nil
}

// Stats implements stripe.Counter.
func (s *Store) Stats() stripe.Stats {
	all := stripe.Stats{
		Reads: s.count.reads.Load(), Writes: s.count.writes.Load(),
		ReadBytes: s.count.readBytes.Load(), WriteBytes: s.count.writeBytes.Load(),
	}
	objects := map[stripe.ObjectID]bool{}
	for _, m := range s.members {
		c := &m.count
		all.DiskReads += c.diskReads.Load()
		all.DiskWrites += c.diskWrites.Load()
		all.DiskReadBytes += c.diskReadBytes.Load()
		all.DiskWriteBytes += c.diskWriteBytes.Load()
		all.Syncs += c.syncs.Load()
		all.Groups += c.groups.Load()
		all.Checkpoints += c.checkpoints.Load()
		all.Repeats += c.repeats.Load()
		all.ChecksumErrors += c.badSums.Load()
		all.CopiedBytes += c.copied.Load()
		m.mu.Lock()
		if len(s.members) > 1 {
			for id := range m.objects {
				objects[id] = true
			}
		} else {
			all.Objects = uint64(len(m.objects))
		}
		all.LogBytes += m.g.logBytes
		all.LogUsed += int64(m.log.head - m.log.tail)
		all.MemoryBytes += int64(m.pool.total+m.table.max) * blockBytes
		all.MemoryUsed += int64(m.pool.used()+len(m.table.pages)) * blockBytes
		inUse := int64(m.g.clusters-m.alloc.bare-m.alloc.free) - int64(len(m.alloc.quarantine))
		spread := int64(1) // leaves are filled by the units of one member only
		if len(s.members) > 1 {
			spread = max(min(int64(len(s.members)), leafLength*clusterBytes/s.unit), 1)
		}
		all.MapBytes += int64(len(m.objects))*objectMemory + inUse*leafMemory*spread/leafLength
		m.mu.Unlock()
	}
	all.Objects += uint64(len(objects))
	return all
}
