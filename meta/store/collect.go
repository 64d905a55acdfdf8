package store

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// The collector is the net below removal. An object that no inode names is left by a create that a
// power cut undid, and by a write that arrived after its object was removed. The collector pages
// through the objects of each server, slowly, and removes those.
//
// Why it never removes what somebody needs: an inode is committed before its first capability is
// signed, so an object's inode is older than the object. The collector looks at a snapshot that is
// younger than the page. What is not in it was removed, or never durable, and comes back neither by
// itself, since numbers are used once, nor by a power cut, because the collector syncs before it
// removes. Files that are unlinked and open have their inode; removals that are under way are left
// to the deletion queue. Numbers that the service has not given out, or may have forgotten (see
// numbers.skip and Repair), are left alone: then it is not the object that is wrong.
//
// An object must be found twice, a capability's life apart: writes that are still under way come to
// their end before, and what they leave is found in the next round.

// suspectsMax bounds the objects that wait to be found a second time, some 40 bytes each.
const suspectsMax = 1 << 16

// suspect is an object that no inode named.
type suspect struct {
	server uint32
	object meta.ObjectRef
}

// collector is the state of the rounds. One goroutine uses it.
type collector struct {
	at       meta.Collector
	suspects map[suspect]time.Time // when it was found first
}

// collectLoop makes a round through all servers every CollectEvery.
func (s *Store) collectLoop(ctx context.Context, at meta.Collector) {
	c := &collector{at: at, suspects: map[suspect]time.Time{}}
	for rest(ctx, s.opt.CollectEvery) {
		all, _ := s.Servers(ctx)
		for i := range all {
			if !all[i].Up {
				continue
			}
			if err := s.collectFrom(ctx, c, all[i].ID); err != nil && ctx.Err() == nil {
				s.opt.Log.Info("remains are looked for again later", "server", all[i].ID, "error", err)
			}
		}
		for x, since := range c.suspects { // named again, or removed by somebody else
			if s.opt.Clock().Sub(since) > 4*(s.opt.CollectEvery+s.opt.CapTTL) {
				delete(c.suspects, x)
			}
		}
	}
}

// rest waits; false when ctx ends.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// collectFrom pages through one server.
func (s *Store) collectFrom(ctx context.Context, c *collector, server uint32) error {
	var kept int64
	for after := (meta.ObjectRef{}); ; {
		bounded, cancel := context.WithTimeout(ctx, workMax)
		page, err := c.at.ListObjects(bounded, server, after)
		cancel()
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1]
		remains, left, err := s.remains(server, page)
		kept += left
		if err == nil {
			err = s.collect(ctx, c, server, remains)
		}
		if err != nil || !rest(ctx, s.opt.CollectPause) {
			return err
		}
	}
	s.unnamed.Store(kept)
	return nil
}

// remains are the objects of a page that no inode names; left counts those among them that are not
// the collector's to remove.
func (s *Store) remains(server uint32, page []meta.ObjectRef) (out []meta.ObjectRef, left int64,
	err error) {

	err = s.look(func(t *txn) error {
		next, _, lost, err := numbersOf(t.snap)
		if err != nil {
			return err
		}
		for _, o := range page {
			named, err := t.names(server, o)
			switch {
			case err != nil:
				return err
			case named:
			case uint64(o.Ino) >= next || lost.has(uint64(o.Ino)):
				left++
			default:
				out = append(out, o)
			}
		}
		return nil
	})
	return out, left, err
}

// names tells whether an inode names the object, or the deletion queue or the server's list does.
func (t *txn) names(server uint32, o meta.ObjectRef) (bool, error) {
	key := inodeKey(o.Ino)
	value, err := t.peek(key)
	if err != nil {
		return false, err
	}
	if value == nil {
		queued, err := t.peek(removalKey(o.Ino))
		if err == nil && queued == nil {
			queued, err = t.peek(backlogKey(server, o.Ino, o.Stripe))
		}
		return queued != nil, err
	}
	var n inode
	if err := parse(key, value, &n); err != nil {
		return false, err
	}
	return n.Gen == o.Gen && int(o.Stripe) < n.Layout.Width() &&
		n.Layout.Servers[o.Stripe] == server, nil
}

// collect removes the remains that were found before.
func (s *Store) collect(ctx context.Context, c *collector, server uint32,
	remains []meta.ObjectRef) error {

	synced := false
	for _, o := range remains {
		x := suspect{server, o}
		since, ok := c.suspects[x]
		now := s.opt.Clock()
		if !ok && len(c.suspects) < suspectsMax {
			c.suspects[x] = now
		}
		if !ok || now.Sub(since) < s.opt.CapTTL {
			continue
		}
		if !synced {
			if err := s.kv.Sync(ctx); err != nil {
				return err
			}
			synced = true
		}
		bounded, cancel := context.WithTimeout(ctx, workMax)
		err := c.at.RemoveObject(bounded, server, o)
		cancel()
		if err != nil {
			return err
		}
		delete(c.suspects, x)
		s.collected.Add(1)
		s.opt.Log.Info("an object that no file names is removed", "server", server, "file", o.Ino,
			"generation", o.Gen, "stripe", o.Stripe)
	}
	return nil
}
