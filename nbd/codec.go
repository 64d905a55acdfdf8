package nbd

import "encoding/binary"

// A request's header:
//
//	 0        4       6      8        16       24       28
//	+--------+-------+------+--------+--------+--------+
//	| magic  | flags | cmd  | cookie | offset | length |  [length bytes, WRITE only]
//	+--------+-------+------+--------+--------+--------+
const requestBytes = 28

type header struct {
	flags  uint16
	cmd    uint16
	cookie uint64
	offset uint64
	length uint32
}

// decodeRequest reads a header out of requestBytes bytes; false if the magic is wrong, after which
// nothing that follows on the stream can be trusted.
func decodeRequest(p []byte) (h header, ok bool) {
	_ = p[requestBytes-1]
	if binary.BigEndian.Uint32(p) != magicRequest {
		return h, false
	}
	h.flags = binary.BigEndian.Uint16(p[4:])
	h.cmd = binary.BigEndian.Uint16(p[6:])
	h.cookie = binary.BigEndian.Uint64(p[8:])
	h.offset = binary.BigEndian.Uint64(p[16:])
	h.length = binary.BigEndian.Uint32(p[24:])
	return h, true
}

// A simple reply: magic u32, error u32, cookie u64.
const simpleBytes = 16

func appendSimple(p []byte, errno uint32, cookie uint64) []byte {
	p = binary.BigEndian.AppendUint32(p, magicSimple)
	p = binary.BigEndian.AppendUint32(p, errno)
	return binary.BigEndian.AppendUint64(p, cookie)
}

// A structured reply's chunk:
//
//	 0        4       6      8        16       20
//	+--------+-------+------+--------+--------+
//	| magic  | flags | type | cookie | length |  length bytes
//	+--------+-------+------+--------+--------+
//
// of which OFFSET_DATA begins with an offset u64, OFFSET_HOLE is offset u64 and size u32,
// BLOCK_STATUS begins with a context u32, ERROR is error u32, message length u16, message, and
// for ERROR_OFFSET an offset u64 at the end.
const (
	chunkHeaderBytes = 20
	chunkPrefixMax   = chunkHeaderBytes + 12                 // the longest that precedes data
	chunkErrorMax    = chunkHeaderBytes + 6 + messageMax + 8 // the longest error chunk
)

func appendChunk(p []byte, flags, kind uint16, cookie uint64, length uint32) []byte {
	p = binary.BigEndian.AppendUint32(p, magicStructured)
	p = binary.BigEndian.AppendUint16(p, flags)
	p = binary.BigEndian.AppendUint16(p, kind)
	p = binary.BigEndian.AppendUint64(p, cookie)
	return binary.BigEndian.AppendUint32(p, length)
}

func appendErrorChunk(p []byte, cookie uint64, errno uint32, message string) []byte {
	p = appendChunk(p, chunkDone, chunkError, cookie, uint32(6+len(message)))
	p = binary.BigEndian.AppendUint32(p, errno)
	p = binary.BigEndian.AppendUint16(p, uint16(len(message)))
	return append(p, message...)
}

func appendErrorOffset(p []byte, cookie uint64, errno uint32, message string, off uint64) []byte {
	p = appendChunk(p, chunkDone, chunkErrorOffset, cookie, uint32(14+len(message)))
	p = binary.BigEndian.AppendUint32(p, errno)
	p = binary.BigEndian.AppendUint16(p, uint16(len(message)))
	p = append(p, message...)
	return binary.BigEndian.AppendUint64(p, off)
}

// An option's header: magic u64, option u32, length u32. Its reply's: magic u64, option u32, type
// u32, length u32.
const optionBytes = 16

func decodeOption(p []byte) (opt, length uint32, ok bool) {
	_ = p[optionBytes-1]
	ok = binary.BigEndian.Uint64(p) == magicOption
	return binary.BigEndian.Uint32(p[8:]), binary.BigEndian.Uint32(p[12:]), ok
}

func appendOptionReply(p []byte, opt, kind uint32, length int) []byte {
	p = binary.BigEndian.AppendUint64(p, magicOptionReply)
	p = binary.BigEndian.AppendUint32(p, opt)
	p = binary.BigEndian.AppendUint32(p, kind)
	return binary.BigEndian.AppendUint32(p, uint32(length))
}

// cursor walks over option data; the first field that does not fit sets bad and stays so.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.rest)) {
		c.bad = true
		return nil
	}
	p := c.rest[:n]
	c.rest = c.rest[n:]
	return p
}

func (c *cursor) u16() uint16 {
	if p := c.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// text takes a string that its length as u32 precedes.
func (c *cursor) text() string {
	p := c.take(uint64(c.u32()))
	if !validText(p) {
		c.bad = true
		return ""
	}
	return string(p)
}

// validText is the protocol's idea of a string, except that bytes outside of UTF-8 pass: they
// name no export and are never shown.
func validText(p []byte) bool {
	if len(p) > stringMax {
		return false
	}
	for _, b := range p {
		if b == 0 {
			return false
		}
	}
	return true
}

// infoRequest is the data of INFO and GO: name, u16 count, count times u16 information type.
type infoRequest struct {
	name  string
	wants []uint16
}

func decodeInfo(p []byte) (r infoRequest, ok bool) {
	c := cursor{rest: p}
	r.name = c.text()
	n := int(c.u16())
	if c.bad || len(c.rest) != 2*n {
		return infoRequest{}, false
	}
	r.wants = make([]uint16, n)
	for i := range r.wants {
		r.wants[i] = c.u16()
	}
	return r, true
}

// metaRequest is the data of LIST_META_CONTEXT and SET_META_CONTEXT: name, u32 count, count
// queries.
type metaRequest struct {
	name    string
	queries []string
}

func decodeMeta(p []byte) (r metaRequest, ok bool) {
	c := cursor{rest: p}
	r.name = c.text()
	n := uint64(c.u32())
	// A query takes at least its length field, so the data bounds what we allocate.
	if c.bad || n > uint64(len(c.rest)/4) {
		return metaRequest{}, false
	}
	r.queries = make([]string, 0, n)
	for range n {
		r.queries = append(r.queries, c.text())
	}
	if c.bad || len(c.rest) != 0 {
		return metaRequest{}, false
	}
	return r, true
}
