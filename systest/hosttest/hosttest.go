// Package hosttest makes hosts for tests on one machine: each is a network name space with an
// address on a common bridge, and a mount name space in which it sees its own folder and not those
// of others, so that two hosts cannot meet by what only processes of one host share. Programs are
// started in them, links cut and mended, hosts kept apart from each other while they reach the
// others.
//
// It needs root, and ip, nsenter and unshare. What it makes ends with the test, also when the test
// is killed: the name spaces belong to processes that end with it.
package hosttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bed is some hosts that reach each other.
type Bed struct {
	Hosts []*Host

	t      testing.TB
	dir    string
	bridge int // the process whose network name space has the bridge
}

// Host is one of them.
type Host struct {
	Name string
	Addr string // on the bridge, without a port
	Dir  string // its own, by the same path inside and outside

	bed *Bed
	pid int // of the process that holds its name spaces
}

// Where the hosts live: addresses that stand in documentation, so that they are nobody's, in name
// spaces of their own, so that several beds do not meet.
const (
	network = "192.0.2."
	device  = "eth0"
)

// startMax is how long a name space may take to be there, on a busy machine.
const startMax = time.Minute

// New makes hosts with the given names. A test that cannot have them is skipped, and says why.
func New(t testing.TB, names ...string) *Bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("hosts are name spaces, which only root can make")
	}
	for _, tool := range []string{"bridge", "ip", "nsenter", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("hosts need %s: %v", tool, err)
		}
	}
	b := &Bed{t: t, dir: t.TempDir()}
	b.bridge = b.hold("exec sleep infinity", "--net")
	b.in(b.bridge, "ip", "link", "set", "lo", "up")
	b.in(b.bridge, "ip", "link", "add", "br0", "type", "bridge")
	b.in(b.bridge, "ip", "link", "set", "br0", "up")
	for i, name := range names {
		b.add(i, name)
	}
	return b
}

func (b *Bed) add(i int, name string) {
	b.t.Helper()
	h := &Host{Name: name, Addr: network + strconv.Itoa(10+i), Dir: filepath.Join(b.dir, name), bed: b}
	if err := os.Mkdir(h.Dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	// Its folder is bound over an empty place that covers all others'.
	own := filepath.Join(b.t.TempDir(), "own")
	script := fmt.Sprintf("set -e; mkdir '%[1]s'; mount --bind '%[2]s' '%[1]s'; "+
		"mount -t tmpfs none '%[3]s'; mkdir '%[2]s'; mount --move '%[1]s' '%[2]s'; "+
		"echo '%[4]s' > /proc/sys/kernel/hostname; exec sleep infinity", own, h.Dir, b.dir, name)
	h.pid = b.hold(script, "--net", "--uts", "--mount", "--propagation", "private")
	link := fmt.Sprintf("h%d", i)
	b.in(b.bridge, "ip", "link", "add", link, "type", "veth", "peer", "name", device, "netns",
		strconv.Itoa(h.pid))
	b.in(b.bridge, "ip", "link", "set", link, "master", "br0", "up")
	h.must("ip", "link", "set", "lo", "up")
	h.must("ip", "addr", "add", h.Addr+"/24", "dev", device)
	h.must("ip", "link", "set", device, "up")
	b.Hosts = append(b.Hosts, h)
}

// hold starts a process in name spaces of its own, which ends with the test, and returns its number
// when its script has come to its end, which is to sleep.
func (b *Bed) hold(script string, spaces ...string) int {
	b.t.Helper()
	var said bytes.Buffer
	cmd := exec.Command("unshare", append(spaces, "sh", "-c", script)...)
	cmd.Stderr = &said
	start(b.t, cmd)
	for end := time.Now().Add(startMax); ; time.Sleep(5 * time.Millisecond) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		switch {
		case strings.TrimSpace(string(comm)) == "sleep":
			return cmd.Process.Pid
		case err != nil || time.Now().After(end):
			b.t.Fatalf("no name space: %v %s", err, &said)
		}
	}
}

// start starts a process that ends with the test.
func start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	begun := make(chan error)
	over := make(chan struct{})
	ended := make(chan struct{})
	go func() { // the kernel signals the child when the thread that started it ends
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		begun <- err
		if err != nil {
			return
		}
		<-over
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		close(ended)
	}()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(over); <-ended })
}

// enter is the command line of a program in the name spaces of a process.
func enter(pid int, name string, args ...string) []string {
	return append([]string{"nsenter", "-t", strconv.Itoa(pid), "--net", "--uts", "--mount", "--",
		name}, args...)
}

// in runs a program in the name spaces of a process.
func (b *Bed) in(pid int, name string, args ...string) string {
	b.t.Helper()
	line := enter(pid, name, args...)
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (h *Host) must(name string, args ...string) string {
	h.bed.t.Helper()
	return h.bed.in(h.pid, name, args...)
}

// Path is a path in the host's folder.
func (h *Host) Path(parts ...string) string {
	return filepath.Join(append([]string{h.Dir}, parts...)...)
}

// Outside is where this process finds what is at a path of the host, mounts of its own included.
func (h *Host) Outside(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", h.pid), path)
}

// Command is a program that will run on the host, in its folder, until ctx ends.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	line := enter(h.pid, name, args...)
	cmd := exec.CommandContext(ctx, line[0], append([]string{line[1], line[2], "--wd=" + h.Dir},
		line[3:]...)...)
	return cmd
}

// Run runs a program on the host and returns what it prints; err has what it said, too.
func (h *Host) Run(ctx context.Context, name string, args ...string) (string, error) {
	var out, said bytes.Buffer
	cmd := h.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("on %s: %s %s: %w\n%s", h.Name, name, strings.Join(args, " "),
			err, &said)
	}
	return out.String(), nil
}

// Process is a program that runs on a host until it is ended, or the test ends.
type Process struct {
	cmd  *exec.Cmd
	said *output
	done chan struct{}
	err  error
}

// output is what a process prints, which may be read while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Start starts a program on the host. At the end of the test it gets SIGTERM, and SIGKILL if it has
// not ended a while later.
func (h *Host) Start(name string, args ...string) *Process {
	h.bed.t.Helper()
	p := &Process{said: &output{}, done: make(chan struct{})}
	p.cmd = h.Command(context.Background(), name, args...)
	p.cmd.Stdout, p.cmd.Stderr = io.Writer(p.said), io.Writer(p.said)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	begun := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		begun <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-begun; err != nil {
		h.bed.t.Fatal(err)
	}
	h.bed.t.Cleanup(func() { p.End(startMax) })
	return p
}

// Signal sends a signal. (nsenter becomes the program: it has the same number.)
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// End ends the program, in order if it does so within a limit.
func (p *Process) End(limit time.Duration) {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(limit):
		p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Said is what it has printed.
func (p *Process) Said() string { return p.said.String() }

// Cut takes the host's cable out, Mend puts it back: nothing arrives meanwhile, and nobody is told.
func (h *Host) Cut() { h.link("0") }

// Mend is the end of Cut.
func (h *Host) Mend() { h.link("3") }

// link sets the state of the host's port of the bridge: 0 disabled, 3 forwarding.
func (h *Host) link(state string) {
	h.bed.t.Helper()
	for i, other := range h.bed.Hosts {
		if other == h {
			h.bed.in(h.bed.bridge, "bridge", "link", "set", "dev", fmt.Sprintf("h%d", i), "state", state)
		}
	}
}

// nobody is a hardware address that no host has.
const nobody = "02:00:00:00:00:01"

// Part keeps two hosts apart: what one sends to the other is lost, and nobody is told. Both reach
// all others.
func (b *Bed) Part(one, other *Host) {
	b.t.Helper()
	one.must("ip", "neigh", "replace", other.Addr, "lladdr", nobody, "dev", device)
	other.must("ip", "neigh", "replace", one.Addr, "lladdr", nobody, "dev", device)
}

// Meet is the end of Part.
func (b *Bed) Meet(one, other *Host) {
	b.t.Helper()
	one.must("ip", "neigh", "del", other.Addr, "dev", device)
	other.must("ip", "neigh", "del", one.Addr, "dev", device)
}
