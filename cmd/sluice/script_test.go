package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test binary a sluice when it is called by that name: the scripts start real
// processes, and those start theirs.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "sluice" || isHelper(os.Args[0]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestScripts runs testdata/script/*.txt: each is a user's session at a shell, in its own folder.
// A line is a verb with arguments (see verbs); "!" before it means that it must fail; what follows
// "-- NAME --" is the content of a file.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txt"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	bin := linkSelf(t)
	for _, name := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			newSession(t, bin).play(string(text))
		})
	}
}

// linkSelf puts this binary into a folder under the name sluice.
func linkSelf(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	to := filepath.Join(dir, "sluice")
	if os.Link(self, to) == nil {
		return dir
	}
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// session is a script being played.
type session struct {
	t              *testing.T
	dir            string
	env            map[string]string
	stdout, stderr string // of the last exec
	code           int
	behind         map[string]*exec.Cmd
}

func newSession(t *testing.T, bin string) *session {
	s := &session{t: t, dir: t.TempDir(), behind: map[string]*exec.Cmd{}}
	s.env = map[string]string{
		"PATH":       bin + ":" + os.Getenv("PATH"),
		"HOME":       s.dir,
		"TMPDIR":     s.dir,
		"SLUICE_URL": "sluice://127.0.0.1:1", // nobody is there
	}
	t.Cleanup(s.stop)
	return s
}

// stop ends what the script left running. A cluster in a folder of the session is stopped in order.
func (s *session) stop() {
	for _, cmd := range s.behind {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, _ := filepath.Glob(filepath.Join(s.dir, "*", "cluster.json"))
	for _, name := range found {
		c, err := openCluster(filepath.Dir(name))
		if err != nil {
			continue
		}
		if _, err := c.down(ctx); err != nil {
			s.t.Errorf("the cluster does not stop: %v", err)
		}
		if s.t.Failed() {
			s.showLogs(c)
		}
	}
}

func (s *session) showLogs(c *cluster) {
	logs, _ := filepath.Glob(c.path("log", "*"))
	for _, name := range logs {
		text, _ := os.ReadFile(name)
		s.t.Logf("%s:\n%s", filepath.Base(name), text[max(0, len(text)-2000):])
	}
}

func (s *session) play(text string) {
	lines := strings.Split(text, "\n")
	fileMark := regexp.MustCompile(`^-- (\S+) --$`)
	var name string
	for i, line := range lines {
		if m := fileMark.FindStringSubmatch(line); m != nil {
			name = filepath.Join(s.dir, m[1])
			lines[i] = ""
			write(s.t, name, nil)
			continue
		}
		if name != "" {
			appendTo(s.t, name, line+"\n")
			lines[i] = ""
		}
	}
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := s.line(line); err != nil {
			s.t.Fatalf("line %d: %s: %v\nstdout: %s\nstderr: %s", i+1, line, err, s.stdout, s.stderr)
		}
	}
}

func appendTo(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = io.WriteString(f, text)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// line does one line.
func (s *session) line(line string) error {
	words := s.words(line)
	neg := words[0] == "!"
	if neg {
		words = words[1:]
	}
	do := verbs()[words[0]]
	if do == nil {
		return fmt.Errorf("no verb %s", words[0])
	}
	err := do(s, words[1:])
	if neg && err == nil {
		return fmt.Errorf("succeeded, and should not")
	}
	if neg {
		return nil
	}
	return err
}

// words splits at spaces; what is in single quotes is one word. Variables are replaced.
func (s *session) words(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		for _, w := range strings.Fields(part) {
			words = append(words, os.Expand(w, func(name string) string { return s.env[name] }))
		}
	}
	return words
}

func (s *session) command(args []string) *exec.Cmd {
	name := args[0]
	for _, dir := range filepath.SplitList(s.env["PATH"]) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			name = filepath.Join(dir, name)
			break
		}
	}
	cmd := exec.Command(name, args[1:]...)
	cmd.Dir = s.dir
	for k, v := range s.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// exec runs a program to its end and keeps what it prints. Those that take minutes are killed.
func (s *session) exec(args []string) error {
	cmd := s.command(args)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.WaitDelay = time.Second // a detached child must not keep the pipes
	if err := cmd.Start(); err != nil {
		return err
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	err := cmd.Wait()
	s.stdout, s.stderr, s.code = out.String(), problems.String(), cmd.ProcessState.ExitCode()
	return err
}

// start NAME PROGRAM ... runs a program behind the script.
func (s *session) start(args []string) error {
	cmd := s.command(args[1:])
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.behind[args[0]] = cmd
	return nil
}

// end SIGNAL NAME stops it and waits; it fails unless the program ended well.
func (s *session) end(args []string) error {
	cmd := s.behind[args[1]]
	delete(s.behind, args[1])
	sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "KILL": syscall.SIGKILL}[args[0]]
	if err := cmd.Process.Signal(sig); err != nil {
		return err
	}
	return cmd.Wait()
}
