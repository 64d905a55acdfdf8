package systest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile takes or releases a lock of an open file on one byte, and waits for it.
func lockFile(f *os.File, typ int16, at int64) error {
	l := unix.Flock_t{Type: typ, Start: at, Len: 1}
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &l)
		if err != unix.EINTR {
			return err
		}
	}
}

// raise adds one to a counter in a file, under a lock.
func raise(f *os.File, at int64) error {
	if err := lockFile(f, unix.F_WRLCK, at); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	var b [8]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	binary.LittleEndian.PutUint64(b[:], binary.LittleEndian.Uint64(b[:])+1)
	if _, err := f.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return lockFile(f, unix.F_UNLCK, at)
}

// TestLocksSurviveRestarts: programs of two mounts raise counters under locks, while the metadata
// service is killed again and again. Nobody's lock is lost, nobody gets another one's.
func TestLocksSurviveRestarts(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	dirs := []string{c.mnt, c.startMount(t)}
	must(t, os.WriteFile(filepath.Join(dirs[0], "n"), make([]byte, 16), 0o644))
	var done atomic.Bool
	var raised [2]atomic.Int64
	var wg sync.WaitGroup
	for who := range 4 {
		f, err := os.OpenFile(filepath.Join(dirs[who%2], "n"), os.O_RDWR, 0)
		must(t, err)
		wg.Go(func() {
			defer f.Close()
			for i := 0; !done.Load(); i++ {
				if err := raise(f, int64(8*(i%2))); err != nil {
					t.Errorf("writer %d: %v", who, err)
					return
				}
				raised[i%2].Add(1)
			}
		})
	}
	for range soakRounds(3) {
		was := raised[0].Load()
		c.await(t, "counting", func() bool { return raised[0].Load() > was+5 || t.Failed() })
		pid := c.pidOf(t, "meta")
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		awaitDeath(t, pid)
	}
	was := raised[0].Load()
	c.await(t, "counting", func() bool { return raised[0].Load() > was+5 || t.Failed() })
	done.Store(true)
	wg.Wait()
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "n"))
		must(t, err)
		for i := range raised {
			if n := binary.LittleEndian.Uint64(b[8*i:]); n != uint64(raised[i].Load()) {
				t.Errorf("%s: counter %d is %d, raised %d times", dir, i, n, raised[i].Load())
			}
		}
	}
}

// soakRounds is how many rounds a test with kills takes: more where SLUICE_LOCK_ROUNDS says so.
func soakRounds(n int) int { return envInt("SLUICE_LOCK_ROUNDS", n) }

// TestLockOfKilledMount: the lock of a program on a mount that was killed is free as soon as the
// service sees that the mount's process is dead, and not only when its lease is over.
func TestLockOfKilledMount(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 1, mount: true})
	other := c.startMount(t)
	must(t, os.WriteFile(filepath.Join(other, "n"), make([]byte, 8), 0o644))
	held, err := os.OpenFile(filepath.Join(c.mnt, "n"), os.O_RDWR, 0)
	must(t, err)
	defer held.Close()
	must(t, lockFile(held, unix.F_WRLCK, 0))
	f, err := os.OpenFile(filepath.Join(other, "n"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	got := make(chan error, 1)
	go func() { got <- raise(f, 0) }()
	select {
	case err := <-got:
		t.Fatalf("both have it: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, syscall.Kill(c.pidOf(t, "mount"), syscall.SIGKILL))
	killed := time.Now()
	select {
	case err := <-got:
		must(t, err)
		t.Logf("free after %v", time.Since(killed))
	case <-time.After(time.Minute): // less than the lease of a session and of its capabilities
		t.Fatal("the lock of a dead mount is kept")
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(c.mnt, "n")); err == nil {
			return
		}
	}
	t.Error("the mount did not come back")
}

// TestDownAfterAKilledMount: a cluster that is stopped before a killed mount was made anew leaves
// nothing mounted; cluster.stop looks.
func TestDownAfterAKilledMount(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 1, mount: true})
	pid := c.pidOf(t, "mount")
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitDeath(t, pid)
}

// TestAppendsAndKills: two mounts append to one file while the metadata service and an I/O server
// are killed. Each record that was acknowledged is there once, whole, in the order of its writer.
func TestAppendsAndKills(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	dirs := []string{c.mnt, c.startMount(t)}
	const length = 600
	line := func(who, i int) string {
		head := fmt.Sprintf("\nwriter %d record %d ", who, i)
		return head + strings.Repeat(string(rune('a'+who)), length-len(head))
	}
	var done atomic.Bool
	var counts [4]atomic.Int64
	var wg sync.WaitGroup
	for who := range counts {
		f, err := os.OpenFile(filepath.Join(dirs[who%2], "log"),
			os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		must(t, err)
		wg.Go(func() {
			for i := 0; !done.Load(); i++ {
				if _, err := f.WriteString(line(who, i)); err != nil {
					t.Errorf("writer %d: %v", who, err)
					break
				}
				counts[who].Add(1)
			}
			if err := f.Close(); err != nil {
				t.Errorf("writer %d: %v", who, err)
			}
		})
	}
	for i := range soakRounds(4) {
		was := counts[0].Load()
		c.await(t, "appends", func() bool { return counts[0].Load() > was+20 || t.Failed() })
		pid := c.pidOf(t, []string{"meta", "iod1"}[i%2])
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		awaitDeath(t, pid)
	}
	was := counts[0].Load()
	c.await(t, "appends", func() bool { return counts[0].Load() > was+20 || t.Failed() })
	done.Store(true)
	wg.Wait()
	got, err := readPatiently(filepath.Join(dirs[0], "log"))
	must(t, err)
	text := string(got)
	for who := range counts {
		last := -1
		for i := range int(counts[who].Load()) {
			at := strings.Index(text, line(who, i))
			if at <= last || strings.Count(text, line(who, i)) != 1 {
				t.Fatalf("record %d of writer %d is at %d, the one before at %d", i, who, at, last)
			}
			last = at
		}
	}
}
