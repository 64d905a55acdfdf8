package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mustRun runs a script that has to succeed, and returns what it prints.
func mustRun(t *testing.T, g *Guest, script string) string {
	t.Helper()
	res, err := g.Run(t.Context(), script)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", g.Name(), script, err)
	}
	return res.Stdout
}

// TestGuests boots two guests on one wire, once, and does with them all that needs guests. The
// order matters at the end only: the last parts kill them.
func TestGuests(t *testing.T) {
	begin := time.Now()
	p := startPair(t)
	t.Logf("up after %.1f s", time.Since(begin).Seconds())
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"commands", func(t *testing.T) { commands(t, p.a) }},
		{"time limits", func(t *testing.T) { timeLimits(t, p.a) }},
		{"files", func(t *testing.T) { files(t, p.a) }},
		{"system", func(t *testing.T) { system(t, p.a, p.wire) }},
		{"soft RoCE with itself", func(t *testing.T) { softRoCEAlone(t, p.a, p.wire) }},
		{"ping", p.ping},
		{"RDMA writes", p.writes},
		{"RDMA latency", p.latency},
		{"cut", p.cut},
		{"mute", p.mute},
		{"kill", p.kill},
		{"stop", p.stop},
	} {
		begin := time.Now()
		t.Run(part.name, part.run)
		t.Logf("%s: %.1f s", part.name, time.Since(begin).Seconds())
	}
}

func commands(t *testing.T, g *Guest) {
	table := []struct {
		script string
		want   Result
	}{
		{"hostname", Result{Stdout: "left\n"}},
		{"echo out; echo err >&2; exit 3", Result{Stdout: "out\n", Stderr: "err\n", Code: 3}},
		{"kill -KILL $$", Result{Code: 137}},
		{"cd /usr && pwd; echo $HOME", Result{Stdout: "/usr\n/root\n"}},
	}
	for _, row := range table {
		got, err := g.Run(t.Context(), row.script)
		if err != nil || got != row.want {
			t.Errorf("%s: %+v, %v, want %+v", row.script, got, err, row.want)
		}
	}
	c := Command{Script: `echo "$A in $PWD"`, Env: []string{"A=b"}, Dir: "/etc"}
	if res, err := g.Exec(t.Context(), c); err != nil || res.Stdout != "b in /etc\n" {
		t.Errorf("%+v, %v", res, err)
	}
	var all sync.WaitGroup
	mustRun(t, g, "mkfifo /tmp/vmtest-fifo")
	for _, script := range []string{"read x </tmp/vmtest-fifo", "echo x >/tmp/vmtest-fifo"} {
		all.Go(func() { mustSucceed(t, g, script) }) // each needs the other to run
	}
	all.Wait()
}

// mustSucceed is mustRun for goroutines.
func mustSucceed(t *testing.T, g *Guest, script string) {
	res, err := g.Run(t.Context(), script)
	if err := errors.Join(err, res.Err()); err != nil {
		t.Errorf("%s: %v", script, err)
	}
}

// until is a writer that calls a function once a text has come.
type until struct {
	text string
	then func()
	got  string
}

func (u *until) Write(p []byte) (int, error) {
	if u.got += string(p); strings.Contains(u.got, u.text) {
		u.then()
	}
	return len(p), nil
}

func timeLimits(t *testing.T, g *Guest) {
	// Output comes while the command runs, so that one can wait for it to have begun.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := g.Exec(ctx, Command{
		Script: "echo begun; sleep 777", Limit: patience,
		Stdout: &until{text: "begun\n", then: cancel},
	})
	if !errors.Is(err, errs.Canceled) || res.Stdout != "begun\n" {
		t.Fatalf("%+v, %v", res, err)
	}
	_, err = g.Exec(t.Context(), Command{Script: "sleep 778", Limit: time.Second})
	if !errors.Is(err, errs.TimedOut) {
		t.Fatal(err)
	}
	if left, _ := g.Run(t.Context(), "pgrep -f 'sleep 77[78]'"); left.Stdout != "" {
		t.Fatalf("still running: %s", left.Stdout)
	}
}

func files(t *testing.T, g *Guest) {
	// The host's files are there, and what the guest does to them stays there.
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, []byte("the host's"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := mustRun(t, g, "cat "+name); got != "the host's" {
		t.Errorf("the guest sees %q", got)
	}
	mustRun(t, g, fmt.Sprintf("echo mine > %s && rm /etc/passwd && echo x > %s/other", name, dir))
	if got, err := g.ReadFile(t.Context(), name); err != nil || string(got) != "mine\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "the host's" {
		t.Errorf("the guest wrote through: %q, %v", got, err)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	}
	// What is shared goes both ways, at any time.
	for _, round := range []string{"one", "two"} {
		file := filepath.Join(g.Share(), "shared")
		if err := os.WriteFile(file, []byte(round), 0o644); err != nil {
			t.Fatal(err)
		}
		mustRun(t, g, fmt.Sprintf("echo -n and back >> %s/shared", SharePath))
		if got, err := os.ReadFile(file); err != nil || string(got) != round+"and back" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if _, err := g.ReadFile(t.Context(), "/no such file"); err == nil {
		t.Error("read what is not there")
	}
}

func system(t *testing.T, g *Guest, wire *Wire) {
	// A kernel that the host does not run, with modules, wires, and nothing left over.
	mustRun(t, g, "test -b /dev/ram0 -a -b /dev/nbd0 && modprobe dm_flakey && lsmod | grep dm_flakey")
	addr := mustRun(t, g, "ip -br addr show "+g.Device(wire))
	if !strings.Contains(addr, g.Addr(wire).String()+"/24") || !strings.Contains(addr, " UP ") {
		t.Errorf("no address: %s", addr)
	}
	// An orphan is somebody's child: it must not stay a zombie.
	mustRun(t, g, `(setsid sleep 0.1 >/dev/null 2>&1 & echo $! >/tmp/orphan)
		while [ -e /proc/$(cat /tmp/orphan) ]; do sleep 0.1; done`)
}

func softRoCEAlone(t *testing.T, g *Guest, wire *Wire) {
	const device = "rxe0"
	if info := mustRun(t, g, "ibv_devinfo -d "+device); !strings.Contains(info, "PORT_ACTIVE") ||
		!strings.Contains(info, "active_mtu:\t\t4096") {
		t.Errorf("ibv_devinfo: %s", info)
	}
	out := mustRun(t, g, fmt.Sprintf(`
		ibv_rc_pingpong -d %[1]s -g 1 -n 50 > /tmp/server 2>&1 & server=$!
		until ibv_rc_pingpong -d %[1]s -g 1 -n 50 %[2]s 2>/tmp/err; do
			kill -0 $server || break
			sleep 0.2
		done
		wait $server || { cat /tmp/server /tmp/err; exit 1; }`, device, g.Addr(wire)))
	if !strings.Contains(out, "50 iters in") {
		t.Errorf("ibv_rc_pingpong: %s", out)
	}
}

// killed kills a guest in the middle of a command.
func killed(t *testing.T, g *Guest) {
	running, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := g.Exec(t.Context(), Command{
			Script: "echo running; sleep 1000", Limit: patience,
			Stdout: &until{text: "running", then: func() { close(running) }},
		})
		ended <- err
	}()
	select {
	case <-running:
	case err := <-ended:
		t.Fatal(err)
	}
	g.Kill()
	if err := <-ended; !errors.Is(err, errs.Disconnected) ||
		!strings.Contains(err.Error(), "console of "+g.Name()) {
		t.Errorf("a command of a dead guest: %v", err)
	}
	<-g.Dead()
	if _, err := g.Run(t.Context(), "true"); !errors.Is(err, errs.Disconnected) {
		t.Errorf("a dead guest answers: %v", err)
	}
	if _, err := os.Stat(g.Share()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
	if err := g.Stop(); err != nil {
		t.Errorf("Stop of a dead guest: %v", err)
	}
	g.Kill()
}

// TestABootThatFailsSaysWhy has boots fail in three ways.
func TestABootThatFailsSaysWhy(t *testing.T) {
	lab := Need(t)
	broken := &Lab{kernel: lab.kernel, initrd: lab.initrd, modules: "/there/are/none"}
	for _, row := range []struct {
		lab    *Lab
		config GuestConfig
		kind   errs.Kind
		text   string // the end of the console is in the error
	}{
		{broken, GuestConfig{Name: "broken"}, errs.Disconnected, "vmtest: no modules"},
		{lab, GuestConfig{Name: "late", BootLimit: 300 * time.Millisecond}, errs.TimedOut,
			"console of late"},
		{lab, GuestConfig{Name: "short", LifeLimit: 300 * time.Millisecond}, errs.Disconnected,
			"short has existed for 300ms"},
	} {
		row.config.Wires = []*Wire{lab.NewWire(WireOptions{})}
		_, err := row.lab.Start(t.Context(), row.config)
		if !errors.Is(err, row.kind) || !strings.Contains(err.Error(), row.text) {
			t.Errorf("%s: %v", row.config.Name, err)
		}
	}
}
