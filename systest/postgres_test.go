package systest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// postgres is a server of PostgreSQL whose data lies on a mount. It does not run as root, so it
// runs as the user that its package has made.
type postgres struct {
	t    *testing.T
	bin  string // folder with its programs
	data string // on the mount
	sock string // folder of its socket, whose path must be short
	cred *syscall.Credential
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// newPostgres makes a data folder by initdb, with checksums of its pages. Nothing is switched off
// that makes it durable.
func newPostgres(t *testing.T, mnt string) *postgres {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Fatal("there is no initdb (run `make deps` to install what the tests need)")
	}
	who, err := user.Lookup("postgres")
	must(t, err)
	uid, err := strconv.Atoi(who.Uid)
	must(t, err)
	gid, err := strconv.Atoi(who.Gid)
	must(t, err)
	sock, err := os.MkdirTemp("", "pg")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(sock) })
	p := &postgres{t: t, bin: filepath.Dir(found[len(found)-1]), data: filepath.Join(mnt, "pg"),
		sock: sock, cred: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	// Folders of tests are their owner's only.
	for dir := filepath.Dir(mnt); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	must(t, os.Mkdir(p.data, 0o700))
	for _, dir := range []string{p.data, p.sock} {
		must(t, os.Chown(dir, uid, gid))
	}
	p.run("initdb", "--pgdata", p.data, "--auth", "trust", "--no-locale", "--encoding", "UTF8",
		"--data-checksums", "--username", "postgres")
	return p
}

func (p *postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.sock
	cmd.Env = append(os.Environ(), "PGHOST="+p.sock, "PGUSER=postgres", "PGDATABASE=postgres",
		"HOME="+p.sock)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run runs one of its programs, which must succeed, and returns what it printed.
func (p *postgres) run(name string, args ...string) string {
	p.t.Helper()
	cmd := p.command(name, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	must(p.t, cmd.Start())
	timer := time.AfterFunc(programLimit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		p.t.Fatalf("%s %s: %v\n%s\n%s\nserver:\n%s", name, strings.Join(args, " "), err,
			tail(out.String()), tail(said.String()), tail(p.log.String()))
	}
	return out.String()
}

func (p *postgres) query(sql string) string {
	p.t.Helper()
	return strings.TrimSpace(p.run("psql", "-XAtqc", sql))
}

// start starts the server and returns when it answers: after a crash, when it has recovered.
func (p *postgres) start() {
	p.t.Helper()
	p.cmd = p.command("postgres", "-D", p.data, "-k", p.sock, "-c", "listen_addresses=",
		"-c", "shared_buffers=8MB", "-c", "max_connections=12", "-c", "max_wal_size=64MB",
		"-c", "checkpoint_timeout=30s", "-c", "restart_after_crash=off")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	must(p.t, p.cmd.Start())
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if p.command("pg_isready", "-q").Run() == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the server does not answer:\n%s", tail(p.log.String()))
		}
	}
}

// kill is kill -9 of the server and all of its processes, and returns when they are gone.
func (p *postgres) kill() {
	pid := p.cmd.Process.Pid
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for child := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
			awaitDeath(p.t, n)
		}
	}
	_ = p.cmd.Wait()
}

// stop ends the server in good order.
func (p *postgres) stop() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGINT))
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the server ended with %v\n%s", err, tail(p.log.String()))
	}
}

// consistent checks what pgbench promises: all balances, and the history, add up to the same. It
// returns how many transactions there are.
func (p *postgres) consistent(after string) int {
	p.t.Helper()
	sums := strings.Split(p.query("SELECT (SELECT sum(abalance) FROM pgbench_accounts), "+
		"(SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(tbalance) FROM pgbench_tellers), "+
		"(SELECT coalesce(sum(delta), 0) FROM pgbench_history), (SELECT count(*) FROM pgbench_history)"),
		"|")
	if len(sums) != 5 || sums[0] != sums[1] || sums[1] != sums[2] || sums[2] != sums[3] {
		p.t.Fatalf("%s: accounts, branches, tellers and history add up to %v", after, sums)
	}
	n, err := strconv.Atoi(sums[4])
	must(p.t, err)
	return n
}

// TestKillUnderPostgres runs pgbench on a mount while I/O servers and the metadata service are
// killed: it sees no error. Then PostgreSQL itself is killed under load, and recovers: every
// transaction that a client was told to be done is there, every page has its checksum.
func TestKillUnderPostgres(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become the user that PostgreSQL runs as")
	}
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 3, mount: true})
	p := newPostgres(t, c.mnt)
	p.start()
	p.run("pgbench", "-i", "-q", "-s", "1")

	kills, acked, out := 0, 0, ""
	seconds := strconv.Itoa(int(soak(6*time.Second, time.Minute).Seconds()))
	for try := 0; try < 10 && kills < 2; try++ { // on a busy machine servers take long to come back
		stop, done := make(chan struct{}), make(chan int)
		go func() { done <- c.killInTurn(stop, 1200*time.Millisecond, "iod1", "iod2", "meta", "iod3") }()
		out = p.run("pgbench", "-n", "-c", "4", "-j", "2", "-T", seconds)
		close(stop)
		kills += <-done
		acked += processed(t, out)
	}
	if n := p.consistent("servers were killed"); n != acked || n == 0 {
		t.Errorf("%d transactions were acknowledged, %d are there", acked, n)
	}
	t.Logf("%d transactions, %d kills", acked, kills)
	if kills < 2 {
		t.Errorf("only %d servers were killed", kills)
	}

	for round := range soakRounds(2) {
		had := p.consistent("before")
		logs := filepath.Join(p.sock, fmt.Sprint("tx", round))
		bench := p.command("pgbench", "-n", "-c", "4", "-j", "1", "-T", "600", "--log",
			"--log-prefix", logs)
		must(t, bench.Start())
		c.await(t, "transactions", func() bool { return logged(logs) > 50 })
		p.kill()
		_ = bench.Wait()
		p.start()
		n := p.consistent("PostgreSQL was killed")
		if low := had + logged(logs); n < low || n > low+4096 {
			t.Errorf("round %d: at least %d transactions were acknowledged, %d are there", round, low, n)
		}
		t.Logf("round %d: %d transactions after recovery", round, n)
	}
	p.query("VACUUM FULL pgbench_accounts")
	p.run("pg_amcheck", "--all", "--install-missing", "--heapallindexed")
	p.stop()
	if out = p.run("pg_checksums", "--check", "-D", p.data); !strings.Contains(out, "checksums:  0") {
		t.Errorf("pg_checksums: %s", out)
	}
}

// processed is how many transactions pgbench says that it has done.
func processed(t *testing.T, out string) (n int) {
	t.Helper()
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "number of transactions actually processed: "); ok {
			_, err := fmt.Sscan(rest, &n)
			must(t, err)
		}
		if rest, ok := strings.CutPrefix(line, "number of failed transactions: "); ok &&
			!strings.HasPrefix(rest, "0 ") {
			t.Errorf("pgbench: %s", line)
		}
	}
	return n
}

// logged is how many transactions pgbench has noted. It writes its notes now and then, so there are
// at most some more.
func logged(prefix string) (n int) {
	files, _ := filepath.Glob(prefix + "*")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		n += bytes.Count(text, []byte("\n"))
	}
	return n
}
