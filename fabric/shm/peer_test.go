package shm

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Tests with a peer that is a process of its own: this binary, started again with a part to play.

const (
	envPart = "SHM_TEST_PART"
	envAddr = "SHM_TEST_ADDR"
	envSeed = "SHM_TEST_SEED"
	envSpin = "SHM_TEST_SPIN"
	envLent = "SHM_TEST_LENT"
)

func TestMain(m *testing.M) {
	if part := os.Getenv(envPart); part != "" {
		if err := play(part, os.Getenv(envAddr)); err != nil {
			fmt.Fprintln(os.Stderr, part, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// end is one side of a connection: a domain with arena memory, a queue and an endpoint.
type end struct {
	dom    fabric.Domain
	cq     fabric.CQ
	mem    []byte
	reg    fabric.Region
	ep     fabric.Endpoint
	theirs fabric.Remote // what the peer granted
	mine   fabric.Remote
	free   func() error
}

const (
	endBytes = 4 << 20
	endDepth = 64
	msgBytes = 64
)

func newEnd(opts Options, spin time.Duration) (*end, error) {
	opts.Arenas = NewArenas()
	source := opts.Arenas
	if opts.Lent != nil { // of each end its own
		opts.Lent = NewLent()
		source = opts.Lent
	}
	n := &end{}
	var err error
	if n.mem, n.free, err = source.Map(endBytes); err != nil {
		return nil, err
	}
	if n.dom, err = Open(opts); err != nil {
		return nil, err
	}
	n.cq, err = n.dom.NewCQ(fabric.CQOptions{Depth: 4 * endDepth, Spin: spin})
	if err != nil {
		return nil, err
	}
	n.reg, err = n.dom.Register(n.mem)
	return n, err
}

func (n *end) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{
		SendCQ: n.cq, RecvCQ: n.cq, SendDepth: endDepth, RecvDepth: endDepth,
	}
}

// close gives everything back.
func (n *end) close() error {
	err := n.dom.Close()
	if e := n.reg.Close(); err == nil {
		err = e
	}
	if e := n.cq.Close(); err == nil {
		err = e
	}
	if e := n.free(); err == nil {
		err = e
	}
	return err
}

func (n *end) accept(ctx context.Context, l fabric.Listener) (err error) {
	n.ep, err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
		return n.config(), nil
	})
	return err
}

func (n *end) dial(ctx context.Context, addr string) (err error) {
	n.ep, err = n.dom.Connector().Dial(ctx, addr, n.config())
	return err
}

// swap posts receives in the first pages and exchanges grants on the second half of the memory.
func (n *end) swap(ctx context.Context) error {
	for i := range endDepth {
		if err := n.recv(i); err != nil {
			return err
		}
	}
	const both = fabric.RemoteRead | fabric.RemoteWrite
	var err error
	if n.mine, err = n.reg.Grant(n.ep, endBytes/2, endBytes/2, both); err != nil {
		return err
	}
	var b [24]byte
	binary.BigEndian.PutUint64(b[0:], n.mine.Key)
	binary.BigEndian.PutUint64(b[8:], n.mine.Addr)
	binary.BigEndian.PutUint64(b[16:], n.mine.Len)
	err = n.ep.Post([]fabric.WR{{
		Op: fabric.OpSend, Flags: fabric.FlagInline, Local: []fabric.Sge{{Buf: b[:]}},
	}})
	if err != nil {
		return err
	}
	var dst [1]fabric.Completion
	if _, err := n.cq.Wait(ctx, dst[:]); err != nil {
		return err
	}
	if dst[0].Err != nil || dst[0].Len != len(b) {
		return fmt.Errorf("no grant: %+v", dst[0])
	}
	got := n.mem[int(dst[0].Context)*msgBytes:]
	n.theirs = fabric.Remote{
		Key: binary.BigEndian.Uint64(got[0:]), Addr: binary.BigEndian.Uint64(got[8:]),
		Len: binary.BigEndian.Uint64(got[16:]),
	}
	return n.recv(int(dst[0].Context))
}

func (n *end) recv(i int) error {
	buf := n.mem[i*msgBytes : (i+1)*msgBytes]
	return n.ep.PostRecv([]fabric.Recv{{Context: uint64(i), Reg: n.reg, Buf: buf}})
}

// play is the life of a child.
func play(part, addr string) error {
	ctx := context.Background()
	spin, err := time.ParseDuration(os.Getenv(envSpin))
	if err != nil {
		return err
	}
	opts := Options{}
	if os.Getenv(envLent) != "" {
		opts.Lent = NewLent()
	}
	if part == "stranger" {
		opts.ServerUIDs = []uint32{65534} // how a namespace sees everybody outside
	}
	n, err := newEnd(opts, spin)
	if err != nil {
		return err
	}
	switch part {
	case "stranger":
		if err := n.dial(ctx, addr); errs.KindOf(err) != errs.Perm {
			return fmt.Errorf("uid %d here: %w", os.Getuid(), err)
		}
		return nil
	case "echo", "client traffic", "idle":
		if err := n.dial(ctx, addr); err != nil {
			return err
		}
	case "server traffic":
		l, err := n.dom.Connector().Listen(addr)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		if err := n.accept(ctx, l); err != nil {
			return err
		}
	}
	if err := n.swap(ctx); err != nil {
		return err
	}
	switch part {
	case "echo":
		n.echo(ctx)
	case "idle":
		n.drop(ctx)
	default:
		seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
		if err != nil {
			return err
		}
		if err := n.traffic(ctx, rand.New(rand.NewPCG(seed, 1))); err != nil {
			return err
		}
	}
	return n.close()
}

// echo answers every message until the peer is gone.
func (n *end) echo(ctx context.Context) {
	dst := make([]fabric.Completion, 8)
	wrs := []fabric.WR{{Op: fabric.OpSend, Flags: fabric.FlagInline, Local: make([]fabric.Sge, 1)}}
	recvs := make([]fabric.Recv, 1)
	for {
		got, err := n.cq.Wait(ctx, dst)
		if err != nil {
			return
		}
		for _, c := range dst[:got] {
			if c.Err != nil {
				return
			}
			buf := n.mem[int(c.Context)*msgBytes:][:msgBytes]
			wrs[0].Local[0] = fabric.Sge{Reg: n.reg, Buf: buf[:c.Len]}
			recvs[0] = fabric.Recv{Context: c.Context, Reg: n.reg, Buf: buf}
			if n.ep.Post(wrs) != nil || n.ep.PostRecv(recvs) != nil {
				return
			}
		}
	}
}

// drop takes what comes until the peer is gone.
func (n *end) drop(ctx context.Context) {
	var dst [8]fabric.Completion
	for {
		got, err := n.cq.Wait(ctx, dst[:])
		for _, c := range dst[:got] {
			if c.Err != nil || n.recv(int(c.Context)) != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// child is a running peer.
type child struct {
	*exec.Cmd
	ready chan struct{} // closed when it said so
}

// lends tells a child to lend as this end does.
func (n *end) lends() string {
	if n.dom.(*domain).opts.Lent == nil {
		return envLent + "="
	}
	return envLent + "=1"
}

// start runs a peer in a process of its own. It is killed at the end of the test at the latest.
func start(t testing.TB, part, addr string, seed uint64, spin time.Duration, env ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), envPart+"="+part, envAddr+"="+addr,
		envSpin+"="+spin.String(), envSeed+"="+strconv.FormatUint(seed, 10))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	fatal(t, err)
	fatal(t, cmd.Start())
	c := &child{cmd, make(chan struct{})}
	said := make(chan struct{})
	go func() {
		defer close(said)
		if _, err := bufio.NewReader(out).ReadString('\n'); err == nil {
			close(c.ready)
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-said
		_ = cmd.Wait()
	})
	return c
}
