// Package wire is the vocabulary of bytes on the network: how fields are laid out, the header that
// every message carries, and the limits that a decoder holds a peer to. All integers are
// big-endian.
//
// It does no I/O and knows no services: the bodies of requests are laid out by their services with
// Enc and Dec.
//
// Read header.go first for what every message carries.
package wire

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
)

// Enc appends fields to B. The zero value is ready; B may be a reused buffer cut to length 0.
type Enc struct{ B []byte }

// U8 appends one byte.
func (e *Enc) U8(v uint8) { e.B = append(e.B, v) }

// Bool appends one byte, 0 or 1.
func (e *Enc) Bool(v bool) {
	if v {
		e.U8(1)
		return
	}
	e.U8(0)
}

// U16 appends two bytes.
func (e *Enc) U16(v uint16) { e.B = binary.BigEndian.AppendUint16(e.B, v) }

// U32 appends four bytes.
func (e *Enc) U32(v uint32) { e.B = binary.BigEndian.AppendUint32(e.B, v) }

// U64 appends eight bytes.
func (e *Enc) U64(v uint64) { e.B = binary.BigEndian.AppendUint64(e.B, v) }

// I64 appends eight bytes, two's complement.
func (e *Enc) I64(v int64) { e.U64(uint64(v)) }

// Bytes appends a four-byte length and the bytes.
func (e *Enc) Bytes(p []byte) {
	e.U32(uint32(len(p)))
	e.B = append(e.B, p...)
}

// String appends a four-byte length and the bytes of s.
func (e *Enc) String(s string) {
	e.U32(uint32(len(s)))
	e.B = append(e.B, s...)
}

// Raw appends bytes without a length.
func (e *Enc) Raw(p []byte) { e.B = append(e.B, p...) }

// Dec takes fields off the front of a message. The first field that does not fit sets Err; from
// then on every method returns zero values, so that a decoder checks once, at the end, with Done.
type Dec struct {
	b   []byte
	err error
}

// NewDec starts to decode b. Slices that Dec hands out point into b.
func NewDec(b []byte) Dec { return Dec{b: b} }

func (d *Dec) take(n int) []byte {
	if d.err != nil || n > len(d.b) {
		d.Fail("message ends inside a field")
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// Fail marks the message as malformed for a reason that only the caller can see. The first one
// stays.
func (d *Dec) Fail(why string) {
	if d.err == nil {
		d.err = errs.Newf(errs.Protocol, "wire.Decode", "", "%s", why)
	}
}

// U8 takes one byte.
func (d *Dec) U8() uint8 {
	p := d.take(1)
	if p == nil {
		return 0
	}
	return p[0]
}

// Bool takes one byte that must be 0 or 1.
func (d *Dec) Bool() bool {
	v := d.U8()
	if v > 1 {
		d.Fail("boolean is neither 0 nor 1")
	}
	return v == 1
}

// U16 takes two bytes.
func (d *Dec) U16() uint16 {
	p := d.take(2)
	if p == nil {
		return 0
	}
	return binary.BigEndian.Uint16(p)
}

// U32 takes four bytes.
func (d *Dec) U32() uint32 {
	p := d.take(4)
	if p == nil {
		return 0
	}
	return binary.BigEndian.Uint32(p)
}

// U64 takes eight bytes.
func (d *Dec) U64() uint64 {
	p := d.take(8)
	if p == nil {
		return 0
	}
	return binary.BigEndian.Uint64(p)
}

// I64 takes eight bytes, two's complement.
func (d *Dec) I64() int64 { return int64(d.U64()) }

// Size takes eight bytes that must be a count or an offset: not negative as an int64.
func (d *Dec) Size() int64 {
	v := d.I64()
	if v < 0 {
		d.Fail("offset or length is negative")
		return 0
	}
	return v
}

// Bytes takes a length of at most limit and that many bytes, which point into the message.
func (d *Dec) Bytes(limit int) []byte {
	n := d.U32()
	if d.err == nil && uint64(n) > uint64(limit) {
		d.Fail("field is longer than its limit")
		return nil
	}
	return d.take(int(n))
}

// String takes a length of at most limit and that many bytes as a string of its own.
func (d *Dec) String(limit int) string { return string(d.Bytes(limit)) }

// Raw takes n bytes without a length.
func (d *Dec) Raw(n int) []byte { return d.take(n) }

// Count takes a four-byte number of items, at most limit, each of which needs at least itemBytes
// more bytes of the message. So a peer cannot make the receiver allocate for items that it never
// sent.
func (d *Dec) Count(limit, itemBytes int) int {
	n := d.U32()
	if d.err != nil {
		return 0
	}
	if uint64(n) > uint64(limit) || uint64(n)*uint64(itemBytes) > uint64(len(d.b)) {
		d.Fail("count is larger than its limit or than the message")
		return 0
	}
	return int(n)
}

// Rest is what has not been taken yet.
func (d *Dec) Rest() []byte { return d.b }

// Err is the first failure so far.
func (d *Dec) Err() error { return d.err }

// Done ends the decoding: the first failure, or an error when bytes are left over.
func (d *Dec) Done() error {
	if d.err == nil && len(d.b) != 0 {
		d.Fail("message is longer than its fields")
	}
	return d.err
}
