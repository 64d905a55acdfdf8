package shm

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// lending connects two ends, of which b, who listens, lends its memory, and waits until a has
// mapped it.
func lending(t testing.TB) (a, b *end) {
	t.Helper()
	a, b = ends(t, Options{Lent: NewLent()})
	borrowed(t, a, b)
	return a, b
}

// borrowed waits until what b lends is mapped by a, and b knows it.
func borrowed(t testing.TB, a, b *end) {
	t.Helper()
	one := b.dom.(*domain).opts.Lent.all()[0]
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		id, _ := b.ep.(*endpoint).owed(one)
		if id != 0 && a.ep.(fabric.Borrower).Borrows(lendBytes) {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("nothing was borrowed")
		}
	}
}

// ordinary grants b memory of a's that is in no arena.
func ordinary(t testing.TB, a *end, size int) ([]byte, fabric.Region, fabric.Remote) {
	t.Helper()
	mem := make([]byte, size)
	reg, err := a.dom.Register(mem)
	fatal(t, err)
	t.Cleanup(func() { fatal(t, reg.Close()) })
	rem, err := reg.Grant(a.ep, 0, size, fabric.RemoteWrite)
	fatal(t, err)
	return mem, reg, rem
}

// TestLent writes from memory that is lent into memory that is in no arena: next to nothing goes
// through the ring.
func TestLent(t *testing.T) {
	a, b := lending(t)
	const size = 1 << 20
	mem, _, rem := ordinary(t, a, size)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range b.mem[1<<20:] {
		b.mem[1<<20+i] = byte(rng.Uint32())
	}
	e := b.ep.(*endpoint)
	for range 100 {
		before := e.tx.out.tail
		wr := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem}
		var want []byte
		for range 1 + rng.IntN(8) {
			n := lendBytes + rng.IntN(80<<10)
			buf := b.mem[1<<20+rng.IntN(2<<20):][:n]
			wr.Local = append(wr.Local, fabric.Sge{Reg: b.reg, Buf: buf})
			want = append(want, buf...)
		}
		off := rng.IntN(size - len(want))
		wr.Remote = rem.Slice(uint64(off), uint64(len(want)))
		fatal(t, b.ep.Post([]fabric.WR{wr}))
		b.waits(t)
		if !bytes.Equal(mem[off:][:len(want)], want) {
			t.Fatal("it is not what was written")
		}
		if through := e.tx.out.tail - before; through > uint64(64*len(wr.Local)) {
			t.Fatalf("%d bytes went through the ring", through)
		}
	}
}

// TestLentIsReadOnly: neither the mapping nor the descriptor lets the borrower write.
func TestLentIsReadOnly(t *testing.T) {
	a, b := lending(t)
	e := a.ep.(*endpoint)
	for _, m := range e.arenas {
		if err := unix.Mprotect(m.mem, unix.PROT_READ|unix.PROT_WRITE); err == nil {
			t.Error("the mapping was made writable")
		}
	}
	one := b.dom.(*domain).opts.Lent.all()[0]
	if mem, err := mapShared(one.fd, one.size, writable); err == nil {
		_ = unix.Munmap(mem)
		t.Error("the file can be mapped to be written")
	}
	if _, err := unix.Pwrite(one.fd, []byte("x"), 0); err == nil {
		t.Error("the file can be written")
	}
}

// TestLentToNobodyElse dials as another user, who is lent nothing, and is served all the same.
func TestLentToNobodyElse(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	const uid = 54321
	b, err := newEnd(Options{Lent: NewLent(), AnyClient: true}, 0)
	fatal(t, err)
	defer func() { fatal(t, b.close()) }()
	a, err := newEnd(Options{}, 0)
	fatal(t, err)
	defer func() { fatal(t, a.close()) }()
	l, err := b.dom.Connector().Listen("unix:@sluice-test-" + t.Name())
	fatal(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := b.accept(ctx, l)
		if err == nil {
			err = b.swap(ctx)
		}
		done <- err
	}()
	asUser(uid, func() { err = a.dial(ctx, l.Addr().String()) })
	fatal(t, err)
	fatal(t, a.swap(ctx))
	fatal(t, <-done)
	copy(b.mem[1<<20:], bytes.Repeat([]byte("lent?"), 20000))
	mem, _, rem := ordinary(t, a, 100000)
	fatal(t, b.ep.Post([]fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem,
		Local: []fabric.Sge{{Reg: b.reg, Buf: b.mem[1<<20:][:100000]}},
	}}))
	b.waits(t)
	if !bytes.Equal(mem, b.mem[1<<20:][:100000]) {
		t.Error("it is not what was written")
	}
	if a.ep.(fabric.Borrower).Borrows(1 << 20) {
		t.Error("a stranger can read the server's memory")
	}
	if mayBorrow(nobody) || mayBorrow(uid) || !mayBorrow(0) {
		t.Error("strangers may borrow")
	}
}

// TestLentLater: what is lent after the connection was made is lent, too, and what is freed is
// forgotten at both ends.
func TestLentLater(t *testing.T) {
	a, b := lending(t)
	mem, _, rem := ordinary(t, a, 100<<10)
	lent := b.dom.(*domain).opts.Lent
	for range 3 {
		more, free, err := lent.Map(1 << 20)
		fatal(t, err)
		one, _ := lent.find(more)
		copy(more, bytes.Repeat([]byte{byte(rand.Uint32())}, len(more)))
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			fatal(t, b.ep.Post([]fabric.WR{{
				Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem,
				Local: []fabric.Sge{{Buf: more[:100<<10]}},
			}}))
			b.waits(t)
			if !bytes.Equal(mem, more[:100<<10]) {
				t.Fatal("it is not what was written")
			}
			if id, _ := b.ep.(*endpoint).owed(one); id != 0 {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatal("it was never lent")
			}
		}
		fatal(t, free())
		for begin := time.Now(); a.ep.(*endpoint).mapped() != 1; time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("%d arenas are mapped", a.ep.(*endpoint).mapped())
			}
		}
		if n := len(b.ep.(*endpoint).debts); n != 1 {
			t.Fatalf("%d arenas are lent", n)
		}
	}
}

// TestLentRefused writes by a grant that was revoked: the writer is told, nothing is moved.
func TestLentRefused(t *testing.T) {
	a, b := lending(t)
	mem, reg, rem := ordinary(t, a, 1<<20)
	reg.Revoke(rem)
	b.mem[1<<20] = 1
	wr := fabric.WR{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem,
		Local: []fabric.Sge{{Reg: b.reg, Buf: b.mem[1<<20:][:1<<20]}},
	}
	fatal(t, b.ep.Post([]fabric.WR{wr}))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var dst [1]fabric.Completion
	_, err := b.cq.Wait(ctx, dst[:])
	fatal(t, err)
	if dst[0].ErrKind() != errs.Perm || mem[0] != 0 {
		t.Fatalf("%+v, memory %d", dst[0], mem[0])
	}
}

// TestLentLate: a completion that nobody waits for comes nevertheless, when the borrower rests, be
// it that it sleeps or that it polls in vain.
func TestLentLate(t *testing.T) {
	for name, spin := range map[string]time.Duration{"asleep": 0, "polling": time.Hour} {
		t.Run(name, func(t *testing.T) {
			a, b := lending(t)
			_, _, rem := ordinary(t, a, 64<<10)
			stop := make(chan struct{})
			over := make(chan struct{})
			defer func() { close(stop); <-over }()
			go func() {
				defer close(over)
				var dst [1]fabric.Completion
				for begin := time.Now(); time.Since(begin) < spin; {
					select {
					case <-stop:
						return
					default:
						a.cq.Poll(dst[:])
					}
				}
			}()
			for range 50 {
				fatal(t, b.ep.Post([]fabric.WR{{
					Op: fabric.OpWrite, Flags: fabric.FlagSignaled | fabric.FlagLater, Remote: rem,
					Local: []fabric.Sge{{Reg: b.reg, Buf: b.mem[1<<20:][:64<<10]}},
				}}))
				b.waits(t)
			}
		})
	}
}

// TestCopier has several connections at one queue, so that large loans are copied by others than
// the poller, and ends them in the middle.
func TestCopier(t *testing.T) {
	const size = 3 << 20
	a, b := lending(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := b.dom.Connector().Listen(addresses(t)())
	fatal(t, err)
	other := make(chan fabric.Endpoint, 1)
	go func() {
		ep, _ := l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return b.config(), nil
		})
		other <- ep
	}()
	second, err := a.dom.Connector().Dial(ctx, l.Addr().String(), a.config())
	fatal(t, err)
	if ep := <-other; ep == nil {
		t.Fatal("not accepted")
	}
	for i := range b.mem {
		b.mem[i] = byte(i / 4099)
	}
	mem, _, rem := ordinary(t, a, size)
	write := fabric.WR{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem,
		Local: []fabric.Sge{{Reg: b.reg, Buf: b.mem[:size]}},
	}
	for range 20 {
		clear(mem)
		fatal(t, b.ep.Post([]fabric.WR{write}))
		b.waits(t)
		if !bytes.Equal(mem, b.mem[:size]) {
			t.Fatal("it is not what was written")
		}
	}
	e := a.ep.(*endpoint)
	e.rxMu.Lock()
	used := e.rx.copier != nil
	e.rxMu.Unlock()
	if !used {
		t.Error("the poller has copied it all")
	}
	for range 4 {
		fatal(t, b.ep.Post([]fabric.WR{write}))
	}
	fatal(t, a.ep.Close())
	was := slices.Clone(mem)
	time.Sleep(10 * time.Millisecond)
	if !bytes.Equal(mem, was) {
		t.Error("it was written after the end")
	}
	fatal(t, second.Close())
}

// hostileLender is a dialler that lends to a listener, which in life is the other way round, and
// does with its end what it wants.
func hostileLender(t *testing.T) (h *hostile, fd int) {
	t.Helper()
	h = newHostile(t, Options{mutual: true})
	fd = forge(t, 64<<10, true, seals|unix.F_SEAL_FUTURE_WRITE)
	t.Cleanup(func() { _ = unix.Close(fd) })
	h.note(t, note{kind: noteLend, id: 1, size: 64 << 10}, fd)
	for begin := time.Now(); !h.ep.Borrows(lendBytes); time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("nothing was borrowed")
		}
	}
	return h, fd
}

// lent is a frame that lends, and its payload.
func (h *hostile) lent(kind frameKind, length uint32, l loan) {
	var b [loanBytes]byte
	l.encode(&b)
	head := header{kind: kind, part: loanBytes}
	if kind == frameLent {
		head.length, head.key, head.addr = length, h.rem.Key, h.rem.Addr
	}
	h.put(&head, b[:])
}

func TestBadLoans(t *testing.T) {
	const size = 64 << 10
	for name, abuse := range map[string]func(h *hostile){
		"no such arena":   func(h *hostile) { h.lent(frameLent, 100, loan{7, 100, 0}) },
		"behind the end":  func(h *hostile) { h.lent(frameLent, 100, loan{1, 100, size - 99}) },
		"far behind":      func(h *hostile) { h.lent(frameLent, 100, loan{1, 100, 1<<64 - 50}) },
		"nothing":         func(h *hostile) { h.lent(frameLent, 100, loan{1, 0, 0}) },
		"more than asked": func(h *hostile) { h.lent(frameLent, 100, loan{1, 101, 0}) },
		"more of nothing": func(h *hostile) { h.lent(frameLentMore, 0, loan{1, 10, 0}) },
		"a write in it": func(h *hostile) {
			h.half()
			h.put(&header{kind: frameMore, part: 8}, make([]byte, 8))
		},
		"another in it":    func(h *hostile) { h.half(); h.lent(frameLent, 100, loan{1, 50, 0}) },
		"a message in it":  func(h *hostile) { h.half(); h.put(&header{kind: frameSend}, nil) },
		"more than is due": func(h *hostile) { h.half(); h.lent(frameLentMore, 0, loan{1, 51, 0}) },
		"in a write": func(h *hostile) {
			h.put(&header{
				kind: frameWrite, length: 60, part: 8, key: h.rem.Key, addr: h.rem.Addr,
			}, make([]byte, 8))
			h.lent(frameLentMore, 0, loan{1, 10, 0})
		},
		"a payload that is none": func(h *hostile) {
			h.put(&header{kind: frameLent, length: 100, part: 8, key: h.rem.Key, addr: h.rem.Addr},
				make([]byte, 8))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := hostileLender(t)
			abuse(h)
			h.ep.progress()
			if kind := h.died(t); kind != errs.Protocol {
				t.Fatalf("it ended with %v", kind)
			}
			h.unharmed(t)
		})
	}
	t.Run("what was not asked for", func(t *testing.T) {
		h := newHostile(t, Options{})
		fd := forge(t, size, true, seals)
		defer unix.Close(fd)
		h.note(t, note{kind: noteLend, id: 1, size: size}, fd)
		if kind := h.died(t); kind != errs.Protocol {
			t.Fatalf("it ended with %v", kind)
		}
	})
}

// half lends the first half of a write of 100 bytes.
func (h *hostile) half() { h.lent(frameLent, 100, loan{1, 50, 0}) }

// TestEndDuringACopy: a lender that ends the connection uses its memory again, perhaps before it
// was copied. So nothing that follows the loan is delivered.
func TestEndDuringACopy(t *testing.T) {
	h, _ := hostileLender(t)
	h.view.mine.bye.Store(uint32(errs.Closed))
	h.lent(frameLent, 100, loan{1, 100, 0})
	h.put(&header{kind: frameSend, length: 5, part: 5}, []byte("there"))
	h.ep.progress()
	h.died(t)
	var dst [endDepth]fabric.Completion
	for _, c := range dst[:h.end.cq.Poll(dst[:])] {
		if c.Err == nil {
			t.Fatalf("delivered: %+v", c)
		}
	}
}

// TestLoansThatFault: a lender takes memory away that is being copied. The connection ends, the
// process does not.
func TestLoansThatFault(t *testing.T) {
	h, _ := hostileLender(t)
	h.ep.mapMu.RLock()
	protect(t, h.ep.arenas[1].mem)
	h.ep.mapMu.RUnlock()
	h.lent(frameLent, 100, loan{1, 100, 0})
	h.ep.progress()
	if kind := h.died(t); kind != errs.Disconnected {
		t.Fatalf("it ended with %v", kind)
	}
}
