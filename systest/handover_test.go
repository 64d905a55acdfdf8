package systest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serverOf is the process that serves a mount, the child of its keeper; 0: there is none.
func serverOf(keeper int) int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", keeper))
	for _, name := range tasks {
		text, _ := os.ReadFile(name)
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				return pid
			}
		}
	}
	return 0
}

// slay kills a process, between any two instructions of it but not while the kernel copies a
// request to it or an answer from it: the kernel makes an error of that (EIO), which is not ours.
func slay(t *testing.T, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	for deadline := time.Now().Add(readyLimit); !allStopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// allStopped tells whether all threads of a process are.
func allStopped(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range tasks {
		text, _ := os.ReadFile(name)
		if _, rest, ok := strings.Cut(string(text), ") "); !ok || !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return len(tasks) > 0
}

// awaitServed returns when a mount is served by another process than one.
func awaitServed(t *testing.T, mnt string, keeper, not int) {
	t.Helper()
	for deadline := time.Now().Add(readyLimit); ; time.Sleep(10 * time.Millisecond) {
		if pid := serverOf(keeper); pid != 0 && pid != not {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no other process serves the mount")
		}
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(mnt, &st))
}

// TestMountKilled: the process that serves a mount is killed again and again while programs use it.
// They wait, and go on; all that they hear of it is that fsync tells what was lost.
func TestMountKilled(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	keeper := c.pidOf(t, "mount")
	u := startUsers(t, c.mnt, true)
	kills := envInt("SLUICE_MOUNT_KILLS", 8)
	r := rand.New(rand.NewPCG(u.seed, 99))
	for range kills {
		time.Sleep(time.Duration(100+r.IntN(700)) * time.Millisecond)
		pid := serverOf(keeper)
		if pid == 0 {
			t.Fatal("nobody serves the mount")
		}
		slay(t, pid)
		awaitServed(t, c.mnt, keeper, pid)
		if t.Failed() {
			break
		}
	}
	u.end()
	if c.pidOf(t, "mount") != keeper {
		t.Error("the mount was started anew")
	}
}

// TestMountUpgraded: a mount is handed to another process while programs use it, and they hear
// nothing of it.
func TestMountUpgraded(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	keeper := c.pidOf(t, "mount")
	u := startUsers(t, c.mnt, false)
	for i := range envInt("SLUICE_MOUNT_UPGRADES", 4) {
		time.Sleep(300 * time.Millisecond)
		pid := serverOf(keeper)
		if i%2 == 0 {
			c.within(t, "the mount is upgraded", func() error { // not while it is being started
				out, err := exec.Command(c.bin, "mount", "--upgrade", c.mnt).CombinedOutput()
				if err != nil && !strings.Contains(string(out), "being started") {
					t.Fatalf("%v: %s", err, out)
				}
				return err
			})
		} else {
			c.within(t, "the mount is upgraded", func() error {
				must(t, syscall.Kill(keeper, syscall.SIGHUP)) // it only logs that it cannot at the moment
				for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
					if now := serverOf(keeper); now != 0 && now != pid {
						return nil
					}
					time.Sleep(5 * time.Millisecond)
				}
				return errors.New("the same process serves")
			})
		}
		awaitServed(t, c.mnt, keeper, pid)
		if t.Failed() {
			break
		}
	}
	u.end()
	if c.pidOf(t, "mount") != keeper {
		t.Error("the mount was started anew")
	}
}

// TestMountLoss: data that was written and was nowhere but in the process is told as lost by every
// close, and once by the fsync of each handle; what was synced is there.
func TestMountLoss(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	keeper := c.pidOf(t, "mount")
	name := filepath.Join(c.mnt, "f")
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	g, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	for lost := 0; lost < 3; {
		_, err = f.WriteAt([]byte("synced"), 0)
		must(t, err)
		must(t, f.Sync())
		pid := serverOf(keeper)
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		awaitServed(t, c.mnt, keeper, pid)
		must(t, f.Sync()) // nothing was lost
		must(t, g.Sync())
		pid = serverOf(keeper)
		_, err = f.WriteAt([]byte("nowhere"), 100)
		must(t, err)
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		awaitServed(t, c.mnt, keeper, pid)
		err = f.Sync()
		if err == nil {
			continue // it had been told to the service already
		}
		lost++
		if !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		must(t, f.Sync())
		if err := unix.Close(dup(t, g)); !errors.Is(err, syscall.EIO) {
			t.Fatalf("another handle's close: %v", err)
		}
		if err := g.Sync(); !errors.Is(err, syscall.EIO) { // whoever closed it may not have cared
			t.Fatalf("another handle's fsync: %v", err)
		}
		must(t, g.Sync())
		got := make([]byte, 6)
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != "synced" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	must(t, g.Close())
}

func dup(t *testing.T, f *os.File) int {
	t.Helper()
	fd, err := unix.Dup(int(f.Fd()))
	must(t, err)
	return fd
}

// standAlone mounts a cluster by a keeper that the test has started, and returns it once the mount
// is served.
func standAlone(t *testing.T, c *cluster, extra ...string) (mnt string, cmd *exec.Cmd,
	said *bytes.Buffer) {
	t.Helper()
	mnt = filepath.Join(t.TempDir(), "mnt")
	args := append([]string{"mount", "--secret", filepath.Join(c.dir, "cluster.secret")}, extra...)
	cmd = exec.Command(c.bin, append(args, c.url, mnt)...)
	said = &bytes.Buffer{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(t, cmd.Start())
	served := make(chan error, 1)
	go func() { // it is mounted before, but a process that dies then ends it
		_, err := out.Read(make([]byte, 1))
		served <- err
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = unix.Unmount(mnt, unix.MNT_DETACH)
		if t.Failed() {
			t.Logf("the mount said:\n%s", said)
		}
	})
	select {
	case err = <-served:
		must(t, err)
	case <-time.After(readyLimit):
		t.Fatal("it is not served") // what it said is told when it has ended
	}
	if !mounted(mnt) {
		t.Fatal("it is not mounted")
	}
	return mnt, cmd, said
}

// asks tells how a request to a mount ends, or that it does not.
func asks(mnt string) <-chan error {
	answer := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		answer <- unix.Statfs(mnt, &st)
	}()
	return answer
}

// TestMountNobodyServes: what happens while no process serves a mount: programs wait, it can be
// unmounted, and it is taken away when nobody comes.
func TestMountNobodyServes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 1})
	for _, one := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{{"stopped", serverStopped}, {"unmounted", unmountedUnserved}, {"interrupted", keeperInterrupted},
		{"keeper killed", keeperKilled}, {"given up", givenUp}} {
		t.Run(one.name, func(t *testing.T) { one.run(t, c) })
	}
}

func serverStopped(t *testing.T, c *cluster) {
	mnt, cmd, _ := standAlone(t, c)
	pid := serverOf(cmd.Process.Pid)
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	c.await(t, "the process to stop", func() bool { // its threads take a moment
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return err == nil && strings.Contains(string(status), "State:\tT")
	})
	answer := asks(mnt)
	killed := exec.Command("stat", "-f", mnt)
	must(t, killed.Start())
	select {
	case err := <-answer:
		t.Fatalf("answered by nobody: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	must(t, killed.Process.Kill())
	// A request that was taken waits for its answer, whoever asks; the process ends with it.
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	must(t, <-answer)
	_ = killed.Wait()
}

func unmountedUnserved(t *testing.T, c *cluster) {
	mnt, cmd, said := standAlone(t, c)
	must(t, syscall.Kill(serverOf(cmd.Process.Pid), syscall.SIGSTOP))
	run(t, "", c.bin, "umount", mnt)
	must(t, syscall.Kill(serverOf(cmd.Process.Pid), syscall.SIGCONT))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

func keeperInterrupted(t *testing.T, c *cluster) {
	mnt, cmd, said := standAlone(t, c)
	must(t, syscall.Kill(serverOf(cmd.Process.Pid), syscall.SIGSTOP))
	answer := asks(mnt)
	time.Sleep(100 * time.Millisecond)
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	<-answer
	if err := cmd.Wait(); err != nil || mounted(mnt) {
		t.Fatalf("%v\n%s", err, said)
	}
}

func keeperKilled(t *testing.T, c *cluster) {
	mnt, cmd, _ := standAlone(t, c)
	f, err := os.Create(filepath.Join(mnt, "f"))
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("kept")
	must(t, err)
	pid := serverOf(cmd.Process.Pid)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for deadline := time.Now().Add(readyLimit); syscall.Kill(pid, 0) == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the process that serves lives on")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if mounted(mnt) {
		t.Fatal("it is still mounted")
	}
	if got := c.sluice(t, "cat", "/f"); got != "kept" {
		t.Fatalf("%q is there", got)
	}
}

func givenUp(t *testing.T, c *cluster) {
	bin := filepath.Join(t.TempDir(), "sluice")
	data, err := os.ReadFile(c.bin)
	must(t, err)
	must(t, os.WriteFile(bin, data, 0o755))
	own := *c
	own.bin = bin
	mnt, cmd, said := standAlone(t, &own, "--give-up", "3s")
	must(t, os.Chmod(filepath.Join(c.dir, "cluster.secret"), 0o600))
	secret := filepath.Join(c.dir, "cluster.secret")
	must(t, os.Rename(secret, secret+".away")) // so that no process comes to serve
	defer func() { must(t, os.Rename(secret+".away", secret)) }()
	must(t, syscall.Kill(serverOf(cmd.Process.Pid), syscall.SIGKILL))
	answer := asks(mnt)
	if err := <-answer; err == nil {
		t.Fatal("somebody has answered")
	}
	if err := cmd.Wait(); err == nil || mounted(mnt) {
		t.Fatalf("%v, %v\n%s", err, mounted(mnt), said)
	}
	if !strings.Contains(said.String(), "taken away") {
		t.Fatalf("it does not say what it did:\n%s", said)
	}
}
