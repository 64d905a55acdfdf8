package systest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// transferService is a running sluice transfer --listen.
type transferService struct {
	cmd  *exec.Cmd
	addr string
	err  bytes.Buffer
}

// startTransfers starts a service; addr "" takes any port. as is a user to run it as, or nil.
func startTransfers(t *testing.T, addr, dir string, as *syscall.Credential) *transferService {
	t.Helper()
	bin, err := builtBinary()
	must(t, err)
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	s := &transferService{cmd: exec.Command(bin, "transfer", "--listen", addr, "--dir", dir)}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	s.cmd.Stderr = &s.err
	out, err := s.cmd.StdoutPipe()
	must(t, err)
	must(t, s.cmd.Start())
	t.Cleanup(s.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, s.err.String())
	}
	s.addr = strings.TrimSpace(strings.TrimPrefix(line, "listening at "))
	return s
}

func (s *transferService) kill() {
	_ = s.cmd.Process.Kill() // it may be dead
	_, _ = s.cmd.Process.Wait()
}

// transferring begins a transfer.
func transferring(t *testing.T, as *syscall.Credential, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	bin, err := builtBinary()
	must(t, err)
	cmd := exec.Command(bin, append([]string{"transfer", "--json", "--timeout", "5s"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	return cmd, out
}

// transferred is a transfer from its beginning to its end.
func transferred(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd, out := transferring(t, nil, args...)
	err := cmd.Wait()
	return out.String(), err
}

// randomFile makes a file of random bytes.
func randomFile(t *testing.T, rng *rand.Rand, size int) (name string, data []byte) {
	t.Helper()
	data = make([]byte, size)
	for i := 0; i+8 <= size; i += 8 {
		v := rng.Uint64()
		for j := range 8 {
			data[i+j] = byte(v >> (8 * j))
		}
	}
	name = filepath.Join(t.TempDir(), "original")
	must(t, os.WriteFile(name, data, 0o644))
	return name, data
}

// whenPart waits until so much of a partial file is there, or the process has ended.
func whenPart(name string, bytes int64, cmd *exec.Cmd) {
	for {
		if info, err := os.Stat(name); err == nil && info.Size() >= bytes {
			return
		}
		if exited(cmd) {
			return
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// exited tells whether a child has ended, without waiting for it.
func exited(cmd *exec.Cmd) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	return err != nil || bytes.Contains(text, []byte(") Z "))
}

// TestTransferKilled kills either side with -9 somewhere in the middle, of puts and of gets, by
// every driver, and goes on: the same bytes. SLUICE_KILL_ROUNDS and SLUICE_SEED set rounds and
// seed.
func TestTransferKilled(t *testing.T) {
	seed, rounds := envInt("SLUICE_SEED", rand.Int()), envInt("SLUICE_KILL_ROUNDS", 6)
	t.Logf("seed %d, %d rounds (SLUICE_SEED, SLUICE_KILL_ROUNDS)", seed, rounds)
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	const size = 24 << 20
	original, data := randomFile(t, rng, size)
	dir, here := t.TempDir(), t.TempDir()
	must(t, os.Link(original, filepath.Join(dir, "original")))
	s := startTransfers(t, "", dir, nil)
	if testing.Short() {
		rounds = 2
	}
	for i := range rounds {
		name := fmt.Sprintf("copy-%d", i)
		driver := []string{"shm", "tcp", "socket"}[i%3]
		args := []string{"--driver", driver, "--block", "64K", "--depth", "2", original,
			s.addr + ":/" + name}
		copied := filepath.Join(dir, name)
		if i%2 == 1 {
			args[6], args[7] = s.addr+":/original", filepath.Join(here, name)
			copied = args[7]
		}
		part := filepath.Join(filepath.Dir(copied), "."+name+".sluice-part")
		client, _ := transferring(t, nil, args...)
		whenPart(part, rng.Int64N(size), client)
		if rng.IntN(2) == 0 {
			_ = client.Process.Kill() // it may have ended
		} else {
			s.kill()
			was := s.addr
			s = startTransfers(t, "", dir, nil) // somebody may have its port
			for j := range args {
				args[j] = strings.Replace(args[j], was+":/", s.addr+":/", 1)
			}
		}
		_ = client.Wait() // however it ended
		out := ""
		var err error
		for try := 0; ; try++ { // the service may still hold the file for the one that was killed
			_, there := os.Stat(copied)
			if there == nil {
				break // it was complete before it was killed
			}
			if out, err = transferred(t, args...); err == nil {
				break
			}
			if strings.Contains(out, "has made it meanwhile") {
				_ = os.Remove(part) // the one whose client was killed was quicker
				continue
			}
			if try == 100 || !strings.Contains(out, "another transfer") &&
				!strings.Contains(out, "it is there already") { // which the next look finds
				t.Fatalf("round %d: %v: %s", i, err, out)
			}
			time.Sleep(50 * time.Millisecond)
		}
		got, err := os.ReadFile(copied)
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Fatalf("round %d, %v: other bytes", i, args)
		}
		if !goes(part) {
			t.Errorf("round %d: %s is left", i, part)
		}
		must(t, os.Remove(copied)) // hundreds of rounds are many bytes
	}
}

// goes waits until a file is not there: it is removed after the one that it became is there.
func goes(name string) bool {
	for end := time.Now().Add(readyLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(name); err != nil {
			return true
		}
	}
	return false
}

// TestTransferStopped stops the service in the middle: the client gives up, says so, and goes on
// when it is back.
func TestTransferStopped(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	original, data := randomFile(t, rng, 24<<20)
	dir := t.TempDir()
	s := startTransfers(t, "", dir, nil)
	args := []string{"--driver", "tcp", "--block", "64K", "--timeout", "2s", original, s.addr + ":/x"}
	client, out := transferring(t, nil, args...)
	whenPart(filepath.Join(dir, ".x.sluice-part"), 1<<20, client)
	must(t, s.cmd.Process.Signal(syscall.SIGSTOP))
	err := client.Wait()
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
	if _, there := os.Stat(filepath.Join(dir, "x")); there == nil {
		t.Skip("it was complete before it was stopped")
	}
	if err == nil || !strings.Contains(out.String(), "run the same command again") &&
		!strings.Contains(out.String(), "Run the same command again") {
		t.Fatalf("%v: %s", err, out)
	}
	for try := 0; ; try++ {
		text, err := transferred(t, args...)
		if err == nil {
			var sum struct{ Skipped, Bytes int64 }
			must(t, json.Unmarshal([]byte(text), &sum))
			if sum.Skipped == 0 || sum.Bytes != 24<<20 {
				t.Errorf("%s", text)
			}
			break
		}
		if strings.Contains(text, "it is there already") {
			t.Skip("it was complete before it was stopped")
		}
		if try == 100 {
			t.Fatal(text)
		}
		time.Sleep(100 * time.Millisecond)
	}
	got, err := os.ReadFile(filepath.Join(dir, "x"))
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Error("other bytes")
	}
}

// TestTransferFullDisk: a full disk is told, and what it is good for; with room it goes on.
func TestTransferFullDisk(t *testing.T) {
	d := newDisk(t, 64<<20)
	original, data := randomFile(t, rand.New(rand.NewPCG(2, 2)), 20<<20)
	s := startTransfers(t, "", d.dir, nil)
	d.fill(8 << 20)
	out, err := transferred(t, original, s.addr+":/x")
	if err == nil || !strings.Contains(out, "no space left") || !strings.Contains(out, "Make room") {
		t.Fatalf("%v: %s", err, out)
	}
	d.empty()
	if out, err = transferred(t, original, s.addr+":/x"); err != nil {
		t.Fatal(out)
	}
	got, err := os.ReadFile(filepath.Join(d.dir, "x"))
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Error("other bytes")
	}
	s.kill()
}

// TestTransferRights: a folder that the service may not write to, and a name that is taken.
func TestTransferRights(t *testing.T) {
	original, _ := randomFile(t, rand.New(rand.NewPCG(3, 3)), 100)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "there"), []byte("old"), 0o644))
	s := startTransfers(t, "", dir, nil)
	out, err := transferred(t, original, s.addr+":/there")
	if err == nil || !strings.Contains(out, "--overwrite") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err = transferred(t, "--overwrite", original, s.addr+":/there"); err != nil {
		t.Error(err)
	}
	for _, listen := range []string{"0.0.0.0:0", "10.1.2.3:9500"} {
		bin, err := builtBinary()
		must(t, err)
		cmd := exec.Command(bin, "transfer", "--listen", listen, "--dir", dir)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "SLUICE_CREDENTIAL="+t.TempDir()+"/none")
		text, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("listens at %s without keys: %s", listen, text)
		}
	}
	if os.Getuid() != 0 {
		return
	}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	bin, err := builtBinary()
	must(t, err)
	must(t, os.Chmod(filepath.Dir(bin), 0o755))
	for _, open := range []string{filepath.Dir(dir), dir, filepath.Dir(original)} {
		must(t, os.Chmod(open, 0o755))
	}
	other := startTransfers(t, "", dir, nobody)
	client, refused := transferring(t, nobody, original, other.addr+":/new")
	if err := client.Wait(); err == nil || !strings.Contains(refused.String(), "permission denied") {
		t.Errorf("%v: %s", err, refused)
	}
	// Root does not take the word of another user's service for where its secret is.
	if out, err := transferred(t, original, other.addr+":/new"); err == nil {
		t.Errorf("a service of another user is trusted: %s", out)
	}
}

// TestTransferCluster moves a file into a cluster and out of it, by a service and without.
func TestTransferCluster(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 2, mem: true})
	original, data := randomFile(t, rand.New(rand.NewPCG(4, 4)), 9<<20+17)
	dir := t.TempDir()
	s := startTransfers(t, "", dir, nil)
	must(t, os.WriteFile(filepath.Join(dir, "x"), data, 0o640))
	url := strings.TrimRight(c.url, "/")
	for _, step := range [][]string{
		{"--verify", original, url + "/one"},
		{url + "/one", s.addr + ":/back"},
		{s.addr + ":/x", url + "/two"},
		{url + "/two", filepath.Join(dir, "two")},
	} {
		if out, err := transferred(t, step...); err != nil {
			t.Fatalf("%v: %s", step, out)
		}
	}
	if out, err := transferred(t, original, url+"/one"); err == nil ||
		!strings.Contains(out, "--overwrite") {
		t.Errorf("%v: %s", err, out)
	}
	for _, name := range []string{"back", "two"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Errorf("%s has other bytes", name)
		}
	}
}
