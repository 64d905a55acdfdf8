// Package exiotest defines, as tests, what a driver of package exio must do. Run holds one driver
// against all of it; random shapes are compared with a model, and print their seeds.
//
// Read exiotest.go first, then case_message.go (matching, bounds) and case_model.go.
package exiotest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
)

// Rig is two handles that are connected: what is written to one is read from the other. Stored is
// of files, where both are of one: a read sees what was written before it began.
type Rig struct {
	A, B   exio.Handle
	Stored bool

	// Alloc returns memory that a side moves without copies; 0 is A, 1 is B.
	Alloc func(side, bytes int) []byte

	Options exio.Options // of the connection; its fields are set
}

// Opener opens a rig, and closes it with the test.
type Opener func(t *testing.T) *Rig

// patience ends a test that hangs. It is no measure of anything.
const patience = 2 * time.Minute

// Run tests a driver.
func Run(t *testing.T, open Opener) {
	cases := []struct {
		name     string
		messages bool // not for files
		run      func(*testing.T, *Rig)
	}{
		{"sizes", false, sizes},
		{"n to m", false, unequal},
		{"random shapes", false, model},
		{"misuse", false, misuse},
		{"close", false, closing},
		{"tags", true, tags},
		{"unread messages wait", true, unread},
		{"order", true, order},
		{"too long", true, tooLong},
		{"bounds", true, bounds},
		{"both ways", true, bothWays},
		{"peer goes", true, peerGoes},
		{"last words", true, lastWords},
		{"last words while the other side writes", true, lastWordsMet},
		{"callbacks begin operations", true, chains},
		{"death in the middle", true, death},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := open(t)
			if c.messages && r.Stored {
				return
			}
			c.run(t, r)
		})
	}
}

// pending is an operation that was begun.
type pending struct {
	t    *testing.T
	done chan exio.Event
}

func begin(t *testing.T, do func(*exio.Op) error, op exio.Op) *pending {
	t.Helper()
	p := &pending{t, make(chan exio.Event, 2)}
	op.Done = func(ev exio.Event) { p.done <- ev }
	if err := do(&op); err != nil {
		t.Fatal(err)
	}
	return p
}

// end waits for the event.
func (p *pending) end() exio.Event {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case ev := <-p.done:
		return ev
	case <-ctx.Done():
		p.t.Fatal("no event")
		return exio.Event{}
	}
}

// good is end of an operation that must not fail.
func (p *pending) good() exio.Event {
	p.t.Helper()
	ev := p.end()
	if ev.Err != nil {
		p.t.Fatal(ev.Err)
	}
	return ev
}

// bad is end of one that must fail.
func (p *pending) bad(kinds ...errs.Kind) {
	p.t.Helper()
	ev := p.end()
	for _, k := range kinds {
		if errs.KindOf(ev.Err) == k {
			return
		}
	}
	p.t.Fatalf("%v, want %v", ev.Err, kinds)
}

func wantKind(t *testing.T, err error, kinds ...errs.Kind) {
	t.Helper()
	for _, k := range kinds {
		if errs.KindOf(err) == k {
			return
		}
	}
	t.Fatalf("%v, want %v", err, kinds)
}

// pass moves from pieces to pieces and compares. readFirst has the write come to a read that waits.
func (r *Rig) pass(t *testing.T, tag uint64, from, to [][]byte, readFirst bool) exio.Event {
	t.Helper()
	var read, write *pending
	reading := func() { read = begin(t, r.B.Read, exio.Op{Tag: tag, Pieces: to}) }
	if readFirst && !r.Stored {
		reading()
	}
	write = begin(t, r.A.Write, exio.Op{Tag: tag, Pieces: from, Note: uint32(tag) + 7})
	if r.Stored {
		write.good()
	}
	if read == nil {
		reading()
	}
	ev := read.good()
	if !r.Stored {
		write.good()
	}
	want, got := bytes.Join(from, nil), bytes.Join(to, nil)
	if ev.Len != min(len(want), len(got)) && !r.Stored || ev.Tag != tag {
		t.Fatalf("an event of %d bytes and tag %d, want %d and %d", ev.Len, ev.Tag, len(want), tag)
	}
	if !bytes.Equal(want, got[:len(want)]) {
		t.Fatalf("other bytes, tag %d: %d in %d pieces to %d", tag, len(want), len(from), len(to))
	}
	if !r.Stored && ev.Note != uint32(tag)+7 {
		t.Fatalf("note %d", ev.Note)
	}
	return ev
}

// cut divides memory into random pieces, some of them empty, with gaps between them.
func cut(rng *rand.Rand, memory []byte, bytes, most int) (pieces [][]byte) {
	left, at := bytes, 0
	room := len(memory) - bytes
	for left > 0 {
		n := 1 + rng.IntN(left)
		if len(pieces) == most-1 {
			n = left
		}
		gap := 0
		if room > 0 {
			gap = rng.IntN(min(room, 1<<14) + 1)
		}
		at, room = at+gap, room-gap
		pieces = append(pieces, memory[at:at+n:at+n])
		at, left = at+n, left-n
		if len(pieces) < most-1 && rng.IntN(8) == 0 {
			pieces = append(pieces, memory[at:at])
		}
	}
	return pieces
}

func fill(rng *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}
