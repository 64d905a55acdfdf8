package systest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/systest/hosttest"
)

// second makes h2 a host, too.
func (b *bed) second() *hosttest.Host {
	b.t.Helper()
	b.typed(b.host("h1"), "sluice token create --host --dir /var/lib/sluice")
	b.typed(b.host("h2"), "sluice join 10.1.0.1:9401 TOKEN --serve --dir /var/lib/sluice")
	return b.host("h2")
}

// awaitServers waits until so many I/O servers are up.
func (b *bed) awaitServers(want int) {
	b.t.Helper()
	h1 := b.host("h1")
	for end := time.Now().Add(readyLimit); ; time.Sleep(100 * time.Millisecond) {
		out, err := b.sluice(h1, "status", "--json", "--dir", b.folder(h1))
		var st clusterState
		up := 0
		if json.Unmarshal([]byte(out), &st) == nil {
			for _, s := range st.Servers {
				if s.Up {
					up++
				}
			}
		}
		if up == want {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%d servers are up, want %d: %s %v", up, want, out, err)
		}
	}
}

// TestHostEnds: the certificate of a host has ended. Who comes to its servers is told so, its log
// says so, and what to do; when it has joined again it serves what it has. The host of the metadata
// service makes its own anew when it is started.
func TestHostEnds(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.firstHost()
	h1, h2 := b.host("h1"), b.second()
	c1 := b.joinClient("c1")
	data := record(3, 0, 5<<20)
	must(t, os.WriteFile(c1.Outside(c1.Path("f")), data, 0o644))
	b.typed(c1, "sluice cp "+c1.Path("f")+" sluice:/f")
	if n := b.stripes(c1, "/f"); n != 2 {
		t.Fatalf("it lies on %d hosts", n)
	}

	b.typed(h2, "sluice down --dir /var/lib/sluice")
	b.reissue(h2, b.credential(h2), ended())
	config := filepath.Join(b.folder(h2), "sluice.toml")
	out, err := b.sluice(h2, "serve", "-d", "--config", config)
	if err != nil || !strings.Contains(out, "the certificate of h2 has ended") {
		t.Errorf("serve: %s %v", out, err)
	}
	b.refused(h2, "the certificate of h2 has ended", "status", "--dir", b.folder(h2))
	for end := time.Now().Add(readyLimit); len(b.ports(h2)) == 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	for _, addr := range b.ports(h2) {
		b.refused(c1, "the certificate of h2 has ended", "bench", "net", "--ladder", addr)
	}
	if n := b.logged(h2, "iod2", "nobody believes this process any more"); n != 1 { // once an hour
		t.Errorf("the log of its server has it %d times", n)
	}
	b.typed(c1, "sluice ls /") // who does not need it goes on

	// The registry knows of a certificate that has not ended, which this test has thrown away.
	b.typed(h1, "sluice token create --host --dir /var/lib/sluice")
	b.refused(h2, "sluice host rm", "join", h1.Addr+":9401", b.token, "--dir", b.folder(h2))
	b.typed(h1, "sluice host rm h2 --dir /var/lib/sluice")
	b.typed(h2, "sluice join 10.1.0.1:9401 TOKEN --dir /var/lib/sluice")
	b.typed(h2, "sluice down --dir /var/lib/sluice")
	b.serve(h2)
	b.typed(c1, "sluice cp sluice:/f "+c1.Path("g"))
	got, err := os.ReadFile(c1.Outside(c1.Path("g")))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v: not what was written", len(got), err)
	}

	b.typed(h1, "sluice down --dir /var/lib/sluice")
	b.reissue(h1, b.credential(h1), ended())
	b.serve(h1)
	own, err := identity.ReadCredential(h1.Outside(b.credential(h1)))
	if err != nil || own.Expired(time.Now()) {
		t.Errorf("the first host has not renewed itself: %v", err)
	}
	b.typed(c1, "sluice cp sluice:/f "+c1.Path("h"))
}

// byClock is the command line of the program on a host whose clock is so many seconds ahead.
func (b *bed) byClock(h *hosttest.Host, seconds int, args ...string) []string {
	b.t.Helper()
	skipClock(b.t)
	self, err := os.Executable()
	must(b.t, err)
	line := append(b.env(h), clockEnv+"="+strconv.Itoa(seconds), self, b.bin)
	if !isClient(h) { // it has no credential of a client
		line = []string{"env", "HOME=" + h.Dir, clockEnv + "=" + strconv.Itoa(seconds), self, b.bin}
	}
	return append(line, args...)
}

// at runs the program on a host by another clock, and returns all that it says.
func (b *bed) at(h *hosttest.Host, seconds int, args ...string) (string, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Minute)
	defer cancel()
	line := b.byClock(h, seconds, args...)
	out, err := h.Command(ctx, line[0], line[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v on %s, %d s ahead: %w\n%s", args, h.Name, seconds, err, out)
	}
	return string(out), err
}

// startAt starts it, and leaves it running.
func (b *bed) startAt(h *hosttest.Host, seconds int, args ...string) {
	b.t.Helper()
	line := b.byClock(h, seconds, args...)
	h.Start(line[0], line[1:]...)
}

var clockOff = regexp.MustCompile(`The cluster's clock is (\S+) (ahead of|behind) this machine's`)

// saysClock wants a program to have said how wrong a clock is, but for the time that asking took.
func saysClock(t *testing.T, said string, off time.Duration, where string) {
	t.Helper()
	m := clockOff.FindStringSubmatch(said)
	if m == nil || m[2] != where {
		t.Errorf("of a clock that is %v %s it says %s", off, where, said)
		return
	}
	if d, err := time.ParseDuration(m[1]); err != nil || (d-off).Abs() > busyMax {
		t.Errorf("of a clock that is %v %s it says %s", off, where, said)
	}
}

// TestHostClocks: the clock of a host is a day ahead, that of a client a day behind; both are
// started, connect, and work, and are told that their clocks are wrong. A clock that is wrong by
// months is told as that, and when it is set right all goes on.
func TestHostClocks(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.firstHost()
	h1, h2, c1 := b.host("h1"), b.host("h2"), b.host("c1")
	const day = 24 * 3600
	b.typed(h1, "sluice token create --host --dir /var/lib/sluice")
	out, err := b.at(h2, day, "join", h1.Addr+":9401", b.token, "--dir", b.folder(h2))
	must(t, err)
	saysClock(t, out, 24*time.Hour, "behind")
	// A token lasts as long as was said, whatever the clock of the host where it was made.
	made, err := b.at(h2, -2*day, "token", "create", "--client", "c1", "--squash", "none", "--dir",
		b.folder(h2))
	must(t, err)
	saysClock(t, made, 48*time.Hour, "ahead of")
	out, err = b.at(c1, -day, "join", h1.Addr+":9401", tokenText.FindString(made))
	must(t, err)
	saysClock(t, out, 24*time.Hour, "ahead of")
	b.startAt(h2, day, "serve", "--config", filepath.Join(b.folder(h2), "sluice.toml"))
	b.awaitServers(2)
	data := record(3, 0, 5<<20)
	must(t, os.WriteFile(c1.Outside(c1.Path("f")), data, 0o644))
	for _, off := range []int{-day, day} {
		_, err = b.at(c1, off, "cp", "-f", c1.Path("f"), "sluice:/f")
		must(t, err)
		_, err = b.at(c1, -off, "cp", "-f", "sluice:/f", c1.Path("g"))
		must(t, err)
		got, err := os.ReadFile(c1.Outside(c1.Path("g")))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v: not what was written", len(got), err)
		}
	}
	if n := b.stripes(c1, "/f"); n != 2 {
		t.Errorf("it lies on %d hosts", n)
	}
	for off, why := range map[int]string{100 * day: "it has expired, or a clock is wrong",
		-100 * day: "see which clock is wrong"} {
		if out, err := b.at(c1, off, "ls", "/"); err == nil || !strings.Contains(out, why) {
			t.Errorf("a clock that is wrong by %d days: %s %v", off/day, out, err)
		}
	}
	b.typed(c1, "sluice ls /")
}
