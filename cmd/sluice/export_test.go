package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/identity"
)

// exported is what another program has of a cluster: files.
type exported struct{ ca, own, name string }

// ordinary is how any program of Go's standard library would scrape: nothing of sluice is in it.
func (e *exported) ordinary(t *testing.T) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(e.ca)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: e.name}
	if !conf.RootCAs.AppendCertsFromPEM(text) {
		t.Fatalf("no authorities: %s", text)
	}
	pair, err := tls.LoadX509KeyPair(e.own, e.own)
	if err != nil {
		t.Fatal(err)
	}
	conf.Certificates = []tls.Certificate{pair}
	return conf
}

func (e *exported) scrape(t *testing.T, addr string) (string, error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: e.ordinary(t)}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Get("https://" + addr + "/metrics")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return string(text), err
}

// export writes the files of a client's credential.
func export(t *testing.T, k *identity.Keeper) *exported {
	t.Helper()
	info, err := (&exportOptions{}).export(k.Credential(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]os.FileMode{info.Trust: 0o644, info.Certificate: 0o600} {
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want mode %v", file, st.Mode(), err, mode)
		}
	}
	return &exported{info.Trust, info.Certificate, info.ServerName}
}

// serveMetrics shows metrics at an address of a host, to the client prometheus.
func serveMetrics(t *testing.T, host *identity.Keeper) (addr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "meta"+adminSuffix)
	f := adminFlag{listen: "0.0.0.0:0", clients: []string{"prometheus"}, keeper: host}
	stop, err := f.serve(file, admin.WebOptions{Gather: func() []admin.Family {
		var all families
		all.process()
		return all.all
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimSpace(string(text)), "]:")
	return "127.0.0.1:" + port
}

// TestExportedFilesAreEnough: an ordinary TLS client with the exported files scrapes an admin
// address, also while the authority changes; with those of somebody else it does not, and it does
// not believe another cluster.
func TestExportedFilesAreEnough(t *testing.T) {
	made := func() *identity.Authority {
		a, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "a"), identity.NewClusterID(),
			time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, other := made(), made()
	addr := serveMetrics(t, adminMember(t, a, identity.Host, "h1"))
	own := export(t, adminMember(t, a, identity.Client, "prometheus"))
	text, err := own.scrape(t, addr)
	if err != nil || !strings.Contains(text, "sluice_") {
		t.Fatalf("%v: %.200s", err, text)
	}
	if curl, err := exec.LookPath("curl"); err == nil {
		out, err := exec.Command(curl, "-sS", "--cacert", own.ca, "--cert", own.own, "--connect-to",
			"::"+addr, "https://"+own.name+"/metrics").CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("sluice_")) {
			t.Errorf("curl: %v: %.300s", err, out)
		}
	}
	for what, e := range map[string]*exported{
		"a client that is not named": export(t, adminMember(t, a, identity.Client, "ann")),
		"one of another cluster":     export(t, adminMember(t, other, identity.Client, "prometheus")),
		"another server's name":      {own.ca, own.own, "h1"},
	} {
		if text, err := e.scrape(t, addr); err == nil {
			t.Errorf("%s sees %.100s", what, text)
		}
	}
	stranger := serveMetrics(t, adminMember(t, other, identity.Host, "h1"))
	if _, err := own.scrape(t, stranger); err == nil {
		t.Error("another cluster's host is believed")
	}

	// The host has a certificate by the new authority, the client still has that of the old one.
	if err := a.Rotate(identity.SigningKey, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := own.scrape(t, serveMetrics(t, adminMember(t, a, identity.Host, "h1"))); err != nil {
		t.Errorf("while the authority changes: %v", err)
	}
	both := export(t, adminMember(t, a, identity.Client, "prometheus"))
	if text, _ := os.ReadFile(both.ca); bytes.Count(text, []byte("BEGIN CERTIFICATE")) != 2 {
		t.Errorf("the authorities are %s", text)
	}
	if _, err := both.scrape(t, addr); err != nil {
		t.Errorf("a renewed client: %v", err)
	}
}

// TestExportRefuses: keys that may do more than look do not leave their file by mistake.
func TestExportRefuses(t *testing.T) {
	a, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "a"), identity.NewClusterID(),
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	host := adminMember(t, a, identity.Host, "h1").Credential()
	writer := adminMember(t, a, identity.Client, "ann").Credential()
	reader := *writer
	reader.Rights = &identity.Rights{Path: "/", ReadOnly: true}
	for _, c := range []struct {
		o    exportOptions
		c    *identity.Credential
		want string
	}{
		{exportOptions{write: true}, host, "may do everything"},
		{exportOptions{}, writer, "the client ann may write: / rw"},
		{exportOptions{write: true}, writer, ""}, {exportOptions{}, &reader, ""},
	} {
		err := c.o.allowed(c.c, "file")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.c.Name, err, c.want)
		}
	}
	dir := t.TempDir()
	if _, err := (&exportOptions{trust: true}).export(host, dir); err != nil {
		t.Fatal(err)
	}
	files, _ := os.ReadDir(dir)
	text, _ := os.ReadFile(filepath.Join(dir, exportedTrust))
	block, rest := pem.Decode(text)
	if len(files) != 1 || block == nil || block.Type != "CERTIFICATE" || len(rest) != 0 {
		t.Errorf("%v: %s", files, text)
	}
}
