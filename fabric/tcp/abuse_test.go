package tcp

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// victim is an endpoint whose peer is a bare socket that the test writes to.
type victim struct {
	*benchEnd
	t    *testing.T
	sock *net.TCPConn
	mem  []byte
}

func newVictim(t *testing.T, opts Options) *victim {
	t.Helper()
	v := &victim{benchEnd: newBenchEndWith(t, opts), t: t}
	l, err := v.dom.Connector().Listen("127.0.0.1:0")
	fatal(t, err)
	c, err := net.Dial("tcp", l.Addr().String())
	fatal(t, err)
	v.sock = c.(*net.TCPConn)
	t.Cleanup(func() { _ = c.Close() })
	hello := (&hello{Hello: fabric.Hello{Version: fabric.HelloVersion, MaxMessage: 1000}}).encode()
	_, err = c.Write(hello[:])
	fatal(t, err)
	v.ep, err = l.Accept(t.Context(), func(fabric.Peer) (fabric.EndpointConfig, error) {
		return v.config(), nil
	})
	fatal(t, err)
	_, err = io.ReadFull(c, hello[:])
	fatal(t, err)
	fatal(t, v.ep.PostRecv(v.recvs))
	v.mem = v.reg.Bytes()
	return v
}

// frame sends a header and some bytes behind it.
func (v *victim) frame(h header, payload []byte) {
	v.t.Helper()
	var b [headerBytes]byte
	h.encode(&b)
	_, err := v.sock.Write(append(b[:], payload...))
	fatal(v.t, err)
}

// swallowed waits until the victim has read all that was sent: the kernel has no more of it.
func (v *victim) swallowed() {
	v.t.Helper()
	queued := func(c syscall.Conn, which uint) (n int) {
		raw, err := c.SyscallConn()
		fatal(v.t, err)
		fatal(v.t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), which) }))
		fatal(v.t, err)
		return n
	}
	victim := v.ep.(*endpoint).sock.conn
	for start := time.Now(); queued(v.sock, unix.TIOCOUTQ)+queued(victim, unix.TIOCINQ) > 0; {
		if time.Since(start) > time.Minute {
			v.t.Fatal("it was never read")
		}
		time.Sleep(time.Millisecond)
	}
}

// hear reads the next frame that the victim sends.
func (v *victim) hear() header {
	v.t.Helper()
	fatal(v.t, v.sock.SetReadDeadline(time.Now().Add(time.Minute)))
	var b [headerBytes]byte
	_, err := io.ReadFull(v.sock, b[:])
	fatal(v.t, err)
	h, err := decodeHeader(&b, 1<<20)
	fatal(v.t, err)
	return h
}

// next waits for a completion.
func (v *victim) next() fabric.Completion {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := v.cq.Wait(ctx, v.dst[:1])
	fatal(v.t, err)
	return v.dst[0]
}

// TestFramesThatEndTheConnection: each is refused with a bye that says so, and touches nothing.
func TestFramesThatEndTheConnection(t *testing.T) {
	perm := uint32(errs.Perm)
	for name, h := range map[string]header{
		"unknown kind":               {kind: 200},
		"message beyond the promise": {kind: frameSend, length: 1<<20 + 1},
		"message beyond the receive": {kind: frameSend, length: 65},
		"ack of nothing":             {kind: frameAck, ack: 1},
		"answer to nothing":          {kind: frameReadData, tag: 2},
		"refusal of no read":         {kind: frameReadRefused, tag: 2, imm: perm},
		"refusal of no write":        {kind: frameWriteRefused, key: 1, imm: perm},
		"refusal of number zero":     {kind: frameWriteRefused, imm: perm},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t, Options{})
			before := bytes.Clone(v.mem)
			v.frame(h, nil)
			if bye := v.hear(); bye.kind != frameBye || errs.Kind(bye.imm) != errs.Protocol {
				t.Fatalf("heard %+v", bye)
			}
			if c := v.next(); c.ErrKind() != errs.Protocol || c.Op != fabric.OpRecv {
				t.Fatalf("completion %+v", c)
			}
			if !bytes.Equal(before, v.mem) {
				t.Fatal("memory was touched")
			}
		})
	}
}

func TestTooManyReads(t *testing.T) {
	v := newVictim(t, Options{})
	rem, err := v.reg.Grant(v.ep, 0, bulkSize, fabric.RemoteRead)
	fatal(t, err)
	h := header{kind: frameRead, length: bulkSize, key: rem.Key, addr: rem.Addr}
	for range 200 { // the answers fill the socket, since nobody reads them
		var b [headerBytes]byte
		h.encode(&b)
		if _, err := v.sock.Write(b[:]); err != nil {
			break
		}
	}
	if c := v.next(); c.ErrKind() != errs.Protocol {
		t.Fatalf("completion %+v", c)
	}
}

// TestRefusedWriteIsSkippedExactly: payloads of refused writes are skipped exactly.
func TestRefusedWriteIsSkippedExactly(t *testing.T) {
	v := newVictim(t, Options{})
	rem, err := v.reg.Grant(v.ep, 10, 10, fabric.RemoteWrite)
	fatal(t, err)
	v.frame(header{kind: frameWrite, length: 9000, key: 5, addr: 6}, make([]byte, 9000))
	v.frame(header{kind: frameWrite, length: 3, key: rem.Key, addr: rem.Addr + 7}, []byte("end"))
	v.frame(header{kind: frameSend, length: 2}, []byte("on"))
	if c := v.next(); c.Err != nil || c.Len != 2 {
		t.Fatalf("completion %+v", c)
	}
	if got := string(v.mem[16:21]); got != "\x00end\x00" {
		t.Fatalf("memory holds %q", got)
	}
	if h := v.hear(); h.kind != frameWriteRefused || h.key != 1 || h.ack != 1 {
		t.Fatalf("heard %+v", h)
	}
}

// TestStallInsideAFrame: Revoke waits for the placement, but not longer than the bound.
func TestStallInsideAFrame(t *testing.T) {
	v := newVictim(t, Options{StallTimeout: 50 * time.Millisecond})
	rem, err := v.reg.Grant(v.ep, 0, 1000, fabric.RemoteWrite)
	fatal(t, err)
	v.frame(header{kind: frameWrite, length: 1000, key: rem.Key, addr: rem.Addr}, []byte("part"))
	v.swallowed()
	_, err = v.sock.Write([]byte("more")) // which only the placement reads
	fatal(t, err)
	v.swallowed()
	start := time.Now()
	v.reg.Revoke(rem)
	if took := time.Since(start); took < 40*time.Millisecond || took > 9*time.Second {
		t.Fatalf("Revoke took %v", took)
	}
	if c := v.next(); c.ErrKind() != errs.Disconnected {
		t.Fatalf("completion %+v", c)
	}
}

// TestReceiverThatStopsReading: the send queue fills and says so; Close does not wait for the peer.
func TestReceiverThatStopsReading(t *testing.T) {
	v := newVictim(t, Options{Linger: 20 * time.Millisecond})
	wr := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled}
	wr.Remote.Len = bulkSize
	wr.Local = []fabric.Sge{{Reg: v.reg, Buf: v.mem[:bulkSize]}}
	posted := 0
	for v.ep.Post([]fabric.WR{wr}) == nil {
		posted++
	}
	if posted != 64 {
		t.Fatalf("%d requests were taken, the depth is 64", posted)
	}
	start := time.Now()
	fatal(t, v.ep.Close())
	if took := time.Since(start); took > 30*time.Second {
		t.Fatalf("Close took %v", took)
	}
	closed := 0
	for v.cq.Poll(v.dst[:1]) == 1 {
		if v.dst[0].ErrKind() != errs.Closed {
			t.Fatalf("completion %+v", v.dst[0])
		}
		closed++
	}
	if closed != posted+1 { // and the receive
		t.Fatalf("%d completions", closed)
	}
}

func TestPeerVanishes(t *testing.T) {
	v := newVictim(t, Options{})
	v.frame(header{kind: frameSend, length: 8}, []byte("half"))
	fatal(t, v.sock.SetLinger(0)) // a reset, as after kill -9 with data in flight
	fatal(t, v.sock.Close())
	if c := v.next(); c.ErrKind() != errs.Disconnected {
		t.Fatalf("completion %+v", c)
	}
}

func TestStrangersAtTheListener(t *testing.T) {
	e := newBenchEndWith(t, Options{HelloTimeout: 50 * time.Millisecond})
	l, err := e.dom.Connector().Listen("127.0.0.1:0")
	fatal(t, err)
	mute, err := net.Dial("tcp", l.Addr().String())
	fatal(t, err)
	defer mute.Close()
	accept := func() error {
		_, err := l.Accept(t.Context(), func(fabric.Peer) (fabric.EndpointConfig, error) {
			return e.config(), nil
		})
		return err
	}
	if err := accept(); errs.KindOf(err) != errs.TimedOut {
		t.Fatalf("a mute peer: %v", err)
	}
	web, err := net.Dial("tcp", l.Addr().String())
	fatal(t, err)
	defer web.Close()
	_, err = io.WriteString(web, "GET / HTTP/1.1\r\nHost: x\r\nAccept: "+strings.Repeat("x", 64))
	fatal(t, err)
	if err := accept(); errs.KindOf(err) != errs.Protocol {
		t.Fatalf("a web client: %v", err)
	}
}

func TestListenBeyondLoopback(t *testing.T) {
	e := newBenchEndWith(t, Options{})
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		_, err := e.dom.Connector().Listen(addr)
		if errs.KindOf(err) != errs.Perm {
			t.Errorf("Listen(%q): %v", addr, err)
		}
	}
	open := newBenchEndWith(t, Options{Security: newAuthority(t).security(t, "left")})
	l, err := open.dom.Connector().Listen("0.0.0.0:0")
	fatal(t, err)
	fatal(t, l.Close())
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{MaxMessage: -1}, {MaxTransfer: maxTransfer + 1}, {QueueDepth: maxQueueDepth + 1},
		{Linger: -1}, {SocketBuffer: -1},
	} {
		if _, err := Open(o); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
