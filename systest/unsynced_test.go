package systest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const unsyncedBytes = 2 << 20 // of each file, and of the volume

// TestKillWithUnsyncedWrites kills I/O servers while programs write and never sync. No program may
// see an error, and what was acknowledged is there after every kill: the mount and the gateway,
// which live, have kept it and sent it again. In the end everything is synced, all servers are
// killed at once, and it is there still. Rounds and seed can be set by SLUICE_KILL_ROUNDS and
// SLUICE_SEED.
func TestKillWithUnsyncedWrites(t *testing.T) {
	t.Parallel()
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	rounds := max(envInt("SLUICE_KILL_ROUNDS", 50)/10, 1)
	t.Logf("seed %d, %d rounds (SLUICE_SEED, SLUICE_KILL_ROUNDS)", seed, rounds)
	rng := rand.New(rand.NewPCG(seed, 11))
	opts := clusterOptions{iods: 3, mount: true}
	c := startCluster(t, opts)
	c.sluice(t, "volume", "create", "disk", strconv.Itoa(unsyncedBytes))
	programs := []*unsynced{newBlockProgram(t, c, rng.Uint64())}
	for i := range 2 {
		programs = append(programs, newFileProgram(t, c, fmt.Sprintf("unsynced-%d", i), rng.Uint64()))
	}
	for range rounds {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, p := range programs {
			wg.Go(func() { p.run(t, stop) })
		}
		time.Sleep(time.Duration(50+rng.IntN(200)) * time.Millisecond)
		killServers(t, c, func(int) bool { return rng.IntN(2) == 0 })
		time.Sleep(time.Duration(50+rng.IntN(300)) * time.Millisecond)
		close(stop)
		wg.Wait()
		c.awaitReady(t, opts)
		for _, p := range programs {
			p.verify(t)
		}
		if t.Failed() {
			t.Fatalf("seed %d\n%s", seed, c.logs())
		}
	}
	for _, p := range programs {
		must(t, p.sync())
	}
	killServers(t, c, func(int) bool { return true })
	c.awaitReady(t, opts)
	for _, p := range programs {
		p.verify(t)
		t.Logf("%s: %d writes", p.name, p.writes)
	}
}

// killServers kills the I/O servers that want names, at least one.
func killServers(t *testing.T, c *cluster, want func(i int) bool) {
	st, err := c.state()
	must(t, err)
	killed := 0
	for i, p := range st.Processes {
		if strings.HasPrefix(p.Name, "iod") && p.PID > 0 && want(i) {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
			killed++
		}
	}
	if killed == 0 {
		killServers(t, c, func(int) bool { return true })
	}
}

// unsynced is a program that writes without ever syncing, and knows what it wrote.
type unsynced struct {
	name   string
	rng    *rand.Rand
	model  []byte
	writes int

	write func(p []byte, off int64) error
	read  func(p []byte, off int64) error
	sync  func() error
}

func newFileProgram(t *testing.T, c *cluster, name string, seed uint64) *unsynced {
	path := filepath.Join(c.mnt, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	must(t, f.Truncate(unsyncedBytes))
	// Reads pass by the kernel's pages: what they see is what the servers have.
	direct, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	must(t, err)
	t.Cleanup(func() { direct.Close() })
	aligned, err := unix.Mmap(-1, 0, unsyncedBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(aligned) })
	return &unsynced{name: name, rng: rand.New(rand.NewPCG(seed, 1)),
		model: make([]byte, unsyncedBytes), sync: f.Sync,
		write: func(p []byte, off int64) error { _, err := f.WriteAt(p, off); return err },
		read: func(p []byte, off int64) error {
			_, err := direct.ReadAt(aligned[:len(p)], off)
			copy(p, aligned)
			return err
		}}
}

func newBlockProgram(t *testing.T, c *cluster, seed uint64) *unsynced {
	sock := filepath.Join(t.TempDir(), "nbd.sock")
	c.startNBD(t, sock, "name=disk,volume=disk")
	client, err := dialNBD("unix", sock, "disk")
	must(t, err)
	t.Cleanup(client.close)
	return &unsynced{name: "volume", rng: rand.New(rand.NewPCG(seed, 2)),
		model: make([]byte, unsyncedBytes), sync: client.flush,
		write: func(p []byte, off int64) error { return client.write(p, uint64(off), false) },
		read:  func(p []byte, off int64) error { return client.read(p, uint64(off)) }}
}

// run writes until stop.
func (u *unsynced) run(t *testing.T, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		off := u.rng.IntN(unsyncedBytes - 1)
		n := 1 + u.rng.IntN(min(96<<10, unsyncedBytes-off))
		if u.rng.IntN(2) == 0 {
			n = min(n, 4<<10)
		}
		p := u.model[off : off+n]
		for i := range p {
			p[i] = byte(u.rng.Uint32())
		}
		if err := u.write(p, int64(off)); err != nil {
			t.Errorf("%s: %v", u.name, err)
			return
		}
		u.writes++
	}
}

// verify compares all bytes with what was written last.
func (u *unsynced) verify(t *testing.T) {
	got := make([]byte, unsyncedBytes)
	const step = 256 << 10
	for off := 0; off < len(got); off += step {
		if err := u.read(got[off:off+step], int64(off)); err != nil {
			t.Errorf("%s: read at %d: %v", u.name, off, err)
			return
		}
	}
	if bytes.Equal(got, u.model) {
		return
	}
	for i := range got {
		if got[i] != u.model[i] {
			t.Errorf("%s: byte %d is %d, want %d", u.name, i, got[i], u.model[i])
			return
		}
	}
}
