package tcp

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Security makes both sides prove who they are: mutual TLS 1.3. The hellos, and the tokens in
// them, are exchanged under its protection in any case.
type Security struct {
	// Certificate is this side's, asked for at every connection so that it can be renewed. Needed. One
	// that comes with an error is one that has run out: it is shown by listeners only, so that who
	// comes is told why nobody believes them.
	Certificate func() (*tls.Certificate, error)

	// Roots are the authorities whose certificates are believed, of both sides. Needed without Verify.
	Roots *x509.CertPool

	// ServerName is who must be at the other side of a Dial. Default: the host that is dialled.
	ServerName string

	// Verify, if not nil, is all that decides whether the peer is believed, in the place of Roots and
	// ServerName: it gets the certificates that the peer shows, its own first, which it has the key
	// of. listens tells which side this is.
	Verify func(shown []*x509.Certificate, listens bool) error

	// Changed, if not nil, is closed when Verify may judge a peer differently from before: then who
	// has connections asks anew about their peers (fabric.Peer.Recheck). It is asked for each time.
	Changed func() <-chan struct{}

	// Plaintext sends everything behind the hellos in the clear, but authenticated: who listens on
	// the wire can read it, and nobody can change, repeat, or add anything. For networks that
	// are trusted so far. Both sides must want it. Default false: everything is encrypted.
	Plaintext bool

	// Either lets a listener that is dialled choose between the two, Plaintext or not: it says so
	// under the protection of the handshake. Default false: it must want what this side does.
	Either bool
}

// What is spoken behind the handshake. It is told in the handshake, so that two sides that want
// different things find out there.
const (
	protocolFrames = "sluice-frames/1"
	protocolTLS    = "sluice-tls/1"
)

func (s *Security) validate() error {
	if s != nil && (s.Certificate == nil || s.Roots == nil && s.Verify == nil) {
		return errs.Newf(errs.Invalid, "tcp.Open", "",
			"Security needs a certificate and the authorities to believe")
	}
	return nil
}

// protocols are those that a side takes.
func (s *Security) protocols(server bool) []string {
	switch {
	case !server && s.Either:
		return []string{protocolTLS, protocolFrames}
	case s.Plaintext:
		return []string{protocolFrames}
	}
	return []string{protocolTLS}
}

func (s *Security) serverConfig() *tls.Config {
	c := &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		GetCertificate:              s.shown,
		ClientAuth:                  tls.RequireAndVerifyClientCert,
		ClientCAs:                   s.Roots,
		NextProtos:                  s.protocols(true),
		SessionTicketsDisabled:      true, // nothing may follow the handshake but the hello
		DynamicRecordSizingDisabled: true,
	}
	if s.Verify != nil {
		c.ClientAuth = tls.RequireAnyClientCert
		c.VerifyConnection = s.verifier(true)
	}
	return c
}

// shown is the certificate of a listener, for whoever comes.
func (s *Security) shown(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := s.Certificate()
	if c != nil {
		return c, nil
	}
	return nil, err
}

// verifier gives what Verify refuses its kind.
func (s *Security) verifier(listens bool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		err := s.Verify(state.PeerCertificates, listens)
		if err == nil {
			return nil
		}
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates,
			Err: err}
	}
}

func (s *Security) clientConfig(addr string) *tls.Config {
	name := s.ServerName
	if name == "" {
		name, _, _ = net.SplitHostPort(addr) // it was dialled, so it is well formed
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return s.Certificate()
		},
		RootCAs:                     s.Roots,
		ServerName:                  name,
		NextProtos:                  s.protocols(false),
		DynamicRecordSizingDisabled: true,
	}
	if s.Verify != nil {
		c.InsecureSkipVerify = true // by Roots and ServerName
		c.VerifyConnection = s.verifier(false)
	}
	return c
}

// greeting is a socket on which hellos are exchanged.
type greeting struct {
	tcp   *net.TCPConn
	conn  net.Conn // tcp itself, or TLS on it
	tls   *tls.Conn
	under *underConn
	sec   *Security    // nil: nobody proves anything
	who   fabric.Proof // with name: what the peer has proved
	name  string
	shown []*x509.Certificate
	asked bool              // of a listener: only who proves that it knows the secret is connected
	first *[helloBytes]byte // of a listener: a hello that came where a proof might have; or nil
}

// shakeHands makes a socket ready for hellos. server tells which side this is.
func shakeHands(ctx context.Context, c *net.TCPConn, sec *Security, cfg *tls.Config,
	server bool) (*greeting, error) {
	g := &greeting{tcp: c, conn: c, sec: sec}
	if sec == nil {
		return g, nil
	}
	g.under = &underConn{TCPConn: c, server: server, at: tlsHeaderBytes}
	if server {
		g.tls = tls.Server(g.under, cfg)
	} else {
		g.tls = tls.Client(g.under, cfg)
	}
	if err := g.tls.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if server && errors.As(err, new(tls.RecordHeaderError)) { // TLS says nothing in this case
			_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 70}) // alert, fatal, protocol version
		}
		return nil, explain(err)
	}
	state := g.tls.ConnectionState()
	if wants := sec.protocols(server); !slices.Contains(wants, state.NegotiatedProtocol) {
		return nil, errs.Newf(errs.Perm, "tcp", "handshake",
			"the peer wants %q, this side %q", state.NegotiatedProtocol, wants)
	}
	g.conn, g.who = g.tls, fabric.ProofTLS
	if state.NegotiatedProtocol == protocolFrames {
		g.who = fabric.ProofFrames
	}
	g.shown = state.PeerCertificates
	g.name = certificateName(g.shown[0])
	return g, nil
}

// recheck is what asks again whether the peer is believed; nil where it was not asked who decides.
func (g *greeting) recheck() func() error {
	if g.sec == nil || g.sec.Verify == nil {
		return nil
	}
	verify, shown, server := g.sec.Verify, g.shown, g.under.server // not all of g
	return func() error { return verify(shown, server) }
}

// certificateName is whom a certificate speaks of.
func certificateName(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case c.Subject.CommonName != "":
		return c.Subject.CommonName
	}
	return c.SerialNumber.String()
}

// explain gives an error of the handshake its kind: what is wrong with a certificate, or with what
// the other side speaks, is errs.Perm.
func explain(err error) error {
	var (
		verify *tls.CertificateVerificationError
		record tls.RecordHeaderError
		op     *net.OpError
	)
	switch {
	case errors.As(err, &record):
		return errs.Newf(errs.Perm, "tcp", "handshake", "the peer does not speak TLS")
	case errors.As(err, &verify):
		return errs.New(errs.Perm, "tcp", "handshake", err)
	case errors.As(err, &op) && op.Op == "remote error" && // an alert, whose type TLS keeps to itself
		strings.Contains(op.Err.Error(), "no application protocol"):
		return errs.Newf(errs.Perm, "tcp", "handshake", "the peer speaks another protocol than this "+
			"side: it is another service, or wants to encrypt where this side does not")
	case errors.As(err, &op) && op.Op == "remote error":
		return errs.Newf(errs.Perm, "tcp", "handshake", "the peer refuses: %w", op.Err)
	case errors.As(err, &op), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errs.New(errs.Disconnected, "tcp", "handshake", err)
	}
	return errs.New(errs.Perm, "tcp", "handshake", err)
}

// sock ends the greeting: what follows is frames. The connection is the sock's from then on, but
// the caller's to close when it fails.
func (g *greeting) sock(timeout time.Duration) (*sock, error) {
	k := &sock{}
	err := watchPeer(g.tcp, timeout)
	if err == nil && g.who == fabric.ProofFrames {
		k.rec, err = newFrameRecords(g.tls, g.under.server)
	} else if g.sec != nil {
		k.rec = newTLSRecords(g.tls, g.under)
	}
	if err == nil {
		k.conn, err = take(g.tcp)
	}
	if err == nil {
		k.raw, err = k.conn.SyscallConn()
	}
	if err != nil {
		return nil, errs.Wrap("tcp.connect", "", err)
	}
	return k, nil
}

// watchPeer has the kernel end a connection whose peer is silent: one that does not acknowledge
// what is sent, and, where nothing is, one that does not answer probes.
func watchPeer(c *net.TCPConn, timeout time.Duration) error {
	const probes = 3
	pause := max(timeout/(probes+1), time.Second).Truncate(time.Second)
	err := c.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: pause, Interval: pause, Count: probes,
	})
	if err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(timeout.Milliseconds()))
	})
	return errors.Join(err, failed)
}

// macs makes the keys of authenticated plaintext out of the handshake: one for each direction.
func macs(c *tls.Conn) (client, server cipher.AEAD, err error) {
	const size = 16
	state := c.ConnectionState()
	keys, err := state.ExportKeyingMaterial("EXPORTER-sluice-frames", nil, 2*size)
	if err != nil {
		return nil, nil, errs.New(errs.Protocol, "tcp", "handshake", err)
	}
	var made [2]cipher.AEAD
	for i := range made {
		block, err := aes.NewCipher(keys[i*size : (i+1)*size])
		invariant.Check(err == nil, "an AES key of 16 bytes")
		made[i], err = cipher.NewGCM(block)
		invariant.Check(err == nil, "GCM on AES")
	}
	return made[0], made[1], nil
}

// underConn is the connection under TLS. During the handshake and the hellos it hands over record
// by record, so that TLS never takes bytes that are not its own. Afterwards its bytes go through
// stream and batch, see tlsRecords.
type underConn struct {
	*net.TCPConn
	server bool
	after  *tlsRecords // nil until the hellos are through

	head [tlsHeaderBytes]byte
	at   int // of the head handed over; all of it: the record's body follows
	left int // of the body
}

const tlsHeaderBytes = 5 // type, version, length of the body

func (c *underConn) Read(b []byte) (int, error) {
	if c.after != nil {
		return c.after.readCipher(b)
	}
	if c.at == len(c.head) && c.left == 0 {
		c.at = 0
	}
	if c.at == 0 {
		if _, err := io.ReadFull(c.TCPConn, c.head[:]); err != nil {
			return 0, err
		}
		c.left = int(binary.BigEndian.Uint16(c.head[3:]))
	}
	if c.at < len(c.head) {
		n := copy(b, c.head[c.at:])
		c.at += n
		return n, nil
	}
	n, err := c.TCPConn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func (c *underConn) Write(b []byte) (int, error) {
	if c.after != nil {
		return c.after.writeCipher(b)
	}
	return c.TCPConn.Write(b)
}
