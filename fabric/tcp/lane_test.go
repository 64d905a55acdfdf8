package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// pair is two connected ends.
func pair(t *testing.T, opts Options) (a, b *benchEnd) {
	t.Helper()
	a, b = newBenchEndWith(t, opts), newBenchEndWith(t, opts)
	l, err := b.dom.Connector().Listen("127.0.0.1:0")
	fatal(t, err)
	done := make(chan error, 1)
	go func() {
		var err error
		b.ep, err = l.Accept(t.Context(), func(fabric.Peer) (fabric.EndpointConfig, error) {
			return b.config(), nil
		})
		done <- err
	}()
	a.ep, err = a.dom.Connector().Dial(t.Context(), l.Addr().String(), a.config())
	fatal(t, err)
	fatal(t, <-done)
	return a, b
}

// TestLanesKeepOrder writes overlapping pieces of all sizes in random order, tells the peer with a
// message, and looks there whether the memory is as if everything had happened one by one.
func TestLanesKeepOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	a, b := pair(t, Options{Sockets: 4})
	fatal(t, b.ep.PostRecv(b.recvs))
	rem, err := b.reg.Grant(b.ep, 0, bulkSize, fabric.RemoteWrite)
	fatal(t, err)
	want := make([]byte, bulkSize)
	for round := range 40 {
		var wrs []fabric.WR
		for i := range 12 {
			size := []int{100, 5000, laneBytes - 1, laneBytes, 200 << 10}[rng.IntN(5)]
			off := rng.IntN(bulkSize - size)
			data := bytes.Repeat([]byte{byte(round*12 + i)}, size)
			copy(want[off:], data)
			wrs = append(wrs, fabric.WR{
				Op: fabric.OpWrite, Local: []fabric.Sge{{Buf: data}},
				Remote: rem.Slice(uint64(off), uint64(size)),
			})
		}
		wrs = append(wrs, a.wrs[0])
		wrs[len(wrs)-1].Flags |= fabric.FlagSignaled
		fatal(t, a.ep.Post(wrs))
		fatal(t, b.await(t.Context()))
		if !bytes.Equal(b.reg.Bytes()[:bulkSize], want) {
			t.Fatalf("round %d: the memory differs", round)
		}
		_, err := a.cq.Wait(t.Context(), a.dst[:1])
		fatal(t, err)
		fatal(t, a.dst[0].Err)
	}
	used := a.ep.(*endpoint)
	used.mu.Lock()
	defer used.mu.Unlock()
	if len(used.lanes.all) != 3 || used.lanes.next < 40 {
		t.Fatalf("%d lanes, %d transfers by them", len(used.lanes.all), used.lanes.next)
	}
}

// TestLaneDies cuts one of the sockets: the endpoint ends as a whole, at both sides.
func TestLaneDies(t *testing.T) {
	a, b := pair(t, Options{Sockets: 3})
	fatal(t, a.ep.PostRecv(a.recvs))
	fatal(t, b.ep.PostRecv(b.recvs))
	e := a.ep.(*endpoint)
	e.mu.Lock()
	victim := e.lanes.all[1].rx.conn
	e.mu.Unlock()
	fatal(t, victim.CloseWrite())
	for _, end := range []*benchEnd{a, b} {
		if err := end.await(t.Context()); errs.KindOf(err) != errs.Disconnected {
			t.Fatalf("the end: %v", err)
		}
	}
}

// TestLanesOfStrangers knocks with keys that nobody gave out.
func TestLanesOfStrangers(t *testing.T) {
	e := newBenchEndWith(t, Options{Log: slog.New(slog.DiscardHandler)})
	l, err := e.dom.Connector().Listen("127.0.0.1:0")
	fatal(t, err)
	c, err := net.Dial("tcp", l.Addr().String())
	fatal(t, err)
	defer c.Close()
	h := hello{join: true, sockets: 1}
	h.Version, h.Token[0] = fabric.HelloVersion, 1
	msg := h.encode()
	_, err = c.Write(msg[:])
	fatal(t, err)
	_, err = c.Read(msg[:])
	fatal(t, err)
	if kind := errs.Kind(binary.BigEndian.Uint16(msg[24:])); kind != errs.Perm {
		t.Fatalf("it was told %v", kind)
	}
}

// TestFramesThatDoNotBelongOnALane sends what only the first socket may carry.
func TestFramesThatDoNotBelongOnALane(t *testing.T) {
	for name, h := range map[string]header{
		"a message":            {kind: frameSend, length: 1},
		"an acknowledgement":   {kind: frameAck},
		"an answer to nothing": {kind: frameReadData, tag: 1, length: 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, Options{Sockets: 2})
			fatal(t, b.ep.PostRecv(b.recvs))
			e := a.ep.(*endpoint)
			e.mu.Lock()
			conn := e.lanes.all[0].rx.conn
			e.mu.Unlock()
			var raw [headerBytes]byte
			h.encode(&raw)
			_, err := conn.Write(raw[:])
			fatal(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := b.await(ctx); errs.KindOf(err) != errs.Protocol {
				t.Fatalf("the end: %v", err)
			}
		})
	}
}
