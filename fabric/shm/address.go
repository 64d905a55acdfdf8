package shm

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// An address is "unix:" and a path, or "unix:@" and an abstract name. A path's directory must
// belong to root or to this user and be closed to others for writing, so that nobody can put
// another socket in its place; an abstract name belongs to whoever binds it first.

const scheme = "unix:"

// place is where a listener is.
type place string

func (p place) Network() string { return "shm" }
func (p place) String() string  { return scheme + string(p) }

// parsePlace reads an address.
func parsePlace(op, addr string) (place, error) {
	p, ok := strings.CutPrefix(addr, scheme)
	if !ok || p == "" || p == "@" || p[0] != '@' && !filepath.IsAbs(p) {
		return "", errs.Newf(errs.Invalid, op, addr, "want unix:/path or unix:@name")
	}
	return place(p), nil
}

func (p place) unixAddr() *net.UnixAddr {
	return &net.UnixAddr{Name: string(p), Net: "unixpacket"}
}

// listen binds the socket. public lets other users connect: which of them are accepted is decided
// by their credentials (cred).
func (p place) listen(public bool) (*net.UnixListener, error) {
	if p[0] == '@' {
		return net.ListenUnix("unixpacket", p.unixAddr())
	}
	if err := checkDir(filepath.Dir(string(p))); err != nil {
		return nil, err
	}
	sock, err := net.ListenUnix("unixpacket", p.unixAddr())
	if errors.Is(err, syscall.EADDRINUSE) && p.removeStale() {
		sock, err = net.ListenUnix("unixpacket", p.unixAddr())
	}
	if err != nil {
		return nil, err
	}
	mode := os.FileMode(0o600)
	if public {
		mode = 0o666
	}
	if err := os.Chmod(string(p), mode); err != nil {
		_ = sock.Close()
		return nil, err
	}
	return sock, nil
}

// removeStale removes a socket that nobody listens on, which a killed process leaves behind.
func (p place) removeStale() bool {
	info, err := os.Lstat(string(p))
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	c, err := net.DialUnix("unixpacket", nil, p.unixAddr())
	if err == nil {
		_ = c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) && os.Remove(string(p)) == nil
}

func checkDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return errs.Newf(errs.Perm, "shm.Listen", dir,
			"others could put another socket into this directory")
	}
	return nil
}

// cred asks the kernel who is at the other end of a socket.
func cred(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var c *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		c, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = inner
	}
	return c, err
}

// trusted tells whether a user is root, this process's own, or in the list.
func trusted(uid uint32, list []uint32) bool {
	return uid == 0 || uid == uint32(os.Geteuid()) || slices.Contains(list, uid)
}

// nobody is how the kernel names users of whom this name space knows nothing.
const nobody = 65534

// mayBorrow tells whether a user may read all memory that is lent: it could do so by other means.
func mayBorrow(uid uint32) bool { return trusted(uid, nil) && uid != nobody }
