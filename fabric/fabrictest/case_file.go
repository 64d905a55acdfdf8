package fabrictest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func fileCases() []testCase {
	return []testCase{
		{"file ranges", testFileRanges},
		{"file ranges and memory in one chain", testFileChain},
		{"a large file range", testLargeFile},
		{"many file ranges at once", testManyFiles},
		{"a file range that is refused", testFileRefused},
		{"a file range beyond the end of the file", testFileShort},
		{"file misuse", testFileMisuse},
	}
}

// tempFile makes a file of size bytes and returns it with what it holds.
func tempFile(t *testing.T, size int) (*os.File, []byte) {
	t.Helper()
	data := make([]byte, size)
	fill(data, 77)
	name := filepath.Join(t.TempDir(), "range")
	check(t, os.WriteFile(name, data, 0o600))
	f, err := os.Open(name)
	check(t, err)
	t.Cleanup(func() { check(t, f.Close()) })
	return f, data
}

// ofFile is a signalled request that carries a range of a file.
func ofFile(op fabric.Op, context uint64, f *os.File, off, length int) fabric.WR {
	return fabric.WR{
		Op: op, Flags: fabric.FlagSignaled, Context: context, Imm: uint32(context),
		File: fabric.FileRange{File: f, Off: int64(off), Len: int64(length)},
	}
}

// newFileRig is a rig whose provider can send from files. Where it cannot it refuses to, and there
// is nothing more to show: nil.
func newFileRig(t *testing.T, cfg Config, fileBytes int) (*rig, *os.File, []byte) {
	t.Helper()
	r := newRig(t, cfg)
	f, data := tempFile(t, fileBytes)
	if r.a.dom.Caps().FileRange {
		return r, f, data
	}
	rem := r.b.grant(0, 8, fabric.RemoteWrite)
	for _, op := range []fabric.Op{fabric.OpSend, fabric.OpWrite, fabric.OpWriteImm} {
		wr := ofFile(op, 1, f, 0, 8)
		wr.Remote = rem
		wantKind(t, r.a.ep.Post([]fabric.WR{wr}), errs.Invalid)
	}
	r.barrier()
	r.a.nothing()
	return nil, nil, nil
}

func testFileRanges(t *testing.T, cfg Config) {
	const size = 100000
	r, f, data := newFileRig(t, cfg, size)
	if r == nil {
		return
	}
	for i, c := range []struct{ off, length int }{
		{0, 1}, {0, 4096}, {1, 4095}, {4095, 2}, {4096, 4096}, {12345, 7}, {777, 5001},
		{size - 1, 1}, {size - 8000, 8000}, {1, size - 1}, {0, size},
	} {
		want, context := data[c.off:c.off+c.length], uint64(i)
		if c.length <= r.a.dom.Caps().MaxMessage {
			buf := r.b.recv(context, c.length)
			r.a.post(ofFile(fabric.OpSend, context, f, c.off, c.length))
			if got := r.b.got(context, c.length); got.Imm != uint32(i) || !bytes.Equal(buf, want) {
				t.Fatalf("sent %d bytes at %d: they differ", c.length, c.off)
			}
			r.a.done(context, errs.OK)
		}
		for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpWriteImm} {
			to := memBytes/2 + 3*i
			wr := ofFile(op, context, f, c.off, c.length)
			wr.Remote = r.b.grant(to, c.length, fabric.RemoteWrite)
			if op == fabric.OpWriteImm {
				r.b.recv(context, 0)
			}
			clear(r.b.mem[memBytes/2:])
			r.a.post(wr)
			if got := r.a.done(context, errs.OK); got.Len != c.length || got.Op != op {
				t.Fatalf("completion %+v", got)
			}
			if op == fabric.OpWriteImm && r.b.got(context, c.length).Imm != uint32(i) {
				t.Fatal("another immediate arrived")
			}
			r.b.reg.Revoke(wr.Remote)
			if !bytes.Equal(r.b.mem[to:to+c.length], want) || r.b.mem[to+c.length] != 0 {
				t.Fatalf("wrote %d bytes at %d: they differ", c.length, c.off)
			}
		}
	}
}

// testFileChain mixes requests from files and from memory; what arrives must be in order.
func testFileChain(t *testing.T, cfg Config) {
	r, f, data := newFileRig(t, cfg, 30000)
	if r == nil {
		return
	}
	const off, size = memBytes / 2, 9000
	rem := r.b.grant(off, size, fabric.RemoteRead|fabric.RemoteWrite)
	for round := range 20 {
		base := uint64(round * 10)
		head, tail := r.b.recv(base, 1000), r.b.recv(base+1, 16)
		mem := r.a.write(base, 0, "from memory", rem.Slice(100, 11))
		mem.Flags = 0
		under := ofFile(fabric.OpWrite, base+1, f, round, size)
		under.Remote, under.Flags = rem, 0
		over := ofFile(fabric.OpWrite, base+2, f, 20000+round, 50)
		over.Remote = rem.Slice(200, 50)
		over.Flags = 0
		r.a.post(
			under, mem, over,
			ofFile(fabric.OpSend, base+3, f, round*3, 901),
			r.a.read(base+4, 4096, rem),
			r.a.send(base+5, "the end"),
		)
		r.b.got(base, 901)
		if !bytes.Equal(head[:901], data[round*3:round*3+901]) {
			t.Fatal("the message from the file differs")
		}
		r.b.got(base+1, 7)
		if string(tail[:7]) != "the end" {
			t.Fatalf("received %q", tail[:7])
		}
		want := bytes.Clone(data[round : round+size])
		copy(want[100:], "from memory")
		copy(want[200:], data[20000+round:20000+round+50])
		if !bytes.Equal(r.b.mem[off:off+size], want) {
			t.Fatalf("round %d: the writes were not placed in order", round)
		}
		for range 3 {
			if c := r.a.waitSend(); c.Err != nil || c.Context < base+3 {
				t.Fatalf("completion %+v", c)
			}
		}
		if !bytes.Equal(r.a.mem[4096:4096+size], want) {
			t.Fatal("the read did not see the writes before it")
		}
	}
	r.a.nothing()
}

func testLargeFile(t *testing.T, cfg Config) {
	const size = 5<<20 + 333
	r, f, data := newFileRig(t, cfg, size)
	if r == nil {
		return
	}
	length := min(size-7, r.a.dom.Caps().MaxTransfer)
	mem := memory(t, r.b.dom, size)
	reg, err := r.b.dom.Register(mem)
	check(t, err)
	t.Cleanup(func() { check(t, reg.Close()) })
	rem, err := reg.Grant(r.b.ep, 5, length, fabric.RemoteWrite)
	check(t, err)
	wr := ofFile(fabric.OpWrite, 1, f, 7, length)
	wr.Remote = rem
	small := r.a.write(2, 0, "small", rem.Slice(1000, 5))
	r.b.recv(3, 8)
	r.a.post(wr, small, r.a.send(3, "end"))
	r.b.got(3, 3)
	want := bytes.Clone(data[7 : 7+length])
	copy(want[1000:], "small")
	if !bytes.Equal(mem[5:5+length], want) {
		t.Fatal("the memory is not what the file holds")
	}
	for i := range uint64(3) {
		r.a.done(i+1, errs.OK)
	}
	reg.Revoke(rem)
}

// testManyFiles keeps the queue full of ranges of one file, which has one position that nobody may
// use, in both directions.
func testManyFiles(t *testing.T, cfg Config) {
	const count, size = depth, 3001
	r, f, data := newFileRig(t, cfg, count*size)
	if r == nil {
		return
	}
	for _, s := range [][2]*side{{r.a, r.b}, {r.b, r.a}} {
		rem := s[1].grant(0, count*size, fabric.RemoteWrite)
		for i := range count {
			wr := ofFile(fabric.OpWrite, uint64(i), f, (count-1-i)*size, size)
			wr.Remote = rem.Slice(uint64((count-1-i)*size), size)
			s[0].post(wr)
		}
	}
	for _, s := range [][2]*side{{r.a, r.b}, {r.b, r.a}} {
		for i := range count {
			s[0].done(uint64(i), errs.OK)
		}
		if !bytes.Equal(s[1].mem[:count*size], data) {
			t.Fatal("the memory is not what the file holds")
		}
	}
}

func testFileRefused(t *testing.T, cfg Config) {
	r, f, data := newFileRig(t, cfg, 70000)
	if r == nil {
		return
	}
	for i, size := range []int{1, 513, 70000} {
		rem := r.b.grant(memBytes/2, size, fabric.RemoteRead)
		wr := ofFile(fabric.OpWrite, uint64(i), f, 0, size)
		wr.Remote = rem
		before := bytes.Clone(r.b.mem)
		r.refused(wr)
		if !bytes.Equal(r.b.mem, before) {
			t.Fatal("a refused write left traces")
		}
		wr.Remote = r.b.grant(memBytes/2, size, fabric.RemoteWrite)
		r.a.post(wr)
		r.a.done(uint64(i), errs.OK)
		r.b.reg.Revoke(wr.Remote)
		if !bytes.Equal(r.b.mem[memBytes/2:memBytes/2+size], data[:size]) {
			t.Fatal("the memory is not what the file holds")
		}
		r.b.reg.Revoke(rem)
	}
}

// testFileShort sends what the file does not have. Nobody looks at the file when it is posted.
func testFileShort(t *testing.T, cfg Config) {
	r, f, _ := newFileRig(t, cfg, 70000)
	if r == nil {
		return
	}
	for i, c := range []struct {
		op          fabric.Op
		off, length int
	}{
		{fabric.OpSend, 70000, 1},
		{fabric.OpSend, 69990, 11},
		{fabric.OpSend, 1 << 40, 100},
		{fabric.OpWrite, 70000, 5000},
		{fabric.OpWrite, 1, 70000},
		{fabric.OpWriteImm, 69999, 2},
	} {
		r.a.recv(1, 8)
		r.b.recv(2, 16)
		r.b.recv(3, 200)
		first := r.a.send(10, "before")
		short := ofFile(c.op, 11, f, c.off, c.length)
		short.Flags = 0 // failures complete in any case
		if c.op != fabric.OpSend {
			short.Remote = r.b.grant(memBytes/2, c.length, fabric.RemoteWrite)
		}
		if i%2 == 0 {
			r.a.post(first)
			r.a.done(10, errs.OK)
			r.a.post(short, r.a.send(12, "after"))
		} else {
			r.a.post(first, short, r.a.send(12, "after"))
			if got := r.a.waitSend(); got.Context != 10 ||
				(got.Err != nil && got.ErrKind() != errs.Disconnected) {
				t.Fatalf("case %d: the request before: %+v", i, got)
			}
		}
		r.a.done(11, errs.IO)
		r.a.done(12, errs.Disconnected)
		if got := r.a.waitRecv(); got.ErrKind() != errs.Disconnected {
			t.Fatalf("case %d: a's receive: %+v", i, got)
		}
		for next := uint64(2); next < 4; next++ {
			got := r.b.waitRecv()
			fine := got.Err == nil && next == 2 && got.Len == 6 // what was sent before
			if got.Context != next || (!fine && got.ErrKind() != errs.Disconnected) {
				t.Fatalf("case %d: b's receive: %+v", i, got)
			}
		}
		r.a.dies(errs.Disconnected)
		r.b.dies(errs.Disconnected)
		r.reconnect()
	}
	r.barrier()
}

func testFileMisuse(t *testing.T, cfg Config) {
	r, f, _ := newFileRig(t, cfg, 100)
	if r == nil {
		return
	}
	rem := r.b.grant(0, 8, fabric.RemoteRead|fabric.RemoteWrite)
	limit := r.a.dom.Caps().MaxTransfer
	for name, change := range map[string]func(*fabric.WR){
		"with memory":    func(wr *fabric.WR) { wr.Local = r.a.sge(0, "x") },
		"empty memory":   func(wr *fabric.WR) { wr.Local = make([]fabric.Sge, 1) },
		"inline":         func(wr *fabric.WR) { wr.Flags |= fabric.FlagInline },
		"read":           func(wr *fabric.WR) { wr.Op = fabric.OpRead },
		"no file":        func(wr *fabric.WR) { wr.File.File = nil },
		"before it":      func(wr *fabric.WR) { wr.File.Off = -1 },
		"negative":       func(wr *fabric.WR) { wr.File.Len = -8 },
		"other length":   func(wr *fabric.WR) { wr.File.Len = 9 },
		"too long":       func(wr *fabric.WR) { wr.File.Len = int64(limit) + 1 },
		"around the end": func(wr *fabric.WR) { wr.File.Len = -1 << 63 },
	} {
		wr := ofFile(fabric.OpWrite, 1, f, 0, 8)
		wr.Remote = rem
		change(&wr)
		if err := r.a.ep.Post([]fabric.WR{wr}); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := ofFile(fabric.OpSend, 2, f, 0, r.a.dom.Caps().MaxMessage+1)
	wantKind(t, r.a.ep.Post([]fabric.WR{long}), errs.Invalid)
	r.barrier() // none of it did anything
	r.a.nothing()
}
