package nbd

import "math/bits"

// flagsOf are the flags that a command takes. FUA passes everywhere: the protocol has servers
// accept it on all commands.
func flagsOf(cmd uint16) uint16 {
	switch cmd {
	case cmdRead:
		return cmdFlagFUA | cmdFlagDF
	case cmdWriteZeroes:
		return cmdFlagFUA | cmdFlagNoHole | cmdFlagFastZero
	case cmdBlockStatus:
		return cmdFlagFUA | cmdFlagReqOne
	}
	return cmdFlagFUA
}

// check decides before anything is done whether a request can be served at all. It does not look at
// the payload, which the caller must take off the stream in any case.
func (c *conn) check(h *header) (errno uint32, why string) {
	if c.leaving.Load() || c.srv.draining.Load() {
		return nbdSHUTDOWN, "server is shutting down"
	}
	o := c.open
	switch h.cmd {
	case cmdRead, cmdFlush, cmdCache, cmdBlockStatus:
	case cmdWrite, cmdTrim, cmdWriteZeroes:
		if h.cmd == cmdWrite && h.payload != h.length {
			return nbdINVAL, "write without payload"
		}
		if o.readOnly {
			return nbdPERM, "export is read-only"
		}
		if h.cmd == cmdTrim && o.trimmer == nil {
			return nbdINVAL, "export does not trim"
		}
	default:
		return nbdINVAL, "unknown command"
	}
	if h.payload != 0 && h.cmd != cmdWrite {
		return nbdINVAL, "command takes no payload"
	}
	if h.flags&^flagsOf(h.cmd) != 0 {
		return nbdINVAL, "flag is not valid for this command"
	}
	if h.flags&cmdFlagDF != 0 && !c.structured {
		return nbdINVAL, "structured replies were not negotiated"
	}
	if h.cmd == cmdFlush {
		if h.offset != 0 || h.length != 0 {
			return nbdINVAL, "flush takes neither offset nor length"
		}
		return nbdOK, ""
	}
	if h.cmd == cmdBlockStatus && c.contexts == 0 {
		return nbdINVAL, "no metadata context was negotiated"
	}
	if h.cmd == cmdBlockStatus && h.length == 0 {
		return nbdINVAL, "empty range"
	}
	return c.checkRange(h)
}

func (c *conn) checkRange(h *header) (errno uint32, why string) {
	o := c.open
	if h.cmd == cmdRead && h.length > c.srv.cfg.acceptMax() {
		return nbdOVERFLOW, "read is too long"
	}
	if h.cmd == cmdWrite && h.length > c.srv.cfg.acceptMax() {
		return nbdINVAL, "write is too long"
	}
	if size := o.size.Load(); h.offset > size || h.length > size-h.offset {
		if h.cmd == cmdWrite || h.cmd == cmdWriteZeroes {
			return nbdNOSPC, "range is past the end"
		}
		return nbdINVAL, "range is past the end"
	}
	if (h.offset|h.length)&uint64(o.minimum-1) != 0 && !o.anywhere {
		return nbdINVAL, "range is not aligned to the minimum block size"
	}
	return nbdOK, ""
}

// bufferFor is how many bytes of payload memory a checked request needs.
func (c *conn) bufferFor(h *header) int {
	switch h.cmd {
	case cmdWrite:
		return int(h.length)
	case cmdRead:
		if c.open.slicer == nil && !c.streams(h) {
			return int(h.length)
		}
	case cmdBlockStatus:
		return bits.OnesCount64(c.contexts) * c.statusBytes(h)
	}
	return 0
}

// runsInline tells whether the reading goroutine runs the request itself. It must not when the
// export may keep it waiting.
func (c *conn) runsInline(req *request) bool {
	o := c.open
	switch req.cmd {
	case cmdCache:
		return o.instant || o.cacher == nil
	case cmdRead:
		if c.streams(&req.header) {
			return false
		}
		if o.slicer != nil {
			return o.instant || !c.asksMap(req)
		}
		return o.instant && req.length <= inlineBytes || c.readNow(req)
	case cmdWrite:
		return o.instant && req.length <= inlineBytes
	case cmdFlush, cmdBlockStatus:
		return o.instant
	}
	return false
}
