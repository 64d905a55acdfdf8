package systest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const nbdESHUTDOWN = 108

// pieces of a volume that writers compete for.
const (
	contested     = 16
	contestedSize = 64 << 10
)

// contest writes to a volume through a gateway as fast as it can until that refuses it.
func contest(t *testing.T, sock string, fill byte, wrote *atomic.Int64) error {
	t.Helper()
	c, err := dialNBD("unix", sock, "disk")
	if err != nil {
		return err
	}
	defer c.close()
	p := bytes.Repeat([]byte{fill}, contestedSize)
	for i := 0; ; i++ {
		if err := c.write(p, uint64(i%contested)<<20, i%5 == 0); err != nil {
			return err
		}
		wrote.Add(1)
	}
}

// kill kills a process of the cluster, which may just be starting again.
func (c *cluster) kill(t *testing.T, name string) {
	t.Helper()
	for try := 0; !c.killNamed(name); try++ {
		if try == 1000 {
			t.Fatalf("there is no %s", name)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// holdsOnly checks that all contested pieces are those of one writer.
func holdsOnly(t *testing.T, sock string, fill byte, when string) {
	t.Helper()
	c, err := dialNBD("unix", sock, "disk")
	must(t, err)
	defer c.close()
	got, want := make([]byte, contestedSize), bytes.Repeat([]byte{fill}, contestedSize)
	for i := range contested {
		must(t, c.read(got, uint64(i)<<20))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: piece %d is not the present writer's", when, i)
		}
	}
}

// TestDeposedGateway: a gateway that stands still under load is taken over from. When it goes on,
// all that it still sends is refused at the I/O servers, also by those that were killed since they
// heard of it, and nothing that its successor has written changes.
func TestDeposedGateway(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 4})
	c.sluice(t, "volume", "create", "disk", "16M")
	dir := t.TempDir()
	old, next := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	first := c.startNBD(t, old, "name=disk,volume=disk")
	var wrote atomic.Int64
	var wg sync.WaitGroup
	ends := make([]error, 4)
	for i := range ends {
		wg.Go(func() { ends[i] = contest(t, old, byte(i+1), &wrote) })
	}
	for wrote.Load() < 50 {
		time.Sleep(5 * time.Millisecond)
	}
	must(t, syscall.Kill(first.Process.Pid, syscall.SIGSTOP))
	running := false
	defer func() {
		if !running {
			_ = syscall.Kill(first.Process.Pid, syscall.SIGCONT)
		}
	}()

	c.sluice(t, "volume", "handover", "--force", "disk")
	c.kill(t, "iod2") // it is fenced, nobody is granted
	c.startNBD(t, next, "name=disk,volume=disk")
	b, err := dialNBD("unix", next, "disk")
	must(t, err)
	defer b.close()
	for i := range contested {
		must(t, b.write(bytes.Repeat([]byte{0xbb}, contestedSize), uint64(i)<<20, i%2 == 0))
	}
	c.kill(t, "iod3")
	must(t, b.flush())
	must(t, syscall.Kill(first.Process.Pid, syscall.SIGCONT))
	running = true
	wg.Wait()
	for _, err := range ends {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("nbd error ", nbdESHUTDOWN)) {
			t.Errorf("a client of the deposed gateway hears: %v", err)
		}
	}
	holdsOnly(t, next, 0xbb, "behind the deposed gateway's last words")
	for i := 1; i <= 4; i++ {
		c.kill(t, fmt.Sprint("iod", i))
	}
	holdsOnly(t, next, 0xbb, "behind a restart of all servers")
}

// TestHandover: a gateway that stands by takes a volume over with its first write; the one that had
// it makes durable what it has acknowledged, and its clients hear that it is shut down.
func TestHandover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2})
	c.sluice(t, "volume", "create", "disk", "16M")
	dir := t.TempDir()
	old, next := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	c.startNBD(t, old, "name=disk,volume=disk")
	a, err := dialNBD("unix", old, "disk")
	must(t, err)
	defer a.close()
	for i := range contested {
		must(t, a.write(bytes.Repeat([]byte{0xaa}, contestedSize), uint64(i)<<20, false))
	}
	c.startNBD(t, next, "name=disk,volume=disk,standby")
	holdsOnly(t, next, 0xaa, "read by who stands by")
	b, err := dialNBD("unix", next, "disk")
	must(t, err)
	defer b.close()
	must(t, b.write(bytes.Repeat([]byte{0xbb}, contestedSize), 0, true))
	err = a.write(bytes.Repeat([]byte{0xcc}, contestedSize), 1<<20, false)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint("nbd error ", nbdESHUTDOWN)) {
		t.Errorf("a client of the gateway that has handed over hears: %v", err)
	}
	for i := 1; i <= 2; i++ {
		c.kill(t, fmt.Sprint("iod", i))
	}
	got := make([]byte, contestedSize)
	for i := range contested {
		want := byte(0xaa)
		if i == 0 {
			want = 0xbb
		}
		must(t, b.read(got, uint64(i)<<20))
		if !bytes.Equal(got, bytes.Repeat([]byte{want}, contestedSize)) {
			t.Errorf("piece %d begins with %#x, want %#x", i, got[0], want)
		}
	}
	c.sluice(t, "volume", "handover", "disk")
	if err := b.flush(); err == nil {
		t.Error("a flush behind a handover succeeded")
	}
}
