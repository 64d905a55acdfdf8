//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// TestLab runs this test binary in virtual machines with Soft-RoCE devices: first everything that
// needs a device and no second machine, then two machines, whose connections are broken in the
// middle of writes in every way. The guests' root is the host's, so the binary is where it is here.
func TestLab(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("boots virtual machines")
	case raceEnabled:
		t.Skip("the race detector in an emulated machine takes too long")
	}
	p := newCouple(t)
	for _, step := range []struct {
		name string
		run  func(*couple)
	}{
		{"one machine", (*couple).oneMachine},
		{"no allowance for locked memory", (*couple).noAllowance},
		{"why there is no RDMA", (*couple).sayWhy},
		{"exchange", (*couple).exchange},
		{"the link goes down and up", (*couple).linkDown},
		{"the interface goes down and up", (*couple).interfaceDown},
		{"every packet is lost", (*couple).everyPacketLost},
		{"every packet is lost and nothing is sent", (*couple).lostInSilence},
		{"a device is removed, another goes on", (*couple).deviceRemoved},
		{"a device is removed, another program lets go of it later", (*couple).deviceKept},
		{"the server leaves nothing behind", (*couple).nothingLeft},
		{"the serving program is killed", (*couple).programKilled},
		{"the serving machine dies", (*couple).machineDies},
	} {
		if !t.Run(step.name, func(t *testing.T) { p.t = t; step.run(p) }) {
			return // what follows would fail for this reason
		}
	}
}

// couple is two guests on two wires; b serves.
type couple struct {
	t      *testing.T // the step's
	exe    string
	wires  [2]*vmtest.Wire
	a, b   *vmtest.Guest
	server *program
}

func newCouple(t *testing.T) *couple {
	exe, err := os.Executable()
	fatal(t, err)
	lab := vmtest.Need(t)
	p := &couple{t: t, exe: exe}
	for i := range p.wires {
		p.wires[i] = lab.NewWire(vmtest.WireOptions{})
	}
	p.a, p.b = lab.StartCouple(t, vmtest.GuestConfig{Wires: p.wires[:]})
	return p
}

// run runs a script in a guest, which must succeed, and returns what it printed.
func (p *couple) run(g *vmtest.Guest, limit time.Duration, script string) string {
	p.t.Helper()
	res, err := g.Exec(p.t.Context(), vmtest.Command{Script: script + " 2>&1", Limit: limit})
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", script, err, res.Stdout)
	}
	return res.Stdout
}

// program is a role that runs in a guest.
type program struct {
	ended chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

func (r *program) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(b)
}

// told is what the program has printed from a place on.
func (r *program) told(from int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()[from:]
}

// pid is its number in its guest, once it has printed anything.
func (r *program) pid() string {
	first, _, _ := strings.Cut(r.told(0), "\n")
	return strings.TrimPrefix(first, "pid ")
}

func (p *couple) start(g *vmtest.Guest, role, host string) *program {
	r := &program{ended: make(chan struct{})}
	cmd := vmtest.Command{
		Script: "exec " + p.exe, Env: []string{roleEnv + "=" + role, roleHost + "=" + host},
		Limit: 15 * time.Minute, Stdout: r, Stderr: r,
	}
	go func() {
		defer close(r.ended)
		_, _ = g.Exec(context.Background(), cmd) // what it printed tells how it ended
	}()
	return r
}

// await waits until the program has printed something that matches, behind from, and returns it.
func (p *couple) await(r *program, from int, limit time.Duration, pattern string) string {
	p.t.Helper()
	match := regexp.MustCompile("(?m)^" + pattern + ".*$")
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if found := match.FindString(r.told(from)); found != "" {
			return found
		}
		if time.Since(start) > limit {
			p.t.Fatalf("%q did not come within %v:\n%s", pattern, limit, r.told(0))
		}
	}
}

// slow bounds what takes no time but that of a machine with too much to do.
const slow = time.Minute

// silenceMax bounds how long a broken connection may stay unnoticed: a silent one is asked for a
// sign of life each KeepAlive, and given PeerTimeout for it. Six times that, because emulation on a
// busy machine is slow.
const silenceMax = 6 * (4*time.Second + time.Second)

func (p *couple) host(wire int) string { return p.b.Addr(p.wires[wire]).String() }

// serve starts the server in b.
func (p *couple) serve() {
	p.t.Helper()
	p.server = p.start(p.b, "serve", "")
	p.await(p.server, 0, slow, "listening")
}

// exchange moves data in every way and looks at every byte.
func (p *couple) exchange() {
	p.serve()
	p.visit(0, "")
}

// goesOn shows that the server still serves on a wire.
func (p *couple) goesOn(wire int) {
	p.t.Helper()
	p.visit(wire, "/^writes$")
}

// visit runs exchanges. Devices and the kernel's routes may need a moment to come back, and a host
// that has not heard of a connection's end refuses the next one of the same queue pair number.
func (p *couple) visit(wire int, which string) {
	p.t.Helper()
	out := ""
	for begin := time.Now(); time.Since(begin) < slow; {
		res, err := p.a.Exec(p.t.Context(), vmtest.Command{
			Script: p.exe + " -test.v -test.failfast -test.run '^TestVisit$" + which + "' 2>&1",
			Env:    []string{roleHost + "=" + p.host(wire)}, Limit: 2 * time.Minute,
		})
		fatal(p.t, err)
		out = res.Stdout
		if strings.Contains(out, "--- PASS: TestVisit ") {
			return
		}
		p.t.Log(out)
		time.Sleep(time.Second)
	}
	p.t.Fatalf("nobody can visit the server:\n%s\nIt said:\n%s", out, p.server.told(0))
}

// breaks has a role run over the first wire, breaks its connection, and wants both ends to know
// soon.
func (p *couple) breaks(role string, do func()) {
	p.t.Helper()
	from := len(p.server.told(0))
	r := p.start(p.a, role, p.host(0))
	p.await(r, 0, slow, "flowing")
	begin := time.Now()
	do()
	said := p.await(r, 0, slow, "(ended|failed)")
	p.t.Logf("%.1f s: %s", time.Since(begin).Seconds(), said)
	var silent float64
	if _, err := fmt.Sscanf(said, "ended disconnected after %f s", &silent); err != nil {
		p.t.Fatalf("%s\n%s", said, r.told(0))
	}
	if silent > silenceMax.Seconds() {
		p.t.Errorf("it took %.1f s", silent)
	}
	select {
	case <-p.b.Dead():
	case <-p.server.ended:
	default:
		p.t.Log(p.await(p.server, from, slow, "served disconnected, left 0 streams"))
	}
}

func (p *couple) linkDown() {
	p.breaks("stream", func() { fatal(p.t, p.wires[0].Cut(p.t.Context())) })
	fatal(p.t, p.wires[0].Mend(p.t.Context()))
	p.goesOn(0)
}

func (p *couple) interfaceDown() {
	p.breaks("stream", func() {
		// What is on its way out of an interface that goes down comes back to Soft-RoCE when it is up
		// again, and Linux 6.1 looks at the queue pair that has sent it, which is gone: it panics.
		p.wires[0].Mute(true)
		time.Sleep(300 * time.Millisecond)
		p.run(p.b, slow, "ip link set eth0 down")
	})
	p.wires[0].Mute(false)
	p.goesOn(1)
	// The connection manager said goodbye into an interface that is down. Soft-RoCE takes that for
	// the end of its queue pair 1 and hears nobody any more, whoever asks, until it is made anew.
	p.run(p.b, slow, "ip link set eth0 up; rdma link del rxe0;"+
		"rdma link add rxe0 type rxe netdev eth0")
	p.goesOn(0)
}

func (p *couple) everyPacketLost() {
	p.breaks("stream", func() { p.wires[0].Mute(true) })
	p.wires[0].Mute(false)
	p.goesOn(0)
}

func (p *couple) lostInSilence() {
	p.breaks("idle", func() { p.wires[0].Mute(true) })
	p.wires[0].Mute(false)
	p.goesOn(0)
}

// deviceRemoved has a stream on each of two devices.
func (p *couple) deviceRemoved() {
	other := p.start(p.a, "stream", p.host(1))
	p.await(other, 0, slow, "flowing")
	from := 0
	r := p.start(p.a, "stream", p.host(0))
	p.await(r, 0, slow, "flowing")
	p.run(p.b, slow, "rdma link del rxe0") // comes back when nobody uses it any more
	p.t.Log(p.await(r, 0, slow, "ended disconnected"))
	p.t.Log(p.await(p.server, 0, slow, "served disconnected, left 1 streams.*rxe0 is gone"))
	from = len(other.told(0))
	p.await(other, from, slow, "flowing")
	p.run(p.b, slow, "rdma link add rxe0 type rxe netdev eth0")
	p.goesOn(0) // over the device that is new to the server
	from = len(other.told(0))
	p.await(other, from, slow, "flowing")
	from = len(p.server.told(0))
	p.run(p.a, slow, "rdma link del rxe1") // at the writing end
	p.t.Log(p.await(other, 0, slow, "ended disconnected.*rxe1 is gone"))
	p.await(p.server, from, slow, "served disconnected, left 0 streams")
	p.run(p.a, slow, "rdma link add rxe1 type rxe netdev eth1")
}

// deviceKept removes a device that two programs use. One of them cannot let go for a while: it is
// stopped. The removal ends when it has, and waits for nobody else.
func (p *couple) deviceKept() {
	p.goesOn(1) // the device is there again
	other := p.start(p.a, "serve", "")
	p.await(other, 0, slow, "listening")
	late := p.start(p.b, "idle", p.a.Addr(p.wires[1]).String())
	p.await(late, 0, slow, "flowing")
	r := p.start(p.a, "stream", p.host(1))
	p.await(r, 0, slow, "flowing")
	from := len(p.server.told(0))
	p.run(p.b, slow, "kill -STOP "+late.pid()+
		"; (rdma link del rxe1; echo $? > /tmp/removed) > /dev/null 2>&1 &")
	p.await(p.server, from, slow, "served disconnected, left 0 streams.*rxe1 is gone")
	time.Sleep(time.Second) // in which the server lets go
	p.run(p.b, slow, "kill -CONT "+late.pid())
	p.await(late, 0, slow, "ended disconnected")
	p.run(p.b, slow, "until grep -q 0 /tmp/removed; do sleep 0.1; done; rm /tmp/removed;"+
		"rdma link add rxe1 type rxe netdev eth1")
	p.run(p.a, slow, "kill "+other.pid())
	p.goesOn(1)
}

// nothingLeft compares the server after its first and its last stream.
func (p *couple) nothingLeft() {
	counts := regexp.MustCompile(`left 0 streams, (\d+) goroutines`).
		FindAllStringSubmatch(p.server.told(0), -1)
	var first, last int
	fmt.Sscan(counts[0][1], &first)
	fmt.Sscan(counts[len(counts)-1][1], &last)
	if last > first+2 { // one that is about to end may still be counted
		p.t.Errorf("%d goroutines after the first stream, %d after the last", first, last)
	}
	left := p.run(p.b, slow, "for i in $(seq 300); do "+
		"n=$(rdma resource show qp | grep -c 'type RC') && sleep 0.1 || break; done; echo $n")
	if strings.TrimSpace(left) != "0" {
		p.t.Errorf("%s queue pairs are left", left)
	}
}

func (p *couple) programKilled() {
	p.breaks("stream", func() {
		p.run(p.b, slow, "kill -9 "+p.server.pid())
		<-p.server.ended
	})
	p.serve()
	p.goesOn(0)
}

func (p *couple) machineDies() { p.breaks("stream", func() { p.b.Kill() }) }

// oneMachine runs everything that needs a device and no second machine.
func (p *couple) oneMachine() {
	out := p.run(p.a, 10*time.Minute, p.exe+" -test.v -test.timeout 9m -test.skip ^TestLab")
	for _, name := range []string{"TestConformance/windows", "TestConformance/registrations"} {
		if !strings.Contains(out, "--- PASS: "+name+" ") {
			p.t.Errorf("%s did not run:\n%s", name, out)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^--- .*|.*excluded: .*`).FindAllString(out, -1) {
		p.t.Log(m)
	}
}

// as runs the test binary as an ordinary user.
const as = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "

func (p *couple) noAllowance() {
	out := p.run(p.a, slow, "chmod 0666 /dev/infiniband/*; ulimit -l 64; "+
		as+p.exe+" -test.v -test.run ^TestMemoryLock$")
	if !strings.Contains(out, "--- PASS: TestMemoryLock ") {
		p.t.Errorf("TestMemoryLock did not run:\n%s", out)
	}
}

// sayWhy takes away what RDMA needs, piece by piece.
func (p *couple) sayWhy() {
	tell := " -test.v -test.run ^TestAvailable$"
	for what, c := range map[string]struct{ script, want string }{
		"permission for devices": {
			"chmod 0600 /dev/infiniband/*; " + as + p.exe + tell + "; chmod 0666 /dev/infiniband/*",
			"no permission to use /dev/infiniband/uverbs",
		},
		"permission for the connection manager": {
			"chmod 0600 /dev/infiniband/rdma_cm; " + as + p.exe + tell +
				"; chmod 0666 /dev/infiniband/*",
			"no permission to use /dev/infiniband/rdma_cm",
		},
		"libraries": {
			"lib=$(ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p' | head -1); " +
				"mount --bind /dev/null $(readlink -f $lib); " + p.exe + tell +
				"; umount $(readlink -f $lib)",
			"no RDMA libraries",
		},
		"devices": {
			"rdma link del rxe0; rdma link del rxe1; " + p.exe + tell + ";" +
				"rdma link add rxe0 type rxe netdev eth0; rdma link add rxe1 type rxe netdev eth1",
			"this machine has no RDMA device",
		},
		"links": {
			"ip link set eth0 down; ip link set eth1 down; " + p.exe + tell +
				"; ip link set eth0 up; ip link set eth1 up",
			"no RDMA device with an active port",
		},
	} {
		out := p.run(p.a, slow, c.script)
		line := regexp.MustCompile(`available false .*`).FindString(out)
		if !strings.Contains(line, c.want) || !strings.Contains(out, "--- PASS: TestAvailable") {
			p.t.Errorf("without %s:\n%s", what, out)
		}
		p.t.Logf("without %s: %s", what, line)
	}
}
