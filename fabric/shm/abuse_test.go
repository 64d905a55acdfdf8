package shm

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/keytable"
)

// hostile is a dialler that has said hello and now does with its end what it wants.
type hostile struct {
	conn *net.UnixConn
	view *view
	end  *end          // the listener's side
	ep   *endpoint     // there
	rem  fabric.Remote // what was granted to it: 1000 bytes at guarded
	tail uint64        // of its ring
}

// guarded is where the grant begins. Around it are bytes that nobody may touch.
const guarded = 1 << 20

func newHostile(t testing.TB, opts Options) *hostile {
	t.Helper()
	return newVictim(t, opts).attack(t)
}

// victim is a listener whose memory is marked.
type victim struct {
	*end
	listen fabric.Listener
}

func newVictim(t testing.TB, opts Options) *victim {
	t.Helper()
	n, err := newEnd(opts, 0)
	fatal(t, err)
	t.Cleanup(func() { fatal(t, n.close()) })
	copy(n.mem, bytes.Repeat([]byte{0xaa}, len(n.mem)))
	l, err := n.dom.Connector().Listen(addresses(t)())
	fatal(t, err)
	return &victim{n, l}
}

// attack connects a hostile peer.
func (v *victim) attack(t testing.TB) *hostile {
	t.Helper()
	h := &hostile{end: v.end}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- v.accept(ctx, v.listen) }()
	lk, _, err := v.dom.(*domain).greet(ctx, v.listen.Addr().String(), &fabric.Hello{
		Version: fabric.HelloVersion, MaxMessage: 1 << 20, RecvDepth: endDepth,
	})
	fatal(t, err)
	fatal(t, <-done)
	h.conn, h.view = lk.conn, newView(lk.mem, lk.geo, 0)
	t.Cleanup(func() {
		_ = h.conn.Close()
		fatal(t, h.view.unmap())
	})
	h.ep = v.ep.(*endpoint)
	for i := range 8 {
		fatal(t, v.recv(i))
	}
	h.rem, err = v.reg.Grant(v.ep, guarded, 1000, fabric.RemoteRead|fabric.RemoteWrite)
	fatal(t, err)
	return h
}

// unharmed checks that nothing outside of receives and the grant was written.
func (h *hostile) unharmed(t testing.TB) {
	t.Helper()
	for _, span := range [][2]int{{8 * msgBytes, guarded}, {guarded + 1000, endBytes}} {
		mem := h.end.mem[span[0]:span[1]]
		if bytes.Count(mem, []byte{0xaa}) != len(mem) {
			t.Fatalf("something between %d and %d was written", span[0], span[1])
		}
	}
}

// died waits until the listener's side has ended, and tells how.
func (h *hostile) died(t testing.TB) errs.Kind {
	t.Helper()
	select {
	case <-h.ep.Done():
	case <-time.After(time.Minute):
		t.Fatal("the connection lives")
	}
	return errs.KindOf(h.ep.Cause())
}

// put shows a frame, or what looks like one, to the listener's side.
func (h *hostile) put(head *header, payload []byte) {
	at := h.tail
	x, y := wrap(h.view.out, at+headerBytes, len(payload))
	n := copy(x, payload)
	copy(y, payload[n:])
	frame := h.view.out[at&uint64(len(h.view.out)-1):]
	head.encode(frame[8:])
	wordOf(frame).Store(head.word())
	h.tail += uint64(frameBytes(len(payload)))
}

func TestBadFrames(t *testing.T) {
	const max = 1 << 20
	eight := make([]byte, 8)
	for name, abuse := range map[string]func(h *hostile){
		"no kind":      func(h *hostile) { h.put(&header{tag: 1}, nil) },
		"unknown kind": func(h *hostile) { h.put(&header{kind: frameKinds}, nil) },
		"unknown flag": func(h *hostile) { h.put(&header{kind: frameSend, flags: 2}, nil) },
		"more of it":   func(h *hostile) { h.put(&header{kind: frameMore, part: 8}, eight) },
		"answer":       func(h *hostile) { h.put(&header{kind: frameReadData, part: 8}, eight) },
		"refusal":      func(h *hostile) { h.put(&header{kind: frameReadRefused, tag: 3}, nil) },
		"bad tag":      func(h *hostile) { h.put(&header{kind: frameRead, tag: 16, length: 8}, nil) },
		"huge":         func(h *hostile) { h.put(&header{kind: frameWrite, length: 1<<31 - 1}, nil) },
		"long message": func(h *hostile) {
			h.put(&header{kind: frameSend, length: max + 1, part: 8}, nil)
		},
		"part too long": func(h *hostile) { h.put(&header{kind: frameSend, length: 8, part: 9}, nil) },
		"done too far":  func(h *hostile) { h.view.mine.done.Store(1) },
		"longer than the receive": func(h *hostile) {
			h.put(&header{kind: frameSend, length: 65, part: 65}, make([]byte, 65))
		},
		"request in a request": func(h *hostile) {
			h.put(&header{kind: frameSend, length: 60, part: 1}, make([]byte, 1))
			h.put(&header{kind: frameSend, length: 1, part: 1}, make([]byte, 1))
		},
		"more than the rest": func(h *hostile) {
			h.put(&header{kind: frameSend, length: 60, part: 50}, make([]byte, 50))
			h.put(&header{kind: frameMore, part: 11}, make([]byte, 11))
		},
		"too many reads": func(h *hostile) {
			h.view.mine.head.Store(0)
			h.ep.mu.Lock()
			h.ep.busy = true // nobody serves them
			h.ep.mu.Unlock()
			for i := range uint16(provider.ReadDepth + 2) {
				h.put(&header{kind: frameRead, tag: i % provider.ReadDepth, length: 8}, nil)
			}
		},
		"messages without receives": func(h *hostile) {
			for range 9 {
				h.put(&header{kind: frameSend}, nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, Options{})
			abuse(h)
			h.ep.progress()
			h.ep.mu.Lock()
			h.ep.busy = false
			h.ep.idle.Broadcast()
			h.ep.mu.Unlock()
			if kind := h.died(t); kind != errs.Protocol {
				t.Fatalf("it ended with %v", kind)
			}
			if bye := errs.Kind(h.view.theirs.bye.Load()); bye != errs.Protocol {
				t.Fatalf("the peer is told %v", bye)
			}
			h.unharmed(t)
		})
	}
}

// TestBadHead has a peer that claims to have taken out what was never in the ring.
func TestBadHead(t *testing.T) {
	for _, head := range []uint64{ringMin + 64, 1 << 30, ^uint64(63), 1} {
		h := newHostile(t, Options{Ring: ringMin})
		h.view.mine.head.Store(head)
		wr := fabric.WR{Op: fabric.OpSend, Local: []fabric.Sge{{Buf: h.end.mem[:1<<20]}}}
		fatal(t, h.end.ep.Post([]fabric.WR{wr}))
		if kind := h.died(t); kind != errs.Protocol {
			t.Fatalf("head %d: it ended with %v", head, kind)
		}
	}
}

// TestBadSlots has a peer whose grants point outside of its arenas: refused, whatever they say.
func TestBadSlots(t *testing.T) {
	h := newHostile(t, Options{})
	const size, key = 1 << 20, 5<<keytable.PlaceBits | 1
	fd := forge(t, size, true, seals)
	defer unix.Close(fd)
	h.note(t, note{kind: noteExport, id: 7, size: size}, fd)
	for h.ep.mapped() == 0 {
		time.Sleep(time.Millisecond)
	}
	var dst [1]fabric.Completion
	try := func(rem fabric.Remote) errs.Kind {
		t.Helper()
		fatal(t, h.ep.Post([]fabric.WR{{
			Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem,
			Local: []fabric.Sge{{Buf: h.end.mem[:rem.Len]}},
		}}))
		if n := h.end.cq.Poll(dst[:]); n != 1 {
			t.Fatalf("%d completions", n)
		}
		return dst[0].ErrKind()
	}
	const both = fabric.RemoteRead | fabric.RemoteWrite
	at := provider.Addr(1)
	for _, c := range []struct {
		off, length uint64
		arena       uint32
		rights      fabric.Rights
		rem         fabric.Remote
		want        errs.Kind
	}{
		{0, 100, 7, both, fabric.Remote{Key: key, Addr: at, Len: 100}, errs.OK},
		{size - 100, 100, 7, both, fabric.Remote{Key: key, Addr: at, Len: 100}, errs.OK},
		{size - 99, 100, 7, both, fabric.Remote{Key: key, Addr: at, Len: 100}, errs.Perm},
		{^uint64(0), 100, 7, both, fabric.Remote{Key: key, Addr: at, Len: 100}, errs.Perm},
		{100, ^uint64(0), 7, both, fabric.Remote{Key: key, Addr: at, Len: 100}, errs.Perm},
		{0, 100, 7, both, fabric.Remote{Key: key, Addr: at - 1, Len: 100}, errs.Perm},
		{0, 100, 7, both, fabric.Remote{Key: key, Addr: at + 1, Len: 100}, errs.Perm},
		{0, 100, 7, both, fabric.Remote{Key: key + 1, Addr: at, Len: 100}, errs.Perm},
		{0, 100, 7, fabric.RemoteRead, fabric.Remote{Key: key, Addr: at, Len: 9}, errs.Perm},
	} {
		h.view.grants[0].open(key, c.off, c.length, c.arena, c.rights)
		if got := try(c.rem); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if users := h.view.grants[0].word.Load() & (1<<keytable.PlaceBits - 1); users != 0 {
			t.Fatalf("%d users are left", users)
		}
	}
	h.unharmed(t)
}

// mapped is the number of the peer's arenas that are mapped.
func (e *endpoint) mapped() int {
	e.mapMu.RLock()
	defer e.mapMu.RUnlock()
	return len(e.arenas)
}

func (h *hostile) note(t testing.TB, n note, fds ...int) {
	t.Helper()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := h.conn.WriteMsgUnix(encodeNote(nil, n), rights, nil)
	fatal(t, err)
}

func TestBadNotes(t *testing.T) {
	const size = 64 << 10
	abuses := map[string]func(t *testing.T, h *hostile){
		"short":   func(t *testing.T, h *hostile) { _, _ = h.conn.Write([]byte{1}) },
		"unknown": func(t *testing.T, h *hostile) { _, _ = h.conn.Write([]byte{0, 0, 0, 'X'}) },
		"long":    func(t *testing.T, h *hostile) { _, _ = h.conn.Write(make([]byte, 500)) },
		"no memory": func(t *testing.T, h *hostile) {
			h.note(t, note{kind: noteExport, id: 1, size: size})
		},
		"no such size": func(t *testing.T, h *hostile) {
			h.note(t, note{kind: noteExport, size: 1 << 60}, 0)
		},
		"two": func(t *testing.T, h *hostile) {
			fd := forge(t, size, true, seals)
			defer unix.Close(fd)
			h.note(t, note{kind: noteExport, id: 1, size: size}, fd, fd)
		},
		"twice the same": func(t *testing.T, h *hostile) {
			fd := forge(t, size, true, seals)
			defer unix.Close(fd)
			h.note(t, note{kind: noteExport, id: 1, size: size}, fd)
			h.note(t, note{kind: noteExport, id: 1, size: size}, fd)
		},
	}
	for name, fd := range forgeries(t, size) {
		abuses[name] = func(t *testing.T, h *hostile) {
			h.note(t, note{kind: noteExport, id: 1, size: size}, fd)
		}
	}
	for name, abuse := range abuses {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, Options{})
			fds, _ := shared(t)
			abuse(t, h)
			if kind := h.died(t); kind != errs.Protocol {
				t.Fatalf("it ended with %v", kind)
			}
			if now, _ := shared(t); now > fds {
				t.Fatalf("%d descriptors, before %d", now, fds)
			}
			h.unharmed(t)
		})
	}
}

// TestServerMayNotExport has a listener that passes memory to a client: the client ends that.
func TestServerMayNotExport(t *testing.T) {
	a, b := ends(t, Options{})
	fd := forge(t, 64<<10, true, seals)
	defer unix.Close(fd)
	if !b.ep.(*endpoint).sendArena(noteExport, 1, fd, 64<<10) {
		t.Fatal("the note was not sent")
	}
	e := a.ep.(*endpoint)
	<-e.Done()
	if errs.KindOf(e.Cause()) != errs.Protocol {
		t.Fatalf("it ended with %v", e.Cause())
	}
}

// TestScribble has a peer that writes anything anywhere into the segment while there is traffic.
func TestScribble(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		h := newHostile(t, Options{Ring: ringMin})
		fd := forge(t, 64<<10, true, seals)
		h.note(t, note{kind: noteExport, id: 1, size: 64 << 10}, fd)
		_ = unix.Close(fd)
		for range 200 {
			switch rng.IntN(4) {
			case 0:
				h.scribble(rng)
			case 1:
				b := make([]byte, rng.IntN(100))
				h.put(&header{
					kind: frameKind(rng.IntN(10)), length: uint32(len(b)), part: uint32(len(b)),
					key: h.rem.Key, addr: h.rem.Addr + uint64(rng.IntN(1100)),
				}, b)
			case 2:
				key := uint64(rng.IntN(3)) << keytable.PlaceBits
				h.view.grants[0].open(key, rng.Uint64()>>rng.IntN(64), rng.Uint64()>>rng.IntN(64),
					uint32(rng.IntN(3)), 3)
			case 3:
				size := rng.IntN(60000)
				_ = h.ep.Post([]fabric.WR{{
					Op: fabric.Op(1 + rng.IntN(3)), Local: []fabric.Sge{{Buf: h.end.mem[:size]}},
					Remote: fabric.Remote{
						Key: 1 << keytable.PlaceBits, Addr: provider.Addr(1), Len: uint64(size),
					},
				}})
			}
			h.ep.progress()
		}
		_ = h.conn.Close()
		h.died(t)
		h.unharmed(t)
	}
}

// scribble changes a few bytes, mostly where it hurts.
func (h *hostile) scribble(rng *rand.Rand) {
	limit := len(h.view.mem)
	if rng.IntN(2) == 0 {
		limit = slotsAt + 2*slotBytes
	}
	for range 1 + rng.IntN(8) {
		h.view.mem[rng.IntN(limit)] = byte(rng.Uint32())
	}
}

// ends connects two ends of this process: a dialled b.
func ends(t testing.TB, opts Options) (a, b *end) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	a, err = newEnd(opts, 0)
	fatal(t, err)
	b, err = newEnd(opts, 0)
	fatal(t, err)
	t.Cleanup(func() {
		fatal(t, a.close())
		fatal(t, b.close())
	})
	addr := addresses(t)()
	l, err := b.dom.Connector().Listen(addr)
	fatal(t, err)
	done := make(chan error, 1)
	go func() {
		err := b.accept(ctx, l)
		if err == nil {
			err = b.swap(ctx)
		}
		done <- err
	}()
	fatal(t, a.dial(ctx, addr))
	fatal(t, a.swap(ctx))
	fatal(t, <-done)
	return a, b
}
