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
	flags   uint16
	cmd     uint16
	cookie  uint64
	offset  uint64
	length  uint64 // of the range
	payload uint64 // bytes that follow the header
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
	h.length = uint64(binary.BigEndian.Uint32(p[24:]))
	if h.cmd == cmdWrite {
		h.payload = h.length
	}
	return h, true
}

// An extended request's header, which its length's meaning depends on the flag for payloads in:
//
//	 0        4       6      8        16       24       32
//	+--------+-------+------+--------+--------+--------+
//	| magic  | flags | cmd  | cookie | offset | length |  [length bytes, with the flag]
//	+--------+-------+------+--------+--------+--------+
const extRequestBytes = 32

// decodeExtRequest is decodeRequest for extended headers. The flag has done its work when it
// returns, and is cleared.
func decodeExtRequest(p []byte) (h header, ok bool) {
	_ = p[extRequestBytes-1]
	if binary.BigEndian.Uint32(p) != magicExtRequest {
		return h, false
	}
	h.flags = binary.BigEndian.Uint16(p[4:])
	h.cmd = binary.BigEndian.Uint16(p[6:])
	h.cookie = binary.BigEndian.Uint64(p[8:])
	h.offset = binary.BigEndian.Uint64(p[16:])
	h.length = binary.BigEndian.Uint64(p[24:])
	if h.flags&cmdFlagPayload != 0 {
		h.flags &^= cmdFlagPayload
		h.payload = h.length
	}
	return h, true
}

// decodeFilter reads the payload of a block status: the range's length u64, then the numbers of the
// contexts that are asked for, each u32. They come as bits; false if one is there twice, none is,
// or one cannot be.
func decodeFilter(p []byte) (length, contexts uint64, ok bool) {
	if len(p) < 12 || len(p)%4 != 0 {
		return 0, 0, false
	}
	length = binary.BigEndian.Uint64(p)
	for p = p[8:]; len(p) > 0; p = p[4:] {
		id := binary.BigEndian.Uint32(p)
		if id > contextsMax || contexts&(1<<id) != 0 {
			return 0, 0, false
		}
		contexts |= 1 << id
	}
	return length, contexts, true
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
// for ERROR_OFFSET an offset u64 at the end. With extended headers it is
//
//	 0        4       6      8        16       24       32
//	+--------+-------+------+--------+--------+--------+
//	| magic  | flags | type | cookie | offset | length |  length bytes
//	+--------+-------+------+--------+--------+--------+
//
// where offset is the request's, and BLOCK_STATUS_EXT begins with a context u32 and the number of
// descriptors u32.
const (
	chunkHeaderMax = 32
	chunkPrefixMax = chunkHeaderMax + 12                 // the longest that precedes data
	chunkErrorMax  = chunkHeaderMax + 6 + messageMax + 8 // the longest error chunk
)

func appendChunk(p []byte, flags, kind uint16, cookie uint64, length uint32) []byte {
	p = binary.BigEndian.AppendUint32(p, magicStructured)
	p = binary.BigEndian.AppendUint16(p, flags)
	p = binary.BigEndian.AppendUint16(p, kind)
	p = binary.BigEndian.AppendUint64(p, cookie)
	return binary.BigEndian.AppendUint32(p, length)
}

func appendExtChunk(p []byte, flags, kind uint16, cookie, offset, length uint64) []byte {
	p = binary.BigEndian.AppendUint32(p, magicExtReply)
	p = binary.BigEndian.AppendUint16(p, flags)
	p = binary.BigEndian.AppendUint16(p, kind)
	p = binary.BigEndian.AppendUint64(p, cookie)
	p = binary.BigEndian.AppendUint64(p, offset)
	return binary.BigEndian.AppendUint64(p, length)
}

// appendError is what follows the header of ERROR; of ERROR_OFFSET the offset follows.
func appendError(p []byte, errno uint32, message string) []byte {
	p = binary.BigEndian.AppendUint32(p, errno)
	p = binary.BigEndian.AppendUint16(p, uint16(len(message)))
	return append(p, message...)
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
