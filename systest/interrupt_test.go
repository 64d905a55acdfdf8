package systest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterruptWhileServersAreStopped: programs that handle SIGINT can be interrupted while they wait
// for I/O servers that do not answer: one that reads, and one that has filled the room for writes
// under way.
func TestInterruptWhileServersAreStopped(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	old := filepath.Join(c.mnt, "old")
	run(t, "", "dd", "if=/dev/zero", "of="+old, "bs=1M", "count=8", "conv=fsync")
	st, err := c.state()
	must(t, err)
	for _, p := range st.Processes {
		if strings.HasPrefix(p.Name, "iod") {
			must(t, syscall.Kill(p.PID, syscall.SIGSTOP))
			defer syscall.Kill(p.PID, syscall.SIGCONT)
		}
	}
	for _, args := range [][]string{
		{"if=" + old, "of=/dev/null", "bs=1M", "iflag=direct"},
		{"if=/dev/zero", "of=" + filepath.Join(c.mnt, "fresh"), "bs=1M", "count=200"},
	} {
		var said bytes.Buffer
		cmd := exec.Command("dd", args...)
		cmd.Stderr = &said
		must(t, cmd.Start())
		time.Sleep(time.Second)
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = cmd.Wait()
		}()
		// The first one makes dd stop and close its file, which waits for what was written so far;
		// the second one ends that wait.
		for ended := false; !ended; {
			_ = cmd.Process.Signal(syscall.SIGINT)
			select {
			case <-done:
				ended = true
			case <-time.After(4 * time.Second):
			}
		}
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("dd %s: interrupted after %v", strings.Join(args, " "), d)
		}
		t.Logf("dd %s: ended after %v, said %q", args[0], time.Since(began), &said)
	}
}
