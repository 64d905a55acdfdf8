package systest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// nbdClient is the smallest client that can check promises: one request at a time, simple replies.
// It is written against the protocol document and shares no code with the server.
type nbdClient struct {
	conn   net.Conn
	size   uint64
	flags  uint16
	cookie uint64
}

const (
	nbdMagic    = 0x4e42444d41474943
	nbdIHaveOpt = 0x49484156454F5054
	nbdOptReply = 0x0003e889045565a9
	nbdRequest  = 0x25609513
	nbdSimple   = 0x67446698

	nbdCmdRead  = 0
	nbdCmdWrite = 1
	nbdCmdFlush = 3
	nbdFlagFUA  = 1
)

// dialNBD connects and negotiates export by NBD_OPT_GO.
func dialNBD(network, addr, export string) (*nbdClient, error) {
	conn, err := net.DialTimeout(network, addr, 2*time.Second)
	if err != nil {
		return nil, err
	}
	c := &nbdClient{conn: conn}
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	if err := c.negotiate(export); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *nbdClient) negotiate(export string) error {
	var hello struct {
		Magic, Opt uint64
		Flags      uint16
	}
	if err := binary.Read(c.conn, binary.BigEndian, &hello); err != nil {
		return err
	}
	if hello.Magic != nbdMagic || hello.Opt != nbdIHaveOpt || hello.Flags&1 == 0 {
		return fmt.Errorf("not a fixed newstyle server: %+v", hello)
	}
	var b []byte
	b = binary.BigEndian.AppendUint32(b, 3) // fixed newstyle, no zeroes
	b = binary.BigEndian.AppendUint64(b, nbdIHaveOpt)
	b = binary.BigEndian.AppendUint32(b, 7) // GO
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(export)+2))
	b = binary.BigEndian.AppendUint32(b, uint32(len(export)))
	b = append(b, export...)
	b = binary.BigEndian.AppendUint16(b, 0)
	if _, err := c.conn.Write(b); err != nil {
		return err
	}
	return c.awaitGo()
}

func (c *nbdClient) awaitGo() error {
	for {
		var h struct {
			Magic     uint64
			Opt, Type uint32
			Len       uint32
		}
		if err := binary.Read(c.conn, binary.BigEndian, &h); err != nil {
			return err
		}
		data := make([]byte, h.Len)
		if _, err := io.ReadFull(c.conn, data); err != nil {
			return err
		}
		switch {
		case h.Magic != nbdOptReply:
			return fmt.Errorf("option reply with magic %x", h.Magic)
		case h.Type == 1: // ACK
			return nil
		case h.Type == 3 && len(data) >= 12 && binary.BigEndian.Uint16(data) == 0:
			c.size = binary.BigEndian.Uint64(data[2:])
			c.flags = binary.BigEndian.Uint16(data[10:])
		case h.Type&(1<<31) != 0:
			return fmt.Errorf("server refused the export: error %d %q", h.Type&^(1<<31), data)
		}
	}
}

func (c *nbdClient) do(cmd, flags uint16, off uint64, length uint32, send, recv []byte) error {
	c.cookie++
	b := binary.BigEndian.AppendUint32(nil, nbdRequest)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, cmd)
	b = binary.BigEndian.AppendUint64(b, c.cookie)
	b = binary.BigEndian.AppendUint64(b, off)
	b = binary.BigEndian.AppendUint32(b, length)
	b = append(b, send...)
	_ = c.conn.SetDeadline(time.Now().Add(90 * time.Second))
	if _, err := c.conn.Write(b); err != nil {
		return err
	}
	var rep struct {
		Magic, Err uint32
		Cookie     uint64
	}
	if err := binary.Read(c.conn, binary.BigEndian, &rep); err != nil {
		return err
	}
	if rep.Magic != nbdSimple || rep.Cookie != c.cookie {
		return fmt.Errorf("reply %+v to request %d", rep, c.cookie)
	}
	if rep.Err != 0 {
		return fmt.Errorf("nbd error %d", rep.Err)
	}
	_, err := io.ReadFull(c.conn, recv)
	return err
}

func (c *nbdClient) read(p []byte, off uint64) error {
	return c.do(nbdCmdRead, 0, off, uint32(len(p)), nil, p)
}

func (c *nbdClient) write(p []byte, off uint64, fua bool) error {
	var flags uint16
	if fua {
		flags = nbdFlagFUA
	}
	return c.do(nbdCmdWrite, flags, off, uint32(len(p)), p, nil)
}

func (c *nbdClient) flush() error { return c.do(nbdCmdFlush, 0, 0, 0, nil, nil) }

func (c *nbdClient) close() { c.conn.Close() }
