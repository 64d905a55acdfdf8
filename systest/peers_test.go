package systest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestKilledClientLeavesNothing kills gateways in the middle of their requests, while the servers
// map their memory and hold slots for them. All of it must come back.
func TestKilledClientLeavesNothing(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 2})
	c.sluice(t, "volume", "create", "disk", "64M")
	c.sluice(t, "volume", "clone", "disk", "copy") // the metadata service knows the servers then
	before := c.answered(t)
	for round := range 3 {
		sock := filepath.Join(t.TempDir(), fmt.Sprintf("n%d", round))
		gate := c.startNBD(t, sock, "name=disk,volume=disk")
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() { busyUntilDead(sock, worker) })
		}
		c.await(t, "servers map the gateway's memory", func() bool { return c.mapped(t) > 0 })
		must(t, gate.Process.Kill())
		wg.Wait()
		c.wantNothingMapped(t)
	}
	c.await(t, "connections and slots come back", func() bool {
		st, err := c.state()
		return err == nil && st.count("connections_shm") <= before.count("connections_shm") &&
			st.count("eager_bytes") == 0 && st.count("lent_bytes") == 0
	})
}

// busyUntilDead reads and writes through a gateway, in large and in small requests, until it is
// gone.
func busyUntilDead(sock string, worker int) {
	c, err := dialNBD("unix", sock, "disk")
	if err != nil {
		return
	}
	defer c.close()
	large, small := make([]byte, 1<<20), make([]byte, 16<<10)
	for i := 0; ; i++ {
		off := uint64(worker*16+i%16) << 20
		for _, p := range [][]byte{large, small} {
			if c.write(p, off, false) != nil || c.read(p, off) != nil {
				return
			}
		}
	}
}

// mapped counts the arenas of clients that servers map.
func (c *cluster) mapped(t *testing.T) (arenas int) {
	t.Helper()
	st, err := c.state()
	must(t, err)
	for _, p := range st.Processes {
		if p.Name == "meta" || strings.HasPrefix(p.Name, "iod") {
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
			must(t, err)
			arenas += strings.Count(string(maps), "memfd:sluice-arena")
		}
	}
	return arenas
}

// wantNothingMapped waits until servers map no memory of clients any more. Connections between the
// cluster's own processes have rings and no arenas.
func (c *cluster) wantNothingMapped(t *testing.T) {
	t.Helper()
	c.await(t, "servers map nothing of clients that are gone", func() bool {
		return c.mapped(t) == 0
	})
}

func (c *cluster) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(readyLimit); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestAnotherUserGoesByTCP runs a gateway as a user who may not use the cluster's sockets. Where
// all users are trusted it works all the same, and its log tells why it uses no shared memory.
func TestAnotherUserGoesByTCP(t *testing.T) {
	p := newPerson(t, nobody)
	c := startCluster(t, clusterOptions{iods: 1, extra: []string{"--trust-local"}})
	c.status(t, "--trust-local") // it warns
	sock := filepath.Join(p.dir, "sock")
	at := []string{"--trust-local", "--url", c.url}
	p.mustFail([]string{"cluster.secret", "--trust-local"}, "volume", "ls", "--url", c.url)
	p.mustRun(append([]string{"volume", "create", "disk", "4M"}, at...)...)
	var log bytes.Buffer
	cmd := p.command(append([]string{"nbd", "--listen", "unix:" + sock, "--export",
		"name=disk,volume=disk"}, at...)...)
	cmd.Stderr = &log
	must(t, cmd.Start())
	c.await(t, "the gateway listens", func() bool { return listens(sock) })
	conn, err := dialNBD("unix", sock, "disk")
	if err == nil {
		want, got := record(7, 7, 1<<20), make([]byte, 1<<20)
		if err = conn.write(want, 0, false); err == nil {
			err = conn.read(got, 0)
		}
		if err == nil && !bytes.Equal(got, want) {
			t.Error("other bytes came back")
		}
		conn.close()
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	waited := cmd.Wait()
	if err != nil || waited != nil {
		t.Fatalf("as another user: %v, %v\n%s", err, waited, &log)
	}
	if text := log.String(); !strings.Contains(text, "a better way to the peer was not taken") ||
		!strings.Contains(text, "provider=shm") || !strings.Contains(text, "permission denied") {
		t.Errorf("the log does not tell why shm was not taken:\n%s", text)
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
}
