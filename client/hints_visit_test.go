//go:build cgo && linux && (amd64 || arm64)

package client

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/verbs"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
)

// hintsEnv is like visitEnv, for TestHintsVisit.
const hintsEnv = "SLUICE_CLIENT_HINTS"

// TestHintsVisit measures what allocation hints save: a tile of the file is read into rows that lie
// apart in a program's own memory, with the hint that they are parts of one allocation, and
// without, in turns. It holds what is counted, not how long that takes.
func TestHintsVisit(t *testing.T) {
	addr := os.Getenv(hintsEnv)
	if addr == "" {
		t.Skip("needs a server, which vmtest/transport starts")
	}
	for name, opts := range map[string]verbs.Options{
		"verbs": {}, "verbs-registrations": {NoWindows: true},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := verbs.Open(opts)
			must(t, err)
			t.Cleanup(func() { must(t, d.Close()) })
			fs := dialRegistered(t, addr, Options{
				Providers: &peer.Providers{Domains: []fabric.Domain{d}}})
			measureHints(t, fs)
			must(t, fs.Remove(t.Context(), fileName(t)))
		})
	}
}

// The tile: rows of 4 KiB, every second one of the file's; in memory they begin 32 KiB apart.
const hintRows, hintRow, hintStride = 64, 4 << 10, 32 << 10

// hintMemory is where the rows lie. again gives the memory of the next read.
type hintMemory struct {
	name  string
	again func(t *testing.T) (memory []byte, end func())
}

func hintMemories() []hintMemory {
	kept := make([]byte, hintRows*hintStride)
	none := func() {}
	return []hintMemory{
		{"allocated once", func(*testing.T) ([]byte, func()) { return kept, none }},
		{"allocated anew", func(*testing.T) ([]byte, func()) {
			return make([]byte, hintRows*hintStride), none
		}},
		{"mapped", func(t *testing.T) ([]byte, func()) {
			m := mapping{size: hintRows * hintStride}
			return m.mapAgain(t), func() { m.unmap(t) }
		}},
	}
}

// hintSum is what reads of one kind took.
type hintSum struct {
	times   []time.Duration
	made    uint64 // registrations
	copied  uint64
	windows int
}

func measureHints(t *testing.T, fs *FS) {
	f, want := newFile(t, fs, 2*hintRows*hintRow)
	file := seg.Strided(seg.Vector{Block: hintRow,
		Dims: []seg.Dim{{Count: hintRows, Stride: 2 * hintRow}}})
	var rows []byte
	for at := 0; at < len(want); at += 2 * hintRow {
		rows = append(rows, want[at:at+hintRow]...)
	}
	const rounds = 15
	for _, from := range hintMemories() {
		for _, method := range []Method{Auto, Gather} {
			var sums [2]hintSum
			for range rounds {
				for hinted := range sums {
					readTile(t, fs, f, file, rows, &from, method, hinted == 1, &sums[hinted])
				}
			}
			var ratios []float64
			for i, without := range sums[0].times {
				ratios = append(ratios, without.Seconds()/sums[1].times[i].Seconds())
			}
			slices.Sort(ratios)
			for i := range sums {
				slices.Sort(sums[i].times)
			}
			t.Logf("%s, method %v: without hints %v (%d registrations, %d bytes copied, %d windows), "+
				"with %v (%d, %d, %d): %.2f times", from.name, method, sums[0].times[rounds/2],
				sums[0].made, sums[0].copied, sums[0].windows, sums[1].times[rounds/2], sums[1].made,
				sums[1].copied, sums[1].windows, ratios[rounds/2])
			if sums[1].made > sums[0].made+rounds || sums[1].windows > sums[0].windows {
				t.Errorf("%s: more is registered, or described, with hints than without", from.name)
			}
		}
	}
}

// readTile reads once.
func readTile(t *testing.T, fs *FS, f *File, file seg.Access, want []byte, from *hintMemory,
	method Method, hinted bool, sum *hintSum) {

	memory, end := from.again(t)
	defer end()
	var bufs [][]byte
	for at := 0; at < len(memory); at += hintStride {
		bufs = append(bufs, memory[at:at+hintRow:at+hintRow])
	}
	var how Explanation
	x := Transfer{Bufs: bufs, File: file, Method: method, Explain: &how}
	if hinted {
		x.Parents = []Parent{{Bytes: memory}}
	}
	before, begin := now(fs), time.Now()
	_, err := f.Transfer(t.Context(), &x)
	sum.times = append(sum.times, time.Since(begin))
	must(t, err)
	after := now(fs)
	sum.made += after.regs.Misses - before.regs.Misses
	sum.copied += after.copied - before.copied
	for _, s := range how.Servers {
		sum.windows += s.Windows
	}
	if !bytes.Equal(bytes.Join(bufs, nil), want) {
		t.Fatal("other bytes arrived")
	}
}
