package store

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// The removal of what inodes leave behind.
//
// An inode that is gone is in the deletion queue, 'Q', until its attributes and stripe objects are
// gone too. A round goes through the queue once, by pages, and waits for no server: what cannot be
// removed at a server, because it is away or does not answer soon, moves to a list of that server,
// 'V'. While a server has a list, all that is to be removed there goes to the list at once.
//
// Each list is worked on for itself, while its server is up: so a server that is away delays no
// removal at others, however much there is for it, and nobody reads its list until it comes back.

// queue is what the process knows of the deletion queue; the records are the truth. What is removed
// from it leaves marks in the engine that a scan steps over one by one: so a round begins where
// something was put since the last, and at the beginning only now and then, for what nobody knows
// of (a commit whose end was not heard of).
type queue struct {
	mu    sync.Mutex
	from  meta.Ino  // nothing is in it before this one
	whole time.Time // when it was last looked through
}

// wholeEvery is how often the queue is looked through from its beginning, at most.
const wholeEvery = time.Minute

// gatherMax is how long removals are gathered: a round syncs the engine, and finds the more the
// longer it waits. Nobody waits for it.
const gatherMax = 100 * time.Millisecond

// note says that something was put there.
func (q *queue) note(ino meta.Ino) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.from = min(q.from, ino)
}

// begin tells where a round is to begin.
func (q *queue) begin(now time.Time) meta.Ino {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := q.from
	q.from = math.MaxUint64
	if q.whole.IsZero() || now.Sub(q.whole) >= wholeEvery {
		from, q.whole = 0, now
	}
	return from
}

// backlogs are the lists of servers, by what the process knows of them. The records are the truth.
type backlogs struct {
	mu   sync.Mutex
	byID map[uint32]*backlog
}

// backlog is the list of one server.
type backlog struct {
	added   uint64 // how often something was added
	working bool   // a goroutine is at it
	from    []byte // the key where it goes on: not always at what failed the last time
}

// add notes that something was put on a server's list, after it was.
func (x *backlogs) add(server uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.byID[server]
	if b == nil {
		b = &backlog{from: backlogOf(server)}
		x.byID[server] = b
	}
	b.added++
}

func (x *backlogs) has(server uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[server] != nil
}

// begin takes the lists of some servers that are up and that nobody works on, at most max. left
// tells that there are lists of servers that are up.
func (x *backlogs) begin(up []uint32, max int) (ids []uint32, left bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range up {
		b := x.byID[id]
		if b == nil {
			continue
		}
		left = true
		if !b.working && len(ids) < max {
			b.working = true
			ids = append(ids, id)
		}
	}
	return ids, left
}

// look tells where to go on, and how often something had been added until then.
func (x *backlogs) look(server uint32) (from []byte, added uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.byID[server]
	return b.from, b.added
}

// move notes where to go on; nil: at the beginning.
func (x *backlogs) move(server uint32, from []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if from == nil {
		from = backlogOf(server)
	}
	x.byID[server].from = from
}

// rest lets go of a list that is not empty.
func (x *backlogs) rest(server uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID[server].working = false
}

// forget ends a list that was found empty; false if something was added since the given count.
func (x *backlogs) forget(server uint32, added uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byID[server].added != added {
		return false
	}
	delete(x.byID, server)
	return true
}

// loadBacklogs finds out which servers have lists: one look for each.
func (s *Store) loadBacklogs(t *txn) error {
	end := kv.PrefixEnd([]byte{kindBacklog})
	for start := []byte{kindBacklog}; ; {
		key, err := t.firstIn(start, end)
		if err != nil || key == nil {
			return err
		}
		server := binary.BigEndian.Uint32(key[1:])
		s.backlogs.add(server)
		start = kv.PrefixEnd(backlogOf(server))
	}
}

// removeLoop works through the deletion queue and the lists of servers.
func (s *Store) removeLoop(ctx context.Context) {
	slots := make(chan struct{}, backlogsMax)
	first := true
	s.loop(ctx, s.removed, false, func() (left bool) {
		if !first {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(min(gatherMax, s.opt.Tick)):
			}
		}
		first = false
		if err := s.removeQueued(ctx); err != nil && ctx.Err() == nil {
			s.opt.Log.Error("deletion queue", "error", err)
			left = true
		}
		return s.workOff(ctx, slots) || left
	})
}

// removeQueued goes through the queue once. What fails for a reason of this service stays in it.
func (s *Store) removeQueued(ctx context.Context) (failed error) {
	from := s.queue.begin(s.steady())
	defer func() {
		if failed != nil {
			s.queue.note(from)
		}
	}()
	for start := removalKey(from); ctx.Err() == nil; {
		batch, err := s.removals(start, kv.PrefixEnd([]byte{kindRemoval}))
		if err == nil && len(batch) > 0 {
			// Until its removal is on disk, a power cut could bring an inode back, without data.
			err = s.kv.Sync(ctx)
		}
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return failed
		}
		if err := s.removeBatch(ctx, batch); err != nil {
			failed = err
		}
		start = append(batch[len(batch)-1].key, 0)
	}
	return failed
}

// removeBatch removes what records of the queue demand, and then those records.
func (s *Store) removeBatch(ctx context.Context, batch []waiting) (failed error) {
	done := make([][]byte, 0, len(batch))
	for i, err := range s.eachRemoval(batch, func(r *waiting) error {
		return s.removeRemains(ctx, &r.removal)
	}) {
		if err != nil {
			failed = err
			continue
		}
		done = append(done, batch[i].key)
	}
	for some := range slices.Chunk(done, xattrBatch) {
		_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
			t.kv.MakesRoom = true
			for _, key := range some {
				t.remove(key)
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.gone.Add(int64(len(some)))
	}
	return failed
}

// waiting is a record of the queue or of a list.
type waiting struct {
	key []byte
	removal
}

// removals reads a page of the queue or of a list.
func (s *Store) removals(start, end []byte) ([]waiting, error) {
	var batch []waiting
	err := s.look(func(t *txn) error {
		var bad error
		err := t.snap.Scan(start, end, func(key, value []byte, _ kv.Version) bool {
			r := waiting{key: append([]byte(nil), key...)}
			if bad = parse(key, value, &r.removal); bad != nil {
				return false
			}
			r.Ino = removalIno(key)
			batch = append(batch, r)
			return len(batch) < batchMax
		})
		return unlessNil(err, bad)
	})
	return batch, err
}

// eachRemoval calls fn for the records of a page, a few at a time.
func (s *Store) eachRemoval(batch []waiting, fn func(r *waiting) error) []error {
	var wg sync.WaitGroup
	fails := make([]error, len(batch))
	slots := make(chan struct{}, removalsMax)
	for i := range batch {
		slots <- struct{}{}
		wg.Go(func() {
			fails[i] = fn(&batch[i])
			<-slots
		})
	}
	wg.Wait()
	return fails
}

// removeRemains removes attributes and stripe objects. What servers cannot do at once is left on
// their lists.
func (s *Store) removeRemains(ctx context.Context, r *removal) error {
	if err := s.removeXattrs(ctx, r.Ino); err != nil {
		return err
	}
	late := s.removeObjects(ctx, r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	value := r.encode()
	for some := range slices.Chunk(late, xattrBatch) {
		_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
			t.kv.MakesRoom = true
			for _, i := range some {
				t.put(backlogKey(r.Layout.Servers[i], r.Ino, uint32(i)), value)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, i := range some {
			s.backlogs.add(r.Layout.Servers[i])
		}
	}
	return nil
}

// removeXattrs removes the attributes of an inode.
func (s *Store) removeXattrs(ctx context.Context, ino meta.Ino) error {
	for more := true; more; {
		_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
			t.kv.MakesRoom = true
			n := 0
			err := t.scan(xattrsOf(ino), func(key, _ []byte) bool {
				t.remove(append([]byte(nil), key...))
				n++
				return n < xattrBatch
			})
			if more = n == xattrBatch; err == nil && n == 0 {
				err = errNothing
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeObjects removes a file's stripe objects, at all servers at once, and returns the stripes
// that are left: of servers that are away, have a list already, or fail.
func (s *Store) removeObjects(ctx context.Context, r *removal) (late []int) {
	bounded, cancel := context.WithTimeout(ctx, tryMax)
	defer cancel()
	since := s.heardSince()
	fails := make([]error, r.Layout.Width())
	var wg sync.WaitGroup
	for i, server := range r.Layout.Servers {
		if s.backlogs.has(server) || !s.servers.isUp(server, since) {
			fails[i] = errs.Again
			continue
		}
		wg.Go(func() {
			if fails[i] = s.opt.Objects.Remove(bounded, r.FileRef, i); fails[i] != nil && ctx.Err() == nil {
				s.opt.Log.Info("removal is tried again", "ino", r.Ino, "server", server, "error", fails[i])
			}
		})
	}
	wg.Wait()
	for i, err := range fails {
		if err != nil {
			late = append(late, i)
		}
	}
	return late
}

// workOff goes on with the lists of servers that are up, each in a goroutine, and tells whether
// there are such lists.
func (s *Store) workOff(ctx context.Context, slots chan struct{}) (left bool) {
	ids, left := s.backlogs.begin(s.servers.up(s.heardSince()), cap(slots)-len(slots))
	for _, id := range ids {
		slots <- struct{}{} // has room: nobody else fills it
		s.done.Go(func() {
			defer func() { <-slots }()
			if err := s.workOffOne(ctx, id); err != nil && ctx.Err() == nil {
				s.opt.Log.Info("removals are tried again", "server", id, "error", err)
			}
		})
	}
	return left
}

// workOffOne removes what is on a server's list until it is empty, or until some removals fail.
func (s *Store) workOffOne(ctx context.Context, server uint32) error {
	failures, whole := 0, false // whole: it began at the beginning, and saw all of it
	for {
		from, added := s.backlogs.look(server)
		whole = string(from) == string(backlogOf(server))
		batch, err := s.removals(from, kv.PrefixEnd(backlogOf(server)))
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			s.backlogs.rest(server)
			return err
		}
		switch {
		case len(batch) > 0:
			s.backlogs.move(server, append(batch[len(batch)-1].key, 0))
		case !whole:
			s.backlogs.move(server, nil)
		case s.backlogs.forget(server, added):
			return nil
		}
		n, err := s.workOffPage(ctx, server, batch)
		if failures += n; failures >= failuresMax {
			s.backlogs.rest(server)
			return err
		}
	}
}

// workOffPage removes a page of a server's list, or as much of it as can be until some fail, and
// counts those.
func (s *Store) workOffPage(ctx context.Context, server uint32, batch []waiting) (failures int,
	failed error) {

	for len(batch) > 0 && failures < failuresMax {
		some := batch[:min(len(batch), xattrBatch)]
		batch = batch[len(some):]
		var done [][]byte
		fails := s.eachRemoval(some, func(r *waiting) error { return s.removeLate(ctx, r) })
		for i, err := range fails {
			if err == nil {
				done = append(done, some[i].key)
			} else {
				failed = err
				failures++
			}
		}
		if len(done) == 0 {
			continue
		}
		_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
			t.kv.MakesRoom = true
			for _, key := range done {
				t.remove(key)
			}
			return nil
		})
		if err != nil {
			return failuresMax, err
		}
	}
	return failures, failed
}

// removeLate removes one object that is on a server's list. An inode of that number can only be
// there if records were lost and it was brought back (see Repair): then it needs its objects.
func (s *Store) removeLate(ctx context.Context, r *waiting) error {
	var there []byte
	err := s.look(func(t *txn) (err error) {
		there, err = t.peek(inodeKey(r.Ino))
		return err
	})
	if err != nil || there != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, workMax)
	defer cancel()
	return s.opt.Objects.Remove(bounded, r.FileRef, backlogStripe(r.key))
}
