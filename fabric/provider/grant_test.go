package provider

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

const both = fabric.RemoteRead | fabric.RemoteWrite

func TestAcquireIsWhatWasGranted(t *testing.T) {
	r := newRig(t, 4*testDepth)
	e, other := r.end(), r.end()
	reg := r.region(make([]byte, 100))
	rem, err := reg.Grant(e, 10, 20, fabric.RemoteRead)
	fatal(t, err)
	for name, c := range map[string]struct {
		e    *end
		rem  fabric.Remote
		need fabric.Rights
		ok   bool
	}{
		"all":            {e, rem, fabric.RemoteRead, true},
		"a part":         {e, rem.Slice(5, 15), fabric.RemoteRead, true},
		"nothing":        {e, rem.Slice(20, 0), fabric.RemoteRead, true},
		"another right":  {e, rem, fabric.RemoteWrite, false},
		"both rights":    {e, rem, both, false},
		"another end":    {other, rem, fabric.RemoteRead, false},
		"before it":      {e, fabric.Remote{Key: rem.Key, Addr: rem.Addr - 1, Len: 5}, 0, false},
		"behind it":      {e, fabric.Remote{Key: rem.Key, Addr: rem.Addr + 16, Len: 5}, 0, false},
		"far behind it":  {e, fabric.Remote{Key: rem.Key, Addr: ^uint64(0), Len: 5}, 0, false},
		"another key":    {e, fabric.Remote{Key: rem.Key + 1<<30, Addr: rem.Addr, Len: 5}, 0, false},
		"no key":         {e, fabric.Remote{Addr: rem.Addr, Len: 5}, 0, false},
		"a place beyond": {e, fabric.Remote{Key: rem.Key + 1, Addr: rem.Addr, Len: 5}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, mem := r.grants.Acquire(c.e, c.rem.Key, c.rem.Addr, int(c.rem.Len), c.need)
			if (g != nil) != c.ok || g != nil && len(mem) != int(c.rem.Len) {
				t.Fatalf("got %v, %d bytes", g != nil, len(mem))
			}
			if g != nil {
				g.Release()
			}
		})
	}
	g, mem := r.grants.Acquire(e, rem.Key, rem.Addr, 20, fabric.RemoteRead)
	if &mem[0] != &reg.Bytes()[10] {
		t.Fatal("other memory")
	}
	g.Release()
	r.region(nil).Revoke(rem) // not its own
	if g, _ = r.grants.Acquire(e, rem.Key, rem.Addr, 20, fabric.RemoteRead); g == nil {
		t.Fatal("another region revoked it")
	}
	g.Release()
	reg.Revoke(rem)
	reg.Revoke(rem)
	if g, _ = r.grants.Acquire(e, rem.Key, rem.Addr, 20, fabric.RemoteRead); g != nil {
		t.Fatal("it was revoked")
	}
}

func TestGrantRefuses(t *testing.T) {
	r, far := newRig(t, 2*testDepth), newRig(t, 2*testDepth)
	e, reg := r.end(), r.region(make([]byte, 10))
	_, err := reg.Grant(far.end(), 0, 10, both)
	wants(t, err, errs.Invalid)
	_, err = reg.Grant(nil, 0, 10, both)
	wants(t, err, errs.Invalid)
	_, err = reg.Grant(e, 5, 6, both)
	wants(t, err, errs.Invalid)
	e.Die(errs.Disconnected, "cut")
	_, err = reg.Grant(e, 0, 10, both)
	wants(t, err, errs.Disconnected)
}

// TestRevokeWaits for who touches the memory, and so do a second Revoke and Close.
func TestRevokeWaits(t *testing.T) {
	r := newRig(t, 2*testDepth)
	e, reg := r.end(), r.region(make([]byte, 10))
	rem, err := reg.Grant(e, 0, 10, both)
	fatal(t, err)
	g, _ := r.grants.Acquire(e, rem.Key, rem.Addr, 10, both)
	var over atomic.Int32
	var wg sync.WaitGroup
	for _, end := range []func(){
		func() { reg.Revoke(rem) }, func() { reg.Revoke(rem) }, func() { _ = reg.Close() },
	} {
		wg.Go(func() {
			end()
			over.Add(1)
		})
	}
	soon(t, func() bool {
		again, _ := r.grants.Acquire(e, rem.Key, rem.Addr, 10, both)
		if again != nil {
			again.Release()
		}
		return again == nil
	})
	time.Sleep(10 * time.Millisecond)
	if over.Load() != 0 {
		t.Fatal("nobody may be through while the memory is touched")
	}
	g.Release()
	wg.Wait()
	_, err = reg.Grant(e, 0, 10, both)
	wants(t, err, errs.Closed)
}

// TestRevokeOutlastsAStall: after the bound the connection goes, and with it the user.
func TestRevokeOutlastsAStall(t *testing.T) {
	r := newRig(t, 2*testDepth)
	var g *Grant[*end]
	r.grants.Stall = time.Millisecond
	r.grants.Stalled = func(e *end) {
		e.Die(errs.Disconnected, "stalled")
		g.Release()
	}
	for range 3 { // the timer is used again
		e, reg := r.end(), r.region(make([]byte, 10))
		rem, err := reg.Grant(e, 0, 10, both)
		fatal(t, err)
		g, _ = r.grants.Acquire(e, rem.Key, rem.Addr, 10, both)
		reg.Revoke(rem)
		wants(t, e.Cause(), errs.Disconnected)
		fatal(t, e.Close())
	}
}

// TestDirectUse is told of in the address, and withdrawn when nobody of this side is in it.
func TestDirectUse(t *testing.T) {
	r := newRig(t, 2*testDepth)
	e, reg := r.end(), r.region(make([]byte, 10))
	var withdrawn uint32
	r.grants.Withdraw = func(ep *end, slot uint32) {
		if ep == e {
			withdrawn = slot
		}
	}
	var shown uint64
	rem, err := reg.GrantDirect(e, 0, 10, both, func(ep *end, key uint64) uint32 {
		shown = key
		return 7
	})
	fatal(t, err)
	if slot, off := Aim(rem.Addr + 3); slot != 7 || off != 3 {
		t.Fatalf("slot %d, offset %d", slot, off)
	}
	if shown != rem.Key || rem.Addr != Addr(7) {
		t.Fatalf("key %x, shown %x", rem.Key, shown)
	}
	if g, mem := r.grants.Acquire(e, rem.Key, rem.Addr+3, 7, both); g == nil || len(mem) != 7 {
		t.Fatal("it can be used through this side too")
	} else {
		g.Release()
	}
	if reg.Revoke(rem); withdrawn != 7 {
		t.Fatal("the peer may still use it")
	}
}
