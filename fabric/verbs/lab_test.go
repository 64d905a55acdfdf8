//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// The tests of this file run this test binary in virtual machines with Soft-RoCE devices. The
// guests' root is the host's, so the binary is where it is here.

func labBinary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("boots virtual machines")
	}
	exe, err := os.Executable()
	fatal(t, err)
	return exe
}

// output runs a script in a guest and returns what it printed.
func output(t *testing.T, g *vmtest.Guest, limit time.Duration, script string) string {
	t.Helper()
	res, err := g.Exec(t.Context(), vmtest.Command{Script: script, Limit: limit})
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", script, err, res.Stdout, res.Stderr)
	}
	return res.Stdout
}

// TestLabOneGuest runs everything that needs a device and no second machine.
func TestLabOneGuest(t *testing.T) {
	exe := labBinary(t)
	lab := vmtest.Need(t)
	wire := lab.NewWire(vmtest.WireOptions{})
	g := lab.StartFor(t, vmtest.GuestConfig{Name: "alone", Wires: []*vmtest.Wire{wire}})
	_, err := g.SoftRoCE(t.Context(), wire)
	fatal(t, err)
	out := output(t, g, 5*time.Minute, exe+" -test.v -test.timeout 4m -test.skip ^TestLab")
	for _, name := range []string{"TestConformance/windows", "TestRefusedAccess/windows"} {
		if !strings.Contains(out, "--- PASS: "+name+" ") {
			t.Errorf("%s did not run:\n%s", name, out)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^--- .*`).FindAllString(out, -1) {
		t.Log(m)
	}
	// The same as an ordinary user without any allowance for locked memory.
	out = output(t, g, time.Minute, "chmod 0666 /dev/infiniband/*; ulimit -l 64; "+
		"setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "+
		exe+" -test.v -test.run ^TestMemoryLock$")
	if !strings.Contains(out, "--- PASS: TestMemoryLock ") {
		t.Errorf("TestMemoryLock did not run:\n%s", out)
	}
}

// couple is two guests on one wire; b serves.
type couple struct {
	t    *testing.T
	exe  string
	wire *vmtest.Wire
	a, b *vmtest.Guest
}

// TestLabTwoGuests exchanges data between machines, and breaks every connection in the middle of
// writes in every way: the error comes within a bound, and the next connection works.
func TestLabTwoGuests(t *testing.T) {
	p := &couple{t: t, exe: labBinary(t)}
	lab := vmtest.Need(t)
	p.wire = lab.NewWire(vmtest.WireOptions{})
	p.a = lab.StartFor(t, vmtest.GuestConfig{Name: "left", Wires: []*vmtest.Wire{p.wire}})
	p.b = lab.StartFor(t, vmtest.GuestConfig{Name: "right", Wires: []*vmtest.Wire{p.wire}})
	for _, g := range []*vmtest.Guest{p.a, p.b} {
		_, err := g.SoftRoCE(t.Context(), p.wire)
		fatal(t, err)
	}
	p.serve()
	p.verify()
	p.breaks("stream", "the link goes down", func() { fatal(t, p.wire.Cut(t.Context())) })
	fatal(t, p.wire.Mend(t.Context()))
	p.verify()
	p.breaks("stream", "every packet is lost", func() { p.wire.Mute(true) })
	p.wire.Mute(false)
	p.verify()
	p.breaks("stream", "the serving program is killed", func() {
		output(t, p.b, time.Minute, p.stop())
	})
	p.serve()
	p.verify()
	p.breaks("idle", "every packet is lost and nothing is sent", func() { p.wire.Mute(true) })
	p.wire.Mute(false)
	p.verify()
	p.breaks("stream", "the serving machine dies", func() { p.b.Kill() })
}

func (p *couple) addr() string { return fmt.Sprintf("%v:7471", p.b.Addr(p.wire)) }

func (p *couple) role(role string) string {
	return fmt.Sprintf("%s=%s %s=%s %s", roleEnv, role, roleAddr, p.addr(), p.exe)
}

// stop kills the server. Its name is not that of the script that kills it.
func (p *couple) stop() string { return "kill -9 $(cat /tmp/server.pid)" }

// serve starts the server in b.
func (p *couple) serve() {
	p.t.Helper()
	output(p.t, p.b, time.Minute,
		"("+p.role("serve")+" >/tmp/server 2>&1 & echo $! >/tmp/server.pid);"+
			"for i in $(seq 100); do grep -q listening /tmp/server && exit 0; sleep 0.1; done;"+
			"cat /tmp/server; exit 1")
}

// verify moves data, once the devices can.
func (p *couple) verify() {
	p.t.Helper()
	out := output(p.t, p.a, 2*time.Minute, "for i in $(seq 8); do "+p.role("verify")+
		" && exit 0; sleep 1; done; exit 1")
	if !strings.Contains(out, "verified") {
		p.t.Fatal(out)
	}
}

// silenceMax bounds how long a stream may be silent until it knows. It is PeerTimeout, three times:
// Soft-RoCE rounds up, and emulation on a busy machine is slow.
const silenceMax = 3 * 4 * time.Second

// breaks has a role run, breaks its connection, and wants it to end in order and soon.
func (p *couple) breaks(role, how string, do func()) {
	t := p.t
	t.Helper()
	output(t, p.a, time.Minute, "("+p.role(role)+" >/tmp/stream 2>&1 &);"+
		"for i in $(seq 200); do grep -q flowing /tmp/stream && exit 0; sleep 0.1; done;"+
		"cat /tmp/stream; exit 1")
	begin := time.Now()
	do()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := p.a.Run(ctx, "for i in $(seq 300); do grep -E '^(ended|failed|panic)' /tmp/stream"+
		" && exit 0; sleep 0.1; done; cat /tmp/stream; exit 1")
	if err == nil {
		err = res.Err()
	}
	took := time.Since(begin)
	if err != nil || !strings.Contains(res.Stdout, "ended disconnected after") {
		t.Fatalf("%s: %v\n%s", how, err, res.Stdout)
	}
	if took > silenceMax+5*time.Second { // 5 s for the scripts
		t.Errorf("%s: it took %v", how, took)
	}
	t.Logf("%s: %.1f s: %s", how, took.Seconds(), strings.TrimSpace(res.Stdout))
}
