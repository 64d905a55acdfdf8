package iodtest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a client and a server on tcp and does what a bad client, or the network
// before it, does: after so many bytes it goes silent in one direction or both, or is gone.
type proxy struct {
	listener net.Listener
	to       func() string
	up, down limit // client to server, server to client

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

// limit is how many bytes pass in a direction; then the connection stalls, or is cut.
type limit struct {
	left  atomic.Int64
	cut   atomic.Bool
	reach chan struct{} // closed when it is reached
	once  sync.Once
}

const unlimited = 1 << 50

func newProxy(t testing.TB, to func() string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	p := &proxy{listener: l, to: to}
	for _, x := range []*limit{&p.up, &p.down} {
		x.left.Store(unlimited)
		x.reach = make(chan struct{})
	}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.to())
		if err != nil {
			_ = c.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, c, s)
		p.mu.Unlock()
		p.all.Go(func() { p.pass(s, c, &p.up) })
		p.all.Go(func() { p.pass(c, s, &p.down) })
	}
}

// pass moves bytes until the limit is reached. A stalled direction is not read any more, so that
// the sender's socket fills up.
func (p *proxy) pass(to, from net.Conn, l *limit) {
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		if l.left.Add(-int64(n)) < 0 {
			l.once.Do(func() { close(l.reach) })
			if l.cut.Load() {
				p.sever()
			}
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				_ = to.Close()
			}
			return
		}
	}
}

// sever cuts all connections at once.
func (p *proxy) sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.sever()
	p.all.Wait()
}
