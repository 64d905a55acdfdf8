package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// securities are the ways in which certificates are used.
func securities(t *testing.T) map[string]*Security {
	a := newAuthority(t)
	plain := a.security(t, "both")
	plain.Plaintext = true
	return map[string]*Security{"tls": a.security(t, "both"), "frames": plain}
}

// strange opens a connection and writes to it.
func (g *gate) strange(t *testing.T, b []byte) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	fatal(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, _ = c.Write(b) // it may be refused before all is written
	return c
}

// clientHello is the beginning of a good handshake.
func clientHello(t *testing.T, sec *Security) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(near, sec.clientConfig("127.0.0.1:1")).Handshake()
		_ = near.Close()
	}()
	b := make([]byte, 4096)
	n, err := far.Read(b)
	fatal(t, err)
	return b[:n]
}

// TestRandomBytes: ten thousand random bytes, alone and behind the beginning of a good handshake,
// are refused, logged once, counted, and keep nobody out.
func TestRandomBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, sec := range securities(t) {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, Options{Security: sec})
			const count = 20
			for i := range count {
				b := make([]byte, 10000)
				for j := range b {
					b[j] = byte(random.Uint32())
				}
				if b[0] = byte(i); i%2 == 1 { // 22: a handshake's record
					b = append(clientHello(t, sec), b...)
				}
				c := g.strange(t, b)
				_, _ = io.Copy(io.Discard, c) // it is ended
			}
			g.refused(t, count)
			if n := g.log.lines("connection refused"); n != 1 {
				t.Errorf("%d lines in the log", n)
			}
			if len(g.failed) > 0 {
				t.Errorf("Accept was bothered: %v", <-g.failed)
			}
			_, err := g.try(t, Options{Security: sec})
			fatal(t, err)
		})
	}
}

// TestSlowHandshakes: peers that begin a handshake and do not go on hold nobody up; no more than
// the backlog are held, whatever they wait for.
func TestSlowHandshakes(t *testing.T) {
	for name, sec := range securities(t) {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, Options{Security: sec, HelloTimeout: time.Hour})
			hello := clientHello(t, sec)
			var slow []net.Conn
			for i := range 4 * provider.Backlog {
				slow = append(slow, g.strange(t, hello[:i%len(hello)]))
			}
			for range 5 {
				_, err := g.try(t, Options{Security: sec})
				fatal(t, err)
			}
			for i, c := range slow[:3*provider.Backlog-5] {
				fatal(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
				if _, err := io.Copy(io.Discard, c); err != nil && errs.KindOf(err) == errs.TimedOut {
					t.Fatalf("slow peer %d is still there", i)
				}
			}
		})
	}
}

// TestHandshakesEnd: one that does not go on is ended when its time is over, which is logged.
func TestHandshakesEnd(t *testing.T) {
	sec := newAuthority(t).security(t, "both")
	g := newGate(t, Options{Security: sec, HelloTimeout: 50 * time.Millisecond})
	c := g.strange(t, clientHello(t, sec)[:40])
	_, _ = io.Copy(io.Discard, c)
	g.refused(t, 1)
	if n := g.log.lines("connection refused"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

// TestRecheck: what a peer has shown is judged anew when asked, at both ends.
func TestRecheck(t *testing.T) {
	var denied atomic.Bool
	judge := func() error {
		if denied.Load() {
			return errs.New(errs.Perm, "x", "", nil)
		}
		return nil
	}
	a := newAuthority(t)
	sec := a.security(t, "both")
	sec.Verify = func([]*x509.Certificate, bool) error { return judge() }
	g := newGate(t, Options{Security: sec})
	peer, err := g.try(t, Options{Security: sec})
	fatal(t, err)
	if err := peer.Recheck(); err != nil {
		t.Fatal(err)
	}
	denied.Store(true)
	if err := peer.Recheck(); errs.KindOf(err) != errs.Perm {
		t.Fatalf("a denied peer: %v", err)
	}
	g = newGate(t, Options{Security: a.security(t, "both")})
	if peer, err = g.try(t, Options{Security: a.security(t, "both")}); err != nil ||
		peer.Recheck != nil {
		t.Fatalf("nobody to ask: %v, %v", err, peer.Recheck != nil)
	}
	tokens := fabric.NewTokens(1)
	token, err := tokens.IssueTo(fabric.Peer{Name: "n", Recheck: judge}, time.Hour)
	fatal(t, err)
	peer, _, err = tokens.Admit(fabric.Hello{Token: token})
	if err != nil || peer.Name != "n" || errs.KindOf(peer.Recheck()) != errs.Perm {
		t.Fatalf("by a token: %v, %q", err, peer.Name)
	}
}
