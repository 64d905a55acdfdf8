package fabrictest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func messageCases() []testCase {
	return []testCase{
		{"send and receive in order", testSendOrder},
		{"send gathers pieces", testSendGather},
		{"send of no bytes", testSendEmpty},
		{"send of the largest message", testSendLargest},
		{"inline send", testInlineSend},
		{"messages wait for the first receive", testFirstReceive},
		{"messages that wait for more", testMore},
	}
}

func testSendOrder(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const count = 3 * depth
	bufs := map[uint64][]byte{}
	for i := range uint64(depth) {
		bufs[i] = r.b.recv(i, 64)
	}
	sent := 0
	for got := range uint64(count) {
		for ; sent < count && sent < int(got)+depth/2; sent++ {
			wr := r.a.send(uint64(sent), fmt.Sprintf("message %d", sent))
			wr.Imm = uint32(sent)
			r.a.post(wr)
		}
		want := fmt.Sprintf("message %d", got)
		c := r.b.got(got, len(want))
		if c.Imm != uint32(got) || c.WithImm || c.EP != r.b.ep || c.Op != fabric.OpRecv {
			t.Fatalf("message %d: completion %+v", got, c)
		}
		if string(bufs[got][:c.Len]) != want {
			t.Fatalf("message %d is %q", got, bufs[got][:c.Len])
		}
		bufs[got+depth] = r.b.recv(got+depth, 64)
		r.a.done(got, errs.OK)
	}
}

func testSendGather(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	caps := r.a.dom.Caps()
	buf := r.b.recv(1, 4096)
	wr := fabric.WR{Op: fabric.OpSend, Flags: fabric.FlagSignaled}
	var want []byte
	for i := range caps.MaxSge {
		data := bytes.Repeat([]byte{byte('a' + i)}, i%7) // some are empty
		wr.Local = append(wr.Local, r.a.sge(i*512, string(data))...)
		want = append(want, data...)
	}
	r.a.post(wr)
	c := r.b.got(1, len(want))
	if !bytes.Equal(buf[:c.Len], want) {
		t.Fatalf("received %q, want %q", buf[:c.Len], want)
	}
	r.a.done(0, errs.OK)
}

func testSendEmpty(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	r.b.recv(1, 8)
	r.b.recv(2, 0)
	for range 2 {
		r.a.post(fabric.WR{Op: fabric.OpSend, Imm: 5})
	}
	r.b.got(1, 0)
	if c := r.b.got(2, 0); c.Imm != 5 {
		t.Fatalf("immediate %d", c.Imm)
	}
}

func testSendLargest(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	size := min(r.a.dom.Caps().MaxMessage, memBytes)
	for i := range size {
		r.a.mem[i] = byte(i * 7 >> 3)
	}
	buf := r.b.recv(0, size)
	local := []fabric.Sge{{Reg: r.a.reg, Buf: r.a.piece(0, size)}}
	r.a.post(fabric.WR{Op: fabric.OpSend, Flags: fabric.FlagSignaled, Local: local})
	r.b.got(0, size)
	r.a.done(0, errs.OK)
	if !bytes.Equal(buf, local[0].Buf) {
		t.Fatal("the message arrived damaged")
	}
}

func testInlineSend(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	size := r.a.dom.Caps().MaxInline
	if size < 1 {
		t.Fatalf("MaxInline is %d", size)
	}
	var bufs [depth / 2][]byte
	for i := range bufs {
		bufs[i] = r.b.recv(uint64(i), size)
	}
	data := r.a.piece(0, size)
	for i := range bufs {
		for j := range data {
			data[j] = byte(i)
		}
		half := []fabric.Sge{{Reg: r.a.reg, Buf: data[:size/2]}, {Reg: r.a.reg, Buf: data[size/2:]}}
		r.a.post(fabric.WR{Op: fabric.OpSend, Flags: fabric.FlagInline, Local: half})
		clear(data) // ours again
	}
	for i := range bufs {
		r.b.got(uint64(i), size)
		if !bytes.Equal(bufs[i], bytes.Repeat([]byte{byte(i)}, size)) {
			t.Fatalf("inline message %d took what the memory held later", i)
		}
	}
}

func testFirstReceive(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	r.a.post(r.a.send(1, "early"))
	buf := r.b.recv(7, 16)
	r.b.got(7, 5)
	if string(buf[:5]) != "early" {
		t.Fatalf("received %q", buf[:5])
	}
	r.a.done(1, errs.OK)
}

// testMore: requests with FlagMore start with the next Post at the latest, in order, also if that
// posts nothing; and as many of them as fit into the queue.
func testMore(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const count = depth - 1
	for round := range 4 {
		first := uint64(round * depth)
		bufs := make([][]byte, depth)
		for i := range bufs {
			bufs[i] = r.b.recv(first+uint64(i), 64)
		}
		for i := range uint64(count) {
			wr := r.a.send(first+i, fmt.Sprintf("message %d", first+i))
			wr.Flags |= fabric.FlagMore
			r.a.post(wr)
		}
		if round%2 == 0 {
			r.a.post(r.a.send(first+count, fmt.Sprintf("message %d", first+count)))
		} else {
			r.a.post()
			r.a.post()
			r.a.post(r.a.send(first+count, fmt.Sprintf("message %d", first+count)))
		}
		for i := range uint64(depth) {
			want := fmt.Sprintf("message %d", first+i)
			if c := r.b.got(first+i, len(want)); string(bufs[i][:c.Len]) != want {
				t.Fatalf("message %d is %q", first+i, bufs[i][:c.Len])
			}
			r.a.done(first+i, errs.OK)
		}
	}
	wr := r.a.send(1, "the last")
	wr.Flags |= fabric.FlagMore
	buf := r.b.recv(1, 64)
	r.a.post(wr)
	r.a.post()
	if c := r.b.got(1, len("the last")); string(buf[:c.Len]) != "the last" {
		t.Fatalf("received %q", buf[:c.Len])
	}
	r.a.done(1, errs.OK)
}
