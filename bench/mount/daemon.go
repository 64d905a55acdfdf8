package mount

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// Daemon is a process of a system that stays in the foreground, a child of the bench.
type Daemon struct {
	name, log string
	pid       int
	ended     chan struct{}
}

// StartDaemon starts a program whose output goes to a file, with env on top of the bench's own
// environment. It ends with the bench, however that ends: the kernel signals it when the thread
// that started it does, which therefore waits. A group of its own keeps the terminal's interrupt
// from it: the bench ends it in order.
func StartDaemon(log string, env []string, name string, args ...string) (*Daemon, error) {
	path, err := lookProgram(name)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = out, out, append(os.Environ(), env...), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	d := &Daemon{name: name, log: log, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			d.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(d.ended)
		}
	}()
	return d, <-started
}

// Pid is its number.
func (d *Daemon) Pid() int { return d.pid }

// Stop asks the daemon to end, then makes it. d may be nil.
func (d *Daemon) Stop() error {
	if d == nil {
		return nil
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		select {
		case <-d.ended: // its number may be another's by now
			return nil
		default:
		}
		_ = unix.Kill(d.pid, sig)
		select {
		case <-d.ended:
			return nil
		case <-time.After(stopMax):
		}
	}
	return errs.Newf(errs.TimedOut, "bench mount", d.name, "process %d does not end", d.pid)
}

func (d *Daemon) alive() error {
	select {
	case <-d.ended:
		text, _ := os.ReadFile(d.log)
		return errs.Newf(errs.IO, "bench mount", d.name, "it ended: %s", bench.Tail(text))
	default:
		return nil
	}
}

// Await asks until the answer is yes, or the daemon has ended.
func (d *Daemon) Await(ctx context.Context, what string, ready func() bool) error {
	return daemons{d}.await(ctx, what, ready)
}

// daemons are started and ended together: the first, which the others know, ends last.
type daemons []*Daemon

func (all daemons) pids() (pids []int) {
	for _, d := range all {
		if d != nil {
			pids = append(pids, d.pid)
		}
	}
	return pids
}

func (all daemons) stop() error {
	if len(all) == 0 {
		return nil
	}
	failed := make([]error, len(all))
	var wg sync.WaitGroup
	for i, d := range all[1:] {
		wg.Go(func() { failed[i+1] = d.Stop() })
	}
	wg.Wait()
	failed[0] = all[0].Stop()
	return errors.Join(failed...)
}

// await asks until the answer is yes, or one of the daemons has ended.
func (all daemons) await(ctx context.Context, what string, ready func() bool) error {
	for !ready() {
		for _, d := range all {
			if err := d.alive(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errs.Newf(errs.TimedOut, "bench mount", what, "waited for it: %v", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// listens tells whether somebody accepts connections there.
func listens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// freePorts finds ports that nobody uses now. Programs that take no open socket have to be told a
// number; somebody else may take it in between, and then they do not start, and say so.
func freePorts(host string, n int) (ports []int, err error) {
	for range n {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, err
		}
		defer ln.Close() // when all are found, so that they differ
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// unmount takes a mount away, out of sight at least. It is only used by root.
func unmount(dir string) error {
	err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	for range 20 { // something may still close its files
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(50 * time.Millisecond)
		err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	}
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // nothing is mounted there
	}
	return errs.Wrap("unmount", dir, err)
}

// room is how large the file system at dir is, 0 while it does not answer. It waits a second only,
// because a mount whose server hangs never answers.
func room(dir string) uint64 {
	answer := make(chan uint64, 1)
	go func() {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil {
			st.Blocks = 0
		}
		answer <- st.Blocks * uint64(st.Bsize)
	}()
	select {
	case n := <-answer:
		return n
	case <-time.After(time.Second):
		return 0
	}
}

// isOther tells whether something is mounted at dir: it is on another device than the folder above.
func isOther(dir string) bool {
	var in, above unix.Stat_t
	return unix.Stat(dir, &in) == nil && unix.Stat(dir+"/..", &above) == nil && in.Dev != above.Dev
}

func addrOf(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
