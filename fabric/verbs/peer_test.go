//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// roleEnv makes this test binary one of two programs on two machines, with roleHost, the server's,
// between them: "serve" serves visitors and streams, "stream" writes until the connection ends,
// "idle" only waits for that; "hold" accepts and does nothing.
const roleEnv, roleHost = "SLUICE_VERBS_ROLE", "SLUICE_VERBS_HOST"

// The ports of the server.
const visitPort, streamPort = ":7471", ":7472"

func TestMain(m *testing.M) {
	play := map[string]func(*peer, string) error{
		"serve": (*peer).serve, "stream": (*peer).stream, "idle": (*peer).idle,
		"hold": func(_ *peer, host string) error { return hold(host) },
	}[os.Getenv(roleEnv)]
	if play == nil {
		os.Exit(m.Run())
	}
	fmt.Println("pid", os.Getpid())
	dom, err := Open(peerOptions())
	if err == nil {
		err = play(&peer{dom: dom}, os.Getenv(roleHost))
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func peerOptions() Options { return Options{KeepAlive: time.Second} }

// TestVisit exchanges data with a server on another machine.
func TestVisit(t *testing.T) {
	host := os.Getenv(roleHost)
	if host == "" {
		t.Skip("needs a server, which TestLab starts on another machine")
	}
	dom, err := Open(peerOptions())
	fatal(t, err)
	defer func() { fatal(t, dom.Close()) }()
	fabrictest.Visit(t, fabrictest.Meeting{Domain: dom, Addr: host + visitPort, Patience: patience})
}

const (
	peerMessage = 64
	peerDepth   = 16
	peerBytes   = 256 << 10 // what the server grants and the stream writes
)

// peer is one end of a stream.
type peer struct {
	dom fabric.Domain
	reg fabric.Region
	mem []byte // a message, then peerBytes
	cq  fabric.CQ
	ep  fabric.Endpoint
	dst [peerDepth]fabric.Completion
}

func (p *peer) open() (err error) {
	p.mem, err = syscall.Mmap(-1, 0, peerMessage+peerBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	if p.reg, err = p.dom.Register(p.mem); err != nil {
		return err
	}
	p.cq, err = p.dom.NewCQ(fabric.CQOptions{Depth: 2 * peerDepth})
	return err
}

func (p *peer) close() error {
	if p.ep != nil {
		_ = p.ep.Close()
	}
	_ = p.reg.Close()
	_ = p.cq.Close()
	return syscall.Munmap(p.mem)
}

func (p *peer) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{
		SendCQ: p.cq, RecvCQ: p.cq, SendDepth: peerDepth, RecvDepth: peerDepth,
	}
}

func (p *peer) message() []fabric.Sge {
	return []fabric.Sge{{Reg: p.reg, Buf: p.mem[:peerMessage]}}
}

func (p *peer) postRecv() error {
	return p.ep.PostRecv([]fabric.Recv{{Reg: p.reg, Buf: p.mem[:peerMessage]}})
}

// serve runs until it is killed.
func (p *peer) serve(string) error {
	visits := fabrictest.Meeting{Domain: p.dom, Addr: visitPort}
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		ended <- fabrictest.Serve(context.Background(), visits, func(string) { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	go func() { fmt.Println("visits ended:", <-ended) }() // nothing ends them but a mistake
	l, err := p.dom.Connector().Listen(streamPort)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	var streams atomic.Int32
	for {
		s := &peer{dom: p.dom}
		if err := s.open(); err != nil {
			return err
		}
		s.ep, err = l.Accept(context.Background(),
			func(fabric.Peer) (fabric.EndpointConfig, error) { return s.config(), nil })
		if errs.KindOf(err) == errs.Closed {
			return err
		}
		if err != nil {
			fmt.Println("accept:", err)
			_ = s.close()
			continue
		}
		streams.Add(1)
		go func() {
			err := s.answer()
			_ = s.close()
			fmt.Printf("served %v, left %d streams, %d goroutines: %v\n", errs.KindOf(err),
				streams.Add(-1), runtime.NumGoroutine(), err)
		}()
	}
}

// answer sends the key of the memory, perhaps before the other side has a receive posted, and waits
// for the end.
func (p *peer) answer() error {
	rem, err := p.reg.Grant(p.ep, peerMessage, peerBytes, fabric.RemoteRead|fabric.RemoteWrite)
	if err != nil {
		return err
	}
	key := p.mem[:0]
	for _, v := range []uint64{rem.Key, rem.Addr, rem.Len} {
		key = binary.BigEndian.AppendUint64(key, v)
	}
	if err := p.ep.Post([]fabric.WR{{Op: fabric.OpSend, Local: p.message()}}); err != nil {
		return err
	}
	if err := p.postRecv(); err != nil {
		return err
	}
	for {
		n, err := p.cq.Wait(context.Background(), p.dst[:])
		if err != nil {
			return err
		}
		for _, c := range p.dst[:n] {
			if c.Err != nil {
				return c.Err
			}
		}
	}
}

// call connects and takes the key.
func (p *peer) call(host string) (rem fabric.Remote, err error) {
	if err = p.open(); err != nil {
		return rem, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if p.ep, err = p.dom.Connector().Dial(ctx, host+streamPort, p.config()); err != nil {
		return rem, err
	}
	time.Sleep(20 * time.Millisecond) // the key waits for the first receive
	if err = p.postRecv(); err != nil {
		return rem, err
	}
	if _, err = p.cq.Wait(ctx, p.dst[:1]); err == nil {
		err = p.dst[0].Err
	}
	if err != nil {
		return rem, err
	}
	rem.Key, rem.Addr = binary.BigEndian.Uint64(p.mem), binary.BigEndian.Uint64(p.mem[8:])
	rem.Len = binary.BigEndian.Uint64(p.mem[16:])
	return rem, p.postRecv()
}

// stream writes until the connection ends, and tells how. Everything that was posted must complete.
func (p *peer) stream(host string) error {
	rem, err := p.call(host)
	if err != nil {
		return err
	}
	const size = 64 << 10
	wr := []fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem.Slice(0, size),
		Local: []fabric.Sge{{Reg: p.reg, Buf: p.mem[peerMessage : peerMessage+size]}},
	}}
	pending, done := 1, 0 // the receive
	last := time.Now()
	var ended error
	for pending > 0 {
		for ended == nil && pending < peerDepth/2 && p.ep.Post(wr) == nil {
			pending++
		}
		n, err := p.cq.Wait(context.Background(), p.dst[:])
		if err != nil {
			return err
		}
		for _, c := range p.dst[:n] {
			pending--
			if c.Err != nil {
				ended = c.Err
				continue
			}
			last = time.Now()
			if done++; done%50 == 0 {
				fmt.Println("flowing", done)
			}
		}
	}
	return p.leave(ended, last)
}

// idle waits for the connection to end.
func (p *peer) idle(host string) error {
	if _, err := p.call(host); err != nil {
		return err
	}
	fmt.Println("flowing") // as much as it will
	last := time.Now()
	_, err := p.cq.Wait(context.Background(), p.dst[:1])
	if err == nil {
		err = p.dst[0].Err
	}
	return p.leave(err, last)
}

// leave closes everything and tells what is left: nothing.
func (p *peer) leave(ended error, last time.Time) error {
	silent := time.Since(last).Seconds()
	if err := p.close(); err != nil {
		return err
	}
	if err := p.dom.Close(); err != nil {
		return err
	}
	if err := goleak.Find(); err != nil {
		return err
	}
	if left := leftovers(); left != "" {
		return errs.Newf(errs.Invalid, "leave", "", "the kernel still has\n%s", left)
	}
	fmt.Printf("ended %v after %.1f s of silence: %v\n", errs.KindOf(ended), silent, ended)
	return nil
}

// leftovers are the queues and registrations that the kernel holds for this process, by the threads
// that made them.
func leftovers() string {
	threads, _ := os.ReadDir("/proc/self/task")
	var all []string
	for _, kind := range []string{"qp", "cq", "mr"} {
		out, _ := exec.Command("rdma", "resource", "show", kind).Output()
		for line := range strings.Lines(string(out)) {
			if slices.ContainsFunc(threads, func(t os.DirEntry) bool {
				return strings.Contains(line, " pid "+t.Name()+" ")
			}) {
				all = append(all, kind+": "+line)
			}
		}
	}
	return strings.Join(all, "")
}
