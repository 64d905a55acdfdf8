package systest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMountKilledWriteback: with --cache writeback what programs write lies in the kernel, and
// outlives the process that serves. They hear of what had left the kernel and was lost, by fsync.
func TestMountKilledWriteback(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2})
	mnt, cmd, _ := standAlone(t, c, "--cache", "writeback")
	keeper := cmd.Process.Pid
	f, err := os.Create(filepath.Join(mnt, "f"))
	must(t, err)
	defer f.Close()
	u := startUsers(t, mnt, true)
	for i := range envInt("SLUICE_MOUNT_KILLS", 5) {
		data := record(uint64(i), 1, 300<<10)
		_, err := f.WriteAt(data, int64(i)*100<<10)
		must(t, err)
		pid := serverOf(keeper)
		slay(t, pid)
		awaitServed(t, mnt, keeper, pid)
		err = f.Sync()
		if errors.Is(err, syscall.EIO) {
			_, err = f.WriteAt(data, int64(i)*100<<10)
			must(t, err)
			err = f.Sync()
		}
		must(t, err)
		got := []byte(c.sluice(t, "cat", "/f"))
		if len(got) < i*100<<10 || !bytes.Equal(got[i*100<<10:], data) {
			t.Fatalf("round %d: what fsync has promised is not at the servers", i)
		}
		time.Sleep(200 * time.Millisecond) // let the others work
	}
	u.end()
}

// TestMountAndServerKilled: what was written and not synced is at the I/O server, and in the
// process that serves the mount. An fsync after the death of one says nothing, and after the death
// of both that it may be lost, once.
func TestMountAndServerKilled(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 1, mount: true})
	keeper := c.pidOf(t, "mount")
	f, err := os.OpenFile(filepath.Join(c.mnt, "f"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o644)
	must(t, err)
	defer f.Close()
	g, err := os.OpenFile(filepath.Join(c.mnt, "f"), os.O_RDWR, 0)
	must(t, err)
	defer g.Close()
	page, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	defer unix.Munmap(page)
	for _, one := range []struct {
		name            string
		sync, both      bool
		wanted, wanted2 error
	}{
		{"mount", false, false, nil, nil},
		{"both", false, true, syscall.EIO, syscall.EIO},
		{"both, synced before", true, true, nil, nil},
		{"both again", false, true, syscall.EIO, syscall.EIO},
	} {
		server := c.pidOf(t, "iod1")
		copy(page, one.name)
		_, err := f.WriteAt(page, 0) // which the client syncs by itself after some seconds
		must(t, err)
		if one.sync {
			must(t, g.Sync())
		}
		killTogether(t, c, keeper, server, one.both)
		if err := f.Sync(); !errors.Is(err, one.wanted) {
			t.Fatalf("%s: fsync says %v, want %v", one.name, err, one.wanted)
		}
		if err := g.Sync(); !errors.Is(err, one.wanted2) {
			t.Fatalf("%s: another handle's fsync says %v, want %v", one.name, err, one.wanted2)
		}
		must(t, f.Sync())
		must(t, g.Sync())
	}
}

// killTogether kills the process that serves a mount, and an I/O server with it, so that neither
// does anything about the death of the other one.
func killTogether(t *testing.T, c *cluster, keeper, server int, both bool) {
	t.Helper()
	pid := serverOf(keeper)
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	c.await(t, "it is stopped", func() bool { return allStopped(pid) })
	if both {
		must(t, syscall.Kill(server, syscall.SIGKILL))
		defer c.awaitSuccessor(t, "iod1", server)
	}
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitServed(t, c.mnt, keeper, pid)
}

// owned is a mount of a user.
type owned struct {
	p    *person
	mnt  string
	cmd  *exec.Cmd
	said bytes.Buffer
}

// mountAs mounts a cluster that trusts all users of the host, by fusermount3.
func (p *person) mountAs(c *cluster, name string) *owned {
	p.t.Helper()
	m := &owned{p: p, mnt: filepath.Join(p.dir, name)}
	must(p.t, os.Mkdir(m.mnt, 0o700))
	must(p.t, os.Chown(m.mnt, int(p.uid), int(p.uid)))
	m.cmd = p.command("mount", "--trust-local", c.url, m.mnt)
	m.cmd.Stdout, m.cmd.Stderr = &m.said, &m.said
	m.cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	must(p.t, m.cmd.Start())
	p.t.Cleanup(func() {
		m.end()
		_ = unix.Unmount(m.mnt, unix.MNT_DETACH)
		if p.t.Failed() {
			p.t.Logf("the mount said:\n%s", &m.said)
		}
	})
	c.await(p.t, "the user's mount", func() bool { return listed(m.mnt) })
	return m
}

// end ends the keeper, and is allowed twice.
func (m *owned) end() {
	if m.cmd.ProcessState == nil {
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
		_ = m.cmd.Wait()
	}
}

// sh runs a script of the user in the mount: nobody else sees it.
func (m *owned) sh(script string) (string, error) {
	cmd := exec.Command("timeout", "60", "sh", "-c", script)
	cmd.Dir = m.p.dir
	cmd.Env = append(os.Environ(), "MNT="+m.mnt)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: m.p.uid, Gid: m.p.uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestMountsOfAUser: a user who is not root mounts twice. The process that serves one mount is
// killed, then replaced: a program that has a file open waits and goes on, and the other mount does
// not notice.
func TestMountsOfAUser(t *testing.T) {
	if inOwnPlace(t) {
		return
	}
	p := newPerson(t, nobody)
	c := startCluster(t, clusterOptions{iods: 1, extra: []string{"--trust-local"}})
	c.sluice(t, "mkdir", "/home")
	run(t, "", c.bin, "chmod", "777", "sluice:/home", "--url", c.url)
	a, b := p.mountAs(c, "a"), p.mountAs(c, "b")
	must(t, c.shSays(a, `echo one >$MNT/home/f && sync $MNT/home/f && cat $MNT/home/f`, "one\n"))
	must(t, c.shSays(b, `cat $MNT/home/f`, "one\n"))
	first, second := serverOf(a.cmd.Process.Pid), serverOf(b.cmd.Process.Pid)
	held := make(chan error, 1)
	go func() {
		held <- c.shSays(a, `exec 3<$MNT/home/f; touch open; while [ ! -e go ]; do sleep 0.05; done; `+
			`cat <&3; rm open go`, "one\n")
	}()
	c.await(t, "a program has the file open", func() bool { return exists(p.dir, "open") })
	slay(t, first)
	must(t, c.shSays(a, `echo two >$MNT/home/g && sync $MNT/home/g && cat $MNT/home/g`, "two\n"))
	must(t, os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o644))
	must(t, <-held)
	c.await(t, "another process serves", func() bool {
		pid := serverOf(a.cmd.Process.Pid)
		return pid != 0 && pid != first
	})
	pid := serverOf(a.cmd.Process.Pid)
	c.within(t, "the mount is upgraded", func() error { // not while it is being started
		out, err := p.command("mount", "--upgrade", a.mnt).CombinedOutput()
		if err == nil && !strings.Contains(string(out), "Upgraded") {
			t.Errorf("the upgrade says %q", out)
		} else if err != nil && !strings.Contains(string(out), "being started") {
			t.Fatalf("%v: %s", err, out)
		}
		return err
	})
	if now := serverOf(a.cmd.Process.Pid); now == pid || serverOf(b.cmd.Process.Pid) != second {
		t.Errorf("the first mount is served by %d, and was by %d; the second by %d, and was by %d",
			now, pid, serverOf(b.cmd.Process.Pid), second)
	}
	must(t, c.shSays(b, `cat $MNT/home/g`, "two\n"))
	p.mustRun("umount", a.mnt)
	must(t, a.cmd.Wait())
	must(t, c.shSays(b, `cat $MNT/home/g`, "two\n"))
	b.end()
	if listed(a.mnt) || listed(b.mnt) {
		t.Error("something is still mounted")
	}
}

// placeEnv is set in a process that has a name space of mounts of its own.
const placeEnv = "SLUICE_TEST_PLACE"

// inOwnPlace runs the test once more where users may open /dev/fuse, as distributions have it: in a
// name space of mounts of its own, if they may not on this host. It is true where that was done.
func inOwnPlace(t *testing.T) bool {
	t.Helper()
	if _, err := exec.LookPath("fusermount3"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs fusermount3, and root to become others")
	}
	if st, err := os.Stat("/dev/fuse"); err != nil || st.Mode()&0o006 == 0o006 {
		return false
	}
	if os.Getenv(placeEnv) == "" {
		self, err := os.Executable()
		must(t, err)
		cmd := exec.Command("unshare", "-m", "--propagation", "private", self,
			"-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "200s")
		cmd.Env = append(os.Environ(), placeEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Error(err)
		}
		return true
	}
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	node := filepath.Join(dir, "fuse")
	must(t, unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))))
	must(t, os.Chmod(node, 0o666))
	must(t, unix.Mount(node, "/dev/fuse", "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount("/dev/fuse", unix.MNT_DETACH); _ = unix.Unmount(dir, 0) })
	return false
}

// listed tells whether something is mounted, without asking it: it is for its user alone.
func listed(mnt string) bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return err != nil || strings.Contains(string(text), " "+mnt+" ")
}

// shSays runs a script, and wants to hear something.
func (c *cluster) shSays(m *owned, script, want string) error {
	got, err := m.sh(script)
	if err == nil && got != want {
		err = errors.New("another answer")
	}
	if err != nil {
		return errors.Join(err, errors.New(script+": "+got))
	}
	return nil
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
