// Package netlink tells the kernel's NBD client (drivers/block/nbd.c) what to do, by generic
// netlink: connect a device to sockets, give it others or another size, disconnect it, and say
// which are connected. The sockets are handed over as file descriptors of the calling process, in
// the transmission phase of the protocol.
//
// It knows nothing of the NBD protocol itself, and keeps no state but its socket.
//
// Read nbd.go first (the commands), then message.go (their bytes) and conn.go (the socket).
package netlink

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Any lets the kernel choose the device.
const Any = -1

// The family's name, its commands and attributes, as the kernel's nbd-netlink.h has them.
const (
	familyName    = "nbd"
	familyVersion = 1

	cmdConnect     = 1
	cmdDisconnect  = 2
	cmdReconfigure = 3
	cmdStatus      = 5

	attrIndex       = 1
	attrSize        = 2
	attrBlockSize   = 3
	attrTimeout     = 4
	attrServerFlags = 5
	attrClientFlags = 6
	attrSockets     = 7
	attrDeadTimeout = 8
	attrDeviceList  = 9
	attrBackend     = 10

	sockItem = 1
	sockFD   = 1

	deviceItem      = 1
	deviceIndex     = 1
	deviceConnected = 2
)

// Device is what a device is connected with.
type Device struct {
	Index     int    // N of /dev/nbdN, or Any
	Size      int64  // bytes
	BlockSize int    // bytes: 512 to a page, a power of two
	Flags     uint16 // transmission flags, as the server told them

	// Timeout is after what time a request that has no answer is sent again, through another socket;
	// that of the first one is closed. Whole seconds; 0: 30 s with several sockets, never with one.
	Timeout time.Duration

	// DeadTimeout is for how long requests wait for a socket when none is left. Whole seconds; 0: they
	// fail at once.
	DeadTimeout time.Duration

	// Backend is a text that /sys/block/nbdN/backend shows, and that changes must name.
	Backend string

	Sockets []int // file descriptors; the kernel takes references of its own
}

// Change is a change of a device that is connected.
type Change struct {
	Index   int
	Backend string
	Size    int64 // bytes; 0: as it is
	Sockets []int // each replaces a socket that is dead; those that are too many are let go of
}

// Status is one device.
type Status struct {
	Index     int
	Connected bool
}

// Connect connects a device and returns its number.
func (c *Conn) Connect(d Device) (index int, err error) {
	var b builder
	if d.Index != Any {
		b.u32(attrIndex, uint32(d.Index))
	}
	b.u64(attrSize, uint64(d.Size))
	b.u64(attrBlockSize, uint64(d.BlockSize))
	b.u64(attrServerFlags, uint64(d.Flags))
	b.u64(attrClientFlags, 0)
	if d.Timeout > 0 {
		b.u64(attrTimeout, seconds(d.Timeout))
	}
	if d.DeadTimeout > 0 {
		b.u64(attrDeadTimeout, seconds(d.DeadTimeout))
	}
	if d.Backend != "" {
		b.text(attrBackend, d.Backend)
	}
	b.sockets(d.Sockets)
	reply, err := c.call(cmdConnect, b.bytes)
	if err != nil {
		return 0, errs.Wrap("netlink.Connect", "", err)
	}
	index = Any
	err = each(reply, func(kind uint16, value []byte) error {
		if kind == attrIndex {
			n, err := u32(value)
			index = int(n)
			return err
		}
		return nil
	})
	if err == nil && index == Any {
		err = errs.Newf(errs.Protocol, "", "", "the kernel does not say which device it is")
	}
	return index, errs.Wrap("netlink.Connect", "", err)
}

// Reconfigure changes a device that is connected.
func (c *Conn) Reconfigure(ch Change) error {
	var b builder
	b.u32(attrIndex, uint32(ch.Index))
	if ch.Backend != "" {
		b.text(attrBackend, ch.Backend)
	}
	if ch.Size > 0 {
		b.u64(attrSize, uint64(ch.Size))
	}
	if len(ch.Sockets) > 0 {
		b.sockets(ch.Sockets)
	}
	_, err := c.call(cmdReconfigure, b.bytes)
	return errs.Wrap("netlink.Reconfigure", "", err)
}

// Disconnect ends a device's connections. Requests that are under way fail.
func (c *Conn) Disconnect(index int) error {
	var b builder
	b.u32(attrIndex, uint32(index))
	_, err := c.call(cmdDisconnect, b.bytes)
	return errs.Wrap("netlink.Disconnect", "", err)
}

// Connected tells whether a device is connected; one that is not there is not.
func (c *Conn) Connected(index int) (bool, error) {
	list, err := c.status(index)
	for _, s := range list {
		if s.Index == index {
			return s.Connected, err
		}
	}
	return false, err
}

// List tells of all devices that there are.
func (c *Conn) List() ([]Status, error) { return c.status(Any) }

func (c *Conn) status(index int) ([]Status, error) {
	var b builder
	if index != Any {
		b.u32(attrIndex, uint32(index))
	}
	reply, err := c.call(cmdStatus, b.bytes)
	if err != nil {
		return nil, errs.Wrap("netlink.Status", "", err)
	}
	list, err := decodeStatus(reply)
	return list, errs.Wrap("netlink.Status", "", err)
}

// decodeStatus reads the answer to a status: a list of items, each with a number and a byte.
func decodeStatus(reply []byte) (list []Status, err error) {
	err = each(reply, func(kind uint16, value []byte) error {
		if kind != attrDeviceList {
			return nil
		}
		return each(value, func(kind uint16, value []byte) error {
			if kind != deviceItem {
				return nil
			}
			s := Status{Index: Any}
			err := each(value, func(kind uint16, value []byte) error {
				switch {
				case kind == deviceIndex:
					n, err := u32(value)
					s.Index = int(n)
					return err
				case kind == deviceConnected && len(value) > 0:
					s.Connected = value[0] != 0
				}
				return nil
			})
			if s.Index != Any {
				list = append(list, s)
			}
			return err
		})
	})
	return list, err
}

// seconds rounds up: no time at all means something else to the kernel.
func seconds(d time.Duration) uint64 { return uint64((d + time.Second - 1) / time.Second) }

// sockets appends the list of sockets.
func (b *builder) sockets(fds []int) {
	b.nested(attrSockets, func(list *builder) {
		for _, fd := range fds {
			list.nested(sockItem, func(item *builder) { item.u32(sockFD, uint32(fd)) })
		}
	})
}
