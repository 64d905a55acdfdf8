package systest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/systest/hosttest"
)

// knockEnv makes a process of this test binary one that knocks at a port: "ADDR CREDENTIAL".
const knockEnv = "SLUICE_SYSTEST_KNOCK"

// knock shows a certificate at a port, whoever listens there and whatever the certificate is worth,
// as no client of the product would, and tells what came of it.
func knock(addr, file string) (string, error) {
	c, err := identity.ReadCredential(file)
	if err != nil {
		return "", err
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := tls.DialWithDialer(&d, "tcp", addr, &tls.Config{InsecureSkipVerify: true,
		Certificates: []tls.Certificate{*c.TLS()}, NextProtos: []string{"sluice-tls/1"}})
	if err != nil {
		return "refused: " + err.Error(), nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err = conn.Write(make([]byte, 64)); err == nil {
		_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 a server looks at certificates after it is done
	}
	if err != nil {
		return "refused: " + err.Error(), nil
	}
	return "served", nil
}

// holdEnv makes a process of this test binary one that opens connections to a port and does not go
// on with them: "ADDR COUNT".
const holdEnv = "SLUICE_SYSTEST_HOLD"

// holdOpen begins handshakes, says so, and waits; then it tells how many connections the other side
// has left open for how long.
func holdOpen(addr string, count int) error {
	conns := make([]net.Conn, count)
	for i := range conns {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			return err
		}
		conns[i] = c
		_, _ = c.Write([]byte{22, 3, 1}) // the beginning of a handshake; it may be closed already
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	var left atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(3 * time.Second) // in which those that are too many are closed
	for _, c := range conns {
		all.Go(func() {
			_ = c.SetReadDeadline(end)
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				left.Add(1)
			}
		})
	}
	all.Wait()
	fmt.Println("left", left.Load())
	return nil
}

// halfOpen has somebody open many connections at each port of a host, and stop there. Others are
// served at once, and the port keeps no more of them than it says (docs/ops/network.md).
func (b *bed) halfOpen(from, at *hosttest.Host) {
	b.t.Helper()
	const many, most = 150, 64
	self, err := os.Executable()
	must(b.t, err)
	for _, addr := range append(b.ports(at), at.Addr+":9401") {
		cmd := from.Command(b.t.Context(), "env", fmt.Sprintf("%s=%s %d", holdEnv, addr, many), self)
		in, err := cmd.StdinPipe()
		must(b.t, err)
		out, err := cmd.StdoutPipe()
		must(b.t, err)
		must(b.t, cmd.Start())
		said := bufio.NewReader(out)
		if line, _ := said.ReadString('\n'); line != "open\n" {
			b.t.Fatalf("%s: %s", addr, line)
		}
		b.typed(b.host("c2"), "sluice ls /")
		_ = in.Close()
		line, _ := said.ReadString('\n')
		left, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "left ")))
		if err != nil || left > most {
			b.t.Errorf("%s keeps %d half-open connections, at most %d: %s %v", addr, left, most, line, err)
		}
		must(b.t, cmd.Wait())
		b.t.Logf("%s keeps %d of %d half-open connections", addr, left, many)
	}
}

// knocks shows the certificate of a file at a port, which must refuse it at once.
func (b *bed) knocks(h *hosttest.Host, addr, file string) {
	b.t.Helper()
	self, err := os.Executable()
	must(b.t, err)
	out, err := h.Run(b.t.Context(), "env", knockEnv+"="+addr+" "+file, self)
	if err != nil || !strings.HasPrefix(out, "refused: remote error: tls: bad certificate") {
		b.t.Errorf("%s shows %s at %s: %s %v", h.Name, filepath.Base(file), addr, out, err)
	}
}

// reissue writes a member's credential again, as if it had been made at another time.
func (b *bed) reissue(h *hosttest.Host, file string, made time.Time) {
	b.t.Helper()
	file = h.Outside(file)
	was, err := identity.ReadCredential(file)
	must(b.t, err)
	h1 := b.host("h1")
	a, err := identity.OpenAuthority(h1.Outside(filepath.Join(b.folder(h1), "keys")))
	must(b.t, err)
	key := identity.NewKey()
	der, err := identity.NewRequest(key)
	must(b.t, err)
	request, err := identity.ParseRequest(der)
	must(b.t, err)
	chain, err := a.Issue(request, was.Kind, was.Name, identity.Plan(made), made)
	must(b.t, err)
	next, err := identity.NewCredential(key, &identity.Grant{Cluster: was.Cluster, Kind: was.Kind,
		Name: was.Name, Roles: was.Roles, Rights: was.Rights, Addresses: was.Addresses, Join: was.Join,
		Certificate: chain, Authorities: was.Authorities})
	must(b.t, err)
	must(b.t, next.Write(file))
}

// ended is when a certificate was made that ended an hour ago, tooYoung one that begins in a month.
func ended() time.Time    { return time.Now().Add(-identity.Life - time.Hour) }
func tooYoung() time.Time { return time.Now().AddDate(0, 1, 2) }

// joinClient makes a client of a host, whose credential is where its programs look for it.
func (b *bed) joinClient(name string) *hosttest.Host {
	b.t.Helper()
	h := b.host(name)
	b.typed(b.host("h1"), "sluice token create --client "+name+" --squash none --dir /var/lib/sluice")
	b.typed(h, "sluice join 10.1.0.1:9401 TOKEN")
	return h
}

func (b *bed) credential(h *hosttest.Host) string {
	if isClient(h) {
		return h.Path("client.json")
	}
	return filepath.Join(b.folder(h), "host.json")
}

// logged waits until a process of a host has said something, and counts the lines.
func (b *bed) logged(h *hosttest.Host, process, words string) int {
	b.t.Helper()
	file := h.Outside(filepath.Join(b.folder(h), "log", process+".log"))
	for end := time.Now().Add(readyLimit); ; time.Sleep(50 * time.Millisecond) {
		text, err := os.ReadFile(file)
		must(b.t, err)
		if n := strings.Count(string(text), words); n > 0 || time.Now().After(end) {
			return n
		}
	}
}

// count is a counter of a process, from its metrics.
func (b *bed) count(h *hosttest.Host, process, name string) (sum int) {
	b.t.Helper()
	addr, err := os.ReadFile(h.Outside(filepath.Join(b.folder(h), "run", process+".admin")))
	must(b.t, err)
	out, err := h.Run(b.t.Context(), "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s; printf "+
		"'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3",
		strings.Replace(strings.TrimSpace(string(addr)), ":", "/", 1)))
	must(b.t, err)
	for _, m := range regexp.MustCompile(`(?m)^`+name+`\S* (\d+)`).FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(m[1])
		must(b.t, err)
		sum += n
	}
	return sum
}

// ports are the addresses of a host at which its metadata service and I/O servers listen.
func (b *bed) ports(h *hosttest.Host) (list []string) {
	b.t.Helper()
	out, err := h.Run(b.t.Context(), "ss", "-Hltn")
	must(b.t, err)
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasPrefix(fields[3], h.Addr+":") && !strings.HasSuffix(fields[3],
			":9401") {
			list = append(list, fields[3])
		}
	}
	return list
}

// TestHostsCertificates: certificates that have ended, have not begun, are of another cluster or
// were revoked are refused at every port, at once; who shows one is told why, and so is the log,
// once. Others do not notice, and who joins again is let in.
func TestHostsCertificates(t *testing.T) {
	t.Parallel()
	began := time.Now()
	b := newBed(t, "c2")
	b.firstHost()
	h1, h2 := b.host("h1"), b.host("h2")
	url := "sluice://" + h1.Addr + ":9400"
	must(t, os.MkdirAll(b.host("c1").Outside(b.mnt(b.host("c1"))), 0o755))
	b.typed(h1, "sluice token create --client c1 --squash none --dir /var/lib/sluice")
	b.typed(b.host("c1"), "sluice join 10.1.0.1:9401 TOKEN --mount /mnt/lab")
	l := b.startWriter(b.host("c1"), "load")
	l.progress(2)
	c2 := b.joinClient("c2")
	own := b.credential(c2)
	good, err := os.ReadFile(c2.Outside(own))
	must(t, err)
	for _, one := range []struct {
		what, why string
		made      time.Time
	}{
		{"expired", "has ended at", ended()},
		{"of a wrong clock", "see which clock is wrong", tooYoung()},
	} {
		b.reissue(c2, own, one.made)
		b.refused(c2, one.why, "ls", "/")
		b.refused(c2, one.why, "cp", c2.Path("client.json"), "sluice:/x")
		b.refused(c2, one.why, "mount", url, b.mnt(c2))
		for _, addr := range b.ports(h1) {
			b.knocks(c2, addr, own)
		}
	}
	must(t, os.WriteFile(c2.Outside(own), good, 0o600))
	_, err = b.sluice(c2, "ls", "/")
	must(t, err)

	b.toldOnce(h1, began)
	// Another cluster, on h2: neither side is taken for one of the other.
	b.typed(h2, "sluice up -d --dir /var/lib/sluice --listen "+h2.Addr+":9400 --iods 1")
	there := "sluice://" + h2.Addr + ":9400"
	for _, addr := range b.ports(h1) {
		b.knocks(h2, addr, b.credential(h2))
	}
	for _, addr := range b.ports(h2) {
		b.knocks(c2, addr, own)
	}
	b.refused(c2, "host h2 belongs to another cluster", "ls", "--url", there, "/")
	b.refused(c2, "is of cluster", "ls", "--url", there, "/")
	b.refused(h2, "host h1 belongs to another cluster", "ls", "--url", url, "--credential",
		b.credential(h2), "/")
	for _, h := range []*hosttest.Host{h1, h2} {
		if n := b.logged(h, "meta", "belongs to another cluster"); !seldom(n, began) {
			t.Errorf("the log of %s has it %d times", h.Name, n)
		}
	}
	b.halfOpen(b.host("h3"), h1)
	b.wrongPorts(c2)
	b.plainAndTLS(c2)

	// One that was removed is told so.
	b.typed(h1, "sluice client rm c2 --dir /var/lib/sluice")
	b.refused(c2, "client c2 was re", "ls", "/") // removed, says the service; revoked, the certificate
	b.refused(c2, "client c2 was re", "status")
	b.typed(h1, "sluice token create --client c2 --dir /var/lib/sluice")
	b.refused(c2, "--force", "join", h1.Addr+":9401", b.token)
	b.typed(c2, "sluice join 10.1.0.1:9401 TOKEN --force")
	b.typed(c2, "sluice ls /")
	l.progress(2)
	l.end()
}

// seldom tells whether something was said as often as once a minute allows.
func seldom(n int, began time.Time) bool { return n > 0 && n <= 1+int(time.Since(began).Minutes()) }

// toldOnce wants the servers of a host to have told of the one who was refused once, and to have
// counted each time.
func (b *bed) toldOnce(h *hosttest.Host, began time.Time) {
	b.t.Helper()
	for _, process := range []string{"meta", "iod1"} {
		if n := b.logged(h, process, "connection refused"); !seldom(n, began) {
			b.t.Errorf("%s has %d lines about one peer since %v", process, n, time.Since(began))
		}
		if n := b.count(h, process, "sluice_peer_refused_total"); n < 2 {
			b.t.Errorf("%s has counted %d refusals", process, n)
		}
	}
}

// wrongPorts mixes up the port of the metadata service and that where others join.
func (b *bed) wrongPorts(c *hosttest.Host) {
	b.t.Helper()
	h1 := b.host("h1")
	b.refused(c, "Its port is 9400", "ls", "--url", "sluice://"+h1.Addr+":9401", "/")
	b.typed(h1, "sluice token create --client c9 --dir /var/lib/sluice")
	b.refused(c, "no join service listens there", "join", h1.Addr+":9400", b.token, "--credential",
		c.Path("c9.json"))
}

// plainAndTLS has who shows no certificate come to ports that want one, and the other way round.
func (b *bed) plainAndTLS(c *hosttest.Host) {
	b.t.Helper()
	secret := c.Path("plain", "cluster.secret")
	_, err := b.sluice(c, "up", "-d", "--dir", c.Path("plain"), "--listen", "127.0.0.1:9500", "--iods",
		"1")
	must(b.t, err)
	defer func() { _, _ = b.sluice(c, "down", "--dir", c.Path("plain")) }()
	h1 := b.host("h1")
	for _, addr := range b.ports(h1) {
		b.refused(c, "the listener wants TLS", "ls", "--url", "sluice://"+addr, "--secret", secret, "/")
		b.refused(c, "the listener wants TLS", "ls", "--url", "sluice://"+addr, "--trust-local", "/")
	}
	plain := "sluice://127.0.0.1:9500"
	b.refused(c, "does not speak TLS", "ls", "--url", plain, "--credential", b.credential(c), "/")
	b.refused(c, "no join service listens there", "join", "127.0.0.1:9500", b.token, "--credential",
		c.Path("c9.json"))
	_, err = b.sluice(c, "ls", "--url", plain, "--secret", secret, "/")
	must(b.t, err)
}
