package iodtest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// rounds is n, or a part of it where time is short.
func rounds(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

const abuseMemory = 48 << 20

// mute is how long the server waits for a peer that does not move in these tests.
const mute = 2 * time.Second

func abuseRig(t testing.TB, net network) *rig {
	return newRig(t, rigOptions{net: net, store: memStore(t),
		cache: unifier.Config{MemoryBytes: abuseMemory},
		tune:  func(o *msg.Options) { o.PeerTimeout = mute }})
}

// honest are clients that work on files of their own with ledgers while others misbehave; their
// reads must be right and none of their requests may fail.
type honest struct {
	*Crowd
	all sync.WaitGroup
}

func (g *rig) honest(t testing.TB, files ...uint64) *honest {
	e := &honest{Crowd: NewCrowd(t.Context(), g.site(), CrowdOptions{Seed: rand.Uint64()})}
	for _, number := range files {
		f := &File{Number: number, Cells: 64, CellBytes: 4096}
		e.renew(f, 1)
		h, _ := e.join(rand.New(rand.NewPCG(e.Seed, number)))
		e.all.Go(func() {
			for h.ctx.Err() == nil {
				h.write(f, h.pick(f))
				h.read(f, h.pick(f))
				e.requests.Add(2)
			}
		})
	}
	return e
}

var errEnough = errors.New("enough")

func (e *honest) end(t testing.TB) {
	t.Helper()
	e.stop(errEnough)
	e.all.Wait()
	if err := context.Cause(e.ctx); err != errEnough {
		t.Error(err)
	}
	if e.Requests() == 0 {
		t.Error("nobody else got anything done")
	}
	t.Logf("%d requests of others meanwhile", e.Requests())
}

func whole(p []byte) *msg.Memory {
	return &msg.Memory{Windows: []fabric.Sge{{Buf: p}}, Access: seg.Contig(0, int64(len(p)))}
}

// TestClientsThatVanish ends clients at every point of their transfers: nothing of a write that was
// cut is seen, memory comes back, and others work.
func TestClientsThatVanish(t *testing.T) {
	g := abuseRig(t, tcpNetwork())
	good := g.honest(t, 1, 2)
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	const size = 1 << 20
	for range rounds(60) {
		px := newProxy(t, func() string { return *g.addr.Load() })
		px.up.cut.Store(true)
		px.down.cut.Store(true)
		p := g.joinAt(1000, px.addr, remote.Options{WaitMax: 20 * time.Millisecond})
		id := stripe.ObjectID{File: 77, Gen: 1}
		buf := make([]byte, size)
		for i := range buf {
			buf[i] = 0xee
		}
		var err error
		if rng.IntN(2) == 0 {
			px.up.left.Store(1000 + rng.Int64N(size-4096)) // never all of it
			_, err = p.Write(t.Context(), g.target(p.session, id, both, 0), seg.Contig(0, size),
				whole(buf), stripe.Durable)
		} else {
			px.down.left.Store(1000 + rng.Int64N(size-4096))
			_, err = p.Read(t.Context(), g.target(p.session, id, both, 0), seg.Contig(0, size),
				whole(buf))
		}
		if err == nil {
			t.Error("a transfer that was cut succeeded")
		}
		p.vanish()
		px.close()
	}
	good.end(t)
	g.awaitIdle()
	g.wantZeroes(t, 77, size)
}

// wantZeroes reads a file that must not have been written.
func (g *rig) wantZeroes(t *testing.T, file uint64, size int) {
	t.Helper()
	p := g.join(900, remote.Options{}, nil)
	buf := make([]byte, size)
	id := stripe.ObjectID{File: file, Gen: 1}
	_, err := p.Read(t.Context(), g.target(p.session, id, both, 0), seg.Contig(0, int64(size)),
		whole(buf))
	fatal(t, err)
	for i, b := range buf {
		if b != 0 {
			t.Fatalf("byte %d of a write that was cut is there", i)
		}
	}
}

// TestClientsThatHoldBuffers has clients that ask for more than the server's memory and do not take
// it, and others that offer as much and do not send it. The server gives them up; until then others
// work, because what one client can hold is bounded.
func TestClientsThatHoldBuffers(t *testing.T) {
	g := abuseRig(t, tcpNetwork())
	good := g.honest(t, 1, 2)
	px := newProxy(t, func() string { return *g.addr.Load() })
	p := g.joinAt(1000, px.addr, remote.Options{WaitMax: time.Minute}) // longer than the test
	const size = 4 << 20
	time.Sleep(mute / 2)
	before := good.Requests()
	px.down.left.Store(size / 2)
	px.up.left.Store(size / 2)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	ended := make(chan struct{})
	for i := range 24 {
		all.Go(func() {
			tg := g.target(p.session, stripe.ObjectID{File: 88, Gen: 1}, both, 0)
			m, at := whole(make([]byte, size)), seg.Contig(int64(i)*size, size)
			var err error
			if i%2 == 0 {
				_, err = p.Read(ctx, tg, at, m)
			} else {
				_, err = p.Write(ctx, tg, at, m, stripe.Volatile)
			}
			if err == nil {
				t.Error("a transfer that was stalled succeeded")
			} else if ctx.Err() == nil {
				t.Logf("ended before it was canceled: %v", err)
			}
		})
	}
	go func() {
		all.Wait()
		close(ended)
	}()
	select { // whichever way stalls first may keep requests from going the other one
	case <-px.down.reach:
	case <-px.up.reach:
	case <-ended:
		t.Fatal("no transfer was under way long enough to be stalled")
	}
	time.Sleep(mute / 8) // until it holds all that it can
	held := good.Requests()
	time.Sleep(mute / 2)
	during := good.Requests() - held
	t.Logf("%d requests of others in %v before, %d while it is stalled", before, mute/2, during)
	if during < before/10 {
		t.Errorf("a client that is stalled stops the others: %d requests, %d before", during, before)
	}
	good.end(t)
	g.awaitIdle() // the server has given the client up by itself
	px.close()    // lest the client dials through it again
	stop()
	<-ended
}

// TestForgedCapabilities shows the server capabilities that it must refuse, and counts.
func TestForgedCapabilities(t *testing.T) {
	g := abuseRig(t, simNetwork(seedOf(t), simFree()))
	p := g.join(1, remote.Options{}, nil)
	id := stripe.ObjectID{File: 5, Gen: 3}
	good := g.target(p.session, id, both, 0)
	buf := make([]byte, 4096)
	_, err := p.Write(t.Context(), good, seg.Contig(0, 4096), whole(buf), stripe.Volatile)
	fatal(t, err)
	sign := func(key capability.Key, change func(*capability.Capability)) iod.Target {
		c := capability.Capability{File: id.File, Gen: id.Gen, Rights: both, Session: p.session,
			Server: serverID, Expiry: time.Now().Add(time.Minute)}
		change(&c)
		t := good
		t.Cap = key.Sign(&c)
		return t
	}
	mine := g.key.ServerKey(serverID)
	for _, c := range []struct {
		name    string
		tg      iod.Target
		want    errs.Kind
		counted string
	}{
		{"the cluster's key", sign(g.key, func(*capability.Capability) {}), errs.Forged, "forged"},
		{"another server's key", sign(g.key.ServerKey(2), func(*capability.Capability) {}),
			errs.Forged, "forged"},
		{"another server", sign(mine, func(c *capability.Capability) { c.Server = 2 }), errs.Perm,
			"refused"},
		{"another file", sign(mine, func(c *capability.Capability) { c.File = 6 }), errs.Perm,
			"refused"},
		{"another session", sign(mine, func(c *capability.Capability) { c.Session++ }), errs.Perm,
			"refused"},
		{"an older generation", sign(mine, func(c *capability.Capability) { c.Gen-- }), errs.Stale,
			"refused"},
		{"a newer generation", sign(mine, func(c *capability.Capability) { c.Gen++ }), errs.Stale,
			"refused"},
		{"another layout", sign(mine, func(c *capability.Capability) { c.Layout++ }), errs.Stale,
			"refused"},
		{"read only", sign(mine, func(c *capability.Capability) { c.Rights = capability.Read }),
			errs.Perm, "refused"},
		{"expired", sign(mine, func(c *capability.Capability) {
			c.Expiry = time.Now().Add(-time.Second)
		}), errs.Expired, "refused"},
	} {
		before := g.counts()["capabilities_"+c.counted]
		_, err := p.Write(t.Context(), c.tg, seg.Contig(0, 4096), whole(buf), stripe.Volatile)
		if errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if got := g.counts()["capabilities_"+c.counted]; got != before+1 {
			t.Errorf("%s: counted %d times", c.name, got-before)
		}
	}
}

// raw sends a write as no remote would: with these sums.
func (g *rig) raw(t *testing.T, p *party, tg iod.Target, at seg.Access, data []byte,
	sums []uint32) error {
	conn, err := p.pool.Get(t.Context(), serverID)
	fatal(t, err)
	var e wire.Enc
	iod.AppendRequest(&e, iod.OpWrite, &tg, &iod.Args{Access: at, Sums: sums})
	return conn.Call(t.Context(), &msg.Request{Op: uint16(iod.OpWrite), Stamp: tg.Stamp, Body: e.B,
		Out: whole(data)}, &msg.Reply{})
}

// TestWrongSums sends data that does not fit its sums, cached and direct, small and large: it is
// refused, and nothing of the piece that is wrong is ever seen.
func TestWrongSums(t *testing.T) {
	g := abuseRig(t, tcpNetwork())
	p := g.join(1, remote.Options{}, nil)
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	for i := range rounds(60) {
		size := int64(1 + rng.IntN(8<<10))
		if i%2 == 0 {
			size = 64<<10 + rng.Int64N(1<<20)
		}
		tg := g.target(p.session, stripe.ObjectID{File: uint64(i + 1), Gen: 1}, both, 0)
		tg.How.Mode = iod.Mode(i % 3)
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.Uint32()) | 1
		}
		sums := sumsOf(data)
		bad := rng.IntN(len(sums))
		sums[bad] ^= 1 << rng.IntN(32)
		off := rng.Int64N(100_000)
		if err := g.raw(t, p, tg, seg.Contig(off, size), data, sums); !errors.Is(err, errs.Corrupt) {
			t.Fatalf("mode %d, %d bytes, sum %d of %d is wrong: %v", tg.How.Mode, size, bad, len(sums),
				err)
		}
		from := int64(bad) * iod.SumChunk
		got := make([]byte, min(iod.SumChunk, size-from))
		_, err := p.Read(t.Context(), tg, seg.Contig(off+from, int64(len(got))), whole(got))
		fatal(t, err)
		if !bytes.Equal(got, make([]byte, len(got))) {
			t.Fatalf("mode %d: bytes that did not fit their sum are there", tg.How.Mode)
		}
		sums[bad] = sumsOf(data)[bad]
		fatal(t, g.raw(t, p, tg, seg.Contig(off, size), data, sums))
	}
	g.awaitIdle()
}

// sumsOf are the sums of a stream.
func sumsOf(p []byte) []uint32 {
	var sums []uint32
	for part := range slices.Chunk(p, iod.SumChunk) {
		sums = append(sums, crc32c.Sum(part))
	}
	return sums
}

// TestEveryBitOfACapabilityCounts changes one bit after the other.
func TestEveryBitOfACapabilityCounts(t *testing.T) {
	g := abuseRig(t, simNetwork(seedOf(t), simFree()))
	p := g.join(1, remote.Options{}, nil)
	good := g.target(p.session, stripe.ObjectID{File: 5, Gen: 3}, both, 0)
	buf := make([]byte, 512)
	const keyFrom, keyTo = 24 * 8, 28 * 8 // which key has signed: one that nobody knows is waited for
	for bit := range capability.Bytes * 8 {
		if bit >= keyFrom && bit < keyTo {
			continue
		}
		tg := good
		tg.Cap[bit/8] ^= 1 << (bit % 8)
		_, err := p.Read(t.Context(), tg, seg.Contig(0, 512), whole(buf))
		if errs.KindOf(err) != errs.Forged {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
	if n := g.counts()["capabilities_forged"]; n != capability.Bytes*8-(keyTo-keyFrom) {
		t.Errorf("%d counted", n)
	}
}
