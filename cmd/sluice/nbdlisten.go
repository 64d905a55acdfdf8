package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
)

// defaultNBD is where a gateway listens unless told otherwise.
const defaultNBD = "127.0.0.1:10809"

// sockets opens what a gateway listens at.
func (o *nbdOptions) sockets() ([]net.Listener, error) {
	handed, err := handedSockets()
	if err != nil {
		return nil, err
	}
	if len(handed) > 0 {
		if len(o.listen) > 0 && !o.fileListens {
			return nil, errors.Join(closeAll(handed),
				refuse("sockets were handed over (LISTEN_FDS), and --listen names another place",
					"Leave --listen out"))
		}
		o.handed = true
		return handed, o.checkReach(handed)
	}
	places := o.listen
	if len(places) == 0 {
		places = []string{defaultNBD}
	}
	var open []net.Listener
	for _, place := range places {
		ln, err := o.listenAt(place)
		if err != nil {
			return nil, errors.Join(err, closeAll(open))
		}
		open = append(open, ln)
	}
	return open, nil
}

func closeAll(list []net.Listener) error {
	var failed []error
	for _, ln := range list {
		failed = append(failed, ln.Close())
	}
	return errors.Join(failed...)
}

// listenAt opens HOST:PORT, or unix:PATH.
func (o *nbdOptions) listenAt(place string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(place, "unix:"); ok {
		return listenUnix(path, o.replace)
	}
	if err := o.checkBeyond(place); err != nil {
		return nil, err
	}
	// A port that a server has just left is free at once: Go sets SO_REUSEADDR.
	ln, err := net.Listen("tcp", place)
	return ln, hint(err, "Choose another port, or 0 for any that is free")
}

// checkBeyond refuses addresses that other hosts reach, unless those prove who they are, or nobody
// cares.
func (o *nbdOptions) checkBeyond(place string) error {
	if config.IsLoopback(place) {
		return checkLoopback(place)
	}
	if _, _, err := net.SplitHostPort(place); err != nil {
		return checkAddr(place)
	}
	if o.tls.insecure || o.tls.authenticates() {
		return nil
	}
	return refuse("refusing to listen on "+place+": other hosts could reach it, and nothing asks "+
		"them who they are", "Give keys for both sides (--tls-cert, --tls-key and --tls-ca, or "+
		"--tls-credential), use a loopback address or unix:PATH, or say --insecure")
}

// checkReach is checkBeyond for sockets that somebody else has opened.
func (o *nbdOptions) checkReach(handed []net.Listener) error {
	for _, ln := range handed {
		at, err := netip.ParseAddrPort(ln.Addr().String())
		if ln.Addr().Network() == "unix" || err == nil && at.Addr().IsLoopback() {
			continue
		}
		if err := o.checkBeyond(ln.Addr().String()); err != nil {
			return errors.Join(err, closeAll(handed))
		}
	}
	return nil
}

// firstHanded is the number of the first descriptor that systemd hands over.
const firstHanded = 3

// handedSockets are those that systemd, or who does as it does, has opened for this process. It
// tells so once: the processes that this one starts are not meant.
func handedSockets() ([]net.Listener, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name) // the name is a fine one
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > 1<<10 {
		return nil, errs.Newf(errs.Invalid, "listen", "LISTEN_FDS", "%q", count)
	}
	var open []net.Listener
	for fd := firstHanded; fd < firstHanded+n; fd++ {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), fmt.Sprintf("LISTEN_FDS %d", fd))
		ln, err := net.FileListener(f)
		_ = f.Close() // the listener has a copy
		if err != nil {
			return nil, errors.Join(errs.Wrap("listen", f.Name(), err), closeAll(open))
		}
		open = append(open, ln)
	}
	return open, nil
}

// stdioConn is the connection on standard input.
func stdioConn() (net.Conn, error) {
	nc, err := net.FileConn(os.Stdin)
	return nc, hint(errs.Wrap("nbd", "stdin", err), "--stdio is for programs that give a socket to "+
		"it, as inetd and libnbd's nbd_connect_command do")
}

// privateSocket is a place for a socket that only this process knows.
func privateSocket() (place string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "sluice-nbd")
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "socket"), func() { _ = os.RemoveAll(dir) }, nil
}
