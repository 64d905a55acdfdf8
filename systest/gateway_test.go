package systest

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	nbdFlagReadOnly  = 1 << 1
	nbdFlagSendFlush = 1 << 2
	nbdFlagMultiConn = 1 << 8
	nbdEIO           = 5
)

// TestTwoGateways: what a flush promises is true whichever gateway of a volume answers it. A second
// gateway that would write is refused while the first one lives; when that is killed it takes over
// at once, and its flush covers what was acknowledged by the first.
func TestTwoGateways(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 4})
	c.sluice(t, "volume", "create", "disk", "16M")
	dir := t.TempDir()
	first := c.startNBD(t, filepath.Join(dir, "1"), "name=disk,volume=disk")

	a, err := dialNBD("unix", filepath.Join(dir, "1"), "disk")
	must(t, err)
	defer a.close()
	if a.flags&nbdFlagMultiConn == 0 || a.flags&nbdFlagSendFlush == 0 {
		t.Errorf("flags %#x of a gateway with several connections", a.flags)
	}
	piece := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, 64<<10) }
	for i := range 8 {
		must(t, a.write(piece(i), uint64(i)<<20, false))
	}
	secondIsRefused(t, c)
	readerIsFine(t, c, piece(3), 3<<20)

	must(t, syscall.Kill(first.Process.Pid, syscall.SIGKILL))
	_ = first.Wait() // on a busy machine it lives on for a moment, and has the volume
	began := time.Now()
	c.startNBD(t, filepath.Join(dir, "2"), "name=disk,volume=disk")
	t.Logf("taken over after %v", time.Since(began))
	b, err := dialNBD("unix", filepath.Join(dir, "2"), "disk")
	must(t, err)
	defer b.close()
	must(t, b.flush())
	for i := 1; i <= 4; i++ {
		must(t, syscall.Kill(c.pidOf(t, fmt.Sprint("iod", i)), syscall.SIGKILL))
	}
	got := make([]byte, 64<<10)
	for i := range 8 {
		must(t, b.read(got, uint64(i)<<20))
		if !bytes.Equal(got, piece(i)) {
			t.Errorf("piece %d is lost: begins with %d", i, got[0])
		}
	}
}

// secondIsRefused starts a second gateway, which must say who has the volume and what to do.
func secondIsRefused(t *testing.T, c *cluster) {
	t.Helper()
	args := []string{"nbd", "--listen", "unix:" + filepath.Join(t.TempDir(), "s"), "--export",
		"name=disk,volume=disk", "--url", c.url}
	cmd := exec.Command(c.bin, append(args, c.opts.args()...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() <= 0 {
		t.Errorf("a second writing gateway was not refused: %v", err)
	}
	for _, want := range []string{"disk", "open for writing by", "volume=disk,ro"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the refusal does not say %q: %s", want, &out)
		}
	}
}

// readerIsFine reads through a gateway that only reads, which promises nothing about writes.
func readerIsFine(t *testing.T, c *cluster, want []byte, off uint64) {
	t.Helper()
	sock := filepath.Join(t.TempDir(), "ro")
	c.startNBD(t, sock, "name=disk,volume=disk,ro")
	r, err := dialNBD("unix", sock, "disk")
	must(t, err)
	defer r.close()
	if r.flags&nbdFlagReadOnly == 0 || r.flags&nbdFlagSendFlush != 0 {
		t.Errorf("flags %#x of a read-only gateway", r.flags)
	}
	got := make([]byte, len(want))
	must(t, r.read(got, off))
	if !bytes.Equal(got, want) {
		t.Errorf("read %d through the other gateway, want %d", got[0], want[0])
	}
}

// TestStoppedServersAreWaitedFor: I/O servers that do not answer are a slow disk to a guest, unless
// the gateway was told how long to wait.
func TestStoppedServersAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2})
	dir := t.TempDir()
	var guests []*nbdClient
	for name, extra := range map[string][]string{"patient": nil, "short": {"--timeout", "3s"}} {
		c.sluice(t, "volume", "create", name, "8M")
		c.startNBD(t, filepath.Join(dir, name), "name=disk,volume="+name, extra...)
	}
	for _, name := range []string{"patient", "short"} {
		g, err := dialNBD("unix", filepath.Join(dir, name), "disk")
		must(t, err)
		defer g.close()
		must(t, g.write(bytes.Repeat([]byte{1}, 1<<20), 0, false))
		guests = append(guests, g)
	}
	pause := soak(38*time.Second, 70*time.Second)
	var stopped sync.WaitGroup
	for i := 1; i <= 2; i++ {
		pid := c.pidOf(t, fmt.Sprint("iod", i))
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
		stopped.Go(func() {
			time.Sleep(pause)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		})
		c.await(t, "a server stands still", func() bool { return standsStill(t, pid) })
	}
	began := time.Now()
	want := bytes.Repeat([]byte{3}, 1<<20)
	patient := make(chan error, 1)
	go func() { patient <- guests[0].write(want, 0, true) }()
	short := guests[1].write(bytes.Repeat([]byte{2}, 1<<20), 0, false)
	if short == nil || !strings.Contains(short.Error(), fmt.Sprint("nbd error ", nbdEIO)) {
		t.Errorf("with --timeout 3s, after %v: %v", time.Since(began), short)
	}
	if d := time.Since(began); d > pause-5*time.Second { // it has not waited for their return
		t.Errorf("--timeout 3s took %v", d)
	}
	if err := <-patient; err != nil {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	stopped.Wait()
	got := make([]byte, len(want))
	must(t, guests[0].read(got, 0))
	if !bytes.Equal(got, want) {
		t.Error("other bytes after the pause")
	}
}
