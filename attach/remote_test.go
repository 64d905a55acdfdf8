package attach

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

func TestParseServer(t *testing.T) {
	for text, want := range map[string]Server{
		"nbd://h/a":                     {"tcp", "h:10809", "a", false},
		"nbd://h:1/a/b":                 {"tcp", "h:1", "a/b", false},
		"nbds://[::1]:2":                {"tcp", "[::1]:2", "", true},
		"nbd+unix:///x%20y?socket=/a":   {"unix", "/a", "x y", false},
		"nbds+unix:///e?socket=%2Fa%20": {"unix", "/a ", "e", true},
	} {
		got, err := ParseServer(text)
		if err != nil || got != want || !IsServer(text) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := ParseServer(got.String()); err != nil || again != want {
			t.Errorf("%s: %+v, %v", got, again, err)
		}
	}
	for _, text := range []string{"nbd:///a", "http://h/a", "nbd+unix:///a", "a", "nbd://%zz"} {
		if got, err := ParseServer(text); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if IsServer("volume") || IsServer("sluice://h/v") {
		t.Error("these are no servers")
	}
}

// startServer serves an export named disk on a unix socket.
func startServer(t *testing.T, socket string, exp nbd.Export, secure *nbd.TLS) (stop func()) {
	t.Helper()
	entry := nbd.Entry{Name: "disk", Keep: true,
		Open: func(context.Context) (nbd.Export, error) { return exp, nil }}
	server, err := nbd.NewServer(nbd.Config{TLS: secure}, entry)
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(socket)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	return func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if err := server.Shutdown(now); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// keyPair is a certificate that vouches for itself.
func keyPair(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	draft := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, draft, draft, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestServers: a server is attached, with TLS and without; it dies and comes back; it grows.
func TestServers(t *testing.T) {
	pair, pool := keyPair(t)
	for _, secure := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "TLS"}[secure]
		t.Run(name, func(t *testing.T) {
			var keys *nbd.TLS
			if secure {
				keys = &nbd.TLS{Config: &tls.Config{Certificates: []tls.Certificate{pair}}}
			}
			socket := filepath.Join(t.TempDir(), "s")
			exp := newDisc(64 << 10)
			stop := startServer(t, socket, exp, keys)
			at := Server{Network: "unix", Addr: socket, Export: "disk", Secure: secure}
			k := newKernel(t)
			s := serve(t, options(k, NewRemote(at, &tls.Config{RootCAs: pool, ServerName: "localhost"})))
			d := k.disk(s.Index())
			big := bytes.Repeat([]byte("0123456789abcdef"), 2048)
			if err := d.write(4096, big); err != nil || d.alive() != 4 {
				t.Fatalf("%v, %d sockets", err, d.alive())
			}
			stop()
			done := make(chan error, 1)
			go func() { done <- d.write(0, []byte("while it is away")) }()
			exp.size.Store(128 << 10)
			stop = startServer(t, socket, exp, keys)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got, err := d.read(4096, len(big)); err != nil || !bytes.Equal(got, big) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			await(t, "the size", func() bool { return s.Status().Size == 128<<10 })
			s.detach(t)
			stop()
		})
	}
}

// TestServersThatRefuse: what a server refuses is told.
func TestServersThatRefuse(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	stop := startServer(t, socket, newDisc(512), nil)
	defer stop()
	link := func(export string, secure *tls.Config) error {
		at := Server{Network: "unix", Addr: socket, Export: export, Secure: secure != nil}
		_, err := NewRemote(at, secure).Link(t.Context())
		return err
	}
	if err := link("absent", nil); errs.KindOf(err) != errs.NotFound {
		t.Errorf("no such export: %v", err)
	}
	if err := link("disk", &tls.Config{}); errs.KindOf(err) != errs.Perm {
		t.Errorf("no TLS: %v", err)
	}
	at := Server{Network: "unix", Addr: socket + "x", Export: "disk"}
	if _, err := NewRemote(at, nil).Link(t.Context()); err == nil {
		t.Error("nobody is there")
	}
}

// FuzzHandshake: whatever a server says, the client ends, and takes nothing that makes no sense.
func FuzzHandshake(f *testing.F) {
	good := greetingMagic + "\x00\x03" +
		"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c" +
		"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01\x0d" +
		"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00"
	f.Add([]byte(good))
	f.Add([]byte(good[:40]))
	f.Add([]byte("NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53"))
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			_ = far.SetDeadline(time.Now().Add(time.Second))
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = far.Write(said)
				_ = far.Close()
			}()
			buf := make([]byte, 256)
			for {
				if _, err := far.Read(buf); err != nil {
					break
				}
			}
			<-sent
		}()
		_, e, err := negotiate(context.Background(), near, "x", nil)
		_ = near.Close()
		if err == nil && e.Size < 0 {
			t.Errorf("%+v", e)
		}
	})
}
