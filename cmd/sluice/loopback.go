package main

import (
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// checkAddr refuses what nobody can listen on, or be told of.
func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return refuse("listen on "+addr+": "+err.Error(), "Write HOST:PORT, like 127.0.0.1:9400")
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return refuse("listen on "+addr+": no port "+port, "Write HOST:PORT, like 127.0.0.1:9400")
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return refuse("refusing to listen on "+addr+": nobody could be told where that is",
			"Name the address that others use, like 10.1.0.1:"+port)
	}
	return nil
}

// checkLoopback refuses addresses that other hosts can reach, where nothing asks them who they are.
func checkLoopback(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return checkAddr(addr)
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

// checkListen is about several addresses with commas between them: on loopback only, unless others
// prove who they are.
func checkListen(list string, keyed bool) error {
	check := checkLoopback
	if keyed {
		check = checkAddr
	}
	for _, addr := range strings.Split(list, ",") {
		if err := check(addr); err != nil {
			return err
		}
	}
	return nil
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
