package nbd

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
	if c.srv.draining.Load() {
		return nbdSHUTDOWN, "server is shutting down"
	}
	o := c.open
	switch h.cmd {
	case cmdRead, cmdFlush, cmdCache, cmdBlockStatus:
	case cmdWrite, cmdTrim, cmdWriteZeroes:
		if o.readOnly {
			return nbdPERM, "export is read-only"
		}
		if h.cmd == cmdTrim && o.trimmer == nil {
			return nbdINVAL, "export does not trim"
		}
	default:
		return nbdINVAL, "unknown command"
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
	if h.cmd == cmdBlockStatus && !c.meta {
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
	if h.offset > o.size || uint64(h.length) > o.size-h.offset {
		if h.cmd == cmdWrite || h.cmd == cmdWriteZeroes {
			return nbdNOSPC, "range is past the end"
		}
		return nbdINVAL, "range is past the end"
	}
	if (h.offset|uint64(h.length))&uint64(o.minimum-1) != 0 {
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
		if c.open.slicer == nil {
			return int(h.length)
		}
	case cmdBlockStatus:
		return 4 + 8*c.extentsMax(h)
	}
	return 0
}

// extentsMax bounds the descriptors of a block status; a client asks again for what is left.
func (c *conn) extentsMax(h *header) int {
	if h.flags&cmdFlagReqOne != 0 || c.open.mapper == nil {
		return 1
	}
	return 4095 // with the context's number this fills 32 KiB
}

// runsInline tells whether the reading goroutine runs the request itself. It must not when the
// export may keep it waiting.
func (c *conn) runsInline(req *request) bool {
	o := c.open
	switch req.cmd {
	case cmdCache:
		return true
	case cmdRead:
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
