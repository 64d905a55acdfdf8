package systest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// pidOf is the process of one part of the cluster.
func (c *cluster) pidOf(t *testing.T, name string) int {
	t.Helper()
	st, err := c.state()
	must(t, err)
	for _, p := range st.Processes {
		if p.Name == name && p.PID > 0 {
			return p.PID
		}
	}
	t.Fatalf("there is no process %s: %+v", name, st.Processes)
	return 0
}

// stopFor stops a process for a while: it is alive, but answers nothing.
func stopFor(t *testing.T, pid int, d time.Duration) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer func() { must(t, syscall.Kill(pid, syscall.SIGCONT)) }()
	time.Sleep(d)
}

// soak is d, or with SLUICE_SOAK the longer one.
func soak(d, long time.Duration) time.Duration {
	if os.Getenv("SLUICE_SOAK") != "" {
		return long
	}
	return d
}

// TestStoppedMetadataIsWaitedFor stops the metadata service under a load of names, for longer than
// a connection stays without an answer, a dial lasts and a session lives. Nothing fails: everything
// waits, and is done after it.
func TestStoppedMetadataIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	pid := c.pidOf(t, "meta")
	kept, err := os.Create(filepath.Join(c.mnt, "kept"))
	must(t, err)
	defer kept.Close()

	stop := make(chan struct{})
	var wg sync.WaitGroup
	var rounds, failed atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for k := 0; failed.Load() == 0; k++ {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				if err := nameRound(filepath.Join(c.mnt, fmt.Sprint("w", i)), k); err != nil {
					failed.Add(1)
					t.Errorf("worker %d, round %d, after %v: %v", i, k, time.Since(began), err)
					return
				}
				rounds.Add(1)
			}
		})
	}
	time.Sleep(time.Second)
	stopFor(t, pid, soak(33*time.Second, 50*time.Second))
	before, resumed := rounds.Load(), time.Now()
	for deadline := time.Now().Add(time.Minute); rounds.Load() < before+16 && failed.Load() == 0; {
		if time.Now().After(deadline) {
			t.Errorf("%d rounds in the minute after the pause", rounds.Load()-before)
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d rounds before and %d within %v after the pause", before, rounds.Load()-before,
		time.Since(resumed))
	close(stop)
	wg.Wait()
	if _, err := kept.Write([]byte("still open")); err != nil {
		t.Errorf("a file that was open all the time: %v", err)
	}
	if err := kept.Sync(); err != nil {
		t.Errorf("a file that was open all the time: %v", err)
	}
	t.Logf("all done %v after the pause", time.Since(resumed))
}

// nameRound is what programs do with names: each step depends on the one before.
func nameRound(dir string, k int) error {
	file := filepath.Join(dir, "f")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(f, k); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		return fmt.Errorf("readdir: %d entries, %w", len(list), err)
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != fmt.Sprint(k) {
		return fmt.Errorf("read %q of round %d: %w", got, k, err)
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	return os.Remove(dir)
}
