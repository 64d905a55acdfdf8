package fabrictest

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func grantCases() []testCase {
	return []testCase{
		{"access without the right is refused", testRefusedAccess},
		{"a key is bound to one endpoint", testKeyBound},
		{"a revoked key is refused", testRevoked},
		{"revoke during writes", testRevokeDuringWrites},
		{"revoke during reads", testRevokeDuringReads},
		{"region close", testRegionClose},
		{"grant misuse", testGrantMisuse},
	}
}

// refused posts a request at a that the peer must refuse, and checks what the contract promises
// then. The rig has a living connection afterwards: the same one, or, where a refusal ends
// connections, a fresh one, for which nothing is granted. It must have no completions left behind.
func (r *rig) refused(wr fabric.WR) {
	r.t.Helper()
	const pending = 1<<20 + 1
	ends := r.a.dom.Caps().RefusalEnds
	if ends {
		for _, s := range []*side{r.a, r.b} {
			buf := s.piece(memBytes-64, 16)
			check(r.t, s.ep.PostRecv([]fabric.Recv{{Context: pending, Reg: s.reg, Buf: buf}}))
		}
	}
	r.a.post(wr)
	if c := r.a.waitSend(); c.Context != wr.Context || c.ErrKind() != errs.Perm || c.Op != wr.Op {
		r.t.Fatalf("request %d: %+v, want %v", wr.Context, c, errs.Perm)
	}
	if !ends {
		check(r.t, r.a.ep.Post(nil))
		check(r.t, r.b.ep.Post(nil))
		return
	}
	for _, s := range []*side{r.a, r.b} {
		c := s.waitFor("the last receive", func(c fabric.Completion) bool {
			return c.Context == pending
		})
		wantKind(r.t, c.Err, errs.Disconnected)
		s.dies(errs.Disconnected)
	}
	r.reconnect()
}

// illegal is one access that must be refused: rights are what is granted, change what is tried.
type illegal struct {
	name   string
	op     fabric.Op
	rights fabric.Rights
	change func(*fabric.Remote)
}

func illegalAccesses() []illegal {
	const write, read = fabric.RemoteWrite, fabric.RemoteRead
	shift := func(by int) func(*fabric.Remote) {
		return func(rem *fabric.Remote) { rem.Addr += uint64(by) }
	}
	key := func(by int) func(*fabric.Remote) {
		return func(rem *fabric.Remote) { rem.Key += uint64(by) }
	}
	longer := func(rem *fabric.Remote) { rem.Len++ }
	none := func(rem *fabric.Remote) { *rem = fabric.Remote{Len: 8} }
	around := func(rem *fabric.Remote) { rem.Addr = ^uint64(0) - 7 }
	return []illegal{
		{"write without the right", fabric.OpWrite, read, shift(0)},
		{"write with immediate without the right", fabric.OpWriteImm, read, shift(0)},
		{"read without the right", fabric.OpRead, write, shift(0)},
		{"write one byte too far", fabric.OpWrite, write, shift(1)},
		{"write one byte too early", fabric.OpWrite, write, shift(-1)},
		{"write one byte too long", fabric.OpWrite, write, longer},
		{"write around the end of addresses", fabric.OpWrite, write, around},
		{"immediate one byte too far", fabric.OpWriteImm, write, shift(1)},
		{"read one byte too far", fabric.OpRead, read, shift(1)},
		{"read one byte too early", fabric.OpRead, read, shift(-1)},
		{"read one byte too long", fabric.OpRead, read, longer},
		{"read far away", fabric.OpRead, read, shift(64 << 10)},
		{"read around the end of addresses", fabric.OpRead, read, around},
		{"write with an unknown key", fabric.OpWrite, write, key(12345)},
		{"read with an unknown key", fabric.OpRead, read, key(12345)},
		{"write with no key", fabric.OpWrite, write, none},
		{"read with no key", fabric.OpRead, read, none},
	}
}

func testRefusedAccess(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	other, _ := r.connect(r.a.config(), r.b.config())
	const off, size = 8192 + 100, 256
	for i, c := range illegalAccesses() {
		rem := r.b.grant(off, size, c.rights)
		bad := rem
		c.change(&bad)
		if !r.a.dom.Caps().RefusalEnds {
			r.b.recv(5, 8) // no refused WriteImm may take it
		}
		before := bytes.Clone(r.b.mem)
		local := r.a.piece(0, int(bad.Len))
		for j := range local {
			local[j] = 0xee
		}
		r.refused(fabric.WR{
			Op: c.op, Flags: fabric.FlagSignaled, Context: uint64(i), Remote: bad,
			Local: []fabric.Sge{{Reg: r.a.reg, Buf: local}},
		})
		if bytes.Count(local, []byte{0xee}) != len(local) {
			t.Errorf("%s: local memory was touched", c.name)
		}
		if !bytes.Equal(before, r.b.mem) {
			t.Fatalf("%s: it left traces in memory", c.name)
		}
		if !r.a.dom.Caps().RefusalEnds {
			r.a.post(r.a.send(100, "on"))
			r.b.got(5, 2)
			r.a.done(100, errs.OK)
			r.stillGood(rem, c.rights)
		}
		r.b.reg.Revoke(rem)
	}
	check(t, other.Post(nil)) // another connection lives on in any case
	r.barrier()
}

// stillGood uses a key for what it allows.
func (r *rig) stillGood(rem fabric.Remote, rights fabric.Rights) {
	r.t.Helper()
	wr := r.a.write(101, 0, "fine", rem)
	if rights == fabric.RemoteRead {
		wr.Op = fabric.OpRead
	}
	r.a.post(wr)
	r.a.done(101, errs.OK)
}

func testKeyBound(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	otherA, otherB := r.connect(r.a.config(), r.b.config())
	rem, err := r.b.reg.Grant(otherB, 0, 64, fabric.RemoteWrite|fabric.RemoteRead)
	check(t, err)
	r.refused(r.a.write(1, 0, "stolen", rem))
	r.refused(r.a.read(2, 100, rem))
	check(t, otherA.Post([]fabric.WR{r.a.write(3, 0, "owned", rem)}))
	r.a.done(3, errs.OK)
	r.b.reg.Revoke(rem)
	if got := string(r.b.mem[:6]); got != "owned\x00" {
		t.Fatalf("memory holds %q", got)
	}
}

func testRevoked(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const both = fabric.RemoteWrite | fabric.RemoteRead
	rounds := 12
	if !r.a.dom.Caps().RefusalEnds {
		r.b.recv(1, 8) // no refused WriteImm may take it
		rounds = 60    // places of old keys are used again, the keys are not
	}
	for i := range uint64(rounds) {
		rem := r.b.grant(0, 64, both)
		r.a.post(r.a.write(i, 0, "good", rem))
		r.a.done(i, errs.OK)
		r.b.reg.Revoke(rem)
		r.b.reg.Revoke(rem)
		other := r.b.grant(0, 64, both)
		r.b.reg.Revoke(rem) // must not hit the newer grant
		r.a.post(r.a.read(i, 64, other))
		r.a.done(i, errs.OK)
		if got := string(r.a.mem[64:68]); got != "good" {
			t.Fatalf("memory holds %q", got)
		}
		evil := r.a.write(i, 0, "evil", rem)
		switch i % 3 {
		case 1:
			evil.Op = fabric.OpWriteImm
		case 2:
			evil = r.a.read(i, 128, rem)
		}
		r.refused(evil)
		if got := string(r.b.mem[:4]); got != "good" {
			t.Fatalf("memory holds %q", got)
		}
		r.b.reg.Revoke(other)
	}
}

// mayEnd tells whether a request by a key that is revoked meanwhile may end so: refused tells
// whether another one was refused before.
func (r *rig) mayEnd(c fabric.Completion, refused bool) bool {
	switch c.ErrKind() {
	case errs.OK:
		return true
	case errs.Perm:
		return !refused || !r.a.dom.Caps().RefusalEnds
	case errs.Disconnected:
		return r.a.dom.Caps().RefusalEnds
	}
	return false
}

func testRevokeDuringWrites(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const size = 200000
	for round := range 15 {
		rem := r.b.grant(0, size, fabric.RemoteWrite)
		fill(r.a.mem[:5*size], round)
		for i := range 8 {
			data := r.a.piece(i*size/2, size)
			r.a.post(fabric.WR{
				Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: uint64(i), Remote: rem,
				Local: []fabric.Sge{{Reg: r.a.reg, Buf: data}},
			})
		}
		time.Sleep(time.Duration(round) * 50 * time.Microsecond)
		r.b.reg.Revoke(rem)
		after := bytes.Clone(r.b.mem[:size])
		refused := false
		for i := range uint64(8) {
			c := r.a.waitSend()
			if c.Context != i || !r.mayEnd(c, refused) {
				t.Fatalf("completion %+v", c)
			}
			if refused && c.Err == nil {
				t.Fatal("a write succeeded after the key had been refused")
			}
			refused = c.Err != nil
		}
		if !bytes.Equal(after, r.b.mem[:size]) {
			t.Fatal("memory changed after Revoke had returned")
		}
		if refused && r.a.dom.Caps().RefusalEnds {
			r.reconnect()
		}
		r.barrier()
	}
}

func testRevokeDuringReads(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const size = 100000
	for round := range 15 {
		rem := r.b.grant(0, size, fabric.RemoteRead)
		for i := range size {
			r.b.mem[i] = 1
		}
		for i := range 8 {
			r.a.post(r.a.read(uint64(i), i*size, rem))
		}
		time.Sleep(time.Duration(round) * 30 * time.Microsecond)
		r.b.reg.Revoke(rem)
		for i := range size { // nobody may see these
			r.b.mem[i] = 2
		}
		refused := false
		for range 8 {
			c := r.a.waitSend()
			if !r.mayEnd(c, refused) {
				t.Fatalf("completion %+v", c)
			}
			refused = refused || c.ErrKind() == errs.Perm
			if c.Err == nil && bytes.IndexByte(r.a.piece(int(c.Context)*size, size), 2) >= 0 {
				t.Fatal("a read brought bytes that were written after Revoke had returned")
			}
		}
		if refused && r.a.dom.Caps().RefusalEnds {
			r.reconnect()
		}
	}
}

func testRegionClose(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	mem := memory(t, r.b.dom, 4096)
	reg, err := r.b.dom.Register(mem)
	check(t, err)
	if &reg.Bytes()[0] != &mem[0] || len(reg.Bytes()) != len(mem) {
		t.Fatal("Bytes is other memory than what was registered")
	}
	one, err := reg.Grant(r.b.ep, 0, 10, fabric.RemoteWrite)
	check(t, err)
	two, err := reg.Grant(r.b.ep, 5, 10, fabric.RemoteWrite)
	check(t, err)
	r.a.post(r.a.write(1, 0, "open", one))
	r.a.done(1, errs.OK)
	check(t, reg.Close())
	elsewhere := r.b.grant(0, 16, fabric.RemoteWrite)
	r.a.post(r.a.write(4, 0, "still", elsewhere)) // the other region is as good as before
	r.a.done(4, errs.OK)
	r.refused(r.a.write(2, 0, "shut", one))
	r.refused(r.a.write(3, 0, "shut", two))
	if string(mem[:4]) != "open" {
		t.Fatalf("memory holds %q", mem[:4])
	}
	_, err = reg.Grant(r.b.ep, 0, 1, fabric.RemoteRead)
	wantKind(t, err, errs.Closed)
	check(t, reg.Close())
}

func testGrantMisuse(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for _, c := range []struct {
		name        string
		ep          fabric.Endpoint
		off, length int
		rights      fabric.Rights
	}{
		{"beyond the end", r.a.ep, 1, memBytes, fabric.RemoteRead},
		{"negative offset", r.a.ep, -1, 2, fabric.RemoteRead},
		{"negative length", r.a.ep, 5, -1, fabric.RemoteRead},
		{"no rights", r.a.ep, 0, 1, 0},
		{"unknown rights", r.a.ep, 0, 1, 0x80},
		{"endpoint of another domain", r.b.ep, 0, 1, fabric.RemoteRead},
		{"no endpoint", nil, 0, 1, fabric.RemoteRead},
	} {
		_, err := r.a.reg.Grant(c.ep, c.off, c.length, c.rights)
		if errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
