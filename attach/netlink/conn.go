package netlink

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// answerMax is the most that the kernel answers at once: the status of a thousand devices has 20
// bytes each.
const answerMax = 1 << 20

// Conn is a socket to the kernel's NBD client. Safe for concurrent use; calls take turns.
type Conn struct {
	mu     sync.Mutex // held while the kernel works: what it is told is told in order
	fd     int
	seq    uint32
	family uint16
	buf    []byte
}

// Open reaches the kernel's NBD client. An error of kind errs.Unsupported says that this kernel has
// none, or that its module is not loaded.
func Open() (*Conn, error) {
	const op = "netlink.Open"
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, errs.Wrap(op, "", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd) // nothing was sent
		return nil, errs.Wrap(op, "", err)
	}
	c := &Conn{fd: fd, buf: make([]byte, answerMax)}
	if c.family, err = c.findFamily(familyName); err != nil {
		_ = c.Close()
		if errors.Is(err, unix.ENOENT) {
			return nil, errs.Newf(errs.Unsupported, op, "",
				"the kernel's NBD client is not there (module nbd)")
		}
		return nil, errs.Wrap(op, "", err)
	}
	return c, nil
}

// Close lets go of the socket. Devices stay as they are.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// findFamily asks the kernel for the number of a family.
func (c *Conn) findFamily(name string) (uint16, error) {
	var b builder
	b.text(unix.CTRL_ATTR_FAMILY_NAME, name)
	reply, err := c.ask(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, 1, b.bytes)
	if err != nil {
		return 0, err
	}
	var id uint16
	err = each(reply, func(kind uint16, value []byte) (err error) {
		if kind == unix.CTRL_ATTR_FAMILY_ID {
			id, err = u16(value)
		}
		return err
	})
	if err == nil && id == 0 {
		err = errs.Newf(errs.Protocol, "", name, "a family without a number")
	}
	return id, err
}

// call runs a command of the family and returns the attributes of its answer.
func (c *Conn) call(command uint8, attrs []byte) ([]byte, error) {
	reply, err := c.ask(c.family, command, familyVersion, attrs)
	if err == unix.EBUSY {
		return nil, errs.New(errs.Busy, "", "", err)
	}
	return reply, err
}

func (c *Conn) ask(family uint16, command, version uint8, attrs []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	m := message(family, unix.NLM_F_REQUEST|unix.NLM_F_ACK, c.seq, command, version, attrs)
	// The kernel does what is asked inside of this call, and finds the descriptors of this process.
	err := unix.Sendto(c.fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err != nil {
		return nil, err
	}
	var a answer
	for !a.over {
		n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err == nil {
			err = a.read(c.buf[:n], c.seq)
		}
		if err != nil {
			return nil, err
		}
	}
	return a.attrs, a.err
}
