//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// roleEnv makes this test binary one of two programs on two machines, with roleAddr between them:
// "serve" grants memory and sends messages back; "verify" and "stream" use it, "idle" only waits.
const roleEnv, roleAddr = "SLUICE_VERBS_ROLE", "SLUICE_VERBS_ADDR"

func TestMain(m *testing.M) {
	play := map[string]func(*peer, string) error{
		"serve": (*peer).serve, "verify": (*peer).verify, "stream": (*peer).stream,
		"idle": (*peer).idle,
	}[os.Getenv(roleEnv)]
	if play == nil {
		os.Exit(m.Run())
	}
	p, err := newPeer()
	if err == nil {
		err = play(p, os.Getenv(roleAddr))
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

const (
	peerMessage = 256
	peerDepth   = 16
	peerWindow  = 256 << 10 // granted to the other side, at the memory's beginning
	peerRecvs   = peerWindow
	peerSends   = peerRecvs + peerDepth*peerMessage
	peerOwn     = 512 << 10
)

// peer is one program.
type peer struct {
	dom fabric.Domain
	reg fabric.Region
	mem []byte
	cq  fabric.CQ
	ep  fabric.Endpoint
	dst [peerDepth]fabric.Completion
}

func newPeer() (*peer, error) {
	p := &peer{}
	var err error
	if p.dom, err = Open(Options{KeepAlive: time.Second}); err != nil {
		return nil, err
	}
	p.mem, err = syscall.Mmap(-1, 0, arena, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	if p.reg, err = p.dom.Register(p.mem); err != nil {
		return nil, err
	}
	p.cq, err = p.dom.NewCQ(fabric.CQOptions{Depth: 2 * peerDepth})
	return p, err
}

func (p *peer) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{
		SendCQ: p.cq, RecvCQ: p.cq, SendDepth: peerDepth, RecvDepth: peerDepth,
	}
}

func (p *peer) postRecv(i uint64) error {
	at := peerRecvs + int(i)*peerMessage
	return p.ep.PostRecv([]fabric.Recv{{Context: i, Reg: p.reg, Buf: p.mem[at : at+peerMessage]}})
}

// send copies data to slot i and sends it silently.
func (p *peer) send(i uint64, data []byte) error {
	at := peerSends + int(i)*peerMessage
	n := copy(p.mem[at:at+peerMessage], data)
	return p.ep.Post([]fabric.WR{{
		Op: fabric.OpSend, Context: i, Local: []fabric.Sge{{Reg: p.reg, Buf: p.mem[at : at+n]}},
	}})
}

// serve takes one connection after the other until it is killed.
func (p *peer) serve(addr string) error {
	l, err := p.dom.Connector().Listen(addr)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		p.ep, err = l.Accept(context.Background(),
			func(fabric.Peer) (fabric.EndpointConfig, error) { return p.config(), nil })
		if errs.KindOf(err) == errs.Closed {
			return err
		}
		if err != nil {
			fmt.Println("accept:", err)
			continue
		}
		err := p.answer()
		fmt.Println("ended:", errs.KindOf(err), err)
		if err := p.ep.Close(); err != nil {
			return err
		}
		for p.cq.Poll(p.dst[:]) > 0 {
		}
	}
}

// answer sends the key of the window first, while the other side may have no receive posted, and
// every message back.
func (p *peer) answer() error {
	rem, err := p.reg.Grant(p.ep, 0, peerWindow, fabric.RemoteRead|fabric.RemoteWrite)
	if err != nil {
		return err
	}
	var key []byte
	for _, v := range []uint64{rem.Key, rem.Addr, rem.Len} {
		key = binary.BigEndian.AppendUint64(key, v)
	}
	if err := p.send(0, key); err != nil {
		return err
	}
	for i := range uint64(peerDepth) {
		if err := p.postRecv(i); err != nil {
			return err
		}
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
			at := peerRecvs + int(c.Context)*peerMessage
			if err := p.send(c.Context, p.mem[at:at+c.Len]); err != nil {
				return err
			}
			if err := p.postRecv(c.Context); err != nil {
				return err
			}
		}
	}
}

// call connects and takes the key.
func (p *peer) call(addr string) (rem fabric.Remote, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if p.ep, err = p.dom.Connector().Dial(ctx, addr, p.config()); err != nil {
		return rem, err
	}
	time.Sleep(20 * time.Millisecond) // the key waits for the first receive
	if err = p.postRecv(0); err != nil {
		return rem, err
	}
	c, err := p.wait(ctx)
	if err != nil {
		return rem, err
	}
	b := p.mem[peerRecvs : peerRecvs+c.Len]
	rem.Key, rem.Addr = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	rem.Len = binary.BigEndian.Uint64(b[16:])
	return rem, nil
}

func (p *peer) wait(ctx context.Context) (fabric.Completion, error) {
	_, err := p.cq.Wait(ctx, p.dst[:1])
	if err == nil {
		err = p.dst[0].Err
	}
	return p.dst[0], err
}

// verify writes, reads back and exchanges messages, and looks at every byte.
func (p *peer) verify(addr string) error {
	rem, err := p.call(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const size = 64 << 10
	out, in := p.mem[peerOwn:peerOwn+size], p.mem[peerOwn+size:peerOwn+2*size]
	for round := range 20 {
		for i := range out {
			out[i] = byte(i*13>>4 + round)
		}
		to := rem.Slice(uint64(round*1000), size)
		write := fabric.WR{Op: fabric.OpWrite, Remote: to}
		for i := range 16 {
			piece := out[i*size/16 : (i+1)*size/16]
			write.Local = append(write.Local, fabric.Sge{Reg: p.reg, Buf: piece})
		}
		read := fabric.WR{
			Op: fabric.OpRead, Flags: fabric.FlagSignaled, Remote: to,
			Local: []fabric.Sge{{Reg: p.reg, Buf: in}},
		}
		if err := p.ep.Post([]fabric.WR{write, read}); err != nil {
			return err
		}
		if _, err := p.wait(ctx); err != nil {
			return err
		}
		if !bytes.Equal(in, out) {
			return errs.Newf(errs.Corrupt, "verify", "", "round %d: other bytes came back", round)
		}
		text := fmt.Appendf(nil, "message %d", round)
		if err := p.postRecv(1); err != nil {
			return err
		}
		if err := p.send(2, text); err != nil {
			return err
		}
		c, err := p.wait(ctx)
		if err != nil {
			return err
		}
		at := peerRecvs + peerMessage
		if got := p.mem[at : at+c.Len]; !bytes.Equal(got, text) {
			return errs.Newf(errs.Corrupt, "verify", "", "%q came back as %q", text, got)
		}
	}
	fmt.Println("verified")
	return p.dom.Close()
}

// stream writes until the connection ends, and tells how. Everything that was posted must complete,
// and the domain must close.
func (p *peer) stream(addr string) error {
	rem, err := p.call(addr)
	if err != nil {
		return err
	}
	if err := p.postRecv(0); err != nil {
		return err
	}
	wr := []fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem.Slice(0, 64<<10),
		Local: []fabric.Sge{{Reg: p.reg, Buf: p.mem[peerOwn : peerOwn+64<<10]}},
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
			if done++; done == 50 {
				fmt.Println("flowing")
			}
		}
	}
	fmt.Printf("ended %v after %.1f s of silence: %v\n", errs.KindOf(ended),
		time.Since(last).Seconds(), ended)
	return p.dom.Close()
}

// idle posts a receive and waits for the connection to end.
func (p *peer) idle(addr string) error {
	if _, err := p.call(addr); err != nil {
		return err
	}
	if err := p.postRecv(0); err != nil {
		return err
	}
	fmt.Println("flowing") // as much as it will
	last := time.Now()
	_, err := p.wait(context.Background())
	fmt.Printf("ended %v after %.1f s of silence: %v\n", errs.KindOf(err),
		time.Since(last).Seconds(), err)
	return p.dom.Close()
}
