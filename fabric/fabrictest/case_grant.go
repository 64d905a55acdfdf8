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

func testRefusedAccess(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const off, size = 4096, 256
	readable := r.b.grant(off, size, fabric.RemoteRead)
	writable := r.b.grant(off, size, fabric.RemoteWrite)
	shift := func(rem fabric.Remote, by int) fabric.Remote {
		rem.Addr += uint64(by)
		return rem
	}
	long := func(rem fabric.Remote) fabric.Remote {
		rem.Len++
		return rem
	}
	unknown := writable
	unknown.Key += 12345
	before := bytes.Clone(r.b.mem)
	cases := []struct {
		name string
		op   fabric.Op
		rem  fabric.Remote
	}{
		{"write without the right", fabric.OpWrite, readable},
		{"write with immediate without the right", fabric.OpWriteImm, readable},
		{"read without the right", fabric.OpRead, writable},
		{"write one byte too far", fabric.OpWrite, shift(writable, 1)},
		{"write one byte too early", fabric.OpWrite, shift(writable, -1)},
		{"write one byte too long", fabric.OpWrite, long(writable)},
		{"write around the end of addresses", fabric.OpWrite,
			fabric.Remote{Key: writable.Key, Addr: ^uint64(0) - 7, Len: size}},
		{"read one byte too far", fabric.OpRead, shift(readable, 1)},
		{"read one byte too early", fabric.OpRead, shift(readable, -1)},
		{"read one byte too long", fabric.OpRead, long(readable)},
		{"write with an unknown key", fabric.OpWrite, unknown},
		{"read with an unknown key", fabric.OpRead, unknown},
		{"read with no key", fabric.OpRead, fabric.Remote{Len: 8}},
	}
	r.b.recv(5, 8) // no refused WriteImm may take it
	for i, c := range cases {
		local := r.a.piece(0, int(c.rem.Len))
		for j := range local {
			local[j] = 0xee
		}
		r.a.post(fabric.WR{
			Op: c.op, Flags: fabric.FlagSignaled, Context: uint64(i), Remote: c.rem,
			Local: []fabric.Sge{{Reg: r.a.reg, Buf: local}},
		})
		if got := r.a.waitSend(); got.Context != uint64(i) || got.ErrKind() != errs.Perm {
			t.Errorf("%s: %+v", c.name, got)
		}
		if !bytes.Equal(local, bytes.Repeat([]byte{0xee}, len(local))) {
			t.Errorf("%s: local memory was touched", c.name)
		}
	}
	r.a.post(r.a.send(100, "on"))
	r.b.got(5, 2)
	const around = 4 * off // the receive lies beyond
	if !bytes.Equal(before[:around], r.b.mem[:around]) {
		t.Fatal("refused accesses left traces in memory")
	}
	r.a.done(100, errs.OK)
	r.a.post(r.a.write(101, 0, "fine", writable)) // the key itself is as good as before
	r.a.done(101, errs.OK)
}

func testKeyBound(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	otherA, otherB := r.connect(r.a.config(), r.b.config())
	rem, err := r.b.reg.Grant(otherB, 0, 64, fabric.RemoteWrite|fabric.RemoteRead)
	check(t, err)
	r.a.post(r.a.write(1, 0, "stolen", rem), r.a.read(2, 100, rem))
	for range 2 {
		if c := r.a.waitSend(); c.ErrKind() != errs.Perm {
			t.Fatalf("request %d with another endpoint's key: %v", c.Context, c.Err)
		}
	}
	check(t, otherA.Post([]fabric.WR{r.a.write(3, 0, "owned", rem)}))
	r.a.done(3, errs.OK)
	r.b.reg.Revoke(rem)
	if got := string(r.b.mem[:6]); got != "owned\x00" {
		t.Fatalf("memory holds %q", got)
	}
}

func testRevoked(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for i := range uint64(50) { // places of old keys are used again, the keys are not
		rem := r.b.grant(0, 64, fabric.RemoteWrite|fabric.RemoteRead)
		r.a.post(r.a.write(i, 0, "good", rem))
		r.a.done(i, errs.OK)
		r.b.reg.Revoke(rem)
		r.b.reg.Revoke(rem)
		other := r.b.grant(0, 64, fabric.RemoteWrite|fabric.RemoteRead)
		r.a.post(r.a.write(i, 0, "evil", rem), r.a.read(i, 64, rem))
		for range 2 {
			if c := r.a.waitSend(); c.ErrKind() != errs.Perm {
				t.Fatalf("access by a revoked key: %+v", c)
			}
		}
		r.b.reg.Revoke(rem) // must not hit the newer grant
		r.a.post(r.a.read(i, 64, other))
		r.a.done(i, errs.OK)
		if got := string(r.a.mem[64:68]); got != "good" {
			t.Fatalf("memory holds %q", got)
		}
		r.b.reg.Revoke(other)
	}
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
			if c.Context != i || (c.Err != nil && c.ErrKind() != errs.Perm) {
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
		for range 8 {
			c := r.a.waitSend()
			if c.Err != nil && c.ErrKind() != errs.Perm {
				t.Fatalf("completion %+v", c)
			}
			if c.Err == nil && bytes.IndexByte(r.a.piece(int(c.Context)*size, size), 2) >= 0 {
				t.Fatal("a read brought bytes that were written after Revoke had returned")
			}
		}
	}
}

func testRegionClose(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	mem := make([]byte, 4096)
	reg, err := r.b.dom.Register(mem)
	check(t, err)
	if &reg.Bytes()[0] != &mem[0] || len(reg.Bytes()) != len(mem) {
		t.Fatal("Bytes is other memory than what was registered")
	}
	one, err := reg.Grant(r.b.ep, 0, 10, fabric.RemoteWrite)
	check(t, err)
	two, err := reg.Grant(r.b.ep, 5, 10, fabric.RemoteWrite)
	check(t, err)
	elsewhere := r.b.grant(0, 16, fabric.RemoteWrite)
	r.a.post(r.a.write(1, 0, "open", one))
	r.a.done(1, errs.OK)
	check(t, reg.Close())
	r.a.post(r.a.write(2, 0, "shut", one), r.a.write(3, 0, "shut", two))
	r.a.done(2, errs.Perm)
	r.a.done(3, errs.Perm)
	if string(mem[:4]) != "open" {
		t.Fatalf("memory holds %q", mem[:4])
	}
	r.a.post(r.a.write(4, 0, "still", elsewhere))
	r.a.done(4, errs.OK)
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
