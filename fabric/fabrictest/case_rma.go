package fabrictest

import (
	"bytes"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func writeCases() []testCase {
	return []testCase{
		{"write", testWrite},
		{"write gathers MaxSge pieces", testGatherWrite},
		{"write with immediate", testWriteImm},
		{"write of no bytes", testWriteEmpty},
		{"large writes", testLargeWrites},
	}
}

func readCases() []testCase {
	return []testCase{
		{"read", testRead},
		{"read scatters", testReadScatter},
		{"reads beyond ReadDepth", testReadDepth},
		{"reads both ways", testReadBothWays},
		{"large reads", testLargeReads},
	}
}

// write is a signalled Write of data, gathered from registered memory at off.
func (s *side) write(context uint64, off int, data string, to fabric.Remote) fabric.WR {
	return fabric.WR{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: context,
		Local: s.sge(off, data), Remote: to.Slice(0, uint64(len(data))),
	}
}

// read is a signalled Read into registered memory at off.
func (s *side) read(context uint64, off int, from fabric.Remote) fabric.WR {
	return fabric.WR{
		Op: fabric.OpRead, Flags: fabric.FlagSignaled, Context: context, Remote: from,
		Local: []fabric.Sge{{Reg: s.reg, Buf: s.piece(off, int(from.Len))}},
	}
}

// fill makes bytes that tell their place.
func fill(b []byte, salt int) {
	for i := range b {
		b[i] = byte(i>>8 ^ i*31 ^ salt)
	}
}

func testWrite(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	rem := r.b.grant(1000, 100, fabric.RemoteWrite)
	if rem.Len != 100 {
		t.Fatalf("granted %d bytes", rem.Len)
	}
	r.a.post(r.a.write(1, 0, "first", rem), r.a.write(2, 64, "second", rem.Slice(94, 6)))
	r.a.done(1, errs.OK)
	if c := r.a.done(2, errs.OK); c.Len != 6 || c.Op != fabric.OpWrite || c.EP != r.a.ep {
		t.Fatalf("completion %+v", c)
	}
	r.barrier()
	want := make([]byte, 102)
	copy(want[1:], "first")
	copy(want[95:], "second")
	if got := r.b.mem[999:1101]; !bytes.Equal(got, want) {
		t.Fatalf("memory is %q", got)
	}
}

func testGatherWrite(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	maxSge := r.a.dom.Caps().MaxSge
	if maxSge < 2 {
		t.Skipf("MaxSge is %d", maxSge)
	}
	wr := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: 9}
	var want []byte
	for i := range maxSge {
		p := r.a.piece(i*4096, 1+i*37%1000)
		fill(p, i)
		wr.Local = append(wr.Local, fabric.Sge{Reg: r.a.reg, Buf: p})
		want = append(want, p...)
	}
	wr.Remote = r.b.grant(5, len(want), fabric.RemoteWrite)
	r.a.post(wr)
	if c := r.a.done(9, errs.OK); c.Len != len(want) {
		t.Fatalf("wrote %d of %d bytes", c.Len, len(want))
	}
	r.barrier()
	if !bytes.Equal(r.b.mem[5:5+len(want)], want) {
		t.Fatal("the pieces did not arrive contiguously in order")
	}
}

func testWriteImm(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	rem := r.b.grant(memBytes-100, 100, fabric.RemoteWrite)
	buf := r.b.recv(3, 16)
	copy(buf, "untouched")
	wr := r.a.write(1, 0, "immediate", rem)
	wr.Op, wr.Imm = fabric.OpWriteImm, 0xfeedbeef
	r.a.post(wr)
	if c := r.b.got(3, 9); !c.WithImm || c.Imm != 0xfeedbeef {
		t.Fatalf("completion %+v", c)
	}
	if got := string(r.b.mem[memBytes-100 : memBytes-91]); got != "immediate" {
		t.Fatalf("the data was not in place: %q", got)
	}
	if string(buf[:9]) != "untouched" {
		t.Fatal("the receive's memory was written")
	}
	if c := r.a.done(1, errs.OK); c.Op != fabric.OpWriteImm {
		t.Fatalf("completion %+v", c)
	}
}

func testWriteEmpty(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	r.b.recv(4, 0)
	sig := fabric.FlagSignaled
	r.a.post(
		fabric.WR{Op: fabric.OpWrite, Flags: sig, Context: 1},
		fabric.WR{Op: fabric.OpRead, Flags: sig | fabric.FlagFence, Context: 2},
		fabric.WR{Op: fabric.OpWriteImm, Flags: sig | fabric.FlagFence, Context: 3, Imm: 8},
	)
	left := map[uint64]bool{1: true, 2: true, 3: true}
	for len(left) > 0 {
		c := r.a.waitSend()
		if c.Err != nil || !left[c.Context] {
			t.Fatalf("completion %+v", c)
		}
		delete(left, c.Context)
	}
	if c := r.b.got(4, 0); !c.WithImm || c.Imm != 8 {
		t.Fatalf("completion %+v", c)
	}
}

func testLargeWrites(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	rem := r.b.grant(0, memBytes/2, fabric.RemoteWrite)
	fill(r.a.mem, 5)
	for i := range uint64(40) {
		r.a.post(fabric.WR{
			Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: i, Remote: rem,
			Local: []fabric.Sge{{Reg: r.a.reg, Buf: r.a.piece(int(i)*1000, memBytes/2)}},
		})
	}
	for i := range uint64(40) {
		r.a.done(i, errs.OK)
	}
	r.b.reg.Revoke(rem) // also what makes the memory ours to look at
	if !bytes.Equal(r.b.mem[:memBytes/2], r.a.piece(39*1000, memBytes/2)) {
		t.Fatal("the last write is not what the memory holds")
	}
}

func testRead(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	copy(r.b.mem[500:], "what b holds")
	rem := r.b.grant(500, 12, fabric.RemoteRead)
	r.a.post(r.a.read(1, 100, rem), r.a.read(2, 200, rem.Slice(7, 5)))
	for range 2 {
		c := r.a.waitSend()
		want := map[uint64]string{1: "what b holds", 2: "holds"}[c.Context]
		if c.Err != nil || c.Op != fabric.OpRead || c.Len != len(want) {
			t.Fatalf("completion %+v", c)
		}
		if got := string(r.a.mem[int(c.Context)*100 : int(c.Context)*100+len(want)]); got != want {
			t.Fatalf("read %q, want %q", got, want)
		}
	}
	r.b.nothing()
}

func testReadScatter(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	maxSge := r.a.dom.Caps().MaxSge
	wr := fabric.WR{Op: fabric.OpRead, Flags: fabric.FlagSignaled, Context: 1}
	total := 0
	for i := range maxSge {
		n := i * 53 % 900 // the first is empty
		wr.Local = append(wr.Local, fabric.Sge{Reg: r.a.reg, Buf: r.a.piece(i*1000, n)})
		total += n
	}
	fill(r.b.mem[77:77+total], 1)
	wr.Remote = r.b.grant(77, total, fabric.RemoteRead)
	r.a.post(wr)
	r.a.done(1, errs.OK)
	at := 77
	for i, s := range wr.Local {
		if !bytes.Equal(s.Buf, r.b.mem[at:at+len(s.Buf)]) {
			t.Fatalf("piece %d is wrong", i)
		}
		if r.a.mem[i*1000+len(s.Buf)] != 0 {
			t.Fatalf("piece %d was overrun", i)
		}
		at += len(s.Buf)
	}
}

func testReadDepth(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	count := min(3*r.a.dom.Caps().ReadDepth+1, depth)
	const size = 3000
	fill(r.b.mem, 9)
	rem := r.b.grant(0, count*size, fabric.RemoteRead)
	var wrs []fabric.WR
	for i := range count {
		wrs = append(wrs, r.a.read(uint64(i), i*size, rem.Slice(uint64(i*size), size)))
	}
	r.a.post(wrs...)
	for range count {
		if c := r.a.waitSend(); c.Err != nil || c.Len != size {
			t.Fatalf("completion %+v", c)
		}
	}
	if !bytes.Equal(r.a.mem[:count*size], r.b.mem[:count*size]) {
		t.Fatal("the reads brought other bytes")
	}
}

func testReadBothWays(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	fill(r.a.mem[memBytes/2:], 1)
	fill(r.b.mem[memBytes/2:], 2)
	const size = 20000
	for _, s := range [][2]*side{{r.a, r.b}, {r.b, r.a}} {
		rem := s[1].grant(memBytes/2, 20*size, fabric.RemoteRead)
		for i := range 20 {
			s[0].post(s[0].read(uint64(i), i*size, rem.Slice(uint64(i*size), size)))
		}
	}
	for _, s := range [][2]*side{{r.a, r.b}, {r.b, r.a}} {
		for range 20 {
			if c := s[0].waitSend(); c.Err != nil {
				t.Fatal(c.Err)
			}
		}
		if !bytes.Equal(s[0].mem[:20*size], s[1].mem[memBytes/2:memBytes/2+20*size]) {
			t.Fatal("the reads brought other bytes")
		}
	}
}

func testLargeReads(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	fill(r.b.mem, 3)
	rem := r.b.grant(0, memBytes, fabric.RemoteRead)
	for i := range uint64(20) {
		r.a.post(r.a.read(i, 0, rem))
		r.a.done(i, errs.OK)
		if !bytes.Equal(r.a.mem, r.b.mem) {
			t.Fatal("the read brought other bytes")
		}
		clear(r.a.mem)
	}
}
