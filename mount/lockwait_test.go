package mount

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSignalEndsAWaitForALock: a program that handles SIGUSR1 gets EINTR from flock(2), whoever has
// the lock.
func TestSignalEndsAWaitForALock(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip(err)
	}
	p := filepath.Join(newCluster(t, 1).mount(Options{}).Dir(), "f")
	must(t, os.WriteFile(p, nil, 0o644))
	f := open(t, p, os.O_RDWR)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))

	waiter := exec.Command("perl", "-e", `$| = 1; $SIG{USR1} = sub {}; open(F, "<", shift) or die;
		print "ready\n"; print flock(F, 2) ? "locked" : $!{EINTR} ? "interrupted" : $!;`, p)
	out, err := waiter.StdoutPipe()
	must(t, err)
	must(t, waiter.Start())
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	stop := make(chan struct{})
	go func() { // those that come before it waits are nothing to it
		for n := 0; n < 600; n++ {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				_ = waiter.Process.Signal(syscall.SIGUSR1)
			}
		}
		_ = waiter.Process.Kill()
	}()
	rest, err := io.ReadAll(said)
	close(stop)
	must(t, err)
	if got := strings.TrimSpace(string(rest)); got != "interrupted" {
		t.Errorf("the waiter says %q", got)
	}
	must(t, waiter.Wait())
}

// TestFirstLockIsTold: of several locks in the way F_GETLK tells the one that begins first.
func TestFirstLockIsTold(t *testing.T) {
	dirs := twoMounts(t, true)
	must(t, os.WriteFile(filepath.Join(dirs[0], "f"), make([]byte, 100), 0o644))
	a := open(t, filepath.Join(dirs[0], "f"), os.O_RDWR)
	defer a.Close()
	b := open(t, filepath.Join(dirs[1], "f"), os.O_RDWR)
	defer b.Close()
	for _, at := range []int64{50, 20, 70, 10} {
		typ := int16(unix.F_WRLCK)
		if at == 10 {
			typ = unix.F_RDLCK
		}
		must(t, fcntlLock(a, unix.F_OFD_SETLK, typ, at, 5))
	}
	for from, want := range map[int64]int64{0: 10, 12: 10, 15: 20, 25: 50, 60: 70} {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: from}
		must(t, unix.FcntlFlock(b.Fd(), unix.F_OFD_GETLK, &l))
		if l.Type == unix.F_UNLCK || l.Start != want || l.Len != 5 {
			t.Errorf("from byte %d: %+v, want the lock at %d", from, l, want)
		}
	}
}
