package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
)

// The test binary is also the child: roleEnv says which one.
const roleEnv, fileEnv = "SUPERVISE_TEST_ROLE", "SUPERVISE_TEST_FILE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		child(role, os.Getenv(fileEnv))
		return
	}
	goleak.VerifyTestMain(m)
}

func child(role, file string) {
	name, arg, _ := strings.Cut(role, ":")
	switch name {
	case "fail":
		code, _ := strconv.Atoi(arg)
		fmt.Fprintln(os.Stderr, "first words")
		fmt.Fprintln(os.Stderr, "no luck today")
		fmt.Fprintln(os.Stderr, "  try tomorrow")
		os.Exit(code)
	case "serve": // until SIGTERM, then leave a line
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		<-c
		appendLine(file, arg)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		appendLine(file, "ready")
		time.Sleep(time.Minute)
	case "supervisor": // with one child, and no time to say goodbye
		g, err := New(Options{StateFile: file})
		if err == nil {
			err = g.Start(spec("orphan", "serve:orphan", file+".out"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		time.Sleep(time.Minute)
	}
}

func appendLine(file, line string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

func spec(name, role, file string) Spec {
	return Spec{Name: name, Path: os.Args[0],
		Env: []string{roleEnv + "=" + role, fileEnv + "=" + file}}
}

func group(t *testing.T) (*Group, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "state.json")
	g, err := New(Options{StateFile: file, BackoffMin: 5 * time.Millisecond,
		BackoffMax: 40 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return g, file
}

func stop(t *testing.T, g *Group) {
	t.Helper()
	if err := g.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// await reads the state file until it shows what is asked for. That it can be read at any moment is
// part of the test.
func await(t *testing.T, file, what string, ok func(State) bool) State {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		s, err := ReadState(file)
		if err != nil {
			t.Fatal(err)
		}
		if ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("never saw %s: %+v", what, s)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestRestartsAndTellsWhy(t *testing.T) {
	g, file := group(t)
	s := spec("bad", "fail:3", "")
	s.Log = filepath.Join(t.TempDir(), "bad.log")
	if err := g.Start(s); err != nil {
		t.Fatal(err)
	}
	st := await(t, file, "three restarts", func(s State) bool {
		return len(s.Processes) == 1 && s.Processes[0].Restarts >= 3
	})
	exit := st.Processes[0].Exits[0]
	if exit.How() != "exit code 3: no luck today" || exit.PID == 0 || exit.At.IsZero() {
		t.Fatalf("recorded %+v: %s", exit, exit.How())
	}
	if st.PID != os.Getpid() {
		t.Fatalf("supervisor's pid %d, is %d", st.PID, os.Getpid())
	}
	stop(t, g)
	if got := g.State().Processes[0]; got.Status != Stopped {
		t.Fatalf("after Stop: %+v", got)
	}
}

func TestKilledProcessComesBack(t *testing.T) {
	g, file := group(t)
	if err := g.Start(spec("srv", "serve:x", filepath.Join(t.TempDir(), "out"))); err != nil {
		t.Fatal(err)
	}
	first := g.State().Processes[0].PID
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	st := await(t, file, "the second life", func(s State) bool {
		p := s.Processes[0]
		return p.Status == Running && p.PID != first && p.Restarts == 1
	})
	if how := st.Processes[0].Exits[0].How(); how != "killed by SIGKILL" {
		t.Fatalf("recorded %q", how)
	}
	stop(t, g)
}

func TestMayEnd(t *testing.T) {
	g, file := group(t)
	for name, role := range map[string]string{"good": "fail:0", "bad": "fail:1"} {
		s := spec(name, role, "")
		s.MayEnd = true
		if err := g.Start(s); err != nil {
			t.Fatal(err)
		}
	}
	status := func(s State, name string) Process {
		for _, p := range s.Processes {
			if p.Name == name {
				return p
			}
		}
		return Process{}
	}
	await(t, file, "one end and one restart", func(s State) bool {
		good, bad := status(s, "good"), status(s, "bad")
		return good.Status == Stopped && good.Restarts == 0 && bad.Restarts > 0
	})
	stop(t, g)
}

func TestStopsInOrder(t *testing.T) {
	g, _ := group(t)
	out := filepath.Join(t.TempDir(), "out")
	for stage, name := range []string{"meta", "iod", "mount"} {
		s := spec(name, "serve:"+name, out)
		s.Stage = stage
		if err := g.Start(s); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(300 * time.Millisecond) // until all of them handle the signal
	stop(t, g)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != "mount\niod\nmeta\n" {
		t.Fatalf("stopped in the order %q", text)
	}
	if err := g.Start(spec("late", "serve:x", out)); !errors.Is(err, errs.Closed) {
		t.Fatalf("started after Stop: %v", err)
	}
}

// TestRemoveLeavesTheOthers: those that are named end in their order and are forgotten, a name is
// free again, and the others do not notice.
func TestRemoveLeavesTheOthers(t *testing.T) {
	g, file := group(t)
	out := filepath.Join(t.TempDir(), "out")
	for stage, name := range []string{"meta", "iod", "mount"} {
		s := spec(name, "serve:"+name, out)
		s.Stage = stage
		if err := g.Start(s); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(300 * time.Millisecond) // until all of them handle the signal
	before := g.State().Processes[1]
	if err := g.Remove(t.Context(), "meta", "mount", "nobody"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "mount\nmeta\n" {
		t.Fatalf("ended in the order %q, %v", text, err)
	}
	st, err := ReadState(file)
	if err != nil || len(st.Processes) != 1 || st.Processes[0].PID != before.PID ||
		st.Processes[0].Status != Running || !alive(before.PID) {
		t.Fatalf("left: %+v, %v", st, err)
	}
	if err := g.Start(spec("meta", "serve:again", out)); err != nil {
		t.Fatal(err)
	}
	stop(t, g)
	if err := g.Remove(t.Context(), "iod"); err != nil {
		t.Fatalf("after Stop: %v", err)
	}
}

func TestStubbornProcessIsKilled(t *testing.T) {
	g, _ := group(t)
	out := filepath.Join(t.TempDir(), "out")
	s := spec("mule", "stubborn", out)
	s.StopMax = 100 * time.Millisecond
	if err := g.Start(s); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, out)
	stop(t, g)
	exits := g.State().Processes[0].Exits
	if how := exits[len(exits)-1].How(); how != "killed by SIGKILL" {
		t.Fatalf("ended with %q", how)
	}
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	g, _ := group(t)
	out := filepath.Join(t.TempDir(), "out")
	if err := g.Start(spec("mule", "stubborn", out)); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, out)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := g.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Fatalf("took %v", took)
	}
}

func awaitFile(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s never appeared", name)
		}
	}
}

func TestChildrenDieWithTheSupervisor(t *testing.T) {
	g, _ := group(t)
	file := filepath.Join(t.TempDir(), "inner.json")
	if err := g.Start(spec("inner", "supervisor", file)); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, file)
	st := await(t, file, "the grandchild", func(s State) bool {
		return len(s.Processes) == 1 && s.Processes[0].PID != 0
	})
	orphan := st.Processes[0].PID
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); alive(orphan); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d outlived its supervisor", orphan)
		}
	}
	stop(t, g)
}

// alive does not count zombies: whose parent is gone is reaped by whoever runs this machine.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func TestRefusals(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, errs.Invalid) {
		t.Fatalf("no state file: %v", err)
	}
	g, _ := group(t)
	defer stop(t, g)
	if err := g.Start(Spec{Name: "x", Path: "/no/such/program"}); !errors.Is(err, errs.NotFound) {
		t.Fatalf("absent program: %v", err)
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := g.Start(spec("x", "serve:x", out)); err != nil {
		t.Fatalf("the name was not free after a failed start: %v", err)
	}
	if err := g.Start(spec("x", "serve:x", out)); !errors.Is(err, errs.Exists) {
		t.Fatalf("same name twice: %v", err)
	}
}

func TestExitsAreBounded(t *testing.T) {
	var p Process
	for i := range 3 * ExitsKept {
		p.ended(Exit{PID: i + 1}, Waiting)
	}
	if len(p.Exits) != ExitsKept || p.Exits[ExitsKept-1].PID != 3*ExitsKept {
		t.Fatalf("kept %d, last %+v", len(p.Exits), p.Exits[len(p.Exits)-1])
	}
}

func TestLargeLogIsPutAside(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, LogMax+1); err != nil {
		t.Fatal(err)
	}
	f, err := openLog(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Fatalf("log not begun anew: %v %v", info, err)
	}
	if _, err := os.Stat(name + ".1"); err != nil {
		t.Fatal(err)
	}
}

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	held := func(want bool) {
		t.Helper()
		if got, err := Held(name); err != nil || got != want {
			t.Fatalf("held %v %v, want %v", got, err, want)
		}
	}
	held(false)
	l, err := Acquire(name)
	if err != nil {
		t.Fatal(err)
	}
	held(true)
	if _, err := Acquire(name); !errors.Is(err, errs.Busy) {
		t.Fatalf("acquired twice: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	held(false)
}
