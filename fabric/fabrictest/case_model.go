package fabrictest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func modelCases() []testCase {
	return []testCase{{"random operations against a model", testModel}}
}

// model is b's memory and a's reads as they must be, beside the rig in which they happen.
type model struct {
	*rig
	rng    *rand.Rand
	mem    []byte // what b's window holds when everything posted so far is done
	window fabric.Remote
	stale  fabric.Remote // a revoked key
	salt   int

	reads []expectRead // of this round
	want  []expectDone // completions of Sends and Writes, in order
	open  [][2]int     // ranges of Reads since the last fence
}

type expectRead struct {
	context uint64
	data    []byte // nil: refused
	local   []fabric.Sge
}

type expectDone struct {
	context uint64
	kind    errs.Kind
}

const windowBytes = 64 << 10

func testModel(t *testing.T, cfg Config) {
	for range 4 {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		m := &model{rig: newRig(t, cfg), rng: rand.New(rand.NewPCG(seed, 1))}
		m.mem = make([]byte, windowBytes)
		m.window = m.b.grant(memBytes/2, windowBytes, fabric.RemoteRead|fabric.RemoteWrite)
		m.stale = m.window
		for round := range 40 {
			m.round(uint64(round))
		}
	}
}

// round posts a random chain that ends with a Send, and compares everything when it is through.
func (m *model) round(number uint64) {
	m.t.Helper()
	m.reads, m.want, m.open = nil, nil, nil
	msg := m.b.recv(0, 64)
	var chain []fabric.WR
	count := m.rng.IntN(25)
	for i := range count {
		context := number*100 + uint64(i)
		if m.rng.IntN(3) == 0 {
			chain = append(chain, m.randomRead(context, i))
		} else {
			chain = append(chain, m.randomWrite(context, i))
		}
		if m.rng.IntN(4) == 0 {
			m.a.post(chain...)
			chain = nil
		}
	}
	last := m.a.send(number*100+99, "end of round")
	last.Flags |= fabric.FlagFence
	m.a.post(append(chain, last)...)
	m.want = append(m.want, expectDone{last.Context, errs.OK})
	m.b.got(0, 12)
	if string(msg[:12]) != "end of round" {
		m.t.Fatalf("received %q", msg[:12])
	}
	m.settle()
	if !bytes.Equal(m.mem, m.b.mem[memBytes/2:memBytes/2+windowBytes]) {
		m.t.Fatalf("round %d: the memory is not what the model says", number)
	}
	if m.rng.IntN(4) == 0 {
		m.b.reg.Revoke(m.window)
		m.stale = m.window
		m.window = m.b.grant(memBytes/2, windowBytes, fabric.RemoteRead|fabric.RemoteWrite)
	}
}

// pieces splits length bytes of a's memory in slot i into a random gather list.
func (m *model) pieces(i, length int) []fabric.Sge {
	const slot = memBytes / 2 / 25
	rest := m.a.piece(i*slot, length)
	var list []fabric.Sge
	for len(rest) > 0 && len(list) < m.a.dom.Caps().MaxSge-1 {
		n := 1 + m.rng.IntN(len(rest))
		list = append(list, fabric.Sge{Reg: m.a.reg, Buf: rest[:n]})
		rest = rest[n:]
	}
	return append(list, fabric.Sge{Reg: m.a.reg, Buf: rest})
}

func (m *model) span() (off, length int) {
	off = m.rng.IntN(windowBytes)
	limit := min(windowBytes-off, 1<<m.rng.IntN(15))
	return off, m.rng.IntN(limit) + 1
}

// refuse tells whether the next request shall be refused.
func (m *model) refuse() bool {
	return m.rng.IntN(8) == 0 && m.stale != m.window && !m.a.dom.Caps().RefusalEnds
}

func (m *model) randomWrite(context uint64, i int) fabric.WR {
	off, length := m.span()
	wr := fabric.WR{Op: fabric.OpWrite, Context: context, Local: m.pieces(i, length)}
	m.salt++
	fill(m.a.piece(i*(memBytes/2/25), length), m.salt)
	wr.Remote = m.window.Slice(uint64(off), uint64(length))
	kind := errs.OK
	if m.refuse() {
		wr.Remote.Key, wr.Remote.Addr = m.stale.Key, m.stale.Addr+uint64(off)
		kind = errs.Perm
	} else {
		copy(m.mem[off:], m.a.piece(i*(memBytes/2/25), length))
	}
	for _, r := range m.open {
		if off < r[1] && r[0] < off+length {
			wr.Flags |= fabric.FlagFence
		}
	}
	if m.rng.IntN(2) == 0 {
		wr.Flags |= fabric.FlagSignaled
	}
	if wr.Flags&fabric.FlagSignaled != 0 || kind != errs.OK {
		m.want = append(m.want, expectDone{context, kind})
	}
	return wr
}

func (m *model) randomRead(context uint64, i int) fabric.WR {
	off, length := m.span()
	wr := fabric.WR{Op: fabric.OpRead, Flags: fabric.FlagSignaled, Context: context}
	wr.Local = m.pieces(i, length)
	wr.Remote = m.window.Slice(uint64(off), uint64(length))
	want := expectRead{context, bytes.Clone(m.mem[off : off+length]), wr.Local}
	if m.refuse() {
		wr.Remote.Key, wr.Remote.Addr = m.stale.Key, m.stale.Addr+uint64(off)
		want.data = nil
	}
	m.reads = append(m.reads, want)
	m.open = append(m.open, [2]int{off, off + length})
	return wr
}

// settle waits for every completion of the round and checks it.
func (m *model) settle() {
	m.t.Helper()
	for len(m.want)+len(m.reads) > 0 {
		c := m.a.waitSend()
		if c.Op != fabric.OpRead {
			if len(m.want) == 0 || m.want[0] != (expectDone{c.Context, c.ErrKind()}) {
				m.t.Fatalf("completion %+v, expected %v", c, m.want)
			}
			m.want = m.want[1:]
			continue
		}
		i := 0
		for i < len(m.reads) && m.reads[i].context != c.Context {
			i++
		}
		if i == len(m.reads) {
			m.t.Fatalf("nobody asked for %+v", c)
		}
		m.checkRead(m.reads[i], c)
		m.reads = append(m.reads[:i], m.reads[i+1:]...)
	}
	m.a.nothing()
}

func (m *model) checkRead(want expectRead, c fabric.Completion) {
	m.t.Helper()
	if want.data == nil {
		wantKind(m.t, c.Err, errs.Perm)
		return
	}
	check(m.t, c.Err)
	var got []byte
	for _, s := range want.local {
		got = append(got, s.Buf...)
	}
	if !bytes.Equal(got, want.data) {
		m.t.Fatalf("read %d brought other bytes than the model's", c.Context)
	}
}
