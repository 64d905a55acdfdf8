package server_test

import (
	"bytes"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
)

// hows are modes and hints, drawn at random.
func drawHow(rng *mrand.Rand) iod.How {
	return iod.How{
		Mode:       iod.Mode(rng.IntN(3)),
		Policy:     uint8(rng.IntN(5)),
		Streams:    uint8(rng.IntN(4)),
		NoSums:     rng.IntN(4) == 0,
		ChunkBytes: []int{0, 4 << 10, 12 << 10, 64 << 10, 192 << 10, 2 << 20}[rng.IntN(6)],
	}
}

// drawPieces makes a request: one piece, several in order, or several anyhow, aligned or not.
func drawPieces(rng *mrand.Rand, size int64) []seg.Piece {
	var pieces []seg.Piece
	count := 1
	if rng.IntN(3) == 0 {
		count += rng.IntN(5)
	}
	round := []int64{1, 4096, 65536}[rng.IntN(3)]
	sorted, at := rng.IntN(3) > 0, int64(0)
	for range count {
		off, n := rng.Int64N(size), 1+rng.Int64N(400<<10)
		if sorted {
			off = at + rng.Int64N(100<<10)
		}
		off, n = off/round*round, max(n/round*round, round)
		if off+n > size {
			continue
		}
		at = off + n
		pieces = append(pieces, seg.Piece{Off: off, Len: n})
	}
	return pieces
}

// modes compares a server with a slice of bytes, request by request, in all modes by turns. It
// returns the first difference.
func modes(t *testing.T, g *rig, seed uint64, rounds int) error {
	rng := mrand.New(mrand.NewPCG(seed, 1))
	tg := g.target(1, capability.Read|capability.Write)
	const size = 3 << 20
	model := make([]byte, size)
	for round := range rounds {
		pieces := drawPieces(rng, size)
		access := seg.List(pieces)
		buf := make([]byte, access.Len())
		tg.How = drawHow(rng)
		d := stripe.Durability(rng.IntN(3))
		switch rng.IntN(9) {
		case 0:
			off := rng.Int64N(size)
			n := rng.Int64N(size - off)
			if _, err := g.remote.Punch(t.Context(), tg, off, n, d); err != nil {
				return err
			}
			clear(model[off : off+n])
		case 1, 2, 3, 4:
			fill(rng, buf)
			if _, err := g.remote.Write(t.Context(), tg, access, view(buf), d); err != nil {
				return err
			}
			eachPiece(pieces, func(p seg.Piece, pos int64) { copy(model[p.Off:p.End()], buf[pos:]) })
		default:
			if _, err := g.remote.Read(t.Context(), tg, access, view(buf)); err != nil {
				return err
			}
			var diff error
			eachPiece(pieces, func(p seg.Piece, pos int64) {
				if !bytes.Equal(buf[pos:pos+p.Len], model[p.Off:p.End()]) {
					diff = fmt.Errorf("round %d: piece %+v of %+v differs, %+v", round, p, pieces, tg.How)
				}
			})
			if diff != nil {
				return diff
			}
		}
	}
	return nil
}

func fill(rng *mrand.Rand, b []byte) {
	x := rng.Uint64()
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 33)
	}
}

// writesBack makes a rig's cache acknowledge volatile writes before the store has them.
func writesBack(s *setup) {
	s.cache.DirtyBytes, s.cache.DirtyAge, s.cfg.WriteBack = 4<<20, time.Second, true
}

func TestModesAreCoherent(t *testing.T) {
	for name, change := range map[string]func(*setup){"through": func(*setup) {}, "back": writesBack} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			g := newRig(t, change)
			if err := modes(t, g, seed, 200); err != nil {
				t.Fatal(err)
			}
			c := g.counts()
			if c["direct_read_bytes"] == 0 || c["direct_write_bytes"] == 0 {
				t.Errorf("nothing went past the cache: %v", c)
			}
			g.awaitIdle(t)
		})
	}
}

// TestModesSideBySide has clients in all modes at once, each in its own part of one object; the
// parts share cache units and blocks.
func TestModesSideBySide(t *testing.T) {
	g := newRig(t, writesBack)
	const part = 300<<10 + 77
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			rng := mrand.New(mrand.NewPCG(uint64(i), 5))
			tg := g.target(1, capability.Read|capability.Write)
			base := int64(i) * part
			model, buf := make([]byte, part), make([]byte, part)
			for range 40 {
				off := rng.Int64N(part)
				n := 1 + rng.Int64N(part-off)
				p := buf[:n]
				tg.How = drawHow(rng)
				if rng.IntN(2) == 0 {
					fill(rng, p)
					copy(model[off:], p)
					_, err := g.remote.Write(t.Context(), tg, seg.Contig(base+off, n), view(p), stripe.Volatile)
					if err != nil {
						t.Error(err)
					}
					continue
				}
				if _, err := g.remote.Read(t.Context(), tg, seg.Contig(base+off, n), view(p)); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(p, model[off:off+n]) {
					t.Errorf("client %d: %d bytes at %d differ, %+v", i, n, off, tg.How)
					return
				}
			}
		})
	}
	wg.Wait()
	g.awaitIdle(t)
}

// TestALittleServerDoesNotLockUp has many clients that ask for everything in every mode, of a
// server that can do next to nothing at once: whoever waits for something holds nothing that others
// need who have it.
func TestALittleServerDoesNotLockUp(t *testing.T) {
	g := newRig(t, writesBack, func(s *setup) {
		s.cfg.Limits = server.Limits{Requests: 3, DiskRequests: 2, DiskBytes: 1 << 20}
		s.cache.DirtyBytes = 1 << 20
	})
	const size = 3 << 20
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			rng := mrand.New(mrand.NewPCG(uint64(i), 7))
			tg := g.sign(capability.Capability{File: uint64(1 + i%3), Gen: 1, Session: uint64(i + 1),
				Rights: capability.Read | capability.Write, Server: 1, Expiry: g.now().Add(time.Minute)})
			for range 40 {
				access := seg.List(drawPieces(rng, size))
				p := make([]byte, access.Len())
				tg.How = drawHow(rng)
				var err error
				switch rng.IntN(8) {
				case 0:
					_, err = g.remote.Sync(t.Context(), tg)
				case 1:
					_, err = g.remote.Punch(t.Context(), tg, rng.Int64N(size), 100<<10, stripe.Volatile)
				case 2, 3, 4:
					_, err = g.remote.Write(t.Context(), tg, access, view(p), stripe.Volatile)
				default:
					_, err = g.remote.Read(t.Context(), tg, access, view(p))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	g.awaitIdle(t)
}

// TestOneLargeRequestTakesOneWindow reads more than all memory for direct requests would hold.
func TestOneLargeRequestTakesOneWindow(t *testing.T) {
	g := newRig(t, func(s *setup) { s.cfg.Direct = relay.Options{WindowBytes: 256 << 10} })
	tg := g.target(1, capability.Read|capability.Write)
	tg.How.Mode = iod.Direct
	data := make([]byte, iod.TransferMax)
	fill(mrand.New(mrand.NewPCG(1, 1)), data)
	write(t, g.remote, tg, 0, data)
	g.awaitIdle(t) // the answer comes a moment before the memory is back
	if got := read(t, g.remote, tg, 0, int64(len(data))); !bytes.Equal(got, data) {
		t.Fatal("bytes differ")
	}
	if high := g.counts()["lent_bytes_high"]; high > 256<<10 {
		t.Errorf("%d bytes were held", high)
	}
	if n := g.counts()["cache_bytes"]; n != 0 {
		t.Errorf("%d bytes went into the cache", n)
	}
}

// TestDirectReadOfWhatIsCachedUsesTheCache: the disk is not asked again.
func TestDirectReadOfWhatIsCachedUsesTheCache(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, tg, 0, make([]byte, 1<<20))
	read(t, g.remote, tg, 0, 1<<20)
	before := g.disk.Calls(fault.Read)
	tg.How.Mode = iod.DirectReads
	read(t, g.remote, tg, 0, 1<<20)
	if n := g.disk.Calls(fault.Read) - before; n != 0 {
		t.Errorf("%d reads of the disk", n)
	}
}

// TestDirectRequestsFailAsTheDiskDoes: errors come as they are, and all memory comes back.
func TestDirectRequestsFailAsTheDiskDoes(t *testing.T) {
	g := newRig(t)
	tg := g.target(1, capability.Read|capability.Write)
	tg.How.Mode = iod.Direct
	write(t, g.remote, tg, 0, make([]byte, 1<<20))
	for _, c := range []struct {
		rule fault.Rule
		want errs.Kind
	}{
		{fault.Rule{Ops: fault.Read, Skip: 3, Err: errs.Corrupt}, errs.Corrupt},
		{fault.Rule{Ops: fault.Write, Skip: 2, Err: errs.NoSpace}, errs.NoSpace},
		{fault.Rule{Ops: fault.Write, Skip: 5, Err: errs.IO}, errs.IO},
	} {
		remove := g.disk.Inject(c.rule)
		var err error
		if c.rule.Ops == fault.Read {
			_, err = g.remote.Read(t.Context(), tg, seg.Contig(0, 1<<20), view(make([]byte, 1<<20)))
		} else {
			_, err = g.remote.Write(t.Context(), tg, seg.Contig(0, 1<<20), view(make([]byte, 1<<20)),
				stripe.Volatile)
		}
		remove()
		if errs.KindOf(err) != c.want {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	g.awaitIdle(t)
}
