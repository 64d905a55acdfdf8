package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// A message, all fields in the host's byte order:
//
//	u32 length | u16 type | u16 flags | u32 sequence | u32 port     the netlink header
//	u8 command | u8 version | u16 0                                 the generic one
//	attributes: u16 length | u16 type | value, padded to 4 bytes
//
// An attribute's length counts its header, not the padding. A nested one has attributes as its
// value. Type unix.NLMSG_ERROR is an answer: i32 errno, negative, 0 for success, and the header of
// what it answers.
const (
	headerBytes  = unix.NLMSG_HDRLEN
	genericBytes = 4
	attrBytes    = unix.NLA_HDRLEN
	attrTypeMask = 0x3fff // without the bits for nested and byte order
)

// builder makes attributes.
type builder struct{ bytes []byte }

func (b *builder) attr(kind uint16, value []byte) {
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, uint16(attrBytes+len(value)))
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.bytes = append(b.bytes, value...)
	b.bytes = append(b.bytes, make([]byte, pad(len(value)))...)
}

func (b *builder) u32(kind uint16, v uint32) {
	b.attr(kind, binary.NativeEndian.AppendUint32(nil, v))
}

func (b *builder) u64(kind uint16, v uint64) {
	b.attr(kind, binary.NativeEndian.AppendUint64(nil, v))
}

func (b *builder) text(kind uint16, s string) { b.attr(kind, append([]byte(s), 0)) }

func (b *builder) nested(kind uint16, fill func(*builder)) {
	var inner builder
	fill(&inner)
	b.attr(kind|unix.NLA_F_NESTED, inner.bytes)
}

// pad is how many bytes follow a value up to the next multiple of 4.
func pad(n int) int { return -n & 3 }

// message puts the headers before attributes.
func message(kind, flags uint16, seq uint32, command, version uint8, attrs []byte) []byte {
	size := headerBytes + genericBytes + len(attrs)
	m := make([]byte, 0, size)
	m = binary.NativeEndian.AppendUint32(m, uint32(size))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags)
	m = binary.NativeEndian.AppendUint32(m, seq)
	m = binary.NativeEndian.AppendUint32(m, 0)
	m = append(m, command, version, 0, 0)
	return append(m, attrs...)
}

var errShort = errs.Newf(errs.Protocol, "", "", "a message of the kernel is cut short")

// each calls fn for every attribute.
func each(b []byte, fn func(kind uint16, value []byte) error) error {
	for len(b) > 0 {
		if len(b) < attrBytes {
			return errShort
		}
		length := int(binary.NativeEndian.Uint16(b))
		kind := binary.NativeEndian.Uint16(b[2:]) & attrTypeMask
		if length < attrBytes || length > len(b) {
			return errShort
		}
		if err := fn(kind, b[attrBytes:length]); err != nil {
			return err
		}
		b = b[min(len(b), length+pad(length)):]
	}
	return nil
}

func u32(value []byte) (uint32, error) {
	if len(value) < 4 {
		return 0, errShort
	}
	return binary.NativeEndian.Uint32(value), nil
}

func u16(value []byte) (uint16, error) {
	if len(value) < 2 {
		return 0, errShort
	}
	return binary.NativeEndian.Uint16(value), nil
}

// answer is what one datagram of the kernel says to a request.
type answer struct {
	attrs []byte // of a reply that belongs to it
	over  bool   // the kernel has said that it is done
	err   error  // what it was refused with
}

// read takes a datagram apart. What belongs to another sequence is passed over.
func (a *answer) read(b []byte, seq uint32) error {
	for len(b) > 0 {
		if len(b) < headerBytes {
			return errShort
		}
		length := int(binary.NativeEndian.Uint32(b))
		kind, number := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:])
		if length < headerBytes || length > len(b) {
			return errShort
		}
		if number == seq {
			if err := a.take(kind, b[headerBytes:length]); err != nil {
				return err
			}
		}
		b = b[min(len(b), length+pad(length)):]
	}
	return nil
}

func (a *answer) take(kind uint16, body []byte) error {
	switch kind {
	case unix.NLMSG_ERROR:
		code, err := u32(body)
		if err != nil {
			return err
		}
		if code != 0 {
			a.err = unix.Errno(-int32(code))
		}
		a.over = true
	case unix.NLMSG_DONE:
		a.over = true
	case unix.NLMSG_NOOP:
	default:
		if len(body) < genericBytes {
			return errShort
		}
		a.attrs = append(a.attrs, body[genericBytes:]...)
	}
	return nil
}
