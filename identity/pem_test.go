package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// TestPEM: the texts are what package tls reads, a host's certificate is good for the names that
// other programs ask for, and for no other; a client's is good for no server.
func TestPEM(t *testing.T) {
	l := newLocal(t)
	host, _ := l.credential(t, Host, "h1")
	client, _ := l.credential(t, Client, "ann")
	text, err := client.PEM()
	fatal(t, err)
	pair, err := tls.X509KeyPair(text, text)
	fatal(t, err)
	if !bytes.Equal(pair.Certificate[0], client.Certificate[0]) {
		t.Error("it is another certificate")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(TrustPEM(client.Roots())) {
		t.Fatal("no authorities")
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	name := ServerName(l.a.Cluster())
	for _, c := range []struct {
		who  *Credential
		name string
		ok   bool
	}{{host, name, true}, {host, "h1." + name, true}, {host, "h2." + name, false},
		{host, "h1", false}, {host, ServerName(NewClusterID()), false}, {client, name, false}} {
		_, err := c.who.TLS().Leaf.Verify(x509.VerifyOptions{DNSName: c.name, Roots: roots,
			KeyUsages: usage})
		if (err == nil) != c.ok {
			t.Errorf("%s as %s: %v", c.who.Name, c.name, err)
		}
	}
}

// TestEndedIsShown: a server whose certificate has ended shows it, so that who comes is told why;
// a client does not use it; and the log says so once.
func TestEndedIsShown(t *testing.T) {
	l := newLocal(t)
	_, file := l.credential(t, Host, "h1")
	var said bytes.Buffer
	k, err := NewKeeper(file, KeeperOptions{Poll: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&said, nil)),
		Now: func() time.Time { return time.Now().Add(Life + time.Hour) }})
	fatal(t, err)
	_, err = k.Certificate()
	want(t, err, errs.Expired, "has ended at")
	_, err = k.ClientTLS().GetClientCertificate(nil)
	want(t, err, errs.Expired, "join again")
	shown, err := k.ServerTLS().GetCertificate(nil)
	fatal(t, err)
	_, err = trustOf(l.a).Verify(shown.Certificate, time.Now().Add(Life+time.Hour), Host)
	want(t, err, errs.Perm, "the certificate of h1 has ended at")
	if _, err := Shown(nil, errs.Again); errs.KindOf(err) != errs.Again {
		t.Errorf("%v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	k.Run(ctx)
	if n := strings.Count(said.String(), "nobody believes this process any more"); n != 1 {
		t.Errorf("said %d times: %s", n, &said)
	}
}
