package iodtest

import (
	"bytes"
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
)

// The cases that follow are what a crowd meets once in a hundred runs: a durable write of one
// client and the repetition of an older volatile one of another. They need no luck: nothing is
// written back by age, and a client comes back after a crash when the test lets it.

// pair is two clients of one object. The first one finds the server only while its road is open.
type pair struct {
	*rig
	t    *testing.T
	id   stripe.ObjectID
	a, b *party
	road chan struct{} // a token: the first one may look where the server is
}

func newPair(t *testing.T) *pair { return newPairOn(t, memStore(t), remote.Options{}) }

func newPairOn(t *testing.T, store stripe.Engine, opts remote.Options) *pair {
	g := newRig(t, rigOptions{net: simNetwork(1, sim.Options{}), store: store, still: true,
		cache: unifier.Config{MemoryBytes: 24 << 20, DirtyBytes: 2 << 20}})
	p := &pair{rig: g, t: t, id: stripe.ObjectID{File: 1, Gen: 1}, road: make(chan struct{}, 1)}
	p.road <- struct{}{}
	p.a = g.joinBy(1, func() string {
		token := <-p.road
		p.road <- token
		return *g.addr.Load()
	}, opts, nil)
	p.b = g.join(2, remote.Options{}, nil)
	return p
}

// fall ends the server and starts the next one. The first client does not find it yet.
func (p *pair) fall() {
	p.crash()
	<-p.road
	p.start()
}

// fallAgain is fall while the first client is still away.
func (p *pair) fallAgain() {
	p.crash()
	p.start()
}

// back lets the first client find the server, and returns when it has sent everything again.
func (p *pair) back() {
	p.t.Helper()
	p.road <- struct{}{}
	_, err := p.a.Read(p.t.Context(), p.target(1, p.id, both, 0), seg.Contig(0, 1),
		windowOf(make([]byte, 1)))
	fatal(p.t, err)
}

func windowOf(b []byte) *msg.Memory {
	return &msg.Memory{Windows: []fabric.Sge{{Buf: b}}, Access: seg.Contig(0, int64(len(b)))}
}

// write has a party write a letter to the pieces.
func (p *pair) write(who *party, letter byte, how iod.How, d stripe.Durability,
	pieces ...seg.Piece) {
	p.t.Helper()
	at := seg.List(pieces)
	t := p.target(who.session, p.id, both, 0)
	t.How = how
	_, err := who.Write(p.t.Context(), t, at, windowOf(bytes.Repeat([]byte{letter}, int(at.Len()))), d)
	fatal(p.t, err)
}

// expect wants the second client to read the letter everywhere in the piece.
func (p *pair) expect(letter byte, at seg.Piece) {
	p.t.Helper()
	got := make([]byte, at.Len)
	_, err := p.b.Read(context.Background(), p.target(2, p.id, both, 0), seg.Contig(at.Off, at.Len),
		windowOf(got))
	fatal(p.t, err)
	for i, c := range got {
		if c != letter {
			p.t.Fatalf("byte %d is %q, want %q", at.Off+int64(i), c, letter)
		}
	}
}

// TestRepeatStaysBelow: what a client sends again after a crash never lies over what another one
// has written since it was acknowledged, be that before the crash and durable, or after it.
func TestRepeatStaysBelow(t *testing.T) {
	direct := iod.How{Mode: iod.Direct, NoSums: true, ChunkBytes: 4096}
	lone, part := seg.Piece{Off: 0, Len: 256}, seg.Piece{Off: 70000, Len: 3000}
	area := seg.Piece{Off: 64 << 10, Len: 16 << 10}
	head := seg.Piece{Off: area.Off, Len: part.Off - area.Off}
	tail := seg.Piece{Off: part.End(), Len: area.End() - part.End()}
	for name, how := range map[string]iod.How{"cached": {}, "direct": direct} {
		t.Run(name+", durable before the crash", func(t *testing.T) {
			p := newPair(t)
			p.write(p.a, 'a', how, stripe.Volatile, lone, area)
			p.write(p.b, 'b', iod.How{}, stripe.Durable, part)
			p.fall()
			p.back()
			p.expect('a', head)
			p.expect('b', part)
			p.expect('a', tail)
		})
		for durability, d := range map[string]stripe.Durability{
			"volatile": stripe.Volatile, "durable": stripe.Durable,
		} {
			t.Run(name+", "+durability+" after the crash", func(t *testing.T) {
				p := newPair(t)
				p.write(p.a, 'a', iod.How{}, stripe.Volatile, lone, area)
				p.fall()
				p.write(p.b, 'b', how, d, part)
				p.back()
				p.expect('a', lone)
				p.expect('a', head)
				p.expect('b', part)
				p.expect('a', tail)
				p.fall() // and it does not come a third time
				p.back()
				p.expect('a', head)
				p.expect('b', part)
			})
		}
	}
	t.Run("punched after the crash", func(t *testing.T) {
		p := newPair(t)
		p.write(p.a, 'a', iod.How{}, stripe.Volatile, area)
		p.fall()
		_, err := p.b.Punch(t.Context(), p.target(2, p.id, both, 0), part.Off, part.Len,
			stripe.Durable)
		fatal(t, err)
		p.back()
		p.expect('a', head)
		p.expect(0, part)
		p.expect('a', tail)
	})
}
