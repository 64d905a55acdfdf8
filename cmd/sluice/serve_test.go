package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/supervise"
)

// served is a `sluice serve` that a test runs, with a service manager that listens.
type served struct {
	s    *session
	cmd  *exec.Cmd
	dir  string // of the cluster
	done chan error

	mu       sync.Mutex
	messages []string
}

// serveFolder starts it on the file in a folder and waits until it is ready.
func serveFolder(s *session, dir string) *served {
	s.t.Helper()
	v := &served{s: s, dir: s.path(dir), done: make(chan error, 1)}
	socket := s.path(dir + ".notify")
	_ = os.Remove(socket) // of an earlier one
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	go v.listen(conn)
	v.cmd = s.command([]string{"sluice", "serve", "--json", "--config",
		filepath.Join(v.dir, "sluice.toml")})
	v.cmd.Env = append(v.cmd.Env, "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=200000")
	log, err := os.Create(s.path(dir + ".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	v.cmd.Stderr = log
	if err := v.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	log.Close()
	go func() { v.done <- v.cmd.Wait() }()
	s.t.Cleanup(v.end)
	v.await("READY=1")
	return v
}

func (v *served) listen(conn *net.UnixConn) {
	buf := make([]byte, 8192)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		v.mu.Lock()
		v.messages = append(v.messages, string(buf[:n]))
		v.mu.Unlock()
	}
}

// await returns the first message that has not been waited for and contains a text, and forgets
// those before it.
func (v *served) await(text string) string {
	v.s.t.Helper()
	found := ""
	err := eventually(text, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		i := slices.IndexFunc(v.messages, func(m string) bool { return strings.Contains(m, text) })
		if i >= 0 {
			found = v.messages[i]
			v.messages = v.messages[i+1:]
		}
		return i >= 0 || !v.lives()
	})
	if err != nil || found == "" {
		v.s.t.Fatalf("waited for %s: %v\n%s", text, err, v.log())
	}
	return found
}

func (v *served) lives() bool { return syscall.Kill(v.cmd.Process.Pid, 0) == nil }

func (v *served) log() string {
	text, _ := os.ReadFile(v.dir + ".log")
	return string(text)
}

func (v *served) signal(sig syscall.Signal) {
	v.s.t.Helper()
	if err := v.cmd.Process.Signal(sig); err != nil {
		v.s.t.Fatal(err)
	}
}

// reload sends SIGHUP and returns what the manager is told in the end.
func (v *served) reload() string {
	v.s.t.Helper()
	v.signal(syscall.SIGHUP)
	if got := v.await("RELOADING=1"); !strings.Contains(got, "MONOTONIC_USEC=") {
		v.s.t.Errorf("said %q", got)
	}
	return v.await("READY=1")
}

// pids are those of the processes.
func (v *served) pids() map[string]int {
	v.s.t.Helper()
	st, err := supervise.ReadState(filepath.Join(v.dir, "run", "state.json"))
	if err != nil {
		v.s.t.Fatal(err)
	}
	pids := map[string]int{}
	for _, p := range st.Processes {
		pids[p.Name] = p.PID
	}
	return pids
}

// stopped waits for the end.
func (v *served) stopped() error {
	v.s.t.Helper()
	select {
	case err := <-v.done:
		v.done <- err
		return err
	case <-time.After(time.Minute):
		v.s.t.Fatalf("it does not end:\n%s", v.log())
		return nil
	}
}

func (v *served) end() {
	if v.s.t.Failed() {
		v.s.t.Log(v.log())
	}
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-v.done:
		v.done <- err
	case <-time.After(time.Minute):
		_ = v.cmd.Process.Kill()
	}
}

// must runs a program.
func (s *session) must(args ...string) string {
	s.t.Helper()
	if err := s.exec(args); err != nil {
		s.t.Fatalf("%v: %v\n%s%s", args, err, s.stdout, s.stderr)
	}
	return s.stdout
}

// edit changes a file of the session.
func (s *session) edit(name string, replace ...string) {
	s.t.Helper()
	text, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	after := strings.NewReplacer(replace...).Replace(string(text))
	if after == string(text) {
		s.t.Fatalf("%s does not hold what is to be replaced:\n%s", name, text)
	}
	write(s.t, s.path(name), []byte(after))
}

// endings are the processes in the order in which they ended.
func (v *served) endings() (names []string) {
	for line := range strings.Lines(v.log()) {
		var e serveEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			v.s.t.Errorf("no document: %s", line)
		}
		if e.Msg == "ended" {
			names = append(names, e.Process)
		}
	}
	return names
}

// TestServe is the life of a host: it starts, loses a process, is given more to do, and less, is
// given a file that is wrong, and is drained.
func TestServe(t *testing.T) {
	s := newSession(t, linkSelf(t))
	s.must("sluice", "init", "--dir", "c", "--name", "lab", "--iods", "2", "--listen", "127.0.0.1:0")
	v := serveFolder(s, "c")
	v.await("WATCHDOG=1")
	if err := s.use([]string{"c"}); err != nil {
		t.Fatal(err)
	}
	write(t, s.path("data"), pattern(3<<20))
	s.must("sluice", "cp", "data", "sluice:/data")
	if err := s.murder([]string{"c", "iod2"}); err != nil {
		t.Fatal(err)
	}

	first := v.pids()
	appendTo(t, s.path("c/sluice.toml"), "[[iod]]\nid = 3\nmemory = '128M'\n[[nbd]]\nlisten = "+
		"'unix:nbd.sock'\n[[nbd.export]]\nname = 'm'\nmem = '1M'\n[[mount]]\ndir = '../mnt'\n")
	if got := v.reload(); !strings.Contains(got, "STATUS=6 processes of cluster lab at sluice://") {
		t.Fatalf("said %q", got)
	}
	if err := s.await([]string{"c/nbd.sock"}); err != nil {
		t.Fatal(err)
	}
	s.must("cmp", "mnt/data", "data")
	second := v.pids()
	for name, pid := range first {
		if second[name] != pid {
			t.Errorf("%s was started anew: %d, then %d", name, pid, second[name])
		}
	}

	s.edit("c/sluice.toml", "128M", "160M", "[[nbd]]\nlisten = 'unix:nbd.sock'\n[[nbd.export]]\n"+
		"name = 'm'\nmem = '1M'\n", "")
	v.reload()
	third := v.pids()
	if third["iod3"] == second["iod3"] || third["nbd1"] != 0 || len(third) != 5 {
		t.Errorf("before %v, after %v", second, third)
	}
	for _, name := range []string{"meta", "iod1", "iod2", "mount"} {
		if third[name] != second[name] {
			t.Errorf("%s was started anew", name)
		}
	}

	testWrongFiles(t, v)
	v.signal(syscall.SIGTERM)
	v.await("STOPPING=1")
	if err := v.stopped(); err != nil {
		t.Fatal(err)
	}
	order := v.endings()
	order = order[len(order)-5:]
	slices.Sort(order[1:4])
	if fmt.Sprint(order) != "[mount iod1 iod2 iod3 meta]" {
		t.Errorf("ended in the order %v", order)
	}
	if used, err := isMountpoint(s.path("mnt")); err != nil || used {
		t.Errorf("still mounted: %v, %v", used, err)
	}
	serveFolder(s, "c")
	if err := s.use([]string{"c"}); err != nil {
		t.Fatal(err)
	}
	s.must("sluice", "cp", "sluice:/data", "back")
	if err := s.cmp([]string{"data", "back"}); err != nil {
		t.Fatal(err)
	}
}

// testWrongFiles: what cannot be applied changes nothing, and it is told why.
func testWrongFiles(t *testing.T, v *served) {
	t.Helper()
	file := "c/sluice.toml"
	good, err := os.ReadFile(v.s.path(file))
	if err != nil {
		t.Fatal(err)
	}
	before := v.pids()
	for _, c := range []struct{ from, to, say string }{
		{"160M", "16M", "too little for an I/O server"},
		{"160M", "many", "want a size"},
		{"[meta]", "[meta", ""},
		{`cluster = "lab"`, `cluster = "other"`, "it is lab while it runs"},
		{"[meta]", "trust-local = 5\n[meta]", "true or false"},
		{"[[mount]]", "[[mount]]\ndir = '/proc'\n[[mount]]", "something else is mounted at /proc"},
	} {
		v.s.edit(file, c.from, c.to)
		if got := v.reload(); !strings.Contains(got, "STATUS=as before: ") {
			t.Errorf("%s: said %q", c.to, got)
		}
		if text := v.log(); !strings.Contains(text[len(text)-min(len(text), 800):], c.say) {
			t.Errorf("%s is not in the log:\n%s", c.say, text)
		}
		write(t, v.s.path(file), good)
	}
	if after := v.pids(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("before %v, after %v", before, after)
	}
}

// TestServeEndsAtOnce: a second signal does not wait for a process that does not end.
func TestServeEndsAtOnce(t *testing.T) {
	s := newSession(t, linkSelf(t))
	s.must("sluice", "init", "--dir", "c", "--listen", "127.0.0.1:0")
	v := serveFolder(s, "c")
	pids := v.pids()
	if err := syscall.Kill(pids["iod1"], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	v.signal(syscall.SIGTERM)
	v.await("STOPPING=1")
	begin := time.Now()
	v.signal(syscall.SIGTERM)
	err := v.stopped()
	if err == nil || !strings.Contains(v.log(), "ended at once, by a second signal") {
		t.Fatalf("%v\n%s", err, v.log())
	}
	if took := time.Since(begin); took >= iodStopMax {
		t.Errorf("took %v", took)
	}
	for name, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("%s is alive", name)
		}
	}
}

// TestServeGoesOnWithoutOne: a disk that is broken is that of one I/O server.
func TestServeGoesOnWithoutOne(t *testing.T) {
	s := newSession(t, linkSelf(t))
	s.must("sluice", "init", "--dir", "c", "--listen", "127.0.0.1:0", "--iods", "2")
	write(t, s.path("c/iod2/store.json"), []byte(`{"magic": "something else"}`))
	v := serveFolder(s, "c")
	if err := s.use([]string{"c"}); err != nil {
		t.Fatal(err)
	}
	s.must("sluice", "mkdir", "/a")
	err := eventually("iod1 is up", func() bool {
		_ = s.exec([]string{"sluice", "status", "--dir", "c"}) // it may just be started again
		return match(`iod1 .* up `, s.stdout) == nil
	})
	if err != nil {
		t.Fatal(err, s.stdout)
	}
	if !strings.Contains(v.log(), "not everything runs; the rest goes on") {
		t.Fatal(v.log())
	}
}

// TestServeJoined: a second host of a cluster runs I/O servers and mounts only, and finds the
// metadata service where its file says. Both listen at several addresses.
func TestServeJoined(t *testing.T) {
	s := newSession(t, linkSelf(t))
	s.must("sluice", "init", "--dir", "a", "--listen", "127.0.0.1:0")
	s.edit("a/sluice.toml", `listen = "127.0.0.1:0"`, `listen = ["127.0.0.1:0", "127.0.0.2:0"]`)
	serveFolder(s, "a")
	if err := s.use([]string{"a"}); err != nil {
		t.Fatal(err)
	}
	s.must("mkdir", "-m", "700", "b")
	s.must("cp", "-p", "a/cluster.json", "a/cluster.key", "a/cluster.secret", "b")
	join := strings.TrimPrefix(s.env["SLUICE_URL"], "sluice://")
	write(t, s.path("b/sluice.toml"), []byte("host = 'second'\njoin = ['127.0.0.1:1', '"+join+
		"']\ndata-network = '127.0.0.0/8'\n[[iod]]\nid = 2\n[[mount]]\ndir = '../mnt'\n"))
	v := serveFolder(s, "b")
	if pids := v.pids(); len(pids) != 2 || pids["iod2"] == 0 || pids["mount"] == 0 {
		t.Fatal(pids)
	}
	write(t, s.path("data"), pattern(5<<20))
	s.must("sluice", "cp", "data", "sluice:/data")
	s.must("cmp", "data", "mnt/data")
	s.must("sluice", "stat", "/data")
	if err := match(`round robin over 2 servers`, s.stdout); err != nil {
		t.Fatal(s.stdout)
	}
}
