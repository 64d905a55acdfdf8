//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// modes are the ways to grant.
func modes() map[string]Options {
	return map[string]Options{"windows": {}, "registrations": {NoWindows: true}}
}

// refused checks that a's request was refused, that both ends are dead in the promised way, and
// that another connection of the same domains is not.
func (r *rig) refused(context uint64) {
	r.t.Helper()
	wants(r.t, r.a.nextSend(context), errs.Perm)
	wants(r.t, r.a.nextRecv(), errs.Disconnected)
	wants(r.t, r.b.nextRecv(), errs.Disconnected)
	if err := r.a.ep.Post(nil); errs.KindOf(err) != errs.Disconnected {
		r.t.Fatalf("a after a refused access: %v", err)
	}
	if err := r.b.ep.Post(nil); errs.KindOf(err) != errs.Disconnected {
		r.t.Fatalf("b after a refused access: %v", err)
	}
}

func (r *rig) postRecvs() {
	r.t.Helper()
	r.a.recv(9, 512<<10, 8)
	r.b.recv(9, 512<<10, 8)
}

func TestRefusedAccess(t *testing.T) {
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) { testRefusedAccess(t, opts) })
	}
}

func testRefusedAccess(t *testing.T, opts Options) {
	r := newRig(t, opts)
	other, _ := r.connect()
	const off, size = 8192 + 100, 256
	type access struct {
		op     fabric.Op
		rights fabric.Rights
		change func(rem *fabric.Remote)
	}
	shift := func(by int) func(*fabric.Remote) {
		return func(rem *fabric.Remote) { rem.Addr += uint64(by) }
	}
	write, read := fabric.RemoteWrite, fabric.RemoteRead
	for name, c := range map[string]access{
		"write without the right":   {fabric.OpWrite, read, shift(0)},
		"immediate without it":      {fabric.OpWriteImm, read, shift(0)},
		"read without the right":    {fabric.OpRead, write, shift(0)},
		"write one byte too far":    {fabric.OpWrite, write, shift(1)},
		"write one byte too early":  {fabric.OpWrite, write, shift(-1)},
		"read one byte too far":     {fabric.OpRead, read, shift(1)},
		"read one byte too early":   {fabric.OpRead, read, shift(-1)},
		"read elsewhere":            {fabric.OpRead, read, shift(64 << 10)},
		"write around the end":      {fabric.OpWrite, write, func(m *fabric.Remote) { m.Addr = -m.Len }},
		"write one byte too long":   {fabric.OpWrite, write, func(m *fabric.Remote) { m.Len++ }},
		"read one byte too long":    {fabric.OpRead, read, func(m *fabric.Remote) { m.Len++ }},
		"write with an unknown key": {fabric.OpWrite, write, func(m *fabric.Remote) { m.Key += 1 << 16 }},
		"read with an unknown key":  {fabric.OpRead, read, func(m *fabric.Remote) { m.Key += 3 }},
		"write with no key":         {fabric.OpWrite, write, func(m *fabric.Remote) { m.Key = 0 }},
	} {
		r.postRecvs()
		rem := r.b.grant(off, size, c.rights)
		c.change(&rem)
		before := slices.Clone(r.b.mem)
		for i := range r.a.mem[:size+1] {
			r.a.mem[i] = 0xee
		}
		fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(c.op, 1, 0, rem)}))
		r.refused(1)
		if !bytes.Equal(before, r.b.mem) {
			t.Fatalf("%s: the memory changed", name)
		}
		if bytes.Count(r.a.mem[:size+1], []byte{0xee}) != size+1 {
			t.Fatalf("%s: local memory changed", name)
		}
		r.reconnect()
	}
	fatal(t, other.Post(nil))
}

func TestKeyIsBoundToItsEndpoint(t *testing.T) {
	r := newRig(t, Options{})
	if !r.a.dom.(*domain).devices[0].info.windows {
		t.Skip("the device has no memory windows")
	}
	otherA, otherB := r.connect()
	rem, err := r.b.reg.Grant(otherB, 0, 64, fabric.RemoteWrite|fabric.RemoteRead)
	fatal(t, err)
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
		r.postRecvs()
		copy(r.a.mem, "stolen")
		fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(op, 1, 0, rem)}))
		r.refused(1)
		r.reconnect()
	}
	copy(r.a.mem, "owned\x00")
	fatal(t, otherA.Post([]fabric.WR{r.a.wr(fabric.OpWrite, 2, 0, rem)}))
	wants(t, r.a.nextSend(2), errs.OK)
	if got := string(r.b.mem[:5]); got != "owned" {
		t.Fatalf("memory holds %q", got)
	}
}

func TestRevokedKeyIsRefused(t *testing.T) {
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, opts)
			both := fabric.RemoteWrite | fabric.RemoteRead
			for i, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpWriteImm} {
				r.postRecvs()
				rem := r.b.grant(0, 64, both)
				copy(r.a.mem, "good")
				fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(fabric.OpWrite, 1, 0, rem)}))
				wants(t, r.a.nextSend(1), errs.OK)
				r.b.reg.Revoke(rem)
				r.b.reg.Revoke(rem)
				newer := r.b.grant(0, 64, both)
				r.b.reg.Revoke(rem) // must not hit the newer one
				fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(fabric.OpRead, 2, 128, newer)}))
				wants(t, r.a.nextSend(2), errs.OK)
				copy(r.a.mem, "evil")
				fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(op, 3, 0, rem)}))
				r.refused(3)
				if got := string(r.b.mem[:4]); got != "good" {
					t.Fatalf("round %d: memory holds %q", i, got)
				}
				r.reconnect()
			}
		})
	}
}

func TestClosedRegionIsRefused(t *testing.T) {
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, opts)
			r.postRecvs()
			second, err := r.b.dom.Register(r.b.mem[64<<10 : 128<<10])
			fatal(t, err)
			rem, err := second.Grant(r.b.ep, 10, 100, fabric.RemoteWrite)
			fatal(t, err)
			elsewhere := r.b.grant(0, 100, fabric.RemoteWrite)
			fatal(t, second.Close())
			fatal(t, second.Close())
			if _, err := second.Grant(r.b.ep, 0, 1, fabric.RemoteRead); errs.KindOf(err) != errs.Closed {
				t.Fatal(err)
			}
			fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(fabric.OpWrite, 1, 0, elsewhere)}))
			wants(t, r.a.nextSend(1), errs.OK)
			fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(fabric.OpWrite, 2, 0, rem)}))
			r.refused(2)
		})
	}
}

// TestRevokeDuringAccess revokes in the middle of writes and reads: nothing moves when it has
// returned.
func TestRevokeDuringAccess(t *testing.T) {
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, opts)
			for round := range 12 {
				r.revokeDuring(round, []fabric.Op{fabric.OpWrite, fabric.OpRead}[round%2])
			}
		})
	}
}

func (r *rig) revokeDuring(round int, op fabric.Op) {
	t := r.t
	const size, count = 120 << 10, 4
	for i := range r.a.mem {
		r.a.mem[i], r.b.mem[i] = byte(i*7+round), 1
	}
	rem := r.b.grant(0, size, fabric.RemoteRead|fabric.RemoteWrite)
	for i := range count {
		fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(op, uint64(i), i*size, rem)}))
	}
	time.Sleep(time.Duration(round) * 300 * time.Microsecond)
	r.b.reg.Revoke(rem)
	after := slices.Clone(r.b.mem[:size])
	if op == fabric.OpRead {
		for i := range size { // nobody may see these
			r.b.mem[i] = 2
		}
		after = slices.Clone(r.b.mem[:size])
	}
	dead := false
	for i := range uint64(count) {
		c := r.a.nextSend(i)
		want := map[bool][]errs.Kind{
			false: {errs.OK, errs.Perm}, true: {errs.Disconnected},
		}[dead]
		if !slices.Contains(want, c.ErrKind()) {
			t.Fatalf("round %d, request %d: %+v", round, i, c)
		}
		dead = c.Err != nil
		piece := r.a.mem[int(i)*size : int(i+1)*size]
		if op == fabric.OpRead && !dead && bytes.IndexByte(piece, 2) >= 0 {
			t.Fatal("a read brought bytes that were written after Revoke had returned")
		}
	}
	if !bytes.Equal(after, r.b.mem[:size]) {
		t.Fatal("memory changed after Revoke had returned")
	}
	r.reconnect()
}
