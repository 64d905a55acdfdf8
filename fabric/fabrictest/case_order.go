package fabrictest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func orderCases() []testCase {
	return []testCase{
		{"writes are in place before a later send", testWriteThenSend},
		{"writes are in place before a later immediate", testWriteThenImm},
		{"writes of all sizes are in place before a message", testMixedThenSend},
		{"a fence holds back until reads are done", testFence},
		{"a read sees earlier writes", testReadAfterWrite},
		{"selective signalling", testSelective},
		{"failures always complete, in order", testFailuresComplete},
		{"silent requests free their places", testSilentPlaces},
		{"memory of early writes is free", testEarly},
		{"an early write that is refused", testEarlyRefused},
	}
}

func testWriteThenSend(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const size = 50000
	rem := r.b.grant(memBytes/2, size, fabric.RemoteWrite)
	for round := range uint64(30) {
		r.b.recv(round, 8)
		data := r.a.piece(0, size)
		for i := range data {
			data[i] = byte(round + 1)
		}
		third := uint64(size / 3)
		var wrs []fabric.WR
		for i := range uint64(3) {
			to := rem.Slice(i*third, third)
			local := []fabric.Sge{{Reg: r.a.reg, Buf: data[i*third : (i+1)*third]}}
			wrs = append(wrs, fabric.WR{Op: fabric.OpWrite, Local: local, Remote: to})
		}
		r.a.post(append(wrs, r.a.send(round, "go"))...)
		r.b.got(round, 2)
		in := r.b.mem[memBytes/2 : memBytes/2+int(3*third)]
		if !bytes.Equal(in, bytes.Repeat([]byte{byte(round + 1)}, len(in))) {
			t.Fatalf("round %d: the message overtook a write", round)
		}
		r.a.done(round, errs.OK)
	}
}

// testMixedThenSend writes pieces of very different sizes through several grants, behind each other
// and with messages in between, both ways at once. Providers may take several ways to the peer.
func testMixedThenSend(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const piece = 80000
	sides := [][2]*side{{r.a, r.b}, {r.b, r.a}}
	var rems [2][4]fabric.Remote
	for d, s := range sides {
		for i := range rems[d] {
			rems[d][i] = s[1].grant(memBytes/2+i*piece, piece, fabric.RemoteWrite)
		}
	}
	for round := range 20 {
		sizes := []int{piece, 10, 3000, piece - 1} // one of each, in turns
		for d, s := range sides {
			s[1].recv(uint64(round), 8)
			var wrs []fabric.WR
			for i := range rems[d] {
				data := s[0].piece(128<<10+i*piece, sizes[(i+round)%4])
				fill(data, round*8+d*4+i)
				wrs = append(wrs, fabric.WR{
					Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: uint64(i),
					Local:  []fabric.Sge{{Reg: s[0].reg, Buf: data}},
					Remote: rems[d][i].Slice(0, uint64(len(data))),
				})
			}
			last := fabric.WR{Op: fabric.OpSend, Flags: fabric.FlagSignaled, Context: 4}
			s[0].post(append(wrs, last)...)
		}
		for d, s := range sides {
			s[1].got(uint64(round), 0)
			for i := range rems[d] {
				size := sizes[(i+round)%4]
				got := s[1].piece(memBytes/2+i*piece, size)
				if !bytes.Equal(got, s[0].piece(128<<10+i*piece, size)) {
					t.Fatalf("round %d: the message overtook write %d of %d bytes", round, i, size)
				}
			}
			for i := range uint64(5) { // in the order posted, whatever way they took
				s[0].done(i, errs.OK)
			}
		}
	}
}

// testEarly overwrites the memory of early writes as soon as they have completed. What the peer
// sees when a message follows is what was there before.
func testEarly(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const piece = 80000
	rem := r.b.grant(memBytes/2, 3*piece, fabric.RemoteWrite)
	for round := range 30 {
		sizes := []int{piece, 3000, piece - 1}
		var wrs []fabric.WR
		for i, size := range sizes {
			data := r.a.piece(i*piece, size)
			fill(data, round*4+i)
			wrs = append(wrs, fabric.WR{
				Op: fabric.OpWrite, Context: uint64(i),
				Flags:  fabric.FlagSignaled | fabric.FlagEarly,
				Local:  []fabric.Sge{{Reg: r.a.reg, Buf: data}},
				Remote: rem.Slice(uint64(i*piece), uint64(size)),
			})
		}
		if round%2 == 0 {
			wrs[0].Flags = 0 // it holds up none that comes after it for ever
		}
		if round%3 == 0 { // late, but not never
			wrs[1].Flags |= fabric.FlagLater
			wrs[2].Flags |= fabric.FlagLater
		}
		r.a.post(wrs...)
		for i := round%2 ^ 1; i < len(sizes); i++ {
			r.a.done(uint64(i), errs.OK)
		}
		clear(r.a.piece(0, 3*piece))
		r.b.recv(uint64(round), 8)
		r.a.post(r.a.send(99, "go"))
		r.b.got(uint64(round), 2)
		r.a.done(99, errs.OK)
		want := make([]byte, piece)
		for i, size := range sizes {
			fill(want[:size], round*4+i)
			if !bytes.Equal(r.b.piece(memBytes/2+i*piece, size), want[:size]) {
				t.Fatalf("round %d: write %d of %d bytes is not what it was", round, i, size)
			}
		}
	}
}

// testEarlyRefused: nobody may be told, but what follows arrives.
func testEarlyRefused(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	if r.a.dom.Caps().RefusalEnds {
		return
	}
	rem := r.b.grant(memBytes/2, 16, fabric.RemoteWrite)
	bad := rem
	bad.Key += 12345
	for round := range uint64(20) {
		r.b.recv(round, 8)
		wr := r.a.write(round, 0, "refused", bad)
		wr.Flags |= fabric.FlagEarly
		r.a.post(wr)
		if c := r.a.waitSend(); c.Context != round || c.Err != nil && c.ErrKind() != errs.Perm {
			t.Fatalf("round %d: %+v", round, c)
		}
		r.a.post(r.a.write(100, 32, "allowed", rem), r.a.send(101, "go"))
		r.b.got(round, 2)
		r.a.done(100, errs.OK)
		r.a.done(101, errs.OK)
		if got := string(r.b.mem[memBytes/2:][:7]); got != "allowed" {
			t.Fatalf("round %d: the peer has %q", round, got)
		}
	}
}

func testWriteThenImm(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	rem := r.b.grant(memBytes/2, 16, fabric.RemoteWrite)
	for round := range uint64(50) {
		r.b.recv(round, 0)
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], round)
		plain := r.a.write(round, 0, string(word[:]), rem)
		plain.Flags = fabric.FlagInline
		imm := r.a.write(round, 8, string(word[:]), rem.Slice(8, 8))
		imm.Op, imm.Imm = fabric.OpWriteImm, uint32(round)
		r.a.post(plain, imm)
		r.b.got(round, 8)
		for off := 0; off < 16; off += 8 {
			if got := binary.BigEndian.Uint64(r.b.mem[memBytes/2+off:]); got != round {
				t.Fatalf("round %d: memory holds %d", round, got)
			}
		}
		r.a.done(round, errs.OK)
	}
}

func testFence(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const size = 30000
	rights := fabric.RemoteRead | fabric.RemoteWrite
	rem := r.b.grant(0, size, rights)
	for round := range 30 {
		old := bytes.Repeat([]byte{byte(round)}, size)
		next := r.a.piece(size, size)
		for i := range next {
			next[i] = byte(round + 1)
		}
		write := fabric.WR{
			Op: fabric.OpWrite, Flags: fabric.FlagSignaled | fabric.FlagFence, Context: 2,
			Remote: rem, Local: []fabric.Sge{{Reg: r.a.reg, Buf: next}},
		}
		read := r.a.read(1, 0, rem)
		r.a.post(read, write)
		r.a.done(1, errs.OK) // the fence puts it first
		r.a.done(2, errs.OK)
		if !bytes.Equal(r.a.mem[:size], old) {
			t.Fatalf("round %d: the read saw a write from behind the fence", round)
		}
	}
}

func testReadAfterWrite(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	rem := r.b.grant(0, 8, fabric.RemoteRead|fabric.RemoteWrite)
	for round := range uint64(50) {
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], round+1)
		write := r.a.write(1, 0, string(word[:]), rem)
		write.Flags = 0
		r.a.post(write, r.a.read(2, 64, rem))
		r.a.done(2, errs.OK)
		if got := binary.BigEndian.Uint64(r.a.mem[64:]); got != round+1 {
			t.Fatalf("round %d: the read saw %d", round, got)
		}
	}
}

func testSelective(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	rem := r.b.grant(0, 64, fabric.RemoteRead|fabric.RemoteWrite)
	for i := range uint64(8) {
		r.b.recv(100+i, 16)
	}
	for i := range uint64(8) {
		silent := []fabric.WR{
			r.a.send(i, "silent"), r.a.write(i, 1024+int(i)*64, "silent", rem),
			r.a.read(i, 2048+int(i)*64, rem),
		}
		for j := range silent {
			silent[j].Flags = 0
		}
		r.a.post(silent...)
	}
	last := r.a.write(99, 64, "asked", rem)
	last.Flags |= fabric.FlagFence
	r.a.post(last)
	r.a.done(99, errs.OK)
	for i := range uint64(8) {
		r.b.got(100+i, 6)
	}
	r.barrier()
	r.a.nothing()
	r.b.nothing()
}

func testFailuresComplete(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	if r.a.dom.Caps().RefusalEnds {
		r.failuresEnd()
		return
	}
	rem := r.b.grant(0, 64, fabric.RemoteWrite)
	bad := rem
	bad.Key += 12345
	for round := range uint64(10) {
		var wrs []fabric.WR
		for i := range uint64(6) {
			to := rem
			if i%2 == 1 {
				to = bad
			}
			wr := r.a.write(round*10+i, int(i)*64, "data", to)
			wr.Flags = 0
			wrs = append(wrs, wr)
		}
		r.b.recv(round, 8)
		r.a.post(append(wrs, r.a.send(round*10+6, "end"))...)
		for _, i := range []uint64{1, 3, 5} {
			if c := r.a.done(round*10+i, errs.Perm); c.Op != fabric.OpWrite {
				t.Fatalf("completion %+v", c)
			}
		}
		r.a.done(round*10+6, errs.OK)
		r.b.got(round, 3)
	}
	r.a.nothing()
}

// failuresEnd is testFailuresComplete where the first refusal ends the connection: everything
// behind it fails, and so completes, silent or not, in order.
func (r *rig) failuresEnd() {
	for range 5 {
		rem := r.b.grant(0, 64, fabric.RemoteWrite)
		bad := rem
		bad.Key += 12345
		r.b.recv(9, 8)
		var wrs []fabric.WR
		for i := range uint64(6) {
			to := rem
			if i%2 == 1 {
				to = bad
			}
			wr := r.a.write(i, int(i)*64, "data", to)
			wr.Flags = 0
			wrs = append(wrs, wr)
		}
		r.a.post(append(wrs, r.a.send(6, "end"))...)
		c := r.a.waitSend()
		if c.Context == 0 && c.ErrKind() == errs.Disconnected { // it was pending still
			c = r.a.waitSend()
		}
		if c.Context != 1 || c.ErrKind() != errs.Perm {
			r.t.Fatalf("the first refused write: %+v", c)
		}
		for i := uint64(2); i <= 6; i++ {
			r.a.done(i, errs.Disconnected)
		}
		if c := r.b.waitRecv(); c.ErrKind() != errs.Disconnected {
			r.t.Fatalf("b's receive: %+v", c)
		}
		r.a.nothing()
		r.reconnect()
	}
}

func testSilentPlaces(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	rem := r.b.grant(0, 64, fabric.RemoteWrite)
	for round := range uint64(20) { // many times the depth in all, always with one signalled
		var wrs []fabric.WR
		for range depth - 1 {
			wr := r.a.write(1, 0, "x", rem)
			wr.Flags = 0
			wrs = append(wrs, wr)
		}
		r.a.post(append(wrs, r.a.write(round, 64, "y", rem))...)
		r.a.done(round, errs.OK)
	}
	r.a.nothing()
}
