package store

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// Where new files go.
//
// Servers that are slow get none where there are others.
//
// Servers that are up and have room get stripes in proportion to the room that they have, each at
// most boundShare times what the others have on average: one that was just added, and is empty, is
// not to be the only one that works. This is weighted round robin: with every file each server is
// owed its part of a stripe, those that are owed most get one, and then owe it themselves. A little
// chance is added, so that files that are made in turn, large ones and small ones, say, do not all
// end up at the same servers.
//
// First stripes, which are all that files of up to a unit have, are shared out in the same way,
// among the servers that the file gets.
//
// The room is what the servers reported last, less what was placed there since: a unit for each
// stripe, or its part of a volume. Nobody knows how large a file becomes; half of that is forgotten
// with each report.

const (
	// boundShare is how many times the average of the others a server counts at most.
	boundShare = 4

	// A server with less than this part of its room free, or than roomMin, gets no new files unless
	// all others are full, too: those that it has may grow into it.
	roomPart = 64
	roomMin  = 4 << 30

	// owedMax bounds what a server is owed: it gets at most one stripe of a file, however much room
	// it has.
	owedMax = 4

	chance = 0.5 // of a stripe
)

// share is what a server has got of new files.
type share struct {
	owed, owedFirst float64 // stripes
	placed          int64   // bytes since the last reports

	weight float64 // in the choice that is being made
	luck   float64
}

// reported is the share after the server has reported its room once more.
func (s share) reported() share {
	s.placed /= 2
	return s
}

// room is how much a server has left as far as is known.
func (j *joined) room() int64 { return max(j.Free-j.share.placed, 0) }

// full tells whether a server gets no new files.
func (j *joined) full() bool { return j.room() < min(j.Total/roomPart, roomMin) }

// wish is what is wanted for a new file.
type wish struct {
	pool   *meta.Pool // nil: all servers
	width  int
	exact  bool // not fewer
	unit   int64
	volume int64     // bytes of the whole; 0: nobody knows
	fresh  time.Time // who was not heard of since gets nothing, where there are others
}

// bytes is what each of some stripes will probably have.
func (w *wish) bytes(width int) int64 {
	if w.volume > 0 {
		return w.volume / int64(width)
	}
	return w.unit
}

// choose finds the servers of a new file, the first one's first.
func (x *servers) choose(since time.Time, w *wish) ([]uint32, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.upLocked(since, w.pool)
	width, some, err := w.fit(all)
	if err != nil {
		return nil, err
	}
	weigh(some)
	owe(some, float64(width), func(s *share) *float64 { return &s.owed })
	if width < len(some) {
		slices.SortFunc(some, func(a, b *joined) int {
			return cmp.Compare(b.share.owed+b.share.luck, a.share.owed+a.share.luck)
		})
		some = some[:width]
		slices.SortFunc(some, func(a, b *joined) int { return cmp.Compare(a.ID, b.ID) })
	}
	owe(some, 1, func(s *share) *float64 { return &s.owedFirst })
	first := 0
	for i, j := range some {
		if s, best := &j.share, &some[first].share; s.owedFirst+s.luck > best.owedFirst+best.luck {
			first = i
		}
	}
	some[first].share.owedFirst--
	ids := make([]uint32, 0, width)
	for i := range some {
		j := some[(first+i)%len(some)]
		j.share.owed--
		j.share.placed = min(j.share.placed+w.bytes(width), j.Total)
		ids = append(ids, j.ID)
	}
	return ids, nil
}

// upLocked lists the servers that were heard of since a moment, by their ids.
func (x *servers) upLocked(since time.Time, pool *meta.Pool) []*joined {
	ids := x.ids
	if pool != nil {
		ids = pool.Servers
	}
	x.choice = x.choice[:0]
	for _, id := range ids {
		if j := x.byID[id]; j != nil && j.serves(since) {
			x.choice = append(x.choice, j)
		}
	}
	return x.choice
}

// fit finds out over how many of some servers a file goes, and which of them are in question.
func (w *wish) fit(all []*joined) (width int, some []*joined, err error) {
	fail := func(kind errs.Kind, format string, args ...any) (int, []*joined, error) {
		if w.pool != nil {
			format, args = "pool %s: "+format, append([]any{w.pool.Name}, args...)
		}
		return 0, nil, errs.Newf(kind, "meta.place", "", format, args...)
	}
	up := len(all)
	if up == 0 {
		return fail(errs.Again, "no I/O server has joined yet, or none is up")
	}
	if w.exact && w.width > up && w.width != layout.WidthAll {
		return fail(errs.Again, "%d servers are asked for, %d are up", w.width, up)
	}
	some = all
	if slices.ContainsFunc(all, func(j *joined) bool { return !j.full() }) {
		some = slices.DeleteFunc(all, (*joined).full)
	}
	if w.exact && w.width > len(some) && w.width != layout.WidthAll {
		return fail(errs.NoSpace, "%d servers are asked for, of %d that are up %d have room", w.width, up,
			len(some))
	}
	slow := func(j *joined) bool { return j.heard.Before(w.fresh) }
	quick := len(some)
	for _, j := range some {
		if slow(j) {
			quick--
		}
	}
	if quick > 0 && (!w.exact || w.width <= quick && w.width != layout.WidthAll) {
		some = slices.DeleteFunc(some, slow)
	}
	switch width = w.width; width {
	case 0:
		width = meta.DefaultWidth
	case layout.WidthAll:
		width = layout.WidthMax
	}
	return min(width, len(some)), some, nil
}

// weigh finds how much of new files each server should have, next to the others.
func weigh(some []*joined) {
	var sum, most float64
	for _, j := range some {
		j.share.weight = float64(j.room())
		sum += j.share.weight
		most = max(most, j.share.weight)
	}
	limit := boundShare * (sum - most) / max(1, float64(len(some)-1))
	for _, j := range some {
		switch {
		case sum == 0: // nobody knows, or all are full
			j.share.weight = 1
		case limit > 0:
			j.share.weight = min(j.share.weight, limit)
		}
	}
}

// owe adds to what each server is owed its part of some stripes, and chance.
func owe(some []*joined, stripes float64, at func(s *share) *float64) {
	var sum float64
	for _, j := range some {
		sum += j.share.weight
	}
	for _, j := range some {
		owed := at(&j.share)
		*owed = max(-owedMax, min(owedMax, *owed+stripes*j.share.weight/sum))
		j.share.luck = chance * rand.Float64()
	}
}

// room adds up what the servers have that were heard of since a moment, all or those of a pool, and
// what of it new files can have.
func (x *servers) room(since time.Time, pool *meta.Pool) (total, free int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, j := range x.upLocked(since, pool) {
		total += j.Total
		if j.Free >= min(j.Total/roomPart, roomMin) {
			free += j.Free
		}
	}
	return total, free
}

// place makes the layout of a new file. volume: how large a volume it is to be, 0 for none.
func (s *Store) place(p *policy, exact bool, volume int64) (layout.Layout, error) {
	l := layout.Layout{Version: 1, Unit: p.Unit}
	if l.Unit == 0 {
		l.Unit = layout.UnitDefault
	}
	w := wish{pool: s.pools.get(p.Pool), width: p.Width, exact: exact, unit: l.Unit, volume: volume,
		fresh: s.steady().Add(-s.opt.SlowAfter)}
	ids, err := s.servers.choose(s.heardSince(), &w)
	if err != nil {
		return layout.Layout{}, err
	}
	l.Servers = ids
	return l, l.Validate()
}
