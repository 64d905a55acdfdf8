package msg

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
)

// The model: a request carries a seed. The server pulls the whole Out segment in random
// pieces and answers with its hash, and pushes a stream made from the seed, in random pieces
// and order. The client knows what must come of that without any fabric.

// modelHandler needs the server's domain for its memory.
type modelHandler struct{ domain fabric.Domain }

func (h *modelHandler) Serve(ctx context.Context, c *Call) {
	seed := binary.BigEndian.Uint64(c.Body())
	rng := rand.New(rand.NewPCG(seed, 2))
	out, in := int(c.OutLen()), int(c.InLen())
	a, err := mem.NewArena(out+in+1, nil)
	if err != nil {
		_ = c.Fail(err)
		return
	}
	defer a.Close()
	if err := a.Attach(h.domain); err != nil {
		_ = c.Fail(err)
		return
	}
	buf := a.Bytes()
	for _, p := range chop(rng, out) {
		if err := c.Pull(ctx, p.Off, pieceUp(rng, a.Region(), buf[p.Off:p.End()])); err != nil {
			_ = c.Fail(err)
			return
		}
	}
	sum := sha256.Sum256(buf[:out])
	data := buf[out : out+in]
	pattern(data, seed)
	for _, p := range chop(rng, in) {
		if err := c.Push(ctx, p.Off, pieceUp(rng, a.Region(), data[p.Off:p.End()])); err != nil {
			_ = c.Fail(err)
			return
		}
	}
	_ = c.Reply(sum[:], int64(in))
}

// chop cuts [0, n) into a few pieces in random order.
func chop(rng *rand.Rand, n int) []seg.Piece {
	var all []seg.Piece
	for at := 0; at < n; {
		size := min(n-at, 1+rng.IntN(1+n/3+1))
		all = append(all, seg.Piece{Off: int64(at), Len: int64(size)})
		at += size
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// pieceUp cuts memory into pieces, some of them empty.
func pieceUp(rng *rand.Rand, reg fabric.Region, b []byte) []fabric.Sge {
	var list []fabric.Sge
	for len(b) > 0 {
		n := min(len(b), rng.IntN(1+len(b)/2+1)+rng.IntN(2))
		list = append(list, fabric.Sge{Reg: reg, Buf: b[:n:n]})
		b = b[n:]
	}
	return list
}

// shape is memory of the client for one segment.
type shape struct {
	memory *Memory
}

// drawShape makes windows and an access over them. Pieces of it do not overlap, because a
// segment that is written in any order would not have one right outcome otherwise.
func drawShape(rng *rand.Rand, arena fabric.Sge, scale int) *shape {
	windows := 1 + rng.IntN(5)
	if rng.IntN(8) == 0 {
		windows = 40
	}
	s := &shape{memory: &Memory{}}
	left := arena.Buf
	size := 0
	for range windows {
		n := min(rng.IntN(scale+1), len(left))
		gap := min(rng.IntN(64), len(left)-n)
		s.memory.Windows = append(s.memory.Windows, fabric.Sge{Reg: arena.Reg, Buf: left[:n:n]})
		left = left[n+gap:]
		size += n
	}
	s.memory.Access = drawAccess(rng, int64(size))
	return s
}

func drawAccess(rng *rand.Rand, size int64) seg.Access {
	switch rng.IntN(4) {
	case 0:
		off := rng.Int64N(size + 1)
		return seg.Contig(off, rng.Int64N(size-off+1))
	case 1: // rows of rows
		block := 1 + rng.Int64N(max(size/64, 1))
		inner := seg.Dim{Count: 1 + rng.Int64N(4), Stride: block + rng.Int64N(8)}
		row := inner.Stride * inner.Count
		outer := seg.Dim{Count: rng.Int64N(5), Stride: row + rng.Int64N(16)}
		if outer.Stride*outer.Count > size || row > size {
			return seg.Contig(0, size)
		}
		return seg.Strided(seg.Vector{Off: 0, Block: block, Dims: []seg.Dim{outer, inner}})
	default:
		var list []seg.Piece
		for at := int64(0); at < size && len(list) < 60; {
			n := rng.Int64N(min(size-at, size/8+1) + 1)
			list = append(list, seg.Piece{Off: at, Len: n})
			at += n + rng.Int64N(3)*rng.Int64N(size/16+1) // neighbours now and then
		}
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return seg.List(list)
	}
}

// flat is a copy of all windows, end to end.
func (s *shape) flat() []byte {
	var all []byte
	for _, w := range s.memory.Windows {
		all = append(all, w.Buf...)
	}
	return all
}

// stream is what the segment carries, by the slow and simple way.
func (s *shape) stream() []byte {
	var data []byte
	flat, cur := s.flat(), s.memory.Access.Cursor()
	for {
		p, ok := cur.Next(1 << 40)
		if !ok {
			return data
		}
		data = append(data, flat[p.Off:p.End()]...)
	}
}

// filled is what the windows must hold after data was delivered.
func (s *shape) filled(before, data []byte) []byte {
	want := bytes.Clone(before)
	cur := s.memory.Access.Cursor()
	for len(data) > 0 {
		p, _ := cur.Next(int64(len(data)))
		copy(want[p.Off:p.End()], data)
		data = data[p.Len:]
	}
	return want
}

// oneModelCall makes one random request and compares.
func oneModelCall(ctx context.Context, c *Conn, rng *rand.Rand, outMem, inMem fabric.Sge) error {
	scale := []int{40, 700, 5000, 20000}[rng.IntN(4)]
	seed := rng.Uint64()
	req := Request{Op: 1, Body: binary.BigEndian.AppendUint64(nil, seed)}
	var out, in *shape
	wantSum := sha256.Sum256(nil)
	if rng.IntN(4) > 0 {
		pattern(outMem.Buf, seed+1)
		out = drawShape(rng, outMem, scale)
		req.Out = out.memory
		wantSum = sha256.Sum256(out.stream())
	}
	var want []byte
	if rng.IntN(4) > 0 {
		pattern(inMem.Buf, seed+2)
		in = drawShape(rng, inMem, scale)
		req.In = in.memory
		data := make([]byte, in.memory.Len())
		pattern(data, seed)
		want = in.filled(in.flat(), data)
	}
	var rep Reply
	if err := c.Call(ctx, &req, &rep); err != nil {
		return err
	}
	if !bytes.Equal(rep.Body, wantSum[:]) {
		return fmt.Errorf("seed %d: the server pulled other bytes than were meant", seed)
	}
	if in != nil && (rep.InLen != in.memory.Len() || !bytes.Equal(in.flat(), want)) {
		return fmt.Errorf("seed %d: other bytes were delivered than pushed", seed)
	}
	return nil
}

// patience is how long a test waits for what must come. Where it will not come, MSG_PATIENCE says
// how long that takes to tell.
func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("MSG_PATIENCE")); err == nil {
		return d
	}
	return 20 * time.Second
}

// runModel makes calls random requests on each of several goroutines.
func runModel(t testing.TB, r *rig, calls, goroutines int) error {
	seed := rand.Uint64()
	t.Logf("model seed %d", seed)
	failures := make(chan error, goroutines)
	for g := range goroutines {
		outMem, inMem := memory(t, r.cdom, 1<<18), memory(t, r.cdom, 1<<18)
		go func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			var err error
			for i := 0; i < calls && err == nil; i++ {
				// Each call has its own limit: how long all of them take is up to the machine.
				ctx, cancel := context.WithTimeout(context.Background(), patience())
				err = oneModelCall(ctx, r.conn, rng, outMem, inMem)
				cancel()
			}
			failures <- err
		}()
	}
	var all []error
	for range goroutines {
		all = append(all, <-failures)
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	return quiet(r)
}

// quiet tells whether everything came back after the last call: credits, slots, calls, places.
func quiet(r *rig) error {
	for end := time.Now().Add(patience()); ; time.Sleep(5 * time.Millisecond) {
		if why := settled(r); why == nil || time.Now().After(end) {
			return why
		}
	}
}

func settled(r *rig) error {
	c := r.conn
	c.mu.Lock()
	free := len(c.free)
	held, idle := c.held.Sets()
	c.mu.Unlock()
	if lent := held &^ idle; lent != 0 {
		return fmt.Errorf("client: eager slots %b still carry requests", lent)
	}
	if u := c.credits.Usage(); u.Count != 0 || u.Bytes != 0 || free != len(c.slots) {
		return fmt.Errorf("%d credits, %d bytes of the window and %d slots did not come back", u.Count,
			u.Bytes, len(c.slots)-free)
	}
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	if n := r.srv.here.Load(); n != 0 || r.srv.calls.Usage().Count != 0 {
		return fmt.Errorf("%d calls still run or wait", n)
	}
	for s := range r.srv.conns {
		s.mu.Lock()
		free, busy := len(s.free), s.busyOps
		_, refs := s.lent.Slots()
		s.mu.Unlock()
		if refs != 0 {
			return fmt.Errorf("server: %d eager slots are in use", refs)
		}
		if left := s.places.Free(); free != len(s.calls) || busy != 0 || left != bulkDepth {
			return fmt.Errorf("server: %d of %d calls free, %d operations, %d of %d places",
				free, len(s.calls), busy, left, bulkDepth)
		}
	}
	return nil
}

func modelRig(t testing.TB, p provider, tweak func(client, server *Options)) *rig {
	return newRigFor(t, p, func(d fabric.Domain) Handler { return &modelHandler{d} }, tweak)
}

func TestRandomRequestsAgainstModel(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			r := modelRig(t, p, nil)
			calls := p.some(60)
			if err := runModel(t, r, calls, 4); err != nil {
				t.Fatal(err)
			}
			s := r.srv.Stats()
			if s.Calls != uint64(4*calls) || s.Failed != 0 || s.Running != 0 || s.Conns != 1 ||
				s.BytesOut == 0 {
				t.Fatalf("stats %+v", s)
			}
		})
	}
}

// TestUnequalOptions joins sides that disagree about sizes and credits: the smaller one counts.
func TestUnequalOptions(t *testing.T) {
	for _, p := range and(simProviders()[1]) {
		t.Run(p.name, func(t *testing.T) {
			r := modelRig(t, p, func(client, server *Options) {
				client.Credits, client.InlineMax, client.BodyMax = 3, 9000, 20000
				server.Credits, server.InlineMax, server.BodyMax = 50, 100, 6000
			})
			if n := len(r.conn.slots); n != 3 {
				t.Fatalf("%d slots", n)
			}
			if err := runModel(t, r, p.some(40), 8); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestModelSurvivesBreaks kills connections at random moments: calls fail with Disconnected,
// memory is the caller's afterwards, and a new connection serves on.
func TestModelSurvivesBreaks(t *testing.T) {
	for _, p := range simProviders()[1:] {
		t.Run(p.name, func(t *testing.T) {
			r := modelRig(t, p, nil)
			seed := seedOf(t)
			rng := rand.New(rand.NewPCG(seed, 0))
			for round := range 15 {
				r.net.BreakAfter(r.conn.ep, 1+rng.IntN(400))
				breakRound(t, r, seed+uint64(round))
				select {
				case <-r.conn.Done():
				default:
					r.net.Break(r.conn.ep)
				}
				r.conn.Close()
				r.conn = r.dial(t)
			}
			if err := runModel(t, r, 5, 2); err != nil {
				t.Fatal(err)
			}
			if s := r.srv.Stats(); s.Conns != 1 || s.Running != 0 {
				t.Fatalf("after all breaks: %+v", s)
			}
		})
	}
}

func breakRound(t *testing.T, r *rig, seed uint64) {
	var wg sync.WaitGroup
	for g := range 3 {
		outMem, inMem := memory(t, r.cdom, 1<<18), memory(t, r.cdom, 1<<18)
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			var err error
			for i := 0; i < 20 && err == nil; i++ {
				err = oneModelCall(context.Background(), r.conn, rng, outMem, inMem)
			}
			if err == nil {
				return
			}
			if errs.KindOf(err) != errs.Disconnected {
				t.Errorf("seed %d: %v", seed, err)
			}
			if err := untouched(inMem.Buf); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}()
	}
	wg.Wait()
}

// untouched writes to memory that is said to be free and looks if it stays.
func untouched(b []byte) error {
	for i := range b {
		b[i] = 0xA5
	}
	time.Sleep(2 * time.Millisecond)
	for i := range b {
		if b[i] != 0xA5 {
			return fmt.Errorf("memory changed at byte %d after the call had returned", i)
		}
	}
	return nil
}
