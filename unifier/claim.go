package unifier

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

// A claim says that somebody is at work between cache and backing on some units of an object:
// fills share, a publication excludes. So a fill never reads what a publication is writing, and
// two publications reach backing and cache in the same order. Hits and loans need no claim:
// nobody waits for a reader.
//
// Claims are granted in the order in which they were made, each as soon as no earlier one
// that it conflicts with is left. Everybody makes one claim at a time and holds all memory
// that it needs before, so that claims cannot wait in a circle.
type claim struct {
	spans   []span
	shared  bool
	granted bool
	ready   chan struct{} // a token with a grant that was waited for; made once
	next    *claim        // in Cache.spareClaims
}

// reset makes a claim that is over ready for the next one.
func (a *claim) reset() { *a = claim{spans: a.spans[:0], ready: a.ready} }

// span is a run of units, both ends included.
type span struct{ first, last int64 }

// addSpan appends a run to ascending spans and lets neighbours flow together.
func addSpan(spans []span, first, last int64) []span {
	if n := len(spans); n > 0 && first <= spans[n-1].last+1 {
		spans[n-1].last = max(spans[n-1].last, last)
		return spans
	}
	return append(spans, span{first, last})
}

// conflicts walks the two ascending lists side by side.
func (a *claim) conflicts(b *claim) bool {
	if a.shared && b.shared {
		return false
	}
	for i, j := 0, 0; i < len(a.spans) && j < len(b.spans); {
		switch {
		case a.spans[i].last < b.spans[j].first:
			i++
		case b.spans[j].last < a.spans[i].first:
			j++
		default:
			return true
		}
	}
	return false
}

// claimLocked waits for the grant, without the lock, and returns the object's count of losses at
// that moment. It fails with the context's error, and then nothing is held.
func (c *Cache) claimLocked(ctx context.Context, o *object, cl *claim) (inval uint64, err error) {
	cl.granted = cl.freeOf(o.claims)
	o.claims = append(o.claims, cl)
	if cl.granted {
		return o.inval, nil
	}
	if cl.ready == nil {
		cl.ready = make(chan struct{}, 1)
	}
	c.mu.Unlock()
	_, ok := wait.For(ctx, cl.ready)
	c.mu.Lock()
	if !cl.granted {
		c.unclaimLocked(o, cl)
		return 0, errs.Wrap("unifier.claim", "object "+o.id.String(), ctx.Err())
	}
	if !ok {
		<-cl.ready // granted in the same moment: no token is left for the next wait
	}
	return o.inval, nil
}

// unclaimLocked ends a claim, granted or not, and grants those behind it that can be.
func (c *Cache) unclaimLocked(o *object, cl *claim) {
	for i, have := range o.claims {
		if have == cl {
			o.claims = append(o.claims[:i], o.claims[i+1:]...)
			break
		}
	}
	for i, waiting := range o.claims {
		if !waiting.granted && waiting.freeOf(o.claims[:i]) {
			waiting.granted = true
			waiting.ready <- struct{}{} // it has room: each wait gets one
		}
	}
}

func (a *claim) freeOf(earlier []*claim) bool {
	for _, e := range earlier {
		if a.conflicts(e) {
			return false
		}
	}
	return true
}
