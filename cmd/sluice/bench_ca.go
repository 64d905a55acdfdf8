package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net"
	"time"

	"github.com/sluice-storage/sluice/fabric/tcp"
)

// benchCA is a certificate authority for the time of one bench, in memory only.
type benchCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// benchCreds is one side's certificate. It travels to the other process through a pipe.
type benchCreds struct {
	Root, Cert, Key []byte // DER
}

const benchCALife = 24 * time.Hour

func newBenchCA() (*benchCA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := benchTemplate("sluice bench")
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &benchCA{cert: cert, key: key}, err
}

func benchTemplate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(benchCALife),
	}
}

// issue makes a certificate for one side; it can dial and listen on loopback.
func (ca *benchCA) issue(name string) (*benchCreds, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := benchTemplate(name)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.DNSNames, t.IPAddresses = []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}
	c := &benchCreds{Root: ca.cert.Raw}
	c.Cert, err = x509.CreateCertificate(rand.Reader, t, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	c.Key, err = x509.MarshalPKCS8PrivateKey(key)
	return c, err
}

// security has both sides prove who they are; plaintext leaves the data unencrypted.
func (c *benchCreds) security(plaintext bool) *tcp.Security {
	roots := x509.NewCertPool()
	if root, err := x509.ParseCertificate(c.Root); err == nil {
		roots.AddCert(root)
	}
	return &tcp.Security{Roots: roots, Plaintext: plaintext, Certificate: c.certificate}
}

func (c *benchCreds) certificate() (*tls.Certificate, error) {
	key, err := x509.ParsePKCS8PrivateKey(c.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{c.Cert}, PrivateKey: key}, nil
}

// startPeer starts the other side of a bench, with a certificate of its own.
func (ca *benchCA) startPeer(ctx context.Context, args ...string) (*benchPeer, error) {
	theirs, err := ca.issue("peer")
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(theirs)
	if err != nil {
		return nil, err
	}
	return startPeerWith(ctx, text, args...)
}
