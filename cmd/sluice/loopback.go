package main

import (
	"net"
	"net/netip"
	"os"
	"strings"

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

func listenUnix(path string) (net.Listener, error) {
	ln, err := net.Listen("unix", path)
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
	return net.Listen("unix", path)
}
