package iodtest

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// traceMax is how many calls of the store are remembered of each run: about as many as three lives
// of a server make.
const traceMax = 4096

// traceGrain is the smallest cell: a cell begins at a multiple of it, with its write's number.
const traceGrain = 256

// trace remembers what reached the store, so that a violation can be told from both sides: what the
// clients knew is in the ledger, what the servers did is here.
type trace struct {
	mu    sync.Mutex
	life  int
	lines []traced
}

// traced is one call of the store, or the end of a life.
type traced struct {
	life    int
	what    string
	id      stripe.ObjectID
	off, n  int64
	numbers []uint64 // what stands at each multiple of traceGrain; nil: zeroes, or nothing
	stamps  []wire.Stamp
	err     error
}

func (r *trace) add(x traced) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.life = r.life
	if len(r.lines) >= traceMax {
		r.lines = append(r.lines[:0], r.lines[traceMax/2:]...)
	}
	r.lines = append(r.lines, x)
}

// begin begins a life.
func (r *trace) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life++
}

// wrote is a write as the store got it.
func wrote(what string, id stripe.ObjectID, bufs [][]byte, off int64, stamps []wire.Stamp,
	err error) traced {
	x := traced{what: what, id: id, off: off, n: stripe.BufBytes(bufs), err: err}
	x.stamps = append(x.stamps, stamps...)
	var word [8]byte
	at := off
	for _, b := range bufs {
		for i := range b {
			if k := at % traceGrain; k < 8 {
				if word[k] = b[i]; k == 7 {
					x.numbers = append(x.numbers, binary.LittleEndian.Uint64(word[:]))
				}
			}
			at++
		}
	}
	return x
}

// tell is the story of a cell as the store knows it, what concerns all of the object included; or
// of all cells, if the cell is negative.
func (r *trace) tell(id stripe.ObjectID, cell, cellBytes int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	at := int64(cell) * int64(cellBytes)
	for _, x := range r.lines {
		inside := cell < 0 || x.off <= at && at < x.off+x.n
		if x.id != (stripe.ObjectID{}) && (x.id != id || !inside && x.n > 0) {
			continue
		}
		fmt.Fprintf(&b, "\tlife %d: %s [%d, %d)", x.life, x.what, x.off, x.off+x.n)
		if k := (at - x.off) / traceGrain; inside && cell >= 0 && k < int64(len(x.numbers)) {
			fmt.Fprintf(&b, ", write %d here", x.numbers[k])
		}
		for _, st := range x.stamps {
			if stripe.Numbered(st) {
				fmt.Fprintf(&b, " (session %d slot %d seq %d)", st.Session, st.Slot, st.Seq)
			}
		}
		if x.err != nil {
			fmt.Fprintf(&b, ": %v", x.err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
