package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"
)

// authority is a certificate authority that lives as long as a test.
type authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	roots *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	fatal(t, err)
	a := &authority{key: key, roots: x509.NewCertPool()}
	a.cert, err = x509.ParseCertificate(der)
	fatal(t, err)
	a.roots.AddCert(a.cert)
	return a
}

// issue makes a certificate for a host at 127.0.0.1, changed by change if that is not nil.
func (a *authority) issue(t testing.TB, name string, change func(*x509.Certificate),
) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth,
		},
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	fatal(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// security is that of a host which has a good certificate.
func (a *authority) security(t testing.TB, name string) *Security {
	return a.with(a.issue(t, name, nil))
}

func (a *authority) with(c *tls.Certificate) *Security {
	return &Security{
		Roots:       a.roots,
		Certificate: func() (*tls.Certificate, error) { return c, nil },
	}
}
