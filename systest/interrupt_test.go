package systest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterruptWhileServersAreStopped: programs that handle SIGINT can be interrupted while they
// wait for I/O servers that do not answer: one that writes and has filled the room for writes under
// way, one that reads, and one that opens a file.
func TestInterruptWhileServersAreStopped(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	old, fresh := filepath.Join(c.mnt, "old"), filepath.Join(c.mnt, "fresh")
	run(t, "", "dd", "if=/dev/zero", "of="+old, "bs=1M", "count=8", "conv=fsync")
	must(t, os.WriteFile(fresh, nil, 0o644))

	writer := exec.Command("dd", "of="+fresh, "bs=1M")
	in, err := writer.StdinPipe()
	must(t, err)
	defer in.Close()
	said := startDD(t, writer)
	_, err = in.Write(make([]byte, 2<<20))
	must(t, err)
	c.await(t, "the first data", func() bool {
		st, err := os.Stat(fresh)
		return err == nil && st.Size() > 0
	})
	st, err := c.state()
	must(t, err)
	for _, p := range st.Processes {
		if strings.HasPrefix(p.Name, "iod") {
			must(t, syscall.Kill(p.PID, syscall.SIGSTOP))
			defer syscall.Kill(p.PID, syscall.SIGCONT)
		}
	}
	go in.Write(make([]byte, 200<<20))
	interruptDD(t, writer, said)
	for _, args := range [][]string{
		{"if=" + old, "of=/dev/null", "bs=1M", "iflag=direct"},
		{"if=/dev/zero", "of=" + fresh, "bs=1M", "count=200", "conv=notrunc"},
	} {
		cmd := exec.Command("dd", args...)
		interruptDD(t, cmd, startDD(t, cmd))
	}
}

func startDD(t *testing.T, cmd *exec.Cmd) (said *bytes.Buffer) {
	t.Helper()
	said = &bytes.Buffer{}
	cmd.Stderr = said
	must(t, cmd.Start())
	return said
}

// interruptDD interrupts a dd that is stuck. The first signal makes it say what it has done and
// close its file, which waits for what it has written so far; a further one ends that wait.
func interruptDD(t *testing.T, cmd *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	time.Sleep(time.Second)
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	for ended := false; !ended; {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-done:
			ended = true
		case <-time.After(4 * time.Second):
		}
	}
	took, what := time.Since(began), strings.Join(cmd.Args, " ")
	if took > 30*time.Second {
		t.Errorf("%s: interrupted after %v", what, took)
	}
	t.Logf("%s: ended after %v, said %q", what, took, said)
}
