package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// checkLoopback refuses addresses that other hosts can reach: nothing here asks them who they are
// yet.
func checkLoopback(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return refuse("listen on "+addr+": "+err.Error(), "Write HOST:PORT, like 127.0.0.1:9400")
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return refuse("listen on "+addr+": no port "+port, "Write HOST:PORT, like 127.0.0.1:9400")
	}
	if host == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return nil
	}
	return refuse("refusing to listen on "+addr+": other hosts could reach it, and nothing asks "+
		"them who they are", "Use a loopback address, like 127.0.0.1:"+port)
}

// listen opens HOST:PORT on loopback, or unix:PATH. A socket that a dead process left is replaced.
func listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return listenUnix(path)
	}
	if err := checkLoopback(addr); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", addr)
	return ln, hint(err, "Choose another port, or 0 for any that is free")
}

// listenUnix opens a socket that only this user, and root, can connect to, in a folder where nobody
// else can put another one in its place.
func listenUnix(path string) (net.Listener, error) {
	if err := checkSocketDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	ln, err := bindUnix(path)
	if err == nil {
		return ln, nil
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, hint(err, "Choose another path for the socket")
	}
	if c, dialErr := net.Dial("unix", path); dialErr == nil {
		c.Close()
		return nil, hint(errs.Newf(errs.Busy, "listen", path, "somebody listens there"),
			"Choose another path, or stop the other server")
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return bindUnix(path)
}

// bindUnix makes the socket. Its mode is set before it has a name: others can never connect.
func bindUnix(path string) (net.Listener, error) {
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	return private.Listen(context.Background(), "unix", path)
}

func checkSocketDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return errs.Wrap("listen", dir, err)
	}
	foreign := st.Uid != 0 && st.Uid != uint32(os.Geteuid())
	if foreign || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return refuse("others could put another socket into "+dir,
			"Choose a folder that is yours, and that only you can write to")
	}
	return nil
}
