package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// socketMax is the length of the longest path of a socket.
const socketMax = 107

// listenUnix opens a socket that only this user, and root, can connect to, in a folder where nobody
// else can put another one in its place. One that a dead process left is replaced, in one step, and
// so is with replace one that somebody listens at: he keeps his clients, and gets no new ones.
func listenUnix(path string, replace bool) (net.Listener, error) {
	if err := checkSocketDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	ln, err := bindUnix(path)
	if err == nil {
		return ownSocket(ln, path)
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, hint(err, "Choose another path for the socket")
	}
	if !replace {
		if c, dialErr := net.Dial("unix", path); dialErr == nil {
			c.Close()
			return nil, hint(errs.Newf(errs.Busy, "listen", path, "somebody listens there"),
				"Choose another path, or stop the other server")
		}
	}
	beside := path + ".new"
	if len(beside) > socketMax { // in two steps, then
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		beside = path
	} else if err := os.Remove(beside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if ln, err = bindUnix(beside); err != nil {
		return nil, err
	}
	if err := os.Rename(beside, path); err != nil {
		return nil, errors.Join(err, ln.Close(), os.Remove(beside))
	}
	return ownSocket(ln, path)
}

// bindUnix makes the socket. Its mode is set before it has a name: others can never connect.
func bindUnix(path string) (*net.UnixListener, error) {
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	ln, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	own := ln.(*net.UnixListener)
	own.SetUnlinkOnClose(false)
	return own, nil
}

// unixSocket is a listener that takes its socket away when it closes, unless another process has
// put its own there meanwhile.
type unixSocket struct {
	*net.UnixListener
	path string
	info os.FileInfo
}

func ownSocket(ln *net.UnixListener, path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return &unixSocket{ln, path, info}, nil
}

// Addr implements net.Listener: the socket may have been bound under another name.
func (s *unixSocket) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: s.path} }

// Close implements net.Listener.
func (s *unixSocket) Close() error {
	if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.info) {
		_ = os.Remove(s.path) // who dials it now is refused anyway
	}
	return s.UnixListener.Close()
}
