package tcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// logText is a log that can be read while it is written.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logText) lines(substring string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, substring) {
			n++
		}
	}
	return n
}

// gate is a listener that accepts everybody whom the provider lets in, and counts the others.
type gate struct {
	*benchEnd
	addr   string
	log    logText
	failed chan error
}

func newGate(t *testing.T, opts Options) *gate {
	t.Helper()
	g := &gate{failed: make(chan error, 100)}
	opts.Log = slog.New(slog.NewTextHandler(&g.log, nil))
	g.benchEnd = newBenchEndWith(t, opts)
	l, err := g.dom.Connector().Listen("127.0.0.1:0")
	fatal(t, err)
	g.addr = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			ep, err := l.Accept(context.Background(),
				func(fabric.Peer) (fabric.EndpointConfig, error) { return g.config(), nil })
			switch {
			case err == nil:
				_ = ep.Close()
			case errs.KindOf(err) == errs.Closed:
				return
			default:
				g.failed <- err
			}
		}
	}()
	t.Cleanup(func() { // before the domain is closed
		fatal(t, l.Close())
		<-done
	})
	return g
}

// try dials the gate and returns what came of it.
func (g *gate) try(t *testing.T, opts Options) (fabric.Peer, error) {
	t.Helper()
	e := newBenchEndWith(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ep, err := e.dom.Connector().Dial(ctx, g.addr, e.config())
	if err != nil {
		return fabric.Peer{}, err
	}
	peer := ep.Peer()
	fatal(t, ep.Close())
	return peer, nil
}

// refused waits until so many peers were refused.
func (g *gate) refused(t *testing.T, want uint64) {
	t.Helper()
	count := g.dom.(fabric.Refuser).Refusals
	for began := time.Now(); count() < want; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d were refused, want %d", count(), want)
		}
	}
}

func TestWhoIsLetIn(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	good := a.security(t, "right")
	expired := a.issue(t, "old", func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(-time.Minute)
	})
	early := a.issue(t, "early", func(c *x509.Certificate) {
		c.NotBefore = time.Now().Add(time.Minute)
	})
	notForClients := a.issue(t, "server", func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	plaintext := *good
	plaintext.Plaintext = true
	stranger := other.with(other.issue(t, "stranger", nil))
	stranger.Roots = a.roots // it believes the gate, the gate does not believe it
	elsewhere := *good
	elsewhere.ServerName = "elsewhere.example"
	for _, c := range []struct {
		name string
		opts Options
		want errs.Kind
	}{
		{"a good certificate", Options{Security: good}, errs.OK},
		{"of another authority", Options{Security: stranger}, errs.Perm},
		{"that believes another authority", Options{Security: other.security(t, "x")}, errs.Perm},
		{"expired", Options{Security: a.with(expired)}, errs.Perm},
		{"not valid yet", Options{Security: a.with(early)}, errs.Perm},
		{"not for clients", Options{Security: a.with(notForClients)}, errs.Perm},
		{"no certificate", Options{Security: a.with(&tls.Certificate{})}, errs.Perm},
		{"expects another name", Options{Security: &elsewhere}, errs.Perm},
		{"wants plaintext", Options{Security: &plaintext}, errs.Perm},
		{"without TLS", Options{}, errs.Perm},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(t, Options{Security: good})
			peer, err := g.try(t, c.opts)
			if errs.KindOf(err) != c.want {
				t.Fatalf("the dialler got %v, want %v", err, c.want)
			}
			if c.want == errs.OK {
				if peer.Proof != fabric.ProofTLS || peer.Name != "right" {
					t.Fatalf("the gate is %+v", peer)
				}
				return
			}
			t.Log(err)
			g.refused(t, 1)
			if n := g.log.lines("connection refused"); n != 1 {
				t.Fatalf("%d lines in the log", n)
			}
			if len(g.failed) > 0 {
				t.Fatalf("Accept was bothered: %v", <-g.failed)
			}
			_, err = g.try(t, Options{Security: good}) // others are served on
			fatal(t, err)
		})
	}
}

func TestTLSAtAPlainListener(t *testing.T) {
	g := newGate(t, Options{})
	_, err := g.try(t, Options{Security: newAuthority(t).security(t, "left")})
	if kind := errs.KindOf(err); kind != errs.Perm && kind != errs.Disconnected {
		t.Fatalf("the dialler got %v", err)
	}
	if err := <-g.failed; errs.KindOf(err) != errs.Perm {
		t.Fatalf("the gate says %v", err)
	}
}

// TestRefusalsAreLoggedOnce lets a peer knock often.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	g := newGate(t, Options{Tokens: fabric.NewTokens(1)})
	for range 10 {
		if _, err := g.try(t, Options{}); errs.KindOf(err) != errs.Perm {
			t.Fatalf("without a token: %v", err)
		}
		<-g.failed
	}
	if n := g.log.lines("connection refused"); n != 1 {
		t.Fatalf("%d lines for ten refusals of one peer", n)
	}
}

// TestOnTheWire looks at what passes between two ends, and changes it.
func TestOnTheWire(t *testing.T) {
	a := newAuthority(t)
	secret := bytes.Repeat([]byte("not for everybody "), 1000)
	for _, c := range []struct {
		name      string
		plaintext bool
		visible   bool
	}{
		{"tls", false, false}, {"frames", true, true},
	} {
		for _, large := range []bool{false, true} {
			sec := a.security(t, "both")
			sec.Plaintext = c.plaintext
			size := 64
			if large {
				size = len(secret)
			}
			t.Run(c.name, func(t *testing.T) {
				m := newMiddle(t, sec)
				m.send(secret[:size])
				fatal(t, m.receiver.await(t.Context()))
				if got := m.saw(secret[:32]); got != c.visible {
					t.Fatalf("the payload is visible: %v", got)
				}
				m.flip() // one bit of every later packet
				m.send(secret[:size])
				err := m.receiver.await(t.Context())
				if errs.KindOf(err) != errs.Protocol && errs.KindOf(err) != errs.Disconnected {
					t.Fatalf("a changed message: %v", err)
				}
			})
		}
	}
}

// middle is two ends with somebody between them.
type middle struct {
	t                *testing.T
	sender, receiver *benchEnd

	mu      sync.Mutex
	seen    bytes.Buffer
	flipped bool
}

func newMiddle(t *testing.T, sec *Security) *middle {
	t.Helper()
	opts := Options{Security: sec}
	m := &middle{t: t, sender: newBenchEndWith(t, opts), receiver: newBenchEndWith(t, opts)}
	l, err := m.receiver.dom.Connector().Listen("127.0.0.1:0")
	fatal(t, err)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = front.Close()
		_ = m.sender.ep.Close()
		_ = m.receiver.ep.Close()
		wg.Wait()
	})
	wg.Go(func() {
		in, err := front.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return
		}
		wg.Go(func() {
			_, _ = io.Copy(in, out)
			_ = in.Close()
		})
		m.forward(out, in)
		_ = out.Close()
	})
	done := make(chan error, 1)
	go func() {
		var err error
		m.receiver.ep, err = l.Accept(t.Context(),
			func(fabric.Peer) (fabric.EndpointConfig, error) { return m.receiver.config(), nil })
		done <- err
	}()
	m.sender.ep, err = m.sender.dom.Connector().Dial(t.Context(), front.Addr().String(),
		m.sender.config())
	fatal(t, err)
	fatal(t, <-done)
	fatal(t, m.receiver.ep.PostRecv([]fabric.Recv{
		{Buf: make([]byte, 1<<20)}, {Buf: make([]byte, 1<<20)},
	}))
	return m
}

func (m *middle) forward(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		m.mu.Lock()
		m.seen.Write(buf[:n])
		if m.flipped {
			buf[n-1] ^= 1
		}
		m.mu.Unlock()
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (m *middle) send(data []byte) {
	m.t.Helper()
	fatal(m.t, m.sender.ep.Post([]fabric.WR{{
		Op: fabric.OpSend, Local: []fabric.Sge{{Buf: data}},
	}}))
}

func (m *middle) saw(part []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Contains(m.seen.Bytes(), part)
}

func (m *middle) flip() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flipped = true
}
