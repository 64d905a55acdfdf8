package systest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// goneFor is how long the programs of these tests wait for a server, before they get EIO.
const goneFor = 6 * time.Second

// loseServer kills an I/O server and takes its disk away, so that it cannot be started again. What
// it returns brings the disk back.
func (c *cluster) loseServer(t *testing.T, name string) (back func()) {
	t.Helper()
	disk := filepath.Join(c.dir, name)
	must(t, os.Rename(disk, disk+".away"))
	must(t, os.WriteFile(disk, nil, 0o600)) // nobody makes another one in its place
	pid := c.pidOf(t, name)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitDeath(t, pid)
	return func() {
		must(t, os.Remove(disk))
		must(t, os.Rename(disk+".away", disk))
	}
}

// timed runs something and tells how long it took.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// TestServerGoneForGood: programs wait for a server that does not come back for as long as `sluice
// mount --timeout` says, and then get EIO: no other error, and no zeroes in place of data. They can
// be killed while they wait. Names work meanwhile, and when the server is back everything does.
func TestServerGoneForGood(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	mnt := c.startMount(t, "--timeout", goneFor.String())
	old, fresh := filepath.Join(mnt, "old"), filepath.Join(mnt, "fresh")
	for _, name := range []string{"old", "other", "kept"} {
		// What is not synced waits for its writer when the server is back. (The kernel does not
		// tell FUSE file systems of syncfs.)
		where, err := writeInPieces(filepath.Join(c.mnt, name), record(1, 1, 8<<20), 1<<20, true)
		if err != nil {
			t.Fatal(where, err)
		}
	}
	back := c.loseServer(t, "iod2")

	fails := func(what string, do func() error) {
		t.Helper()
		took, err := timed(do)
		t.Logf("%s: %v after %v", what, err, took)
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v, want an input/output error", what, err)
		}
		if took < goneFor/2 || took > 4*goneFor+busyMax {
			t.Errorf("%s: failed after %v, programs wait for %v", what, took, goneFor)
		}
	}
	fails("read", func() error {
		_, err := os.ReadFile(old)
		return err
	})
	fails("write and sync", func() error {
		f, err := os.OpenFile(old, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.Write(record(2, 2, 4<<20))
		return errors.Join(err, f.Sync(), f.Close())
	})
	patient := filepath.Join(c.mnt, "other") // on a mount that waits for a minute
	killedWhileWaiting(t, exec.Command("dd", "if="+patient, "of=/dev/null", "bs=1M", "iflag=direct"))
	killedWhileWaiting(t, exec.Command("dd", "if=/dev/zero", "of="+patient, "bs=1M", "count=4",
		"conv=notrunc,fsync"))

	// New files are put where somebody is.
	must(t, os.WriteFile(fresh, record(3, 3, 1<<20), 0o644))
	must(t, os.Mkdir(filepath.Join(mnt, "dir"), 0o755))
	must(t, os.WriteFile(filepath.Join(mnt, "dir", "small"), []byte("small"), 0o644))
	must(t, os.Rename(filepath.Join(mnt, "dir", "small"), filepath.Join(mnt, "dir", "renamed")))
	must(t, os.Remove(fresh))

	back()
	c.awaitReady(t, c.opts)
	c.within(t, "what was there is read", func() error {
		data, err := os.ReadFile(filepath.Join(mnt, "kept"))
		if err == nil && string(data) != string(record(1, 1, 8<<20)) {
			t.Fatal("other bytes")
		}
		return err
	})
	c.within(t, "writing works", func() error {
		return os.WriteFile(old, record(3, 3, 4<<20), 0o644)
	})
}

// killedWhileWaiting starts a program that waits for a server for a long time, and kills it.
func killedWhileWaiting(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		t.Errorf("%v did not wait: %v", cmd.Args, err)
		return
	case <-time.After(2 * time.Second):
	}
	took, _ := timed(func() error {
		must(t, cmd.Process.Kill())
		return <-done
	})
	t.Logf("%v: dead after %v", cmd.Args, took)
	if took > busyMax { // it would have waited for a minute
		t.Errorf("%v: killed, and dead only after %v", cmd.Args, took)
	}
}
