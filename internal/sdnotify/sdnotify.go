// Package sdnotify tells a service manager how a process is, by the protocol of sd_notify(3):
// datagrams of VARIABLE=value lines to the socket that the environment names. It does not wait for
// answers, because there are none, and it knows no other service manager.
//
// Everything is in this file.
package sdnotify

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Notifier sends to one service manager. A nil one sends nothing: nobody manages the process. It is
// safe for concurrent use.
type Notifier struct {
	conn  *net.UnixConn
	every time.Duration
}

// The variables by which a service manager says that it listens.
const (
	socketEnv   = "NOTIFY_SOCKET"
	watchdogEnv = "WATCHDOG_USEC"
	watchedEnv  = "WATCHDOG_PID"
)

// Open connects to the service manager that the environment names; nil without one. The variables
// are removed, so that children do not speak for this process.
func Open() (*Notifier, error) {
	path, usec, pid := os.Getenv(socketEnv), os.Getenv(watchdogEnv), os.Getenv(watchedEnv)
	for _, name := range []string{socketEnv, watchdogEnv, watchedEnv} {
		_ = os.Unsetenv(name) // it fails for names that are none
	}
	if path == "" {
		return nil, nil
	}
	if path[0] != '/' && path[0] != '@' {
		return nil, errs.Newf(errs.Unsupported, "sdnotify", path, "neither a path nor an abstract name")
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, errs.Wrap("sdnotify", path, err)
	}
	n := &Notifier{conn: conn}
	every, err := strconv.ParseInt(usec, 10, 64)
	if err == nil && every > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.every = time.Duration(every) * time.Microsecond
	}
	return n, nil
}

// Ready says that the process serves, or serves again after Reloading.
func (n *Notifier) Ready(status string) error { return n.send("READY=1", status) }

// Reloading says that it changes how it serves; Ready ends that.
func (n *Notifier) Reloading(status string) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	return n.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000), status)
}

// Stopping says that it ends, and is allowed to take a while.
func (n *Notifier) Stopping(status string) error { return n.send("STOPPING=1", status) }

// Status is one line for people.
func (n *Notifier) Status(status string) error { return n.send("", status) }

// Watchdog is how often the manager wants to hear Alive, at least; 0: it does not.
func (n *Notifier) Watchdog() time.Duration {
	if n == nil {
		return 0
	}
	return n.every
}

// Alive is what the watchdog waits for.
func (n *Notifier) Alive() error { return n.send("WATCHDOG=1", "") }

// Close lets go of the socket.
func (n *Notifier) Close() error {
	if n == nil {
		return nil
	}
	return n.conn.Close()
}

// statusMax keeps a datagram far below what a socket takes.
const statusMax = 1024

func (n *Notifier) send(what, status string) error {
	if n == nil {
		return nil
	}
	if status != "" {
		line := strings.Join(strings.Fields(status), " ") // a newline would begin another variable
		line = strings.ToValidUTF8(line[:min(len(line), statusMax)], "?")
		what = strings.TrimPrefix(what+"\nSTATUS="+line, "\n")
	}
	_, err := n.conn.Write([]byte(what))
	return errs.Wrap("sdnotify", "", err)
}
