package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/admin/top"
)

// terminal is the user's side of a pseudo terminal, with a program in it.
type terminal struct {
	t    *testing.T
	ptmx *os.File
	cmd  *exec.Cmd
	done chan error

	mu    sync.Mutex
	shown bytes.Buffer // since the last forget
}

// openTerminal runs a program in a terminal of some size.
func openTerminal(t *testing.T, cmd *exec.Cmd, width, height uint16) *terminal {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(ptmx.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &terminal{t: t, ptmx: ptmx, cmd: cmd, done: make(chan error, 1)}
	p.resize(width, height)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	go func() {
		p.read()
		p.done <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = ptmx.Close()
	})
	return p
}

func (p *terminal) read() {
	b := make([]byte, 64<<10)
	for {
		n, err := p.ptmx.Read(b)
		p.mu.Lock()
		p.shown.Write(b[:n])
		p.mu.Unlock()
		if err != nil {
			return // the program has ended
		}
	}
}

func (p *terminal) resize(width, height uint16) {
	p.t.Helper()
	size := &unix.Winsize{Col: width, Row: height}
	if err := unix.IoctlSetWinsize(int(p.ptmx.Fd()), unix.TIOCSWINSZ, size); err != nil {
		p.t.Fatal(err)
	}
}

func (p *terminal) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown.String()
}

// press forgets what was shown and types.
func (p *terminal) press(keys string) {
	p.t.Helper()
	p.mu.Lock()
	p.shown.Reset()
	p.mu.Unlock()
	if _, err := p.ptmx.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits until something is shown.
func (p *terminal) sees(what string) {
	p.t.Helper()
	p.seesThat(what, func(text string) bool { return strings.Contains(text, what) })
}

func (p *terminal) seesThat(what string, is func(text string) bool) {
	p.t.Helper()
	for limit := time.Now().Add(time.Minute); !is(p.text()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			text := p.text()
			p.t.Fatalf("%q is not shown, but\n%q", what, text[max(0, len(text)-3000):])
		}
	}
}

// topCluster is a session with a cluster under some load, until stop is called.
func topCluster(t *testing.T) (s *session, stop func()) {
	t.Helper()
	s = newSession(t, linkSelf(t))
	s.play("exec sluice up -d --dir c --iods 2 --listen 127.0.0.1:0 --mount m\nrandom data 5M\nuse c")
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			name := filepath.Join(s.dir, "m", fmt.Sprint("f", i%20))
			if err := os.WriteFile(name, bytes.Repeat([]byte("x"), 200<<10), 0o644); err != nil {
				continue // a process is being killed
			}
			_, _ = os.ReadFile(name)
		}
	})
	return s, sync.OnceFunc(func() {
		close(end)
		wg.Wait()
	})
}

// TestTopLive uses `sluice top` as a person would, on a cluster that works and loses a process.
func TestTopLive(t *testing.T) {
	s, stop := topCluster(t)
	defer stop()
	cmd := s.command([]string{"sluice", "top", "--dir", "c", "--interval", "200ms"})
	cmd.Env = append(cmd.Env, "TERM=xterm")
	p := openTerminal(t, cmd, 110, 70)
	p.sees(termEnter)
	p.sees("4 of 4 processes")
	p.press("h")
	p.sees("sort by requests")
	p.press("o")
	p.sees("operations, by requests")
	p.seesThat("written by the load", func(text string) bool {
		return strings.Contains(text, "mount write") && strings.Contains(text, "iod write")
	})
	p.press("l")
	p.sees("operations, by latency")
	p.press("\t")
	p.sees("clients, by latency")
	p.press("s")
	p.sees("slow requests, by latency")
	p.press(" ")
	p.sees("PAUSED")
	p.press(" a")
	p.sees("all, by latency")

	p.resize(30, 8)
	p.press("")
	p.seesThat("a narrow screen", func(text string) bool {
		frames := strings.Split(text, termHome)
		last := frames[max(0, len(frames)-2)] // the last one may not be whole
		lines := strings.Split(last, "\r\n")
		return len(frames) > 3 && len(lines) <= 8 && !strings.Contains(last, "OPERATION")
	})
	p.resize(110, 70)
	if err := s.line("murder c iod1"); err != nil {
		t.Fatal(err)
	}
	p.press("")
	p.sees("4 of 4 processes") // it was started again, whether or not it was seen to be away

	p.press("q")
	if err := <-p.done; err != nil || !strings.Contains(p.text(), termLeave) {
		t.Errorf("it ended with %v and left %q", err, p.text())
	}
}

// TestTopIsInterrupted: ctrl-C leaves the terminal as it was.
func TestTopIsInterrupted(t *testing.T) {
	s := newSession(t, linkSelf(t))
	s.play("exec sluice up -d --dir c --iods 1 --listen 127.0.0.1:0")
	cmd := s.command([]string{"sluice", "top", "--dir", "c"})
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
	p := openTerminal(t, cmd, 80, 24)
	before, err := unix.IoctlGetTermios(int(p.ptmx.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	p.sees("2 of 2 processes")
	p.press("\x03")
	if err := <-p.done; err != nil || !strings.Contains(p.text(), termLeave) {
		t.Errorf("it ended with %v and left %q", err, p.text())
	}
	after, err := unix.IoctlGetTermios(int(p.ptmx.Fd()), unix.TCGETS)
	if err != nil || after.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal shows nothing any more: %+v, was %+v, %v", after, before, err)
	}
	if strings.Contains(p.text(), "\x1b[31m") {
		t.Error("there are colors")
	}
}

// busyView is a view in which all processes have had something to do, which takes a while on a busy
// machine.
func busyView(t *testing.T, s *session) (v top.View) {
	t.Helper()
	args := []string{"sluice", "top", "--dir", "c", "--json", "--interval", "1s"}
	for end := time.Now().Add(time.Minute); ; {
		if err := s.exec(args); err != nil {
			t.Fatal(err, s.stderr)
		}
		v = top.View{}
		if err := json.Unmarshal([]byte(s.stdout), &v); err != nil {
			t.Fatal(err)
		}
		good := len(v.Processes) == 4 && v.Totals.Clients >= 1 && v.Totals.Written >= 1<<20 &&
			v.Totals.Requests >= 1 && v.Interval >= 1
		for _, p := range v.Processes {
			good = good && p.Up && p.PID != 0 && p.Memory != 0 && p.Requests != 0 && p.P99 >= p.P50
		}
		if good {
			return v
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", v)
		}
	}
}

// TestTopUnderLoad: the numbers are those of what was done.
func TestTopUnderLoad(t *testing.T) {
	s, stop := topCluster(t)
	defer stop()
	v := busyView(t, s)
	stop()
	ops := map[string]top.Op{}
	for _, op := range v.Ops {
		ops[op.Kind+" "+op.Op] = op
	}
	for _, want := range []string{"iod write", "mount write", "mount open", "mount flush"} {
		if op := ops[want]; op.Requests == 0 || op.P50 == 0 || op.P99 < op.P50 {
			t.Errorf("%s: %+v", want, op)
		}
	}
	var client, program top.Client
	for _, c := range v.Clients {
		if strings.HasPrefix(c.Name, "mount ") {
			client = c
		}
	}
	for _, c := range v.Programs {
		if c.ID == uint64(os.Getpid()) {
			program = c
		}
	}
	if client.Written == 0 || program.Written == 0 || program.Name == "" || len(v.Files) == 0 {
		t.Errorf("clients %+v, programs %+v, files %+v", v.Clients, v.Programs, v.Files)
	}
}
