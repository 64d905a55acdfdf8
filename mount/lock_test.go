package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// twoMounts mounts one cluster twice.
func twoMounts(t *testing.T, near bool) [2]string {
	c := newClusterBy(t, 2, near)
	return [2]string{c.mount(Options{}).Dir(), c.mount(Options{}).Dir()}
}

func fcntlLock(f *os.File, cmd int, typ int16, start, length int64) error {
	l := unix.Flock_t{Type: typ, Start: start, Len: length}
	for {
		err := unix.FcntlFlock(f.Fd(), cmd, &l)
		if err != unix.EINTR {
			return err
		}
	}
}

// TestFlockBetweenMounts: of two open files one has the lock, also where both are of one mount; and
// closing it releases it.
func TestFlockBetweenMounts(t *testing.T) {
	dirs := twoMounts(t, true)
	must(t, os.WriteFile(filepath.Join(dirs[0], "f"), []byte("x"), 0o644))
	for _, second := range dirs {
		a := open(t, filepath.Join(dirs[0], "f"), os.O_RDWR)
		b := open(t, filepath.Join(second, "f"), os.O_RDWR)
		must(t, unix.Flock(int(a.Fd()), unix.LOCK_EX))
		if err := unix.Flock(int(b.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != unix.EWOULDBLOCK {
			t.Fatalf("both have it: %v", err)
		}
		got := make(chan error)
		go func() { got <- unix.Flock(int(b.Fd()), unix.LOCK_EX) }()
		select {
		case err := <-got:
			t.Fatalf("both have it: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		must(t, a.Close())
		must(t, <-got)
		must(t, b.Close())
		c := open(t, filepath.Join(dirs[0], "f"), os.O_RDWR)
		must(t, unix.Flock(int(c.Fd()), unix.LOCK_EX|unix.LOCK_NB)) // closing a moment ago is enough
		must(t, c.Close())
	}
}

// TestRangesBetweenMounts: byte ranges of open files (OFD), which the kernel releases without a
// word, and of this process (POSIX), which closing any descriptor releases.
func TestRangesBetweenMounts(t *testing.T) {
	dirs := twoMounts(t, true)
	must(t, os.WriteFile(filepath.Join(dirs[0], "f"), []byte("x"), 0o644))
	a := open(t, filepath.Join(dirs[0], "f"), os.O_RDWR)
	b := open(t, filepath.Join(dirs[1], "f"), os.O_RDWR)
	for _, cmd := range []int{unix.F_OFD_SETLK, unix.F_SETLK} {
		must(t, fcntlLock(a, cmd, unix.F_WRLCK, 10, 10))
		must(t, fcntlLock(b, cmd, unix.F_WRLCK, 20, 0))
		if err := fcntlLock(b, cmd, unix.F_RDLCK, 15, 1); err != unix.EAGAIN {
			t.Fatalf("both have it: %v", err)
		}
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 0}
		must(t, unix.FcntlFlock(b.Fd(), cmd-unix.F_SETLK+unix.F_GETLK, &l))
		if l.Type != unix.F_WRLCK || l.Start != 10 || l.Len != 10 {
			t.Fatalf("%+v", l)
		}
		if cmd == unix.F_SETLK { // closing another descriptor of the file is enough
			must(t, open(t, filepath.Join(dirs[0], "f"), os.O_RDONLY).Close())
		} else {
			must(t, a.Close())
			a = open(t, filepath.Join(dirs[0], "f"), os.O_RDWR)
		}
		eventually(t, func() error { return fcntlLock(b, cmd, unix.F_WRLCK, 0, 0) })
		must(t, fcntlLock(b, cmd, unix.F_UNLCK, 0, 0))
	}
}

func eventually(t *testing.T, do func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// noAttrs is a metadata service that does not tell attributes for a while.
type noAttrs struct {
	meta.Service
	left atomic.Int64 // questions that are not answered
}

func (s *noAttrs) GetAttr(ctx context.Context, c meta.Caller, ino meta.Ino) (meta.Attr, error) {
	if s.left.Add(-1) >= 0 {
		return meta.Attr{}, errs.New(errs.TimedOut, "service", "", nil)
	}
	return s.Service.GetAttr(ctx, c, ino)
}

// TestLockWithoutAttributes: who gets a lock sees what others wrote before, also if the service
// could not be asked what has become of the file.
func TestLockWithoutAttributes(t *testing.T) {
	for name, memory := range map[string]int64{"with leases": 0, "without": -1} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			svc := &noAttrs{Service: c.meta}
			fs, err := client.New(svc, c.data, client.Options{WaitMax: 5 * time.Second, Cache: memory})
			must(t, err)
			dir := t.TempDir()
			m, err := Mount(context.Background(), fs, dir, Options{})
			must(t, err)
			defer func() {
				must(t, m.Unmount())
				must(t, fs.Close())
			}()
			p := filepath.Join(dir, "f")
			data := pattern(100<<10, 1)
			must(t, os.WriteFile(p, data, 0o644))
			must(t, waitFor(func() bool { return m.bridge.files.count() == 0 }))
			f := open(t, p, os.O_RDONLY) // without writers the kernel may keep what it reads
			got := make([]byte, len(data))
			_, err = f.ReadAt(got, 0)
			must(t, err)
			g := open(t, filepath.Join(c.mount(Options{}).Dir(), "f"), os.O_RDWR)
			_, err = g.WriteAt([]byte("changed"), 5000)
			must(t, err)
			must(t, g.Close())
			copy(data[5000:], "changed")
			svc.left.Store(1)
			must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
			if svc.left.Load() > 0 {
				t.Fatal("the service was not asked")
			}
			if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("old bytes under the lock, or %v", err)
			}
			must(t, f.Close())
		})
	}
}

// TestLockDeadlock: two processes that lock each other out are told.
func TestLockDeadlock(t *testing.T) {
	dirs := twoMounts(t, false)
	must(t, os.WriteFile(filepath.Join(dirs[0], "f"), nil, 0o644))
	var fs [2]*os.File
	for i := range fs {
		fs[i] = open(t, filepath.Join(dirs[i], "f"), os.O_RDWR)
		must(t, fcntlLock(fs[i], unix.F_OFD_SETLK, unix.F_WRLCK, int64(i), 1))
	}
	answers := make(chan error, 2)
	for i := range fs {
		go func() { answers <- fcntlLock(fs[i], unix.F_OFD_SETLKW, unix.F_WRLCK, int64(1-i), 1) }()
	}
	if err := <-answers; err != unix.EDEADLK {
		t.Fatalf("got %v", err)
	}
	for i := range fs {
		must(t, fcntlLock(fs[i], unix.F_OFD_SETLK, unix.F_UNLCK, int64(i), 1))
	}
	must(t, <-answers)
}

// TestLockPrograms: flock(1) with a time limit, whose signal ends the wait, and killed programs,
// whose locks are free.
func TestLockPrograms(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip(err)
	}
	dirs := twoMounts(t, true)
	p, q := filepath.Join(dirs[0], "f"), filepath.Join(dirs[1], "f")
	must(t, os.WriteFile(p, nil, 0o644))
	holder := exec.Command("flock", p, "sh", "-c", "echo; sleep 600")
	holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	_, err = out.Read(make([]byte, 1)) // it has the lock
	must(t, err)
	var exit *exec.ExitError
	if err := exec.Command("flock", "-w", "0.3", q, "true").Run(); !errors.As(err, &exit) {
		t.Fatalf("waited without an end, or got it: %v", err)
	}
	waiter := exec.Command("flock", q, "true")
	must(t, waiter.Start())
	time.Sleep(50 * time.Millisecond)
	must(t, waiter.Process.Kill()) // a killed waiter is gone, and gets nothing
	if err := waiter.Wait(); err == nil {
		t.Fatal("it was not killed")
	}
	must(t, syscall.Kill(-holder.Process.Pid, syscall.SIGKILL))
	_ = holder.Wait()
	must(t, exec.Command("flock", "-w", "20", q, "true").Run())
}

// TestDatabaseOnTwoMounts: sqlite keeps its database whole by locks. Several processes of two
// mounts raise one counter.
func TestDatabaseOnTwoMounts(t *testing.T) {
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip(err)
	}
	dirs := twoMounts(t, true)
	sql := func(dir, text string) (string, error) {
		out, err := exec.Command("sqlite3", "-cmd", ".timeout 60000", filepath.Join(dir, "db"),
			text).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	_, err := sql(dirs[0], "create table n(v integer); insert into n values(0);")
	must(t, err)
	const writers, rounds = 4, 8
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range rounds {
				if _, err := sql(dirs[w%2], "begin immediate; update n set v = v + 1; commit;"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, dir := range dirs {
		got, err := sql(dir, "select v from n; pragma integrity_check;")
		if want := strconv.Itoa(writers*rounds) + "\nok"; err != nil || got != want {
			t.Fatalf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestLocalLocks: those who do not want it have locks within a mount.
func TestLocalLocks(t *testing.T) {
	c := newCluster(t, 1)
	var fs [2]*os.File
	for i := range fs {
		p := filepath.Join(c.mount(Options{LocalLocks: true}).Dir(), "f")
		if i == 0 {
			must(t, os.WriteFile(p, nil, 0o644))
		}
		fs[i] = open(t, p, os.O_RDWR)
		must(t, unix.Flock(int(fs[i].Fd()), unix.LOCK_EX|unix.LOCK_NB))
	}
	other := open(t, fs[0].Name(), os.O_RDWR)
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Fatalf("both have it: %v", err)
	}
}
