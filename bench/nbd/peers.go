package nbd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench/process"
	"github.com/sluice-storage/sluice/errs"
)

// connsMax is how many clients a peer must take at once; the checks of the bench count, too.
const connsMax = 64

func socketIn(at Place) string { return filepath.Join(at.Dir, "s") }

// StartOn starts a program that stays in the foreground and listens at the socket that Socket
// names, with a device called ExportName.
func StartOn(ctx context.Context, at Place, name string, args ...string) (*Server, error) {
	d, err := process.Start(filepath.Join(at.Dir, "log"), nil, name, args...)
	if err != nil {
		return nil, err
	}
	if err := d.Await(ctx, name, func() bool { return answers(socketIn(at)) }); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return &Server{URI: socketURI(socketIn(at)), Pids: []int{d.Pid()}, Close: d.Stop}, nil
}

// Socket is where a server of a place listens.
func Socket(at Place) string { return socketIn(at) }

func answers(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// startQemu serves a file through the kernel's cache, as qemu-nbd does unless it is told otherwise,
// or past it.
func startQemu(direct bool) Starter {
	s := Starter{Name: Qemu, Kind: Peer, File: true, Programs: []string{"qemu-nbd"},
		Packages: []string{"qemu-utils"}}
	cache := []string{"--cache=writeback", "--aio=threads"}
	if direct {
		s.Name, cache = QemuOwn, []string{"--cache=none", "--aio=native"}
	}
	s.Start = func(ctx context.Context, at Place) (*Server, error) {
		args := append([]string{"--persistent", fmt.Sprintf("--shared=%d", connsMax), "--format=raw",
			"--discard=unmap", "--export-name=" + ExportName, "--socket=" + socketIn(at)}, cache...)
		return StartOn(ctx, at, "qemu-nbd", append(args, at.File)...)
	}
	return s
}

func startNbdkit() Starter {
	return Starter{Name: Nbdkit, Kind: Peer, File: true, Programs: []string{"nbdkit"},
		Packages: []string{"nbdkit"}, Start: func(ctx context.Context, at Place) (*Server, error) {
			return StartOn(ctx, at, "nbdkit", "--foreground", "--unix", socketIn(at), "file", at.File)
		}}
}

// startMemory is nbdkit's device in memory.
func startMemory() Starter {
	return Starter{Name: Nbdkit, Kind: Peer, Programs: []string{"nbdkit"},
		Packages: []string{"nbdkit"}, Start: func(ctx context.Context, at Place) (*Server, error) {
			return StartOn(ctx, at, "nbdkit", "--foreground", "--unix", socketIn(at), "memory",
				fmt.Sprint(at.Bytes))
		}}
}

// startNbdServer starts nbd-server, which stays in the foreground for one client only: so it is a
// daemon by itself, known by the file that it writes its number into.
func startNbdServer() Starter {
	return Starter{Name: NbdServer, Kind: Peer, File: true, Programs: []string{"nbd-server"},
		Packages: []string{"nbd-server"}, Start: func(ctx context.Context, at Place) (*Server, error) {
			conf, pid := filepath.Join(at.Dir, "conf"), filepath.Join(at.Dir, "pid")
			text := fmt.Sprintf("[generic]\nunixsock = %s\n[%s]\nexportname = %s\nflush = true\n"+
				"fua = true\ntrim = true\n", socketIn(at), ExportName, at.File)
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				return nil, err
			}
			d, err := process.Start(filepath.Join(at.Dir, "log"), nil, "nbd-server", "-C", conf, "-p", pid)
			if err != nil {
				return nil, err
			}
			select {
			case <-d.Ended(): // the daemon goes on
			case <-ctx.Done():
				return nil, errors.Join(ctx.Err(), d.Stop())
			}
			return awaitDaemon(ctx, at, pid)
		}}
}

// awaitDaemon waits until a daemon has told its number and answers.
func awaitDaemon(ctx context.Context, at Place, pidFile string) (*Server, error) {
	for {
		text, err := os.ReadFile(pidFile)
		pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil && bad == nil && answers(socketIn(at)) {
			return &Server{URI: socketURI(socketIn(at)), Pids: []int{pid},
				Close: func() error { return endDaemon(pid) }}, nil
		}
		select {
		case <-ctx.Done():
			return nil, errs.Newf(errs.TimedOut, "bench nbd", pidFile, "waited for it: %v", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// endDaemon ends a process that is nobody's child, and waits for its end.
func endDaemon(pid int) error {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			if err := unix.Kill(pid, sig); errors.Is(err, unix.ESRCH) || isZombie(pid) {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return errs.Newf(errs.TimedOut, "bench nbd", "", "process %d does not end", pid)
}

// isZombie tells whether a process has ended but nobody has asked how.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}
