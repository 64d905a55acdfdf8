package systest

import (
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The users of these tests: neither has a name or rights here.
const (
	nobody  = 65534
	another = 65533
)

// person is a user of this host, with a folder and a copy of the program.
type person struct {
	t      *testing.T
	uid    uint32
	dir    string
	bin    string
	become []string // a program that runs another one
}

func newPerson(t *testing.T, uid uint32) *person {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	bin, err := builtBinary()
	must(t, err)
	dir, err := os.MkdirTemp("", "sluice-person")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, int(uid), int(uid)))
	p := &person{t: t, uid: uid, dir: dir, bin: filepath.Join(dir, "sluice")}
	copyProgram(t, bin, p.bin)
	return p
}

// asRoot is the same person as root of a namespace of users: who they are to themselves.
func (p *person) asRoot() *person {
	inside := *p
	inside.become = []string{"unshare", "-Ur"}
	if err := inside.command("version").Run(); err != nil {
		return nil
	}
	return &inside
}

func (p *person) command(args ...string) *exec.Cmd {
	line := append(append([]string{}, p.become...), append([]string{p.bin}, args...)...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: p.uid, Gid: p.uid}
	}
	return cmd
}

func (p *person) mustRun(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("uid %d: sluice %s: %v\n%s", p.uid, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// mustFail wants an error that has all these words, and that none of the others are printed.
func (p *person) mustFail(words []string, args ...string) {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err == nil {
		p.t.Errorf("uid %d may: sluice %s:\n%s", p.uid, strings.Join(args, " "), out)
	}
	for _, word := range words {
		if !strings.Contains(string(out), word) {
			p.t.Errorf("uid %d: sluice %s does not say %q:\n%s", p.uid, strings.Join(args, " "), word,
				out)
		}
	}
	if strings.Contains(string(out), treasure) {
		p.t.Errorf("uid %d: sluice %s shows what is another's", p.uid, strings.Join(args, " "))
	}
}

const treasure = "for root's eyes only"

// TestOtherUsersAreKeptOut: everybody on this host reaches the servers' ports, and can be root in a
// namespace of their own. Only who can read the cluster's secret is served.
func TestOtherUsersAreKeptOut(t *testing.T) {
	stranger := newPerson(t, nobody)
	c := startCluster(t, clusterOptions{iods: 2})
	file := filepath.Join(stranger.dir, "own")
	must(t, os.WriteFile(file, []byte(treasure), 0o600))
	c.sluice(t, "cp", file, "sluice:/treasure")
	for _, providers := range []string{"shm,tcp", "tcp"} {
		if got := c.sluice(t, "cat", "/treasure", "--providers", providers); got != treasure {
			t.Errorf("its owner reads %q by %s", got, providers)
		}
	}
	forged := filepath.Join(stranger.dir, "forged")
	must(t, os.WriteFile(forged, []byte(hex.EncodeToString(make([]byte, 32))), 0o600))
	must(t, os.Chown(forged, nobody, nobody))
	people := []*person{stranger}
	if inside := stranger.asRoot(); inside != nil {
		people = append(people, inside)
	} else {
		t.Log("without a namespace of users: unshare -Ur does not work here")
	}
	for _, p := range people {
		for _, providers := range []string{"shm,tcp", "tcp"} {
			at := []string{"--url", c.url, "--providers", providers}
			asked := []string{"cluster.secret", "permission denied", "--secret"}
			p.mustFail(asked, append([]string{"cat", "/treasure"}, at...)...)
			p.mustFail(asked, append([]string{"ls", "-l", "/"}, at...)...)
			p.mustFail(asked, append([]string{"cp", "sluice:/treasure", "got"}, at...)...)
			p.mustFail(asked, append([]string{"cp", "forged", "sluice:/treasure"}, at...)...)
			p.mustFail(asked, append([]string{"rm", "/treasure"}, at...)...)
			p.mustFail(asked, append([]string{"cat", "/treasure", "--trust-local"}, at...)...)
			p.mustFail([]string{"another secret"},
				append([]string{"ls", "/", "--secret", "forged"}, at...)...)
		}
		p.mustFail([]string{"permission denied"}, "status", "--dir", c.dir)
		p.mustFail(nil, "bench", "net", "--ladder", c.url)
	}
	st := c.answered(t)
	for _, s := range st.Servers {
		crowdAt(t, s.Addr)
	}
	crowdAt(t, strings.TrimPrefix(c.url, "sluice://"))
	if got := c.sluice(t, "cat", "/treasure", "--providers", "tcp"); got != treasure {
		t.Errorf("it was changed to %q", got)
	}
	for _, s := range st.Servers {
		if !strings.HasPrefix(s.Known, "host (uid 0 pid ") {
			t.Errorf("server %d is known by %q", s.ID, s.Known)
		}
	}
	c.wantPrivateProfiles(t, stranger)
}

// crowdAt connects to a server very often, and says nothing.
func crowdAt(t *testing.T, addr string) {
	t.Helper()
	for range 200 {
		conn, err := net.Dial("tcp", addr)
		must(t, err)
		t.Cleanup(func() { conn.Close() })
	}
}

// wantPrivateProfiles: numbers are for everybody on the host, memory is not.
func (c *cluster) wantPrivateProfiles(t *testing.T, stranger *person) {
	t.Helper()
	addr, err := os.ReadFile(filepath.Join(c.dir, "run", "iod1.admin"))
	must(t, err)
	for path, want := range map[string]int{
		"/metrics": http.StatusOK, "/debug/pprof/heap": http.StatusNotFound,
	} {
		r, err := http.Get("http://" + strings.TrimSpace(string(addr)) + path)
		must(t, err)
		_ = r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, r.StatusCode, want)
		}
	}
	sock := filepath.Join(c.dir, "run", "iod1.profiles")
	info, err := os.Stat(sock)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the profiles' socket has the mode %v", info.Mode())
	}
	conn, err := net.Dial("unix", sock)
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /debug/pprof/goroutine?debug=1 HTTP/1.0\r\n\r\n")
	must(t, err)
	page, err := io.ReadAll(conn)
	must(t, err)
	if !strings.Contains(string(page), "goroutine profile") {
		t.Errorf("the owner's profile is %s", tail(string(page)))
	}
}

// TestWhoStartsAClusterOwnsIt: it need not be root. Root may do everything, but is not tricked into
// trusting a server by the file that it names.
func TestWhoStartsAClusterOwnsIt(t *testing.T) {
	owner, other, root := newPerson(t, nobody), newPerson(t, another), newPerson(t, 0)
	dir := filepath.Join(owner.dir, "c")
	owner.mustRun("up", "-d", "--dir", dir, "--iods", "1", "--listen", "127.0.0.1:0")
	defer owner.mustRun("down", "--dir", dir)
	addr, err := os.ReadFile(filepath.Join(dir, "run", "meta.addr"))
	must(t, err)
	at := []string{"--url", "sluice://" + strings.TrimSpace(string(addr))}
	owner.mustRun(append([]string{"mkdir", "/mine"}, at...)...)
	owner.mustRun(append([]string{"ls", "/", "--providers", "tcp"}, at...)...)
	owner.mustRun("status", "--dir", dir)
	other.mustFail([]string{"cluster.secret", "permission denied"},
		append([]string{"ls", "/"}, at...)...)
	root.mustFail([]string{"belongs to uid 65534", "--secret"}, append([]string{"ls", "/"}, at...)...)
	secret := filepath.Join(dir, "cluster.secret")
	got := root.mustRun(append([]string{"ls", "/", "--secret", secret}, at...)...)
	if !strings.Contains(got, "mine") {
		t.Errorf("root sees %q", got)
	}
	root.mustRun("status", "--dir", dir)

	must(t, os.Chmod(secret, 0o644))
	owner.mustFail([]string{"chmod 600"}, append([]string{"ls", "/", "--secret", secret}, at...)...)
	owner.mustFail([]string{"readable by others", "chmod 600"}, "meta", "--dir", dir)
	must(t, os.Chmod(secret, 0o600))
	must(t, os.Chmod(dir, 0o770))
	owner.mustFail([]string{"could replace the keys", "chmod go-w"}, "iod", "--dir", dir, "--id", "1")
	must(t, os.Chmod(dir, 0o700))
}
