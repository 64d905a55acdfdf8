package systest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClientGateway: a machine that has joined as a client, and is no host, serves a volume of the
// cluster as a block device, by what docs/ops/keys.md says. What was flushed there is on the other
// hosts; hosts may be away for a while; a volume that its token does not name is refused; and when
// the client is removed its gateway gets nothing any more.
func TestClientGateway(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.firstHost()
	h1, h2, c1 := b.host("h1"), b.second(), b.host("c1")
	b.typed(h1, "sluice token create --client c1 --volume disk --dir /var/lib/sluice")
	b.typed(c1, "sluice join 10.1.0.1:9401 TOKEN")
	b.typed(c1, "sluice volume create disk 64M")
	b.refused(c1, "not permitted", "volume", "create", "other", "64M")
	b.refused(c1, "other", "nbd", "--listen", "127.0.0.1:0", "--export", "name=x,volume=other")

	env := b.env(c1)
	gate := c1.Start(env[0], append(env[1:], b.bin, "nbd", "--listen", "127.0.0.1:10809", "--export",
		"name=disk,volume=disk")...)
	for end := time.Now().Add(readyLimit); !strings.Contains(gate.Said(), "serving nbd://"); {
		if time.Now().After(end) {
			t.Fatalf("no gateway: %s", gate.Said())
		}
		time.Sleep(20 * time.Millisecond)
	}
	data := record(5, 0, 16<<20)
	must(t, os.WriteFile(c1.Outside(c1.Path("image")), data, 0o644))
	const uri = "nbd://127.0.0.1:10809/disk"
	nbd := func(line string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		return c1.Run(ctx, "sh", "-c", line)
	}
	same := func(what string) {
		t.Helper()
		_, err := nbd(fmt.Sprintf("rm -f back && nbdcopy %s back && truncate -s %d back", uri, len(data)))
		must(t, err)
		got, err := os.ReadFile(c1.Outside(c1.Path("back")))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v: not what was written", what, len(got), err)
		}
	}
	_, err := nbd("nbdcopy --flush image " + uri)
	must(t, err)
	same("at once")
	out, err := b.sluice(c1, "volume", "ls", "--json")
	must(t, err)
	var volumes []struct{ Writer string }
	if err := json.Unmarshal([]byte(out), &volumes); err != nil || len(volumes) != 1 ||
		!strings.HasPrefix(volumes[0].Writer, "c1:") {
		t.Errorf("%v: %s", err, out)
	}

	b.kill(h2) // with half of the data, and nothing but what was flushed
	b.serve(h2)
	same("after a host was killed")
	h1.Cut()
	time.Sleep(2 * time.Second)
	h1.Mend()
	same("after the metadata host was away")

	b.typed(h1, "sluice client rm c1 --dir /var/lib/sluice")
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := c1.Run(ctx, "nbdcopy", uri, "-") // it waits for servers as long as it takes
		cancel()
		if err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a client that was removed still reads")
		}
	}
	gate.End(busyMax)
}

// TestScrape: Prometheus scrapes the admin addresses of a cluster with what sluice key export has
// written, by nothing but ordinary TLS.
func TestScrape(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h1, c1 := b.host("h1"), b.host("c1")
	b.typed(h1, "sluice init --dir /var/lib/sluice --listen 10.1.0.1:9400")
	file := h1.Outside(filepath.Join(b.folder(h1), "sluice.toml"))
	text, err := os.ReadFile(file)
	must(t, err)
	more := fmt.Sprintf("admin = %q\nadmin-clients = [\"prometheus\"]\n", h1.Addr+":0")
	must(t, os.WriteFile(file, append([]byte(more), text...), 0o644))
	b.serve(h1)
	_, err = b.sluice(h1, "mkdir", "/empty", "--url", "sluice://"+h1.Addr+":9400", "--credential",
		b.credential(h1))
	must(t, err)
	b.typed(h1, "sluice token create --client prometheus --ro --squash all --path /empty --dir "+
		"/var/lib/sluice")
	b.typed(c1, "sluice join 10.1.0.1:9401 TOKEN")
	out := b.typed(c1, "sluice key export "+c1.Path("pem")+" --json")
	var made struct {
		ServerName string `json:"server_name"`
		Trust      string
		Cert       string `json:"certificate"`
		Name       string
	}
	must(t, json.Unmarshal([]byte(out), &made))
	if made.Name != "prometheus" {
		t.Errorf("%s", out)
	}
	admins, err := filepath.Glob(h1.Outside(filepath.Join(b.folder(h1), "run", "*.admin")))
	must(t, err)
	if len(admins) != 2 {
		t.Errorf("admin addresses: %v", admins)
	}
	for _, file := range admins {
		addr, err := os.ReadFile(file)
		must(t, err)
		at := strings.TrimSpace(string(addr))
		if !strings.HasPrefix(at, h1.Addr+":") {
			t.Fatalf("%s is at %s", filepath.Base(file), at)
		}
		curl := []string{"-sS", "--connect-to", "::" + at, "--cacert", made.Trust}
		url := "https://" + made.ServerName + "/metrics"
		got, err := c1.Run(t.Context(), "curl", append(curl, "--cert", made.Cert, url)...)
		if err != nil || !strings.Contains(got, "sluice_") {
			t.Errorf("%s: %v %.300s", filepath.Base(file), err, got)
		}
		if got, err := c1.Run(t.Context(), "curl", append(curl, url)...); err == nil {
			t.Errorf("without a certificate: %.300s", got)
		}
		if got, err := c1.Run(t.Context(), "curl", "-sS", "http://"+at+"/metrics"); err == nil &&
			strings.Contains(got, "sluice_") {
			t.Errorf("in the clear: %.300s", got)
		}
	}
	// What the certificate may do besides is to look at an empty directory.
	b.refused(c1, "read-only", "mkdir", "/x")
	b.refused(h1, "may do everything", "key", "export", h1.Path("pem"), "--credential",
		b.credential(h1))
}
