package store

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// The check of a running store.
//
// A run goes through all records of one snapshot, kind by kind, in the order of their keys, and
// then through the objects of the I/O servers. It needs no memory for what it has seen, because all
// that belongs together is either a key that can be read (the inode of an entry, the other side of
// a cookie) or stands together (the entries of a directory, the attributes of an inode). The names
// of an inode do not: for those there are sums, see checklinks.go.
//
// What looks wrong is a flaw, and is looked at again: a flaw is a function that tells of any
// snapshot whether it is there. It is asked of a snapshot that is younger than what it was seen in,
// and if it is to be repaired, once more by the transaction that repairs it, whose commit depends
// on all that the function has read.

// checkSome is how many objects or files are asked for at servers in one step, at most.
const checkSome = 256

// flaw is something that looked wrong.
type flaw struct {
	meta.Finding

	// still tells whether it is there in the snapshot of t; nil: nobody can say but the I/O servers.
	still func(t *txn) (bool, error)

	// there asks I/O servers whether it is there; nil: there is nothing to ask.
	there func(ctx context.Context) (bool, error)

	// mend repairs it in the transaction of t, act at the I/O servers; both nil: it cannot be.
	mend func(m *mending, t *txn) error
	act  func(ctx context.Context) error
}

// stage is a part of a run.
type stage struct {
	name string
	work work
}

// work looks at some records, at most max, and tells whether the stage is over.
type work func(ctx context.Context, max int) (over bool, err error)

// checkRun is a run between two of its steps. Who has the turn of upkeep uses it.
type checkRun struct {
	s      *Store
	id     uint64
	repair bool
	next   uint64 // the step that comes next
	last   meta.CheckPage
	used   time.Time // guarded by upkeep.mu

	snap   kv.Snapshot
	stages []stage
	at     int    // the stage
	pos    []byte // the key behind which it goes on; nil: it begins
	looked uint64

	flaws   []flaw         // of this step, those that were not looked at again
	found   []meta.Finding // of this step
	judging bool           // the step looks at flaws again
	over    bool           // the stage ends with this step
	broken  bool           // the store could not be read

	inodes  int64                 // how many there are
	blind   bool                  // one of them cannot be read
	quotas  recount               // what they take of quotas
	drifts  []drift               // quotas that count something else
	group   group                 // what stands together, and is counted
	reached map[meta.Ino]bool     // directories of which it is known whether they reach the root
	links   links                 // names of inodes
	objects objectsAt             // where it is in the objects of the servers
	walkDir map[meta.Ino]*dirSeen // directories that entries were found in, of this step
}

// group counts records that belong to one inode.
type group struct {
	ino meta.Ino
	sum int64
}

// dirSeen is a directory as the check needs it; nil for what is none.
type dirSeen struct{ dir *inode }

// Check implements meta.Upkeep.
func (s *Store) Check(ctx context.Context, c meta.Caller, step meta.CheckStep) (
	meta.CheckPage, error) {

	err := s.look(func(t *txn) error { return t.mayMaintain(&c.Cred) })
	if err == nil && (step.Run == 0 || step.Max > meta.CheckStepMax) {
		err = errs.Newf(errs.Invalid, "meta.step", "", "run %d, %d records", step.Run, step.Max)
	}
	if err != nil {
		return meta.CheckPage{}, errs.Wrap("meta.Check", "", err)
	}
	select {
	case <-s.upkeep.turn:
	case <-ctx.Done():
		return meta.CheckPage{}, errs.Wrap("meta.Check", "", ctx.Err())
	}
	page, err := s.checkStep(ctx, step)
	s.upkeep.turn <- struct{}{}
	s.upkeep.endIfOver()
	return page, errs.Wrap("meta.Check", "", err)
}

func (s *Store) checkStep(ctx context.Context, step meta.CheckStep) (meta.CheckPage, error) {
	r, err := s.upkeep.runOf(s, step)
	if err != nil {
		return meta.CheckPage{}, err
	}
	if step.Step+1 == r.next {
		return r.last, nil
	}
	if step.Step != r.next {
		return meta.CheckPage{}, errs.Newf(errs.Invalid, "meta.step", "", "step %d, the next is %d",
			step.Step, r.next)
	}
	limit := int(step.Max)
	if limit == 0 {
		limit = meta.CheckStepMax
	}
	page, err := r.step(ctx, limit)
	if err != nil {
		return page, err
	}
	r.last = page
	r.next++
	return page, nil
}

// runOf finds the run, or begins it. One that nobody asked for in a while makes room.
func (x *upkeep) runOf(s *Store, step meta.CheckStep) (*checkRun, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	if r := x.run; r != nil && r.id != step.Run && now.Sub(r.used) < meta.UpkeepIdle && !r.last.End {
		return nil, errs.Newf(errs.Busy, "meta.run", "", "a check is under way")
	} else if r != nil && r.id != step.Run {
		r.close()
		x.run = nil
	}
	switch {
	case x.over:
		return nil, errs.New(errs.Shutdown, "meta.run", "", nil)
	case x.run != nil:
	case step.Step != 0:
		return nil, errs.Newf(errs.Stale, "meta.run", "", "the run is not known: begin another one")
	default:
		x.run = newCheckRun(s, step)
	}
	x.run.used = now
	return x.run, nil
}

// endIfOver ends the run when the service ends, unless somebody is at it: who has the turn then
// does the same after he has given it back.
func (x *upkeep) endIfOver() {
	x.mu.Lock()
	over := x.over
	x.mu.Unlock()
	if !over {
		return
	}
	select {
	case <-x.turn:
		x.endRun()
		x.turn <- struct{}{}
	default:
	}
}

func newCheckRun(s *Store, step meta.CheckStep) *checkRun {
	r := &checkRun{s: s, id: step.Run, repair: step.Repair, snap: s.kv.Snapshot(),
		reached: map[meta.Ino]bool{}}
	r.quotas = newRecount(&txn{snap: r.snap, view: true})
	of := func(name string, kind byte, examine examiner) {
		r.stages = append(r.stages, stage{name, func(_ context.Context, max int) (bool, error) {
			return r.scan(kind, max, examine)
		}})
	}
	of("inodes", kindInode, (*checkRun).examineInode)
	of("volumes", kindVolume, (*checkRun).examineVolume)
	of("names", kindEntry, (*checkRun).examineEntry)
	of("listings", kindCookie, (*checkRun).examineCookie)
	of("attributes", kindXattr, (*checkRun).examineXattr)
	of("orphans", kindOrphan, (*checkRun).examineOrphan)
	of("trees", kindTree, (*checkRun).examineTree)
	of("truncations", kindPending, (*checkRun).examinePending)
	of("directory counters", kindCount, (*checkRun).examineOwned)
	of("directory times", kindTimes, (*checkRun).examineOwned)
	of("attribute counters", kindXattrs, (*checkRun).examineOwned)
	of("small files", kindSmall, (*checkRun).examineOwned)
	of("quotas", kindQuota, (*checkRun).examineQuota)
	of("registry", kindRegistry, (*checkRun).examineRegistry)
	of("pools", kindPool, (*checkRun).examinePool)
	r.stages = append(r.stages,
		stage{"total", func(context.Context, int) (bool, error) { return true, r.total() }},
		stage{"quota counters", func(context.Context, int) (bool, error) { return r.quotaStage() }},
		stage{"links", func(_ context.Context, max int) (bool, error) { return r.linkStage(max) }})
	if at, ok := s.opt.Objects.(meta.Collector); ok {
		r.stages = append(r.stages, stage{"objects", r.objectStage(at)})
	}
	if at, ok := s.opt.Objects.(meta.Examiner); ok {
		r.stages = append(r.stages, stage{"data", r.dataStage(at)})
	}
	return r
}

func (r *checkRun) close() {
	_ = r.snap.Close() // nothing is lost with it
	r.links.close()
}

// step looks at some records, looks again at what is wrong, and repairs it if that was asked for. A
// step that failed while it looked again, because a server did not answer, say, goes on there when
// it is repeated; one that could not read the store ends the run.
func (r *checkRun) step(ctx context.Context, max int) (meta.CheckPage, error) {
	if r.broken {
		return meta.CheckPage{}, errs.Newf(errs.Stale, "meta.run", "",
			"the run has failed: begin another one")
	}
	page := meta.CheckPage{Stages: uint32(len(r.stages)), At: uint32(r.at), Looked: r.looked}
	if r.at == len(r.stages) {
		page.End = true
		return page, nil
	}
	if !r.judging {
		r.flaws, r.found, r.walkDir = nil, nil, map[meta.Ino]*dirSeen{}
		over, err := r.stages[r.at].work(ctx, max)
		if err != nil {
			return meta.CheckPage{}, err
		}
		r.judging, r.over = true, over
	}
	if err := r.judge(ctx); err != nil {
		return meta.CheckPage{}, err
	}
	r.judging = false
	page.Findings, page.Looked, page.Stage = r.found, r.looked, r.stages[r.at].name
	if r.over {
		r.at++
		r.pos, r.group = nil, group{}
	}
	page.End = r.at == len(r.stages)
	return page, nil
}

// judge looks at the flaws again.
func (r *checkRun) judge(ctx context.Context) (err error) {
	for len(r.flaws) > 0 {
		f := &r.flaws[0]
		believed := true
		if f.still != nil {
			err = r.s.look(func(t *txn) (err error) {
				believed, err = f.still(t)
				return err
			})
		}
		if err == nil && believed && f.there != nil {
			believed, err = f.there(ctx)
		}
		f.State = meta.Reported
		if err == nil && believed && r.repair {
			believed, err = r.s.mendFlaw(ctx, f)
		}
		if err != nil {
			return err
		}
		if believed {
			r.s.opt.Log.Warn("check", "kind", string(f.Kind), "text", f.Text, "state", f.State)
			r.found = append(r.found, f.Finding)
		}
		r.flaws = r.flaws[1:]
	}
	return nil
}

// examiner looks at one record.
type examiner func(r *checkRun, t *txn, key, value []byte) error

// scan looks at records of a kind behind the position. The last group is closed at the end.
func (r *checkRun) scan(kind byte, max int, examine examiner) (over bool, err error) {
	t := &txn{snap: r.snap, view: true}
	start := []byte{kind}
	if r.pos != nil {
		start = append(append([]byte(nil), r.pos...), 0)
	}
	n, over := 0, true
	var bad error
	err = r.snap.Scan(start, kv.PrefixEnd([]byte{kind}), func(key, value []byte, _ kv.Version) bool {
		if n == max || len(r.flaws) > meta.FindingsMax-flawsOfOne {
			over = false
			return false
		}
		n++
		r.pos = append(r.pos[:0:0], key...)
		bad = examine(r, t, key, value)
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	if err == nil && over {
		err = r.closeGroup(t, kind, 0)
	}
	r.broken = err != nil
	r.looked += uint64(n)
	return over, err
}

// flawsOfOne bounds the flaws that are found with one record.
const flawsOfOne = 8

func (r *checkRun) add(f flaw) { r.flaws = append(r.flaws, f) }
