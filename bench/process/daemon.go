// Package process is what benches that measure other programs have in common: daemons that end with
// the bench, and what processes use of the processor and of memory.
//
// It knows none of the programs, and installs nothing.
//
// Read daemon.go first, then usage.go.
package process

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// stopMax is for a daemon to end by itself.
const stopMax = 30 * time.Second

// Daemon is a process of a system that stays in the foreground, a child of the bench.
type Daemon struct {
	name, log string
	pid       int
	ended     chan struct{}
}

// Start starts a program whose output goes to a file, with env on top of the bench's own
// environment. It ends with the bench, however that ends: the kernel signals it when the thread
// that started it does, which therefore waits. A group of its own keeps the terminal's interrupt
// from it: the bench ends it in order.
func Start(log string, env []string, name string, args ...string) (*Daemon, error) {
	path, err := Find(name)
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

// Find finds daemons too, which are not on every user's path.
func Find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

// Pid is its number.
func (d *Daemon) Pid() int { return d.pid }

// Ended is closed when it has ended.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

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
	return errs.Newf(errs.TimedOut, "bench", d.name, "process %d does not end", d.pid)
}

func (d *Daemon) alive() error {
	select {
	case <-d.ended:
		text, _ := os.ReadFile(d.log)
		return errs.Newf(errs.IO, "bench", d.name, "it ended: %s", bench.Tail(text))
	default:
		return nil
	}
}

// Await asks until the answer is yes, or the daemon has ended.
func (d *Daemon) Await(ctx context.Context, what string, ready func() bool) error {
	return Daemons{d}.Await(ctx, what, ready)
}

// Daemons are started and ended together: the first, which the others know, ends last.
type Daemons []*Daemon

// Pids are their numbers.
func (all Daemons) Pids() (pids []int) {
	for _, d := range all {
		if d != nil {
			pids = append(pids, d.pid)
		}
	}
	return pids
}

// Stop ends all of them.
func (all Daemons) Stop() error {
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

// Await asks until the answer is yes, or one of the daemons has ended.
func (all Daemons) Await(ctx context.Context, what string, ready func() bool) error {
	for !ready() {
		for _, d := range all {
			if err := d.alive(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errs.Newf(errs.TimedOut, "bench", what, "waited for it: %v", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Listens tells whether somebody accepts connections there.
func Listens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// FreePorts finds ports that nobody uses now. Programs that take no open socket have to be told a
// number; somebody else may take it in between, and then they do not start, and say so.
func FreePorts(host string, n int) (ports []int, err error) {
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
