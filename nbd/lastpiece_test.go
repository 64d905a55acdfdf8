package nbd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// frugal lends one piece at a time, as a Streamer may: it waits for each before it goes on or ends.
type frugal struct {
	*fake
	list []Piece
}

type backAgain chan struct{}

func (b backAgain) Return() { b <- struct{}{} }

// backMax is for how long it waits: longer than any host is busy, shorter than the client waits.
const backMax = 10 * time.Second

func (f *frugal) Stream(_ context.Context, _, _ int64, to Sink) error {
	for _, p := range f.list {
		back := make(backAgain, 1)
		p.Lent = back
		if err := to.Deliver(p); err != nil {
			return err
		}
		select {
		case <-back:
		case <-time.After(backMax):
			return errs.Newf(errs.IO, "frugal", "", "the piece at %d does not come back", p.Off)
		}
	}
	return nil
}

// TestLastPieceComesBack: also behind a piece of a file the last one leaves at once, since its
// Streamer may not end before it has it back. The client sends nothing meanwhile that would take it
// along.
func TestLastPieceComesBack(t *testing.T) {
	f := &frugal{fake: newFake(mib)}
	copy(f.data, random(mib))
	path := filepath.Join(t.TempDir(), "bytes")
	if err := os.WriteFile(path, f.data, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	srv := serve(t, Config{}, entryOf("x", f, f.fake))
	half := int64(mib / 2)
	memory := func(off int64) Piece {
		return Piece{Off: off, Len: half, Data: [][]byte{f.data[off:][:half]}}
	}
	inFile := func(off int64) Piece { return Piece{Off: off, Len: half, File: file, At: off} }
	for i, list := range [][]Piece{
		{memory(0), memory(half)}, {memory(0), inFile(half)},
		{inFile(0), memory(half)}, {inFile(0), inFile(half)},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			f.list = list
			for _, c := range []*client{ready(t, srv, "x", true), structuredOverPipe(t, srv, "x")} {
				a := c.want(nbdOK, cmdRead, 0, 0, mib, nil)
				if !bytes.Equal(a.data, f.data) {
					t.Error("other bytes")
				}
			}
		})
	}
}
