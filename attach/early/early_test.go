//go:build cgo

package early

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is the tests, or a program that is called as `sluice attach` is: early.c looks at the
// arguments of this one, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "attach" {
		os.Exit(program(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// program does what one test wants, and returns its exit code.
func program(what string, args []string) int {
	switch what {
	case "fail":
		return 3
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "waits":
		fmt.Print(Waits())
	case "marked":
		fmt.Print(marked())
	case "told":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("listening")
		<-c
		return 9
	case "stay":
		fmt.Println("ready")
		if err := Release(7); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		session, _ := unix.Getsid(0)
		text := fmt.Sprint(session == os.Getpid())
		_ = os.WriteFile(args[0]+".new", []byte(text), 0o600)
		_ = os.Rename(args[0]+".new", args[0])
	}
	return 0
}

// marked tells whether many threads of the process are all marked.
func marked() bool {
	all, first := true, make(chan bool)
	for range 8 {
		go func() {
			runtime.LockOSThread()
			on, err := unix.PrctlRetInt(unix.PR_GET_IO_FLUSHER, 0, 0, 0, 0)
			time.Sleep(time.Millisecond) // others need threads of their own
			first <- err == nil && on == 1
		}()
	}
	for range 8 {
		all = <-first && all
	}
	return all
}

func call(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(self, append([]string{"attach"}, args...)...)
}

func code(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// TestEnds: the parent ends as its child does.
func TestEnds(t *testing.T) {
	if got := code(call(t, "fail").Run()); got != 3 {
		t.Errorf("exit code %d, the child had 3", got)
	}
	err := call(t, "die").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the child was killed, and the parent: %v", err)
	}
}

// TestSignals: what is to end the parent ends the child, and then the parent.
func TestSignals(t *testing.T) {
	c := call(t, "told")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listening\n" {
		t.Fatal(line, err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := code(c.Wait()); got != 9 {
		t.Errorf("exit code %d, the child had 9", got)
	}
}

// TestRelease: the parent ends with the code that it is told, and the child goes on in a session of
// its own.
func TestRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	c := call(t, "stay", path)
	var out bytes.Buffer
	c.Stdout, c.WaitDelay = &out, time.Minute
	if got := code(c.Run()); got != 7 {
		t.Errorf("exit code %d, not 7", got)
	}
	if out.String() != "ready\n" {
		t.Errorf("printed: %q", &out)
	}
	for {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			time.Sleep(time.Millisecond)
			continue
		}
		if string(text) != "true" || err != nil {
			t.Errorf("it has a session of its own: %s, %v", text, err)
		}
		return
	}
}

// TestAlone: where the process itself is wanted there is no other one; volumes may have any name.
func TestAlone(t *testing.T) {
	for args, want := range map[string]string{
		"": "true", "observer": "true", "--shared --name=x": "true", "--foreground": "false",
		"-foreground=true db": "false", "--serve": "false", "--standby": "false",
	} {
		out, err := call(t, append([]string{"waits"}, strings.Fields(args)...)...).Output()
		if err != nil || string(out) != want {
			t.Errorf("%q: a parent waits: %s, not %s (%v)", args, out, want, err)
		}
	}
	if Waits() {
		t.Error("a program that is not attach has a parent")
	}
}

// TestMarked: all threads have the mark, where the process may have it: in containers it often may
// not, in a guest of the lab it does (go run ./vmtest/lab -- early.test -test.v).
func TestMarked(t *testing.T) {
	may := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends, its mark with it
		may <- unix.Prctl(unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0)
	}()
	if err := <-may; err != nil {
		t.Skipf("no process may be marked here: %v", err)
	}
	for _, args := range [][]string{{"marked"}, {"marked", "--foreground"}} {
		out, err := call(t, args...).Output()
		if err != nil || string(out) != "true" {
			t.Errorf("%v: all threads are marked: %s (%v)", args, out, err)
		}
	}
}
