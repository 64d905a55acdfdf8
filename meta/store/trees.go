package store

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// The removal of trees.
//
// 'G' lists directories without a name whose content has to go. The work is a loop over that list:
// some entries of a directory are removed in one small transaction; one that is a directory itself,
// and not empty, becomes an entry of the list in its turn; a directory that has become empty is
// destroyed together with its place in the list. So all that is known about the work is in the
// store, a restart goes on where the last process was, and memory does not grow with the tree: not
// with its depth, not with the size of a directory.
//
// A directory on the list has neither link nor parent: nothing can be made in it any more (see
// txn.dir), and the way up from below it ends there.

const (
	// treeTurn is how many entries of one directory are removed before the next one's turn, so that
	// small trees do not wait for large ones.
	treeTurn = 4096

	// treeEntryOps bounds what the removal of one entry adds to a transaction: checks of entry, inode
	// and handles, a range, deletes of both entries, inode, pending truncation and counter, a put into
	// the deletion queue, three adds, and what its quota takes.
	treeEntryOps = 13 + quotaOps

	// treeBurst is how much of a second's work may be done at once.
	treeBurst = 100 * time.Millisecond

	// positionsMax bounds the directories of which it is known how far they are emptied.
	positionsMax = 1024
)

// trees is the state of the background work.
type trees struct {
	token chan struct{} // one token: there may be something in the list
	walks chan struct{} // holds one element for each walk that looks for rights

	mu    sync.Mutex
	gone  int64               // entries that were removed since the start
	begun map[meta.Ino]uint64 // how far a directory is emptied: behind this cookie
}

func newTrees() *trees {
	return &trees{token: make(chan struct{}, 1), walks: make(chan struct{}, walksMax),
		begun: map[meta.Ino]uint64{}}
}

// position is where to go on in a directory. Entries before it are gone; to begin at the first one
// again would read over all that they left in the engine.
func (x *trees) position(dir meta.Ino) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.begun[dir]
}

// move notes where to go on; 0: nothing is known.
func (x *trees) move(dir meta.Ino, cookie uint64, removed int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone += int64(removed)
	if cookie == 0 {
		delete(x.begun, dir)
		return
	}
	if len(x.begun) >= positionsMax {
		clear(x.begun) // it only costs time
	}
	x.begun[dir] = cookie
}

func (x *trees) removed() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.gone
}

// treeLoop works through the list.
func (s *Store) treeLoop(ctx context.Context) {
	p := pacer{rate: s.opt.TreeRate, now: time.Now}
	s.loop(ctx, s.trees.token, false, func() (left bool) {
		for ctx.Err() == nil {
			worked, err := s.treeRound(ctx, &p)
			if err != nil && ctx.Err() == nil {
				s.opt.Log.Error("trees are removed later", "error", err)
				return true
			}
			if !worked {
				return false
			}
		}
		return false
	})
}

// treeRound gives each directory of the list a turn. One that fails does not keep others waiting.
func (s *Store) treeRound(ctx context.Context, p *pacer) (worked bool, failed error) {
	for start := []byte{kindTree}; ctx.Err() == nil; {
		var top []byte
		err := s.look(func(t *txn) (err error) {
			top, err = t.firstIn(start, treesEnd())
			return err
		})
		if err != nil {
			return worked, err
		}
		if top == nil {
			break
		}
		start = append(top, 0)
		if err := s.treeTurn(ctx, meta.Ino(number(top, 0)), p); err != nil {
			failed = err
			continue
		}
		worked = true
	}
	return worked, failed
}

// treeTurn removes entries of one directory of the list, until its turn is over or it is gone.
func (s *Store) treeTurn(ctx context.Context, dir meta.Ino, p *pacer) error {
	for done := 0; done < treeTurn; {
		n, over, err := s.treeStep(ctx, dir)
		if err != nil {
			return err
		}
		if over {
			return nil
		}
		done += max(n, 1)
		if err := p.spend(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// treeStep removes some entries of a directory, or the directory if there are none. It is the only
// place that changes inodes for the sake of a tree.
func (s *Store) treeStep(ctx context.Context, dir meta.Ino) (n int, over bool, err error) {
	var next uint64
	from := s.trees.position(dir)
	_, err = s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.MakesRoom = true
		n, over, next = 0, false, from
		top, err := t.inode(dir)
		if errs.KindOf(err) == errs.NotFound {
			over = true
			t.remove(treeKey(dir))
			return nil
		}
		if err != nil {
			return err
		}
		page, err := t.page(dir, from, kv.MaxOps/4)
		if err != nil {
			return err
		}
		touched := map[meta.Ino]bool{}
		for i := range page {
			// An inode with two names here loses one of them by this transaction.
			if t.ops()+treeEntryOps > kv.MaxOps || touched[page[i].Ino] {
				break
			}
			touched[page[i].Ino] = true
			if err := t.prune(dir, &page[i]); err != nil {
				return err
			}
			n, next = n+1, page[i].Cookie
		}
		if n > 0 {
			return nil
		}
		if next = 0; from != 0 {
			return errNothing // from the first one again: some may have come
		}
		over = true
		t.remove(treeKey(dir))
		return t.dropDir(dir, top)
	})
	if err == nil {
		s.trees.move(dir, next, n)
	}
	return n, over, err
}

// prune removes one entry of a directory of the list.
func (t *txn) prune(dir meta.Ino, x *meta.Entry) error {
	e, err := t.entry(dir, x.Name)
	if err != nil {
		return err
	}
	if e == nil || e.Cookie != x.Cookie {
		// A cookie of no entry: there is nothing else to be removed.
		t.remove(cookieKey(dir, x.Cookie))
		return nil
	}
	n, err := t.inode(e.Ino)
	if errs.KindOf(err) == errs.NotFound {
		t.leave(dir, x.Name, e) // damage, and about to be gone
		return nil
	}
	if err != nil {
		return err
	}
	if !n.isDir() {
		t.leave(dir, x.Name, e)
		return t.drop(dir, e.Ino, n)
	}
	some, err := t.first(entriesOf(e.Ino))
	if err != nil {
		return err
	}
	if some != nil {
		// All ways up from here end at the top of the tree, before and after: no rename can tell.
		t.detachDir(dir, x.Name, e, n)
		return nil
	}
	t.leave(dir, x.Name, e)
	t.count(dir, 0, -1)
	return t.dropDir(e.Ino, n)
}

// ops is what counts against kv.MaxOps, with what settleQuotas will add.
func (t *txn) ops() int {
	return len(t.kv.Checks) + len(t.kv.Ranges) + t.kv.Effects() + len(t.charges())*quotaOps
}

// pacer keeps work below a rate. One goroutine uses it.
type pacer struct {
	rate int // units a second
	now  func() time.Time
	next time.Time // when what was done so far would be done at that rate
}

// spend is told of work that was done and waits until more may be done.
func (p *pacer) spend(ctx context.Context, units int) error {
	now := p.now()
	if p.next.Before(now.Add(-treeBurst)) {
		p.next = now.Add(-treeBurst)
	}
	p.next = p.next.Add(time.Duration(units) * time.Second / time.Duration(p.rate))
	wait := p.next.Sub(now)
	if wait <= 0 {
		return ctx.Err()
	}
	if !rest(ctx, wait) {
		return ctx.Err()
	}
	return nil
}
