package tcp

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// The benchmarks stand beside plain Go TCP in the same run. "within" has both ends in one process;
// "between" has the other end in a second process, which is this test binary again: see TestPeer.

const (
	bulkSize = 1 << 20
	peerEnv  = "FABRIC_TCP_BENCH_PEER"
)

func BenchmarkPlain(b *testing.B) {
	for _, c := range []struct {
		name  string
		role  string
		serve func(net.Conn)
		run   func(*testing.B, net.Conn)
	}{
		{"pingpong 8 B", "plain echo", plainEcho, plainPingPong},
		{"write 1 MiB", "plain sink", plainSink, plainBulk},
	} {
		b.Run("within/"+c.name, func(b *testing.B) { c.run(b, plainWithin(b, c.serve)) })
		b.Run("between/"+c.name, func(b *testing.B) {
			c.run(b, dialPlain(b, startPeer(b, c.role)))
		})
	}
}

func BenchmarkFabric(b *testing.B) {
	b.Run("within", func(b *testing.B) { fabrictest.Bench(b, config(Options{})) })
	b.Run("between/pingpong 8 B", func(b *testing.B) { fabricPingPong(b) })
	b.Run("between/write 1 MiB", func(b *testing.B) { fabricWrites(b) })
}

// TestPeer is the other process of the benchmarks: it listens, prints its address and serves one
// peer until that closes, or until it is killed.
func TestPeer(t *testing.T) {
	role := os.Getenv(peerEnv)
	if role == "" {
		return // an ordinary test run
	}
	switch role {
	case "plain echo", "plain sink":
		l := listenPlain(t)
		os.Stdout.WriteString(l.Addr().String() + "\n")
		serve := map[string]func(net.Conn){"plain echo": plainEcho, "plain sink": plainSink}[role]
		c, err := l.Accept()
		fatal(t, err)
		serve(c)
	case "fabric":
		servePeer(t, newBenchEnd(t), "127.0.0.1")
	default:
		host, ok := strings.CutPrefix(role, "fabric at ")
		if !ok {
			t.Fatalf("no such role: %q", role)
		}
		serveElsewhere(t, host)
	}
}

// startPeer starts the other process in a role and returns its address.
func startPeer(b *testing.B, role string) string {
	p := startPeerProcess(b, nil, role)
	p.readAddr(b)
	return p.addr
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func listenPlain(t testing.TB) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	return l
}

func plainWithin(b *testing.B, serve func(net.Conn)) net.Conn {
	l := listenPlain(b)
	go func() {
		c, err := l.Accept()
		if err == nil {
			serve(c)
		}
	}()
	b.Cleanup(func() { _ = l.Close() })
	return dialPlain(b, l.Addr().String())
}

func dialPlain(b *testing.B, addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	fatal(b, err)
	b.Cleanup(func() { _ = c.Close() })
	return c
}

func plainEcho(c net.Conn) {
	defer c.Close()
	var buf [8]byte
	for {
		if _, err := io.ReadFull(c, buf[:]); err != nil {
			return
		}
		if _, err := c.Write(buf[:]); err != nil {
			return
		}
	}
}

// plainSink reads into one buffer of the transfer size, and tells the total in the end.
func plainSink(c net.Conn) {
	defer c.Close()
	buf := make([]byte, bulkSize)
	var total uint64
	for {
		n, err := c.Read(buf)
		total += uint64(n)
		if err != nil {
			_ = binary.Write(c, binary.BigEndian, total)
			return
		}
	}
}

func plainPingPong(b *testing.B, c net.Conn) {
	var buf [8]byte
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(buf[:]); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf[:]); err != nil {
			b.Fatal(err)
		}
	}
}

func plainBulk(b *testing.B, c net.Conn) {
	buf := make([]byte, bulkSize)
	b.SetBytes(bulkSize)
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	fatal(b, c.(*net.TCPConn).CloseWrite())
	var total uint64
	fatal(b, binary.Read(c, binary.BigEndian, &total))
	if total != uint64(b.N)*bulkSize {
		b.Fatalf("the sink saw %d bytes", total)
	}
}

// benchEnd is a domain with a queue and memory for one endpoint.
type benchEnd struct {
	dom   fabric.Domain
	cq    fabric.CQ
	ep    fabric.Endpoint
	reg   fabric.Region
	dst   []fabric.Completion
	recvs []fabric.Recv
	wrs   []fabric.WR
}

func newBenchEnd(t testing.TB) *benchEnd { return newBenchEndWith(t, Options{}) }

func newBenchEndWith(t testing.TB, opts Options) *benchEnd {
	t.Helper()
	dom, err := Open(opts)
	fatal(t, err)
	t.Cleanup(func() { fatal(t, dom.Close()) })
	e := &benchEnd{dom: dom, dst: make([]fabric.Completion, 16)}
	e.cq, err = dom.NewCQ(fabric.CQOptions{Depth: 256})
	fatal(t, err)
	e.reg, err = dom.Register(make([]byte, bulkSize+4096))
	fatal(t, err)
	mem := e.reg.Bytes()[bulkSize:]
	e.recvs = []fabric.Recv{{Reg: e.reg, Buf: mem[:64]}}
	e.wrs = []fabric.WR{{Op: fabric.OpSend, Flags: fabric.FlagInline}}
	e.wrs[0].Local = []fabric.Sge{{Reg: e.reg, Buf: mem[64:72]}}
	return e
}

func (e *benchEnd) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{SendCQ: e.cq, RecvCQ: e.cq, SendDepth: 64, RecvDepth: 64}
}

// await waits for a message and posts its receive again.
func (e *benchEnd) await(ctx context.Context) error {
	if _, err := e.cq.Wait(ctx, e.dst[:1]); err != nil {
		return err
	}
	if e.dst[0].Err != nil {
		return e.dst[0].Err
	}
	return e.ep.PostRecv(e.recvs)
}

// servePeer grants its memory in a first message, then echoes.
func servePeer(t *testing.T, e *benchEnd, host string) {
	l, err := e.dom.Connector().Listen(net.JoinHostPort(host, "0"))
	fatal(t, err)
	os.Stdout.WriteString(l.Addr().String() + "\n")
	ctx := context.Background()
	e.ep, err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
		return e.config(), nil
	})
	fatal(t, err)
	fatal(t, e.ep.PostRecv(e.recvs))
	rem, err := e.reg.Grant(e.ep, 0, bulkSize, fabric.RemoteWrite)
	fatal(t, err)
	hello := make([]byte, 24)
	binary.BigEndian.PutUint64(hello, rem.Key)
	binary.BigEndian.PutUint64(hello[8:], rem.Addr)
	binary.BigEndian.PutUint64(hello[16:], rem.Len)
	wr := fabric.WR{Op: fabric.OpSend, Local: []fabric.Sge{{Buf: hello}}}
	fatal(t, e.ep.Post([]fabric.WR{wr}))
	for e.await(ctx) == nil {
		if e.ep.Post(e.wrs) != nil {
			return
		}
	}
}

// dialPeer connects to the other process and returns the memory that it granted.
func dialPeer(b *testing.B) (*benchEnd, fabric.Remote) {
	return dialPeerAt(b, newBenchEnd(b), startPeer(b, "fabric"))
}

func dialPeerAt(t testing.TB, e *benchEnd, addr string) (*benchEnd, fabric.Remote) {
	t.Helper()
	ctx := t.Context()
	var err error
	e.ep, err = e.dom.Connector().Dial(ctx, addr, e.config())
	fatal(t, err)
	fatal(t, e.ep.PostRecv(e.recvs))
	fatal(t, e.await(ctx))
	hello := e.recvs[0].Buf
	return e, fabric.Remote{
		Key: binary.BigEndian.Uint64(hello), Addr: binary.BigEndian.Uint64(hello[8:]),
		Len: binary.BigEndian.Uint64(hello[16:]),
	}
}

func fabricPingPong(b *testing.B) {
	e, _ := dialPeer(b)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := e.ep.Post(e.wrs); err != nil {
			b.Fatal(err)
		}
		if err := e.await(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func fabricWrites(b *testing.B) {
	e, rem := dialPeer(b)
	local := []fabric.Sge{{Reg: e.reg, Buf: e.reg.Bytes()[:bulkSize]}}
	wrs := []fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: local, Remote: rem,
	}}
	ctx := context.Background()
	b.SetBytes(bulkSize)
	b.ReportAllocs()
	b.ResetTimer()
	for posted, done := 0, 0; done < b.N; {
		for ; posted < b.N && posted < done+8; posted++ {
			fatal(b, e.ep.Post(wrs))
		}
		n, err := e.cq.Wait(ctx, e.dst)
		fatal(b, err)
		for _, c := range e.dst[:n] {
			fatal(b, c.Err)
		}
		done += n
	}
}
