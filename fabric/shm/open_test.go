package shm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

func TestOptions(t *testing.T) {
	for name, opts := range map[string]Options{
		"message":      {MaxMessage: -1},
		"transfer":     {MaxTransfer: maxTransfer + 1},
		"depth":        {QueueDepth: maxQueueDepth + 1},
		"small ring":   {Ring: ringMin / 2},
		"large ring":   {Ring: ringMax * 2},
		"uneven ring":  {Ring: ringMin + 4096},
		"grants":       {Grants: grantsMax + 1},
		"arenas":       {PeerArenas: -1},
		"stall":        {StallTimeout: -time.Second},
		"hello":        {HelloTimeout: -time.Second},
		"mapped bytes": {PeerBytes: -1},
	} {
		if _, err := Open(opts); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	d, err := Open(Options{})
	fatal(t, err)
	defer d.Close()
	for _, addr := range []string{"", "x", "unix:", "unix:@", "unix:relative", "127.0.0.1:0"} {
		if _, err := d.Connector().Listen(addr); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%q: %v", addr, err)
		}
	}
	open := filepath.Join(t.TempDir(), "open")
	fatal(t, os.Mkdir(open, 0o700))
	fatal(t, os.Chmod(open, 0o777))
	_, err = d.Connector().Listen(scheme + open + "/s")
	if errs.KindOf(err) != errs.Perm {
		t.Errorf("a directory that is open to all: %v", err)
	}
	l, err := d.Connector().Listen("unix:@sluice-test-addresses")
	fatal(t, err)
	if l.Addr().String() != "unix:@sluice-test-addresses" {
		t.Errorf("address %v", l.Addr())
	}
	fatal(t, l.Close())
}

// TestStaleSocket listens where a killed process has left its socket behind, and not where one
// lives.
func TestStaleSocket(t *testing.T) {
	d, err := Open(Options{})
	fatal(t, err)
	defer d.Close()
	addr := addresses(t)()
	name := addr[len(scheme):]
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	fatal(t, err)
	fatal(t, unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
	fatal(t, unix.Close(fd))
	l, err := d.Connector().Listen(addr)
	fatal(t, err)
	info, err := os.Stat(name)
	fatal(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("others may connect: %v", info.Mode())
	}
	if _, err := d.Connector().Listen(addr); err == nil {
		t.Error("two listeners at one address")
	}
	fatal(t, l.Close())
	fatal(t, os.WriteFile(name, nil, 0o600))
	if _, err := d.Connector().Listen(addr); err == nil {
		t.Error("a file was replaced by a socket")
	}
}
