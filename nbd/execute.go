package nbd

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
)

const (
	zeroPieceBytes = 256 << 10 // zeroes written at a time through exports that are no Zeroer
	nowBytes       = 64 << 10  // larger reads go to a worker even if they need no waiting
	readExtents    = 16        // holes and data runs told apart in one read; the rest goes as data

	// holeBytes is the shortest read that is worth asking a slow map for holes.
	holeBytes = 64 << 10
)

// runSlotted runs the request within the export's bound on calls.
func (c *conn) runSlotted(req *request) {
	who := gate.Request{Client: gate.Client{ID: c.id}, Bytes: 1}
	if err := c.open.slots.Enter(c.ctx, &req.slot, who); err != nil {
		req.fail(nbdSHUTDOWN, "connection is ending")
		return
	}
	defer c.open.slots.Leave(&req.slot)
	c.run(req)
}

// run executes a checked request and leaves its reply in it. A panic of the export ends the
// connection, not the process.
func (c *conn) run(req *request) {
	defer func() {
		if p := recover(); p != nil {
			// The export may still hold the buffer: leave it to the garbage collector, or to
			// whoever lent it for as long as the process lives.
			req.buf, req.lent = nil, nil
			req.fail(nbdIO, "internal error")
			c.panicked(p, debug.Stack())
		}
	}()
	if len(req.chunks) > 0 {
		return // readNow did it
	}
	c.passed(req, stateWait)
	defer c.passed(req, stateRun)
	if err := c.execute(c.ctx, req); err != nil && !req.answered {
		c.failRequest(req, err)
	}
}

// failRequest turns an export's error into the protocol's. The client gets its kind; the text,
// which may name paths and peers, goes to the log.
func (c *conn) failRequest(req *request, err error) {
	fast := req.cmd == cmdWriteZeroes && req.flags&cmdFlagFastZero != 0
	kind := errs.KindOf(err)
	if fast && kind == errs.Unsupported {
		req.fail(nbdNOTSUP, "cannot zero fast")
		return
	}
	c.srv.cfg.Logger.Error("nbd: request failed", "export", c.shared.entry.Name,
		"cmd", req.cmd, "offset", req.offset, "length", req.length, "err", err)
	if req.cmd == cmdRead {
		at := req.offset
		if req.located {
			at = req.errorOff
		}
		req.failAt(errnoOf(kind), kind.String(), at)
		return
	}
	req.fail(errnoOf(kind), kind.String())
}

func errnoOf(kind errs.Kind) uint32 {
	switch kind {
	case errs.NoSpace, errs.Quota, errs.TooBig:
		return nbdNOSPC
	case errs.Perm, errs.Access, errs.ReadOnly:
		return nbdPERM
	case errs.Invalid, errs.Unsupported:
		return nbdINVAL
	case errs.Shutdown:
		return nbdSHUTDOWN
	}
	return nbdIO
}

func (c *conn) execute(ctx context.Context, req *request) error {
	o, off, length := c.open, int64(req.offset), int64(req.length)
	fua := req.flags&cmdFlagFUA != 0
	switch req.cmd {
	case cmdRead:
		return c.read(ctx, req)
	case cmdWrite:
		if length == 0 {
			return nil
		}
		c.count.bytesIn.Add(length)
		return o.exp.WriteAt(ctx, req.buf, off, fua)
	case cmdFlush:
		return o.exp.Flush(ctx)
	case cmdTrim:
		return c.trim(ctx, off, length, fua)
	case cmdWriteZeroes:
		return c.zero(ctx, off, length, ZeroFlags{
			FUA:    fua,
			NoHole: req.flags&cmdFlagNoHole != 0,
			Fast:   req.flags&cmdFlagFastZero != 0,
		})
	case cmdBlockStatus:
		return c.blockStatus(ctx, req)
	}
	return o.cache(ctx, off, length)
}

// trim is a hint: an export that finds it cannot has still done what the protocol asks.
func (c *conn) trim(ctx context.Context, off, length int64, fua bool) error {
	if length == 0 {
		return nil
	}
	err := c.open.trimmer.Trim(ctx, off, length, fua)
	if errs.KindOf(err) == errs.Unsupported {
		return nil
	}
	return err
}

func (c *conn) zero(ctx context.Context, off, length int64, flags ZeroFlags) error {
	if length == 0 {
		return nil
	}
	o := c.open
	if o.zeroer != nil {
		err := o.zeroer.WriteZeroes(ctx, off, length, flags)
		if flags.Fast || errs.KindOf(err) != errs.Unsupported {
			return err
		}
	}
	if flags.Fast {
		return errs.New(errs.Unsupported, "nbd.WriteZeroes", "", nil)
	}
	for length > 0 {
		n := min(length, int64(len(c.srv.zeroes)))
		if err := o.exp.WriteAt(ctx, c.srv.zeroes[:n], off, false); err != nil {
			return err
		}
		off += n
		length -= n
	}
	if flags.FUA {
		return o.exp.Flush(ctx) // once, instead of once per piece
	}
	return nil
}

// readNow serves a small read at once if the export has it at hand.
func (c *conn) readNow(req *request) bool {
	o := c.open
	if o.now == nil || req.length == 0 || req.length > nowBytes {
		return false
	}
	c.passed(req, stateWait)
	if !o.now.ReadNow(req.buf, int64(req.offset)) {
		return false
	}
	c.passed(req, stateRun)
	c.count.bytesOut.Add(int64(req.length))
	req.add(chunkOffsetData, req.offset, uint32(req.length), req.buf)
	return true
}

// read fills the reply with data, and with holes where the client understands them.
func (c *conn) read(ctx context.Context, req *request) error {
	if req.length == 0 {
		return nil
	}
	if c.streams(&req.header) {
		return c.streamRead(ctx, req)
	}
	c.count.bytesOut.Add(int64(req.length))
	data := req.buf
	if c.open.slicer != nil {
		p, release, err := c.open.slicer.Slice(int64(req.offset), int(req.length))
		if err != nil {
			return err
		}
		data, req.release = p, release
	}
	if err := c.layOut(ctx, req, data); err != nil {
		return err
	}
	if c.open.slicer != nil {
		return nil
	}
	for i := range req.chunks {
		ch := &req.chunks[i]
		if ch.kind != chunkOffsetData {
			continue
		}
		if err := c.open.exp.ReadAt(ctx, ch.data, int64(ch.offset)); err != nil {
			req.errorOff, req.located = ch.offset, true
			var at *OffsetError
			if errors.As(err, &at) && at.Off > int64(ch.offset) &&
				at.Off < int64(ch.offset)+int64(ch.length) {
				req.errorOff = uint64(at.Off)
			}
			return err
		}
	}
	return nil
}

// asksMap tells whether a read looks for holes.
func (c *conn) asksMap(req *request) bool {
	o := c.open
	return c.structured && o.mapper != nil && req.flags&cmdFlagDF == 0 &&
		(o.instant || req.length >= holeBytes)
}

// layOut divides the range of a read into chunks of data and holes.
func (c *conn) layOut(ctx context.Context, req *request, data []byte) error {
	if c.asksMap(req) {
		var err error
		req.extents, err = c.mapRange(ctx, int64(req.offset), int64(req.length), readExtents,
			req.extents[:0])
		if err != nil {
			return err
		}
	}
	done, end := uint64(0), req.length
	dataFrom := uint64(0)
	flushData := func(to uint64) {
		if to > dataFrom {
			req.add(chunkOffsetData, req.offset+dataFrom, uint32(to-dataFrom), data[dataFrom:to])
		}
	}
	for _, e := range req.extents {
		n := min(uint64(e.Len), end-done)
		if e.Zero && n > 0 {
			flushData(done)
			req.add(chunkOffsetHole, req.offset+done, uint32(n), nil)
			dataFrom = done + n
		}
		done += n
	}
	flushData(end)
	return nil
}

// mapRange asks the export's map, if it has one. At least one extent of at least one byte comes
// back, so that whoever loops over it gets on.
func (c *conn) mapRange(
	ctx context.Context, off, length int64, most int, dst []Extent,
) ([]Extent, error) {
	if c.open.mapper == nil {
		return append(dst, Extent{Len: length}), nil
	}
	exts, err := c.open.mapper.Map(ctx, off, length, most, dst)
	if err != nil {
		return nil, err
	}
	if len(exts) == 0 || exts[0].Len <= 0 || len(exts) > most {
		return nil, errs.Newf(errs.IO, "nbd.Map", "", "%d extents of %d at %d",
			len(exts), most, off)
	}
	return exts, nil
}
