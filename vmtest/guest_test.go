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

// TestOneGuest does with one boot all that needs one guest only. Its last part kills it.
func TestOneGuest(t *testing.T) {
	lab := Need(t)
	wire := lab.NewWire(WireOptions{})
	begin := time.Now()
	g := lab.StartFor(t, GuestConfig{
		Name: "single", Wires: []*Wire{wire}, Modules: []string{"brd", "nbd"},
	})
	t.Logf("up after %.1f s", time.Since(begin).Seconds())

	if script := os.Getenv("SLUICE_VMTEST_RUN"); script != "" {
		t.Run("by hand", func(t *testing.T) { byHand(t, g, script) })
	}
	t.Run("commands", func(t *testing.T) { commands(t, g) })
	t.Run("time limits", func(t *testing.T) { timeLimits(t, g) })
	t.Run("files", func(t *testing.T) { files(t, g) })
	t.Run("system", func(t *testing.T) { system(t, g, wire) })
	t.Run("soft RoCE with itself", func(t *testing.T) { softRoCEAlone(t, g, wire) })
	t.Run("kill", func(t *testing.T) { killed(t, g) })
}

// byHand runs what somebody asks for.
func byHand(t *testing.T, g *Guest, script string) {
	if _, err := g.SoftRoCE(t.Context(), g.ports[0].wire); err != nil {
		t.Fatal(err)
	}
	res, err := g.Exec(t.Context(), Command{Script: script, Limit: 10 * time.Minute})
	t.Logf("exit code %d, %v\n%s%s", res.Code, err, res.Stdout, res.Stderr)
	if res.Code != 0 {
		t.Fail()
	}
	mustRun(t, g, "rdma link delete rxe0")
}

func commands(t *testing.T, g *Guest) {
	table := []struct {
		script string
		want   Result
	}{
		{"hostname", Result{Stdout: "single\n"}},
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

func timeLimits(t *testing.T, g *Guest) {
	begin := time.Now()
	res, err := g.Exec(t.Context(), Command{Script: "echo begun; sleep 777", Limit: 2 * time.Second})
	if !errors.Is(err, errs.TimedOut) || res.Stdout != "begun\n" {
		t.Fatalf("%+v, %v", res, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	if _, err := g.Run(ctx, "sleep 778"); !errors.Is(err, errs.Canceled) {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Fatalf("it took %v", took)
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
	mustRun(t, g, "(setsid sleep 0.1 >/dev/null 2>&1 &); sleep 1")
	if got, _ := g.Run(t.Context(), "ps -eo stat= | grep -c ^Z"); got.Stdout != "0\n" {
		t.Errorf("zombies: %s", got.Stdout)
	}
}

func softRoCEAlone(t *testing.T, g *Guest, wire *Wire) {
	device, err := g.SoftRoCE(t.Context(), wire)
	if err != nil {
		t.Fatal(err)
	}
	if info := mustRun(t, g, "ibv_devinfo -d "+device); !strings.Contains(info, "PORT_ACTIVE") ||
		!strings.Contains(info, "active_mtu:\t\t4096") {
		t.Errorf("ibv_devinfo: %s", info)
	}
	out := mustRun(t, g, fmt.Sprintf(`
		ibv_rc_pingpong -d %[1]s -g 1 -n 50 > /tmp/server 2>&1 & server=$!
		for i in $(seq 50); do
			ibv_rc_pingpong -d %[1]s -g 1 -n 50 %[2]s 2>/tmp/err && break; sleep 0.2
		done
		wait $server || { cat /tmp/server /tmp/err; exit 1; }`, device, g.Addr(wire)))
	if !strings.Contains(out, "50 iters in") {
		t.Errorf("ibv_rc_pingpong: %s", out)
	}
}

func killed(t *testing.T, g *Guest) {
	ended := make(chan error, 1)
	go func() {
		_, err := g.Run(t.Context(), "sleep 1000")
		ended <- err
	}()
	time.Sleep(500 * time.Millisecond)
	begin := time.Now()
	g.Kill()
	if err := <-ended; !errors.Is(err, errs.Disconnected) ||
		!strings.Contains(err.Error(), "console of single") {
		t.Errorf("a command of a dead guest: %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
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

// TestABootThatFailsSaysWhy has the time run out in the middle of a boot.
func TestABootThatFailsSaysWhy(t *testing.T) {
	lab := Need(t)
	begin := time.Now()
	c := GuestConfig{Name: "late", BootLimit: time.Second, Wires: []*Wire{lab.NewWire(WireOptions{})}}
	_, err := lab.Start(t.Context(), c)
	if !errors.Is(err, errs.TimedOut) || !strings.Contains(err.Error(), "console of late") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	c = GuestConfig{Name: "short", LifeLimit: time.Second}
	if _, err = lab.Start(t.Context(), c); !errors.Is(err, errs.Disconnected) ||
		!strings.Contains(err.Error(), "short has existed for 1s") {
		t.Errorf("got %v", err)
	}
}
