// Package connlimit bounds what strangers can make an HTTP server do: connections at once, of all
// and of one address, handshakes under way, and requests of one address in a second. Who is turned
// away is told to a function, which logs (package logonce) and counts.
//
// It does not know who a peer is: that is for the handshake that it leaves room for. Read
// listener.go first, then pace.go, and errorline.go for what package http logs of handshakes.
package connlimit

import (
	"cmp"
	"net"
	"net/http"
	"sync"

	"github.com/sluice-storage/sluice/internal/list"
)

// Limits of a Listener. The zero value has all defaults.
type Limits struct {
	Conns        int // at once. Default 512
	ConnsPerAddr int // of one address. Default 32
	Handshakes   int // that have not sent a request: a newcomer ends the oldest. Default 64
}

func (l Limits) withDefaults() Limits {
	l.Conns = cmp.Or(l.Conns, 512)
	l.ConnsPerAddr = cmp.Or(l.ConnsPerAddr, 32)
	l.Handshakes = cmp.Or(l.Handshakes, 64)
	return l
}

// Listener lets in as many as the limits say.
type Listener struct {
	net.Listener
	limits  Limits
	refused func(addr, why string)

	mu     sync.Mutex
	conns  int
	byAddr map[string]int
	young  list.List[guarded] // those that have not sent a request, oldest first
	youngs int                // how many they are
}

// guarded is a connection that was let in.
type guarded struct {
	net.Conn
	gate  *Listener
	addr  string // of the peer, without its port
	place list.Link[guarded]
	once  sync.Once
}

// New bounds a listener. refused hears of the addresses, without ports, that are turned away.
func New(ln net.Listener, limits Limits, refused func(addr, why string)) *Listener {
	return &Listener{Listener: ln, limits: limits.withDefaults(), refused: refused,
		byAddr: map[string]int{}}
}

// Host is an address without its port.
func Host(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// Accept implements net.Listener.
func (g *Listener) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := Host(c.RemoteAddr().String())
		in, oldest, why := g.admit(c, addr)
		if oldest != nil {
			_ = oldest.Close()
			g.refused(oldest.addr, "too many handshakes are under way, and this one was the oldest")
		}
		if in != nil {
			return in, nil
		}
		_ = c.Close()
		g.refused(addr, why)
	}
}

// admit counts a connection in, and tells whose place it takes; or why there is none.
func (g *Listener) admit(c net.Conn, addr string) (in, oldest *guarded, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byAddr[addr] >= g.limits.ConnsPerAddr {
		return nil, nil, "too many connections of this address"
	}
	if g.youngs >= g.limits.Handshakes {
		oldest = g.young.First()
		g.dropLocked(oldest)
	}
	if g.conns >= g.limits.Conns && oldest == nil {
		return nil, nil, "too many connections"
	}
	g.conns++
	g.byAddr[addr]++
	in = &guarded{Conn: c, gate: g, addr: addr}
	g.young.PushLast(&in.place, in)
	g.youngs++
	return in, oldest, ""
}

// dropLocked takes a connection out of those that have not sent a request.
func (g *Listener) dropLocked(c *guarded) {
	g.young.Remove(&c.place)
	g.youngs--
}

// grown says that a connection has sent a request, or is gone.
func (g *Listener) grown(c *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.place.In() {
		g.dropLocked(c)
	}
}

// Close implements net.Conn.
func (c *guarded) Close() error {
	c.once.Do(func() {
		g := c.gate
		g.grown(c)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.conns--
		if g.byAddr[c.addr]--; g.byAddr[c.addr] == 0 {
			delete(g.byAddr, c.addr)
		}
	})
	return c.Conn.Close()
}

// State is for http.Server.ConnState: it tells when a handshake is over and a request begins.
func (g *Listener) State(c net.Conn, s http.ConnState) {
	if under, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = under.NetConn()
	}
	if in, ok := c.(*guarded); ok && s != http.StateNew {
		g.grown(in)
	}
}
