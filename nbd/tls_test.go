package nbd

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// authority makes certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority() *authority {
	a := &authority{pool: x509.NewCertPool()}
	made := a.issue("authority")
	a.cert, a.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

// issue makes a certificate of a name; the first is the authority's own.
func (a *authority) issue(name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // a fuzzer's own must not be told from here
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{name + ".example"}}
	parent, signer := tmpl, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		panic(err) // a fuzzer's own must not be told from here
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err) // a fuzzer's own must not be told from here
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{a.issue("server")},
		ClientCAs:    a.pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// startTLS upgrades the client's side of a connection.
func (c *client) startTLS(a *authority, name string) {
	c.tb.Helper()
	c.mustAck(optStartTLS, nil)
	c.handshakeTLS(a, name)
}

func (c *client) handshakeTLS(a *authority, name string) {
	c.tb.Helper()
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.pool, ServerName: "server.example"}
	if name != "" {
		cfg.Certificates = []tls.Certificate{a.issue(name)}
	}
	nc := tls.Client(c.nc, cfg)
	if err := nc.Handshake(); err != nil {
		c.tb.Fatalf("TLS: %v", err)
	}
	c.nc = nc
}

func TestForcedTLS(t *testing.T) {
	a := newAuthority()
	f := newFake(mib)
	s := serve(t, Config{TLS: &TLS{Config: a.server()}}, f.entry("x"))
	c := greeted(t, s)
	for opt, data := range map[uint32][]byte{
		optList: nil, optInfo: infoData("x"), optGo: infoData("x"), optStructuredReply: nil,
		optExtHeaders: nil, optListMeta: metaData("x"), optSetMeta: metaData("x", metaBase), 4: nil,
		0xbeef: make([]byte, 1<<17),
	} {
		c.mustRefuse(opt, data, repErrTLSReqd)
	}
	c.mustRefuse(optStartTLS, []byte("x"), repErrInvalid)
	if f.opens.Load() != 0 {
		t.Error("opened without TLS")
	}
	c.startTLS(a, "alice")
	c.mustRefuse(optStartTLS, nil, repErrInvalid)
	c.mustRefuse(4, nil, repErrUnsup)
	c.mustAck(optStructuredReply, nil)
	c.structured = true
	c.mustAck(optGo, infoData("x"))
	data := random(mib)
	c.want(nbdOK, cmdWrite, 0, 0, mib, data)
	if got := c.want(nbdOK, cmdRead, 0, 0, mib, nil); !bytes.Equal(got.data, data) {
		t.Error("other bytes came back")
	}
	c.send(cmdDisc, 0, 0, 0, nil)
	c.wantEOF()

	named := greeted(t, s)
	named.write(optionMessage(optExportName, []byte("x")))
	named.wantEOF()
	aborted := greeted(t, s)
	aborted.mustAck(optAbort, nil)
	aborted.wantEOF()
	old := connect(t, s)
	old.greet(flagNoZeroes) // it could not understand an error
	old.wantEOF()
}

// TestTLSPipelined moves many replies of all sizes, streamed ones too, so that records gather.
func TestTLSPipelined(t *testing.T) {
	a := newAuthority()
	for name, build := range shapes(8 * mib) {
		t.Run(name, func(t *testing.T) {
			exp, f := build()
			copy(f.data, random(8*mib))
			s := serve(t, Config{TLS: &TLS{Config: a.server()}}, entryOf("x", exp, f))
			c := greeted(t, s)
			c.startTLS(a, "alice")
			c.mustAck(optExtHeaders, nil)
			c.structured, c.extended = true, true
			c.mustAck(optGo, infoData("x"))
			sizes := []uint32{1, 17, 4096, 100_000, 5 * mib}
			for range 3 {
				first := c.cookie + 1
				for i, n := range sizes {
					c.send(cmdRead, 0, uint64(i), n, nil)
				}
				for range sizes {
					got := c.receiveAny(func(cookie uint64) (uint16, uint64, uint32) {
						return cmdRead, cookie - first, sizes[cookie-first]
					})
					at := got.cookie - first
					if !bytes.Equal(got.data, f.data[at:at+uint64(sizes[at])]) {
						t.Fatalf("%d bytes came back changed", sizes[at])
					}
				}
			}
		})
	}
}

func TestSelectiveTLS(t *testing.T) {
	a := newAuthority()
	secret := newFake(mib).entry("secret")
	secret.TLSOnly = true
	alices := newFake(mib).entry("alices")
	alices.Allow = []string{"alice", "carol.example"}
	s := serve(t, Config{TLS: &TLS{Config: a.server(), Selective: true}}, secret, alices,
		newFake(mib).entry("open"))
	listed := func(c *client) string {
		var names []string
		for _, r := range c.mustAck(optList, nil) {
			names = append(names, string(r.data[4:]))
		}
		return strings.Join(names, " ")
	}
	c := greeted(t, s)
	if got := listed(c); got != "open" {
		t.Errorf("without TLS there are %q", got)
	}
	for _, name := range []string{"secret", "alices"} {
		c.mustRefuse(optInfo, infoData(name), repErrTLSReqd)
		c.mustRefuse(optGo, infoData(name), repErrTLSReqd)
		named := greeted(t, s)
		named.write(optionMessage(optExportName, []byte(name)))
		named.wantEOF()
	}
	c.mustRefuse(optGo, infoData("nobody"), repErrUnknown)
	c.mustAck(optStructuredReply, nil)
	c.mustRefuse(optSetMeta, metaData("secret", metaBase), repErrUnknown)
	c.mustAck(optGo, infoData("")) // the first that it may use
	for name, want := range map[string]string{
		"alice": "secret alices open", "bob": "secret open", "carol": "secret alices open",
	} {
		c := greeted(t, s)
		c.startTLS(a, name)
		if got := listed(c); got != want {
			t.Errorf("for %s there are %q", name, got)
		}
		c.mustAck(optStructuredReply, nil)
		if name == "bob" {
			c.mustRefuse(optInfo, infoData("alices"), repErrPolicy)
			c.mustRefuse(optGo, infoData("alices"), repErrPolicy)
			c.mustRefuse(optSetMeta, metaData("alices", metaBase), repErrPolicy)
			c.mustAck(optGo, infoData("secret"))
			continue
		}
		c.mustAck(optGo, infoData("alices"))
	}
}

// TestStartTLSForgets: what was negotiated in the clear, by whomever, does not count.
func TestStartTLSForgets(t *testing.T) {
	a := newAuthority()
	s := serve(t, Config{TLS: &TLS{Config: a.server(), Selective: true}}, newFake(mib).entry("x"))
	for _, opt := range []uint32{optStructuredReply, optExtHeaders} {
		c := greeted(t, s)
		c.mustAck(opt, nil)
		c.mustAck(optSetMeta, metaData("x", metaBase))
		c.startTLS(a, "alice")
		c.mustRefuse(optSetMeta, metaData("x", metaBase), repErrInvalid)
		info := c.mustAck(optGo, infoData("x"))
		if flags := binary.BigEndian.Uint16(info[0].data[10:]); flags&(sendDF|sendStatusLoad) != 0 {
			t.Errorf("flags %#x", flags)
		}
		c.want(nbdOK, cmdRead, 0, 0, 4096, nil) // by a simple reply
		c.want(nbdINVAL, cmdBlockStatus, 0, 0, 4096, nil)
	}
}

// TestNothingSlipsIntoTLS: options that somebody sent behind STARTTLS, before TLS, are not taken
// for the client's.
func TestNothingSlipsIntoTLS(t *testing.T) {
	a := newAuthority()
	s := serve(t, Config{TLS: &TLS{Config: a.server(), Selective: true}}, newFake(mib).entry("x"))
	c := greeted(t, s)
	c.write(append(optionMessage(optStartTLS, nil), optionMessage(optStructuredReply, nil)...))
	c.wantEOF()
}

func TestTLSIsRefused(t *testing.T) {
	a, stranger := newAuthority(), newAuthority()
	s := serve(t, Config{TLS: &TLS{Config: a.server()}}, newFake(mib).entry("x"))
	for name, certs := range map[string][]tls.Certificate{
		"no certificate": nil, "another authority's": {stranger.issue("alice")},
	} {
		c := greeted(t, s)
		c.mustAck(optStartTLS, nil)
		nc := tls.Client(c.nc, &tls.Config{RootCAs: a.pool, ServerName: "server.example",
			Certificates: certs})
		c.nc = nc
		if err := nc.Handshake(); err == nil { // it learns that with the first bytes it reads
			c.wantEOF()
		}
		eventually(t, name+" is gone", func() bool { return s.Stats().Conns == 0 })
	}
	weak := greeted(t, s)
	weak.mustAck(optStartTLS, nil)
	nc := tls.Client(weak.nc, &tls.Config{RootCAs: a.pool, ServerName: "server.example",
		MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.issue("alice")}})
	if nc.Handshake() == nil {
		t.Error("TLS 1.2 passes")
	}
	junk := greeted(t, s)
	junk.mustAck(optStartTLS, nil)
	junk.write(bytes.Repeat([]byte("GET / HTTP/1.0\r\n"), 10))
	// An alert may come before the end.
	_, _ = junk.nc.Read(make([]byte, 100))
	eventually(t, "all gone", func() bool { return s.Stats().Conns == 0 })
	if s.Stats().Panics != 0 {
		t.Error("a panic")
	}
}

func TestRecheck(t *testing.T) {
	a := newAuthority()
	var revoked atomic.Value
	revoked.Store("")
	names := func(st tls.ConnectionState) ([]string, error) {
		if st.PeerCertificates[0].Subject.CommonName == revoked.Load() {
			return nil, errors.New("revoked")
		}
		return CertificateNames(st)
	}
	s := serve(t, Config{TLS: &TLS{Config: a.server(), Names: names}}, newFake(mib).entry("x"))
	use := func(name string) *client {
		c := greeted(t, s)
		c.startTLS(a, name)
		c.mustAck(optGo, infoData("x"))
		return c
	}
	alice, bob := use("alice"), use("bob")
	s.Recheck()
	alice.want(nbdOK, cmdRead, 0, 0, 1, nil)
	revoked.Store("alice")
	s.Recheck()
	alice.wantEOF()
	bob.want(nbdOK, cmdRead, 0, 0, 1, nil)
	late := greeted(t, s)
	late.startTLS(a, "alice")
	late.wantEOF()
}

func TestTLSIsNeededForNames(t *testing.T) {
	e := newFake(mib).entry("x")
	e.Allow = []string{"alice"}
	if _, err := NewServer(Config{}, e); err == nil {
		t.Error("an access list without TLS")
	}
	if _, err := NewServer(Config{TLS: &TLS{}}, newFake(mib).entry("x")); err == nil {
		t.Error("TLS without a configuration")
	}
}

// TestTLSDrains: the end of the server is told inside TLS.
func TestTLSDrains(t *testing.T) {
	a := newAuthority()
	s, err := NewServer(Config{DrainGrace: 500 * time.Millisecond, TLS: &TLS{Config: a.server()}},
		newFake(mib).entry("x"))
	if err != nil {
		t.Fatal(err)
	}
	c := greeted(t, s)
	c.startTLS(a, "alice")
	c.mustAck(optGo, infoData("x"))
	done := make(chan error)
	go func() { done <- s.Shutdown(t.Context()) }()
	eventually(t, "draining", s.draining.Load)
	c.want(nbdSHUTDOWN, cmdRead, 0, 0, 1, nil)
	c.wantEOF()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
