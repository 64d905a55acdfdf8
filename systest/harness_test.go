package systest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// builtBinary is made once for all tests of the package.
var builtBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sluice-systest")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "sluice")
	out, err := exec.Command("go", "build", "-o", bin, "../cmd/sluice").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %v\n%s", err, out)
	}
	return bin, nil
})

// otherPart is what a process of this test binary does that a test has started on another host; ok
// tells whether it is one.
func otherPart() (ok bool, err error) {
	if ahead := os.Getenv(clockEnv); ahead != "" {
		clockMain(ahead, os.Args[1:])
	}
	if dir := os.Getenv(writerEnv); dir != "" {
		return true, writeFiles(dir)
	}
	if at := strings.Fields(os.Getenv(knockEnv)); len(at) == 2 {
		said, err := knock(at[0], at[1])
		fmt.Println(said)
		return true, err
	}
	if at := strings.Fields(os.Getenv(holdEnv)); len(at) == 2 {
		count, err := strconv.Atoi(at[1])
		if err == nil {
			err = holdOpen(at[0], count)
		}
		return true, err
	}
	return false, nil
}

func TestMain(m *testing.M) {
	if ok, err := otherPart(); ok {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if bin, err := builtBinary(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

type clusterOptions struct {
	iods  int
	mount bool
	mem   bool
	dir   string   // the cluster's folder; empty: a temporary one
	extra []string // further arguments of `sluice up`

	providers string // that all processes use; empty: the default, which is shm on one host
}

// via is what carries data.
func (o *clusterOptions) via() string {
	if o.providers == "" {
		return "shm"
	}
	return o.providers
}

// args is the flag for each process.
func (o *clusterOptions) args() []string {
	if o.providers == "" {
		return nil
	}
	return []string{"--providers", o.providers}
}

// cluster is a running `sluice up`.
type cluster struct {
	dir string
	mnt string
	url string
	bin string
	cmd *exec.Cmd
	log *bytes.Buffer

	opts clusterOptions
}

// clusterState is what `sluice status --json` prints, as far as the tests need it.
type clusterState struct {
	URL       string `json:"url"`
	Processes []struct {
		Name     string `json:"name"`
		PID      int    `json:"pid"`
		Status   string `json:"status"`
		Restarts int    `json:"restarts"`
		Exits    []struct {
			Signal string `json:"signal"`
		} `json:"exits"`
	} `json:"processes"`
	Servers []struct {
		ID       uint32 `json:"id"`
		Addr     string `json:"addr"`
		Up       bool   `json:"up"`
		Provider string `json:"provider"`
		Known    string `json:"known"`
		Counts   []struct {
			Name  string `json:"name"`
			Value uint64 `json:"value"`
		} `json:"counts"`
	} `json:"servers"`
}

// count adds up one number of all servers.
func (st *clusterState) count(name string) (sum uint64) {
	for _, s := range st.Servers {
		for _, c := range s.Counts {
			if c.Name == name {
				sum += c.Value
			}
		}
	}
	return sum
}

// startCluster runs `sluice up` on free ports in a temporary folder and stops it with the test.
func startCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	bin, err := builtBinary()
	must(t, err)
	c := &cluster{dir: o.dir, bin: bin, log: &bytes.Buffer{}, opts: o}
	if c.dir == "" {
		c.dir = filepath.Join(t.TempDir(), "c")
	}
	if o.mount {
		c.mnt = filepath.Join(t.TempDir(), "mnt")
		must(t, os.Mkdir(c.mnt, 0o755))
	}
	c.start(t)
	t.Cleanup(func() { c.stop(t) })
	c.awaitReady(t, o)
	c.awaitProvider(t, o.via())
	return c
}

// awaitProvider asks until every server is reached by a provider. On a busy machine one may be too
// slow to answer at all, or in time.
func (c *cluster) awaitProvider(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		st, err := c.state()
		must(t, err)
		others := 0
		for _, s := range st.Servers {
			if s.Provider == want {
				continue
			}
			if others++; time.Now().After(deadline) {
				t.Fatalf("server %d is reached by %q, not by %s", s.ID, s.Provider, want)
			}
		}
		if others == 0 {
			return
		}
	}
}

// start runs `sluice up`.
func (c *cluster) start(t *testing.T) {
	t.Helper()
	o := &c.opts
	args := []string{"up", "--dir", c.dir, "--iods", strconv.Itoa(o.iods), "--listen", "127.0.0.1:0"}
	if o.mem {
		args = append(args, "--mem")
	}
	if o.mount {
		args = append(args, "--mount", c.mnt)
	}
	c.cmd = exec.Command(c.bin, append(append(args, o.args()...), o.extra...)...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(t, c.cmd.Start())
}

// readyLimit ends waits for a cluster that does not come up; it says nothing about speed.
const readyLimit = 2 * time.Minute

// awaitReady returns when every server is up and, if asked for, the mount answers.
func (c *cluster) awaitReady(t *testing.T, o clusterOptions) {
	t.Helper()
	deadline := time.Now().Add(readyLimit)
	for {
		st, err := c.state()
		up := 0
		for _, s := range st.Servers {
			if s.Up {
				up++
			}
		}
		if err == nil && up == o.iods && (!o.mount || mounted(c.mnt)) {
			c.url = st.URL
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("cluster not ready after %v: %v, state %+v\n%s\n%s", readyLimit, err, st, c.log,
				c.logs())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func mounted(dir string) bool {
	var here, parent syscall.Stat_t
	if syscall.Stat(dir, &here) != nil || syscall.Stat(filepath.Dir(dir), &parent) != nil {
		return false
	}
	return here.Dev != parent.Dev
}

func (c *cluster) state() (clusterState, error) {
	var st clusterState
	args := append([]string{"status", "--dir", c.dir, "--json"}, c.opts.args()...)
	out, err := exec.Command(c.bin, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && len(out) > 0 {
		err = nil // something is down, and the report says what
	}
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(out, &st)
}

// answered is the state when all servers have had time to tell it: sluice status leaves out who is
// slow.
func (c *cluster) answered(t *testing.T) (st clusterState) {
	t.Helper()
	c.await(t, "all servers answer", func() bool {
		var err error
		st, err = c.state()
		for _, s := range st.Servers {
			if len(s.Counts) == 0 || s.Known == "" {
				return false
			}
		}
		return err == nil && len(st.Servers) > 0
	})
	return st
}

// logs is the tail of every process's log, for a failing test.
func (c *cluster) logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(c.dir, "log", "*"))
	for _, f := range files {
		data, _ := os.ReadFile(f)
		if len(data) > 2000 {
			data = data[len(data)-2000:]
		}
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(f), data)
	}
	return b.String()
}

func (c *cluster) stop(t *testing.T) {
	if t.Failed() {
		t.Logf("cluster said:\n%s\n%s", c.log, c.logs())
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(readyLimit):
		_ = c.cmd.Process.Kill()
		t.Errorf("sluice up did not end within %v of SIGTERM", readyLimit)
		<-done
	}
	if c.mnt != "" && mounted(c.mnt) {
		t.Errorf("%s is still mounted after the cluster stopped", c.mnt)
		_ = syscall.Unmount(c.mnt, syscall.MNT_DETACH)
	}
}

// sluice runs a client command against the cluster and returns what it printed.
func (c *cluster) sluice(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, "", c.bin, append(append(args, "--url", c.url), c.opts.args()...)...)
}

// startNBD starts a gateway and returns its process once the socket answers.
func (c *cluster) startNBD(t *testing.T, sock, export string, extra ...string) *exec.Cmd {
	t.Helper()
	args := []string{"nbd", "--listen", "unix:" + sock, "--export", export, "--url", c.url}
	cmd := exec.Command(c.bin, append(append(args, c.opts.args()...), extra...)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sluice nbd said:\n%s", &log)
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if listens(sock) {
			return cmd
		}
		if time.Now().After(deadline) {
			t.Fatalf("sluice nbd does not listen at %s:\n%s", sock, &log)
		}
	}
}

// listens tells whether a socket can be called: it is there before somebody listens.
func listens(sock string) bool {
	c, err := net.Dial("unix", sock)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// programLimit ends programs that hang; it says nothing about speed.
const programLimit = 10 * time.Minute

// run runs a program that must succeed and returns its standard output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	return runIn(t, dir, "", name, args...)
}

func runIn(t *testing.T, dir, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v (run `make deps` to install what the tests need)", name, err)
	}
	timer := time.AfterFunc(programLimit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s %s: %v\n%s\n%s", name, strings.Join(args, " "), err,
			tail(out.String()), tail(errOut.String()))
	}
	return out.String()
}

func tail(s string) string {
	if len(s) > 4000 {
		return "..." + s[len(s)-4000:]
	}
	return s
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	must(t, err)
	return dir
}

// copyTree copies the module's sources, leaving out what is built, mounted or git's own.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		switch d.Name() {
		case ".git", "bin", "mnt", ".sluice":
			if d.IsDir() && rel != "." {
				return filepath.SkipDir
			}
			if !d.IsDir() { // a linked work tree's .git is a file: git in the copy would use the original
				return nil
			}
		}
		dst := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(dst, 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(dst, data, 0o644)
	})
	must(t, err)
}
