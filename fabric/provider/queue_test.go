package provider

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func TestRecvQueue(t *testing.T) {
	e := newRig(t, 2*testDepth).end()
	q := &e.recvs
	if _, err := q.Take(); err != ErrEarly || q.Ready() {
		t.Fatalf("before the first PostRecv: %v", err)
	}
	waited := make(chan fabric.Recv)
	go func() {
		r, _ := q.AwaitTake()
		waited <- r
	}()
	first, err := q.Post(&e.Endpoint, []fabric.Recv{{Context: 1}, {Context: 2}})
	if err != nil || !first || !q.Ready() {
		t.Fatalf("%v %v", first, err)
	}
	if r := <-waited; r.Context != 1 {
		t.Fatalf("got %+v", r)
	}
	if first, err = q.Post(&e.Endpoint, make([]fabric.Recv, testDepth-1)); first {
		t.Fatal("it was the second time")
	}
	wants(t, err, errs.Again) // the place of the taken one is held until it is polled
	if r, err := q.Take(); err != nil || r.Context != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	_, err = q.Take()
	wants(t, err, errs.Protocol)
	fatal(t, e.PostRecv([]fabric.Recv{{Context: 3}}))
	e.Die(errs.Disconnected, "cut")
	_, err = q.AwaitTake()
	wants(t, err, errs.Disconnected)
	wants(t, e.PostRecv(make([]fabric.Recv, 1)), errs.Disconnected)
	var dst [4]fabric.Completion
	if n := e.q.Poll(dst[:]); n != 1 || dst[0].Context != 3 || dst[0].ErrKind() != errs.Disconnected {
		t.Fatalf("%d: %+v", n, dst[0])
	}
}

func TestDieEndsAwaitTake(t *testing.T) {
	var q RecvQueue
	q.Open(1)
	over := make(chan error)
	go func() {
		_, err := q.AwaitTake()
		over <- err
	}()
	q.Die()
	wants(t, <-over, errs.Disconnected)
}

// TestGatherScatter moves requests of any pieces in any parts.
func TestGatherScatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q SendQueue[int]
		q.Open(1)
		pieces := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 5)).Draw(t, "pieces")
		wr := fabric.WR{Op: fabric.OpSend}
		if rapid.Bool().Draw(t, "inline") {
			wr.Flags = fabric.FlagInline
		}
		for _, p := range pieces {
			wr.Local = append(wr.Local, fabric.Sge{Buf: p})
		}
		want := bytes.Join(pieces, nil)
		w := q.New(&wr)
		var got []byte
		for w.Rest() > 0 {
			n := rapid.IntRange(1, w.Rest()).Draw(t, "part")
			part := make([]byte, n)
			cut := rapid.IntRange(0, n).Draw(t, "cut")
			if w.Gather(part[:cut], part[cut:]); !w.Begun() {
				t.Fatal("nothing has begun")
			}
			got = append(got, part...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("gathered %x, want %x", got, want)
		}
		wr.Flags = 0
		for i := range want {
			want[i]++
		}
		w = q.New(&wr)
		for off := 0; off < len(want); {
			n := rapid.IntRange(1, len(want)-off).Draw(t, "part")
			w.Scatter(want[off:off+n], nil)
			off += n
		}
		if !bytes.Equal(bytes.Join(pieces, nil), want) {
			t.Fatal("scattered something else")
		}
	})
}
