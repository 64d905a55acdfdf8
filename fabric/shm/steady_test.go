package shm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/alloctest"
)

// TestSteadyStateDoesNotAllocate counts a round trip of messages, a grant, 1 MiB written and read
// by the listener, and the revocation, at both ends together.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := ends(t, Options{})
	ctx := context.Background()
	dst := make([]fabric.Completion, 4)
	recvs := make([]fabric.Recv, 1)
	wrs := []fabric.WR{{
		Op: fabric.OpSend, Flags: fabric.FlagInline, Local: []fabric.Sge{{Buf: make([]byte, 8)}},
	}}
	pass := func(from, to *end) {
		fatal(t, from.ep.Post(wrs))
		if n, err := to.cq.Wait(ctx, dst); err != nil || n != 1 || dst[0].Err != nil {
			t.Fatal(n, err, dst[0].Err)
		}
		at := int(dst[0].Context)
		buf := to.mem[at*msgBytes : (at+1)*msgBytes]
		recvs[0] = fabric.Recv{Context: uint64(at), Reg: to.reg, Buf: buf}
		fatal(t, to.ep.PostRecv(recvs))
	}
	bulk := []fabric.WR{
		{Op: fabric.OpWrite, Flags: fabric.FlagSignaled},
		{Op: fabric.OpRead, Flags: fabric.FlagSignaled | fabric.FlagFence},
	}
	for i := range bulk {
		bulk[i].Local = []fabric.Sge{{Reg: b.reg, Buf: b.mem[1<<20:][:1<<20]}}
	}
	round := func() {
		pass(a, b)
		pass(b, a)
		rem, err := a.reg.Grant(a.ep, 2<<20, 1<<20, fabric.RemoteRead|fabric.RemoteWrite)
		fatal(t, err)
		bulk[0].Remote, bulk[1].Remote = rem, rem
		fatal(t, b.ep.Post(bulk))
		for left := len(bulk); left > 0; {
			n, err := b.cq.Wait(ctx, dst)
			fatal(t, err)
			for _, c := range dst[:n] {
				fatal(t, c.Err)
			}
			left -= n
		}
		a.reg.Revoke(rem)
	}
	for range 20 {
		round()
	}
	if b.ep.(*endpoint).mapped() != 1 {
		t.Fatal("the client's arena is not mapped")
	}
	if n := alloctest.PerRun(0, 100, round); n > 0.5 {
		t.Fatalf("%v allocations per round", n)
	}
}

// TestOnlyServersMap moves data in all directions: the client maps nothing but its own.
func TestOnlyServersMap(t *testing.T) {
	a, b := ends(t, Options{})
	for _, n := range []*end{a, b} {
		for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
			fatal(t, n.ep.Post([]fabric.WR{{
				Op: op, Flags: fabric.FlagSignaled, Remote: n.theirs.Slice(0, 1<<20),
				Local: []fabric.Sge{{Reg: n.reg, Buf: n.mem[1<<20:][:1<<20]}},
			}}))
			n.waits(t)
		}
	}
	if got := a.ep.(*endpoint).mapped(); got != 0 {
		t.Fatalf("the client maps %d arenas of the server", got)
	}
	if got := b.ep.(*endpoint).mapped(); got != 1 {
		t.Fatalf("the server maps %d arenas of the client", got)
	}
	if slot, _ := provider.Aim(b.mine.Addr); slot != 0 {
		t.Fatal("a server's grant can be used directly")
	}
}

// waits takes one completion, which must be good.
func (n *end) waits(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var dst [1]fabric.Completion
	_, err := n.cq.Wait(ctx, dst[:])
	fatal(t, err)
	fatal(t, dst[0].Err)
}

// TestWithdrawn frees an arena whose connection lives on: the server unmaps it, and a later one is
// passed again.
func TestWithdrawn(t *testing.T) {
	a, b := ends(t, Options{})
	e := b.ep.(*endpoint)
	await := func(want int) {
		t.Helper()
		for begin := time.Now(); e.mapped() != want; time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("%d arenas are mapped, want %d", e.mapped(), want)
			}
		}
	}
	await(1)
	arenas := a.dom.(*domain).opts.Arenas
	for range 3 {
		mem, free, err := arenas.Map(1 << 20)
		fatal(t, err)
		reg, err := a.dom.Register(mem)
		fatal(t, err)
		_, err = reg.Grant(a.ep, 0, 100, fabric.RemoteRead)
		fatal(t, err)
		await(2)
		fatal(t, reg.Close())
		fatal(t, free())
		await(1)
	}
}

// TestBeyondLimits has a server that may not map the client's arena: everything works, through the
// ring.
func TestBeyondLimits(t *testing.T) {
	for _, opts := range []Options{{PeerBytes: 1}, {PeerArenas: 1, PeerBytes: endBytes - 1}} {
		a, b := ends(t, opts)
		copy(b.mem[1<<20:], "through the ring")
		fatal(t, b.ep.Post([]fabric.WR{{
			Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: b.theirs.Slice(5, 16),
			Local: []fabric.Sge{{Reg: b.reg, Buf: b.mem[1<<20:][:16]}},
		}}))
		b.waits(t)
		a.reg.Revoke(a.mine)
		if got := string(a.mem[endBytes/2+5:][:16]); got != "through the ring" {
			t.Fatalf("memory holds %q", got)
		}
		if b.ep.(*endpoint).mapped() != 0 {
			t.Fatal("the arena is mapped")
		}
	}
}

// TestManyConnections has more endpoints at one queue than a futex_waitv takes.
func TestManyConnections(t *testing.T) {
	const count = waitMax + 10
	opts := Options{Ring: ringMin}
	a, err := newEnd(opts, 0)
	fatal(t, err)
	b, err := newEnd(opts, 0)
	fatal(t, err)
	defer func() { fatal(t, a.close()); fatal(t, b.close()) }()
	qa, err := a.dom.NewCQ(fabric.CQOptions{Depth: 4 * count})
	fatal(t, err)
	qb, err := b.dom.NewCQ(fabric.CQOptions{Depth: 4 * count})
	fatal(t, err)
	l, err := b.dom.Connector().Listen(addresses(t)())
	fatal(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := func(q fabric.CQ) fabric.EndpointConfig {
		return fabric.EndpointConfig{SendCQ: q, RecvCQ: q, SendDepth: 2, RecvDepth: 2}
	}
	var as, bs [count]fabric.Endpoint
	for i := range as {
		done := make(chan error, 1)
		go func() {
			var err error
			bs[i], err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
				return cfg(qb), nil
			})
			done <- err
		}()
		as[i], err = a.dom.Connector().Dial(ctx, l.Addr().String(), cfg(qa))
		fatal(t, err)
		fatal(t, <-done)
		fatal(t, bs[i].PostRecv([]fabric.Recv{{Context: uint64(i), Buf: make([]byte, 8)}}))
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range as {
			if i%16 == 0 {
				time.Sleep(3 * time.Millisecond) // let it fall asleep
			}
			_ = as[i].Post([]fabric.WR{{Op: fabric.OpSend, Imm: uint32(i)}})
		}
	}()
	var dst [1]fabric.Completion
	for range as {
		if _, err := qb.Wait(ctx, dst[:]); err != nil || dst[0].Err != nil {
			t.Fatal(err, dst[0].Err)
		}
		if dst[0].EP != bs[dst[0].Context] || dst[0].Imm != uint32(dst[0].Context) {
			t.Fatalf("unexpected %+v", dst[0])
		}
	}
	<-sent
}

// TestOldConnection rings through the socket long after the hello.
func TestOldConnection(t *testing.T) {
	a, b := ends(t, Options{Sleepers: -1})
	time.Sleep(1100 * time.Millisecond)
	for _, n := range [][2]*end{{a, b}, {b, a}} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			var dst [1]fabric.Completion
			_, err := n[1].cq.Wait(ctx, dst[:])
			done <- err
		}()
		time.Sleep(5 * time.Millisecond) // let it fall asleep
		fatal(t, n[0].ep.Post([]fabric.WR{{Op: fabric.OpSend}}))
		fatal(t, <-done)
	}
}

// asUser runs f in a thread that has another user's id, which ends with it.
func asUser(uid uintptr, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		none := ^uintptr(0)
		_, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, none, uid, none)
		if errno == 0 {
			f()
		}
	}()
	<-done
}

// TestUsers dials as another user, and a listener of another user.
func TestUsers(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	const uid = 54321
	for _, c := range []struct {
		name              string
		opts              Options
		listener, dialler uintptr
		want              errs.Kind
	}{
		{"a client nobody knows", Options{}, 0, uid, errs.Perm},
		{"a client of the list", Options{ClientUIDs: []uint32{uid}}, 0, uid, errs.OK},
		{"any client", Options{AnyClient: true}, 0, uid, errs.OK},
		{"a server nobody knows", Options{AnyClient: true}, uid, 0, errs.Perm},
		{"a server of the list", Options{AnyClient: true, ServerUIDs: []uint32{uid}}, uid, 0, errs.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := newEnd(c.opts, 0)
			fatal(t, err)
			defer func() { fatal(t, n.close()) }()
			var l fabric.Listener
			asUser(c.listener, func() {
				l, err = n.dom.Connector().Listen("unix:@sluice-test-" + t.Name())
			})
			fatal(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			accepted := make(chan error, 1)
			go func() {
				_, err := l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
					return n.config(), nil
				})
				accepted <- err
			}()
			var got error
			asUser(c.dialler, func() {
				_, got = n.dom.Connector().Dial(ctx, l.Addr().String(), n.config())
			})
			if errs.KindOf(got) != c.want {
				t.Errorf("dial: %v", got)
			}
			if err := <-accepted; (err == nil) != (c.want == errs.OK) {
				t.Errorf("accept: %v", err)
			}
		})
	}
}

// TestRootOfANamespace dials as a user who is root in a namespace of users: the kernel tells the
// listener who that is out here.
func TestRootOfANamespace(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	const uid = 54321
	n, err := newEnd(Options{}, 0)
	fatal(t, err)
	defer func() { fatal(t, n.close()) }()
	l, err := n.dom.Connector().Listen("unix:@sluice-test-" + t.Name())
	fatal(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envPart+"=stranger", envAddr+"="+l.Addr().String(), envSpin+"=0s")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{NoSetGroups: true},
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Skip("no namespaces of users here: ", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = n.accept(ctx, l)
	if errs.KindOf(err) != errs.Perm || !strings.Contains(err.Error(), "uid 54321 may not connect") {
		t.Errorf("accept: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &said)
	}
}
