package iodtest

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// What follows is about clients that come back so late that the server does not remember what
// others have written since, and about such that have lost their numbers. What they send again is
// refused, and they are told, rather than that it lies over what somebody has synced.

// told wants the first client's next sync to fail, and the one after it not to.
func (p *pair) told() {
	p.t.Helper()
	t := p.target(1, p.id, both, 0)
	if _, err := p.a.Sync(p.t.Context(), t); errs.KindOf(err) != errs.IO {
		p.t.Fatalf("the loss of its writes is told by %v", err)
	}
	p.untold()
}

// untold wants the first client's next sync to succeed.
func (p *pair) untold() {
	p.t.Helper()
	_, err := p.a.Sync(p.t.Context(), p.target(1, p.id, both, 0))
	fatal(p.t, err)
}

func (p *pair) sync(who *party) {
	p.t.Helper()
	_, err := who.Sync(p.t.Context(), p.target(who.session, p.id, both, 0))
	fatal(p.t, err)
}

var (
	missedArea = seg.Piece{Off: 64 << 10, Len: 16 << 10}
	missedPart = seg.Piece{Off: 70000, Len: 3000}
	missedHead = seg.Piece{Off: missedArea.Off, Len: missedPart.Off - missedArea.Off}
	missedTail = seg.Piece{Off: missedPart.End(), Len: missedArea.End() - missedPart.End()}
)

// eachStore runs a test of two clients on every engine.
func eachStore(t *testing.T, name string, opts func(p **pair) remote.Options, fn func(p *pair)) {
	for engine, open := range map[string]func(testing.TB) stripe.Engine{
		"memory": memStore, "log": logStore,
	} {
		t.Run(name+", "+engine, func(t *testing.T) {
			var p *pair
			p = newPairOn(t, open(t), opts(&p))
			fn(p)
		})
	}
}

func plain(**pair) remote.Options { return remote.Options{} }

// TestMissedLife: the server dies twice before a client is back.
func TestMissedLife(t *testing.T) {
	direct := iod.How{Mode: iod.Direct, NoSums: true, ChunkBytes: 4096}
	for name, over := range map[string]func(p *pair){
		"durable": func(p *pair) { p.write(p.b, 'b', iod.How{}, stripe.Durable, missedPart) },
		"direct":  func(p *pair) { p.write(p.b, 'b', direct, stripe.Durable, missedPart) },
		"synced": func(p *pair) {
			p.write(p.b, 'b', iod.How{}, stripe.Volatile, missedPart)
			p.sync(p.b)
		},
		"sent again and synced": func(p *pair) {
			p.write(p.b, 'b', iod.How{}, stripe.Volatile, missedPart)
			p.fallAgain()
			p.sync(p.b)
		},
	} {
		eachStore(t, name, plain, func(p *pair) {
			p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedArea)
			p.fall()
			over(p)
			p.fallAgain()
			p.back()
			p.expect('b', missedPart)
			p.told()
			p.expect('b', missedPart)
		})
	}
	eachStore(t, "punched", plain, func(p *pair) {
		p.write(p.b, 'b', iod.How{}, stripe.Durable, missedArea)
		_, err := p.a.Punch(t.Context(), p.target(1, p.id, both, 0), missedArea.Off, missedArea.Len,
			stripe.Volatile)
		fatal(p.t, err)
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedHead)
		p.fall()
		p.write(p.b, 'c', iod.How{}, stripe.Durable, missedPart)
		p.fallAgain()
		p.back()
		p.expect('c', missedPart)
	})
	eachStore(t, "written in the present life, too", plain, func(p *pair) {
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedArea)
		p.fall()
		p.write(p.b, 'b', iod.How{}, stripe.Durable, missedPart)
		p.fallAgain()
		p.write(p.b, 'b', iod.How{}, stripe.Durable, missedTail)
		p.back()
		p.expect('b', missedPart)
		p.expect('b', missedTail)
		p.told()
	})
}

// TestMissedLifeWithoutHarm: a client that was away while nobody has written to the object brings
// everything back, and one that was interrupted while it did so goes on.
func TestMissedLifeWithoutHarm(t *testing.T) {
	eachStore(t, "of another object", plain, func(p *pair) {
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedArea)
		p.fall()
		mine := p.id
		p.id.File = 2
		p.write(p.b, 'b', iod.How{}, stripe.Durable, missedPart)
		p.id = mine
		p.fallAgain()
		p.fallAgain()
		p.back()
		p.expect('a', missedArea)
		p.untold()
	})
	eachStore(t, "sent again by another one", plain, func(p *pair) {
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedArea)
		other := seg.Piece{Off: 0, Len: 100}
		p.write(p.b, 'b', iod.How{}, stripe.Volatile, other)
		p.fall()
		p.expect('b', other) // after that it is there again, and counts as of the first life
		p.fallAgain()
		p.write(p.b, 'c', iod.How{}, stripe.Durable, missedPart) // in this life: known to the byte
		p.back()
		p.expect('a', missedHead)
		p.expect('c', missedPart)
		p.expect('a', missedTail)
		p.untold()
	})
}

// TestSessionEnded: a client whose session has ended has no numbers any more by which the server
// would know what it has.
func TestSessionEnded(t *testing.T) {
	var session uint64
	renewed := func(p **pair) remote.Options {
		session = 1
		return remote.Options{Renew: func(_ context.Context, t *iod.Target) error {
			*t = (*p).target(session, t.Object, both, 0)
			return nil
		}}
	}
	eachStore(t, "durable before", renewed, func(p *pair) {
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedArea)
		p.write(p.b, 'b', iod.How{}, stripe.Durable, missedPart)
		p.fall()
		session = 9
		p.back()
		p.expect('b', missedPart)
		p.told()
	})
	eachStore(t, "durable after", renewed, func(p *pair) {
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedHead)
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedArea)
		p.fall()
		session = 9
		p.write(p.b, 'b', iod.How{}, stripe.Durable, missedPart)
		p.back()
		p.expect('a', missedHead)
		p.expect('b', missedPart)
		p.expect('a', missedTail)
		p.untold()
		p.write(p.b, 'c', iod.How{}, stripe.Durable, missedHead)
		p.fall() // and it does not come a third time
		p.back()
		p.expect('c', missedHead)
		p.expect('b', missedPart)
		p.expect('a', missedTail)
	})
	eachStore(t, "durable after, and once more", renewed, func(p *pair) {
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, missedArea)
		p.fall()
		session = 9
		p.write(p.b, 'b', iod.How{}, stripe.Durable, missedPart)
		p.road <- struct{}{}
		p.expect('b', missedPart)
		p.fall()
		p.back()
		p.expect('b', missedPart)
	})
}
