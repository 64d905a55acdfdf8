// Package transport holds the layers above the fabric against RDMA devices: it builds the test
// binaries of msg, mover and exio and runs, in virtual machines with Soft-RoCE, those of their
// tests that have a case for each provider; then a cluster in one machine and a client in the
// other, whose own memory the servers reach over verbs; then a server and visitors that choose
// between shared memory, verbs and tcp, in one machine, between two, and without the device.
//
// What is proved is in those packages' tests (msg/verbs_test.go, mover/verbs_test.go,
// client/registered_visit_test.go, client/hints_visit_test.go, peer/visit_test.go). There is
// nothing here but tests.
package transport

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// patience bounds waits that end early in all cases but failures; it says nothing about speed.
// silence is how long a test in a guest may print nothing: then its goroutines are asked for, while
// there is still time to print them. Tests take seconds there, on the busiest of machines.
const (
	patience = 4 * time.Minute
	silence  = 2 * time.Minute
)

// msgTests are the tests of msg that run on every provider; the longest are at the end.
func msgTests() []string {
	return []string{
		"TestEcho", "TestOneWayMessages", "TestEagerSlotsComeAndGo",
		"TestCanceledEagerCalls", "TestCancelAtEveryMoment", "TestCancellationAtRandomMoments",
		"TestTimeLimits", "TestPanicEndsOneConnectionOnly", "TestDrain", "TestCallsWaitForCredits",
		"TestIdlePeersAreKept", "TestUnequalOptions",
		"TestRandomRequestsAgainstModel", "TestWaysOfProgress", "TestNoAllocationsPerRequest",
	}
}

// moverTests are those of mover.
func moverTests() []string {
	return []string{
		"TestPut", "TestGet", "TestNothing", "TestCopies", "TestTune", "TestOthersPoll",
		"TestCancelled", "TestRevokedSlot", "TestRevokedSegment", "TestGatherOnVerbs", "TestShapes",
		"TestNoAllocations",
	}
}

func TestTransport(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines")
	}
	p := newCouple(t)
	t.Run("conformance", p.suites)
	t.Run("registered", p.registered)
	if os.Getenv("SLUICE_SOAK") != "" {
		t.Run("hints", p.hints)
	}
	t.Run("ladder", p.ladder)
	t.Run("keyed", p.keyed)
}

// keyed has a cluster with certificates climb to verbs by tokens, in one machine; there devices go,
// one after the other, and come back.
func (p *couple) keyed(t *testing.T) {
	out := p.visitor(t, p.a, "peer", "TestKeyedVerbs.*", "SLUICE_PEER_LINKS=eth0 eth1")
	for _, test := range []string{"TestKeyedVerbs", "TestKeyedVerbsClimb"} {
		if !strings.Contains(out, "--- PASS: "+test+" ") {
			t.Errorf("%s did not pass:\n%s", test, out)
		}
	}
	t.Log(out)
}

// suites runs the tests of msg, mover and exio, each in one of the machines.
func (p *couple) suites(t *testing.T) {
	var both sync.WaitGroup
	both.Go(func() {
		p.conformance(t, p.a, p.program("mover"), moverTests(), "/^verbs")
		p.messages(t)
	})
	both.Go(func() {
		p.conformance(t, p.b, p.program("tune"), []string{"TestTune"}, "/^verbs")
		p.conformance(t, p.b, p.program("msg"), msgTests(), "/^verbs")
	})
	both.Wait()
	p.conformance(t, p.a, p.program("mover"), []string{"TestDeath"}, "/./^verbs")
}

// messages holds exio's driver against its suite. In soaks that is all of it; in every run it is
// less of each case, with windows where the dialler writes, and with registrations where the
// listener does.
func (p *couple) messages(t *testing.T) {
	program, all := p.program("exio"), []string{"TestConformance"}
	if os.Getenv("SLUICE_SOAK") != "" {
		p.conformance(t, p.a, program, all, "/^verbs")
		return
	}
	p.conformance(t, p.a, program+" -test.short", all,
		"/^verbs$/dialler|TestConformance/^verbs-registrations$/listener")
}

// registered has a client in a move memory of its own to and from a cluster in b.
func (p *couple) registered(t *testing.T) {
	m := p.server(t, "client", "TestRegisteredServe", `(?m)^serving (\S+)$`,
		"SLUICE_CLIENT_SERVE="+p.b.Addr(p.wires[0]).String())
	out := p.visitor(t, p.a, "client", "TestRegisteredVisit", "SLUICE_CLIENT_VISIT="+m[1])
	t.Log(out)
	for _, provider := range []string{"verbs", "verbs-registrations"} {
		if !strings.Contains(out, "--- PASS: TestRegisteredVisit/"+provider+"/reused ") {
			t.Errorf("it did not run on %s", provider)
		}
	}
}

// hints measures what allocation hints save a client in a that reads from a cluster in b.
func (p *couple) hints(t *testing.T) {
	m := p.server(t, "client", "TestRegisteredServe", `(?m)^serving (\S+)$`,
		"SLUICE_CLIENT_SERVE="+p.b.Addr(p.wires[0]).String())
	out := p.visitor(t, p.a, "client", "TestHintsVisit", "SLUICE_CLIENT_HINTS="+m[1])
	for _, provider := range []string{"verbs", "verbs-registrations"} {
		if !strings.Contains(out, "--- PASS: TestHintsVisit/"+provider+" ") {
			t.Errorf("it did not run on %s", provider)
		}
	}
	t.Log(out)
}

// couple is two guests on two wires, and the programs that run in them. The second wire's devices
// are there because the library of the connection manager does not let go of a machine's last one.
type couple struct {
	wires [2]*vmtest.Wire
	a, b  *vmtest.Guest

	programs string // their folder
}

func newCouple(t *testing.T) *couple {
	lab := vmtest.Need(t)
	p, began := &couple{}, time.Now()
	for i := range p.wires {
		p.wires[i] = lab.NewWire(vmtest.WireOptions{})
	}
	p.programs = build(t, "msg", "msg/tune", "peer", "mover", "exio", "client")
	built := time.Now()
	p.a, p.b = lab.StartCouple(t, vmtest.GuestConfig{Wires: p.wires[:]})
	t.Logf("compiled in %v, booted in %v", built.Sub(began), time.Since(built))
	return p
}

// build makes the test binaries of packages, all at once: they share most of what is compiled. The
// guests' files are the host's, so they are there too.
func build(t *testing.T, packages ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	args := []string{"test", "-c", "-ldflags=-w", "-o", folder + "/"}
	for _, p := range packages {
		args = append(args, "./"+p)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return folder
}

// program is the test binary of a package.
func (p *couple) program(name string) string { return filepath.Join(p.programs, name+".test") }

// conformance runs tests of a program, which may have options behind its name, in a guest, and
// wants each of them to have passed with memory windows and with registrations.
func (p *couple) conformance(
	t *testing.T, g *vmtest.Guest, program string, tests []string, which string,
) {
	ctx, done := context.WithCancel(t.Context())
	out := &watched{}
	name, _, _ := strings.Cut(filepath.Base(program), " ")
	var watch sync.WaitGroup
	watch.Go(func() { out.askAfterSilence(ctx, g, name) })
	res, err := g.Exec(ctx, vmtest.Command{
		Script: program + " -test.v -test.timeout 6m -test.run '^(" +
			strings.Join(tests, "|") + ")$" + which + "' 2>&1",
		Limit: 2 * patience, Stdout: out,
	})
	done()
	watch.Wait()
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, res.Stdout)
		return
	}
	for _, test := range tests {
		for _, provider := range []string{"verbs", "verbs-registrations"} {
			ran := regexp.MustCompile(`--- PASS: ` + test + `/([^/\s]*/)?` + provider + `[ #/]`)
			if !ran.MatchString(res.Stdout) {
				t.Errorf("%s did not run on %s:\n%s", test, provider, res.Stdout)
			}
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^--- .*`).FindAllString(res.Stdout, -1) {
		t.Logf("%s: %s", name, line)
	}
}

// watched is a program's output, so that it can be waited for while the program runs.
type watched struct {
	mu  sync.Mutex
	out strings.Builder
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(b)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.String()
}

// askAfterSilence has a program print its goroutines and end when it has printed nothing for long.
func (w *watched) askAfterSilence(ctx context.Context, g *vmtest.Guest, program string) {
	last, since := "", time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if now := w.String(); now != last {
			last, since = now, time.Now()
			continue
		}
		if time.Since(since) > silence {
			_, _ = g.Run(ctx, "pkill -QUIT -x "+program)
			return
		}
	}
}

// server starts a test of a package that serves in b until its machine ends, and returns what it
// says of itself.
func (p *couple) server(t *testing.T, name, test, says, env string) []string {
	t.Helper()
	out := &watched{}
	go func() {
		_, _ = p.b.Exec(context.Background(), vmtest.Command{
			Script: "exec " + p.program(name) + " -test.timeout 0 -test.run '^" + test + "$'",
			Env:    []string{env}, Limit: time.Hour, Stdout: out, Stderr: out,
		})
	}()
	said := regexp.MustCompile(says)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if m := said.FindStringSubmatch(out.String()); m != nil {
			return m
		}
	}
	t.Fatalf("the server does not say where it is:\n%s", out)
	return nil
}

// visitor runs a test of a package in a guest, which must pass, and returns what it printed.
func (p *couple) visitor(t *testing.T, g *vmtest.Guest, name, test string, env ...string) string {
	t.Helper()
	return p.run(t, g, p.program(name)+" -test.v -test.timeout 6m -test.run '^"+test+"$'", env...)
}

// ladder has visitors come from both machines, with and without what the better steps need.
func (p *couple) ladder(t *testing.T) {
	m := p.server(t, "peer", "TestLadderServe", `(?m)^serving (\S+) with (.*)$`,
		"SLUICE_PEER_SERVE="+p.b.Addr(p.wires[0]).String())
	addr, keys := m[1], m[2]
	base := regexp.MustCompile(`tcp:([^,]+)`).FindStringSubmatch(addr)[1]
	fast := strings.Replace(regexp.MustCompile(`verbs:[^,]+`).FindString(addr), "0.0.0.0",
		p.b.Addr(p.wires[0]).String(), 1)
	for _, v := range []visit{
		{
			name: "the same host", from: p.b, addr: base, want: "shm",
			steps: []string{`step shm at "unix:/.*": <nil>`},
		},
		{
			name: "the same host without shared memory", from: p.b, addr: base, skip: "shm",
			want: "verbs", steps: []string{`step verbs at "10.*": <nil>`},
		},
		{
			name: "another host", from: p.a, addr: base, want: "verbs",
			steps: []string{
				`step shm at ".*": .*the server is on another host`, `step verbs at "10.*": <nil>`,
			},
		},
		{
			name: "another host, by all of the address", from: p.a, addr: "tcp:" + base + "," + fast,
			want: "verbs", steps: []string{`step verbs at "10.*": <nil>`},
		},
		{
			name: "another host without a device", from: p.a, addr: base, want: "tcp", in: p.a,
			before: "rdma link del rxe0; rdma link del rxe1",
			after: "rdma link add rxe0 type rxe netdev eth0; " +
				"rdma link add rxe1 type rxe netdev eth1",
			steps: []string{
				`step verbs at "": .*this machine has no RDMA device`, `step tcp at "10.*": <nil>`,
			},
		},
		{
			name: "the server's device is gone, it has another", from: p.a, addr: base, want: "verbs",
			in: p.b, before: "rdma link del rxe0", after: "rdma link add rxe0 type rxe netdev eth0",
			steps: []string{`step verbs at "` + p.b.Addr(p.wires[1]).String() + `:.*": <nil>`},
		},
		{
			name: "the server's device is gone", from: p.a, addr: "tcp:" + base + "," + fast, want: "tcp",
			in: p.b, before: "rdma link del rxe0", after: "rdma link add rxe0 type rxe netdev eth0",
			steps: []string{
				`step verbs at "10.*": .*(disconnected|timed out).*`, `step tcp at "10.*": <nil>`,
			},
		},
		{
			name: "the server's device is back", from: p.a, addr: base, want: "verbs",
			steps: []string{`step verbs at "10.*": <nil>`},
		},
	} {
		t.Run(v.name, func(t *testing.T) { p.visit(t, &v, keys) })
	}
}

// visit is one way to come to the server of the ladder.
type visit struct {
	name          string
	from, in      *vmtest.Guest
	before, after string // scripts, in the guest in
	addr          string
	skip          string   // provider that the visitor does without
	want          string   // provider that it takes
	steps         []string // what is said of them, as regular expressions
}

func (p *couple) visit(t *testing.T, v *visit, keys string) {
	if v.before != "" {
		p.run(t, v.in, v.before)
		defer p.run(t, v.in, v.after)
	}
	cmd := vmtest.Command{Limit: 2 * patience,
		Script: p.program("peer") + " -test.v -test.timeout 6m -test.run '^TestLadderVisit$' 2>&1",
		Env: []string{"SLUICE_PEER_VISIT=" + v.addr, "SLUICE_PEER_KEYS=" + keys,
			"SLUICE_PEER_WANT=" + v.want, "SLUICE_PEER_SKIP=" + v.skip}}
	out, lacks := "", ""
	// A step has some seconds, and on a busy machine a guest may need more.
	for begin := time.Now(); ; time.Sleep(time.Second) {
		res, err := v.from.Exec(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		out, lacks = res.Stdout, ""
		for _, step := range append(slices.Clone(v.steps), `--- PASS: TestLadderVisit `) {
			if !regexp.MustCompile(`(?m)^` + step).MatchString(out) {
				lacks = step
			}
		}
		if lacks == "" || time.Since(begin) > patience {
			break
		}
		t.Logf("it does not say %q:\n%s", lacks, out)
	}
	if lacks != "" {
		t.Errorf("it does not say %q:\n%s", lacks, out)
	}
	for _, line := range regexp.MustCompile(`(?m)^step .*`).FindAllString(out, -1) {
		t.Log(line)
	}
}

// run runs a script in a guest, which must succeed, and returns what it printed.
func (p *couple) run(t *testing.T, g *vmtest.Guest, script string, env ...string) string {
	t.Helper()
	res, err := g.Exec(context.Background(),
		vmtest.Command{Script: script + " 2>&1", Env: env, Limit: 2 * patience})
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, res.Stdout)
	}
	return res.Stdout
}
