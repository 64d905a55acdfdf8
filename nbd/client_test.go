package nbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// client is a raw client that says exactly what a test wants, right or wrong.
type client struct {
	tb         testing.TB
	nc         net.Conn
	structured bool
	extended   bool
	cookie     uint64
	offsets    map[uint64]uint64 // of requests with extended headers, by cookie
}

// pair returns both ends of a unix socket.
func pair(tb testing.TB) (a, b net.Conn) {
	tb.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		ends[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			tb.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// serve makes a server that is shut down with the test.
func serve(tb testing.TB, cfg Config, entries ...Entry) *Server {
	tb.Helper()
	if cfg.DrainGrace == 0 {
		cfg.DrainGrace = time.Millisecond
	}
	s, err := NewServer(cfg, entries...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			tb.Errorf("Shutdown: %v", err)
		}
	})
	return s
}

// connect starts a connection that nothing was said on yet.
func connect(tb testing.TB, s *Server) *client {
	tb.Helper()
	a, b := pair(tb)
	return attach(tb, s, a, b)
}

func attach(tb testing.TB, s *Server, near, far net.Conn) *client {
	go s.ServeConn(far)
	c := &client{tb: tb, nc: near}
	_ = near.SetDeadline(time.Now().Add(time.Minute))
	tb.Cleanup(func() { near.Close() })
	return c
}

// greeted is a connection that is ready for options.
func greeted(tb testing.TB, s *Server) *client {
	tb.Helper()
	c := connect(tb, s)
	c.greet(flagFixedNewstyle | flagNoZeroes)
	return c
}

// ready is a connection in transmission on the named export, structured with base:allocation or
// plain.
func ready(tb testing.TB, s *Server, name string, structured bool) *client {
	tb.Helper()
	c := greeted(tb, s)
	if structured {
		c.mustAck(optStructuredReply, nil)
		c.mustAck(optSetMeta, metaData(name, metaBase))
		c.structured = true
	}
	c.mustAck(optGo, infoData(name))
	return c
}

// readyExt is a connection in transmission with extended headers and the contexts that are named,
// besides base:allocation.
func readyExt(tb testing.TB, s *Server, name string, contexts ...string) *client {
	tb.Helper()
	c := greeted(tb, s)
	c.mustAck(optExtHeaders, nil)
	c.structured, c.extended = true, true
	c.mustAck(optSetMeta, metaData(name, append([]string{metaBase}, contexts...)...))
	c.mustAck(optGo, infoData(name))
	return c
}

// readyOverPipe is a connection in transmission over a pipe, which holds no byte that is not read.
func readyOverPipe(tb testing.TB, s *Server, name string) *client {
	tb.Helper()
	near, far := net.Pipe()
	c := attach(tb, s, near, far)
	c.greet(flagFixedNewstyle | flagNoZeroes)
	c.mustAck(optGo, infoData(name))
	return c
}

func (c *client) write(p []byte) {
	c.tb.Helper()
	if _, err := c.nc.Write(p); err != nil {
		c.tb.Fatalf("write: %v", err)
	}
}

func (c *client) read(n int) []byte {
	c.tb.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(c.nc, p); err != nil {
		c.tb.Fatalf("read of %d bytes: %v", n, err)
	}
	return p
}

// wantEOF checks that the server ends the connection without another word.
func (c *client) wantEOF() {
	c.tb.Helper()
	n, err := c.nc.Read(make([]byte, 1))
	if n != 0 || err == nil || os.IsTimeout(err) {
		c.tb.Fatalf("connection goes on: %d bytes, %v", n, err)
	}
}

func (c *client) greet(flags uint32) {
	c.tb.Helper()
	if got := c.read(18); !bytes.Equal(got, []byte("NBDMAGICIHAVEOPT\x00\x03")) {
		c.tb.Fatalf("greeting %q", got)
	}
	c.write(binary.BigEndian.AppendUint32(nil, flags))
}

func optionMessage(opt uint32, data []byte) []byte {
	p := binary.BigEndian.AppendUint64(nil, magicOption)
	p = binary.BigEndian.AppendUint32(p, opt)
	p = binary.BigEndian.AppendUint32(p, uint32(len(data)))
	return append(p, data...)
}

type optionReply struct {
	kind uint32
	data []byte
}

// option sends one and collects its replies up to the final one.
func (c *client) option(opt uint32, data []byte) []optionReply {
	c.tb.Helper()
	c.write(optionMessage(opt, data))
	return c.optionReplies(opt)
}

func (c *client) optionReplies(opt uint32) (all []optionReply) {
	c.tb.Helper()
	for {
		h := c.read(20)
		if binary.BigEndian.Uint64(h) != magicOptionReply || binary.BigEndian.Uint32(h[8:]) != opt {
			c.tb.Fatalf("reply header %x to option %d", h, opt)
		}
		kind := binary.BigEndian.Uint32(h[12:])
		all = append(all, optionReply{kind, c.read(int(binary.BigEndian.Uint32(h[16:])))})
		if kind == repAck || kind&(1<<31) != 0 {
			return all
		}
	}
}

func (c *client) mustAck(opt uint32, data []byte) []optionReply {
	c.tb.Helper()
	all := c.option(opt, data)
	if last := all[len(all)-1]; last.kind != repAck {
		c.tb.Fatalf("option %d: %#x %q", opt, last.kind, last.data)
	}
	return all[:len(all)-1]
}

func (c *client) mustRefuse(opt uint32, data []byte, want uint32) {
	c.tb.Helper()
	all := c.option(opt, data)
	if len(all) != 1 || all[0].kind != want {
		c.tb.Fatalf("option %d: %#x, want %#x", opt, all[len(all)-1].kind, want)
	}
}

func text(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

func infoData(name string, wants ...uint16) []byte {
	p := binary.BigEndian.AppendUint16(text(name), uint16(len(wants)))
	for _, w := range wants {
		p = binary.BigEndian.AppendUint16(p, w)
	}
	return p
}

func metaData(name string, queries ...string) []byte {
	p := binary.BigEndian.AppendUint32(text(name), uint32(len(queries)))
	for _, q := range queries {
		p = append(p, text(q)...)
	}
	return p
}

func requestMessage(h header, payload []byte) []byte {
	p := binary.BigEndian.AppendUint32(nil, magicRequest)
	p = binary.BigEndian.AppendUint16(p, h.flags)
	p = binary.BigEndian.AppendUint16(p, h.cmd)
	p = binary.BigEndian.AppendUint64(p, h.cookie)
	p = binary.BigEndian.AppendUint64(p, h.offset)
	p = binary.BigEndian.AppendUint32(p, uint32(h.length))
	return append(p, payload...)
}

// extMessage is a request with an extended header as it is, the flag for a payload included.
func extMessage(h header, payload []byte) []byte {
	p := binary.BigEndian.AppendUint32(nil, magicExtRequest)
	p = binary.BigEndian.AppendUint16(p, h.flags)
	p = binary.BigEndian.AppendUint16(p, h.cmd)
	p = binary.BigEndian.AppendUint64(p, h.cookie)
	p = binary.BigEndian.AppendUint64(p, h.offset)
	p = binary.BigEndian.AppendUint64(p, h.length)
	return append(p, payload...)
}

// message is a request in the kind of headers of the connection.
func (c *client) message(h header, payload []byte) []byte {
	if !c.extended {
		return requestMessage(h, payload)
	}
	if c.offsets == nil {
		c.offsets = map[uint64]uint64{}
	}
	c.offsets[h.cookie] = h.offset
	if h.cmd == cmdWrite {
		h.flags |= cmdFlagPayload
	}
	return extMessage(h, payload)
}

// send sends a request without waiting for its reply.
func (c *client) send(cmd, flags uint16, off uint64, length uint32, payload []byte) uint64 {
	c.tb.Helper()
	c.cookie++
	h := header{flags: flags, cmd: cmd, cookie: c.cookie, offset: off, length: uint64(length)}
	c.write(c.message(h, payload))
	return c.cookie
}

// answer is a whole reply, reassembled.
type answer struct {
	cookie   uint64
	errno    uint32
	message  string
	located  bool
	errorOff uint64
	data     []byte // of a read
	kinds    []uint16
	extents  []uint32            // length, state, length, state ... of base:allocation
	states   map[uint32][]uint64 // the same of every context
}

// receive reads one reply to a request whose offset and length are given for reads.
func (c *client) receive(cmd uint16, off uint64, length uint32) answer {
	c.tb.Helper()
	return c.receiveAny(func(uint64) (uint16, uint64, uint32) { return cmd, off, length })
}

// receiveAny reads the next reply, whichever request it is for; what tells about that request.
func (c *client) receiveAny(what func(cookie uint64) (uint16, uint64, uint32)) (a answer) {
	c.tb.Helper()
	for first := true; ; first = false {
		h := c.read(16)
		magic := binary.BigEndian.Uint32(h)
		a.cookie = binary.BigEndian.Uint64(h[8:])
		cmd, off, length := what(a.cookie)
		if first && cmd == cmdRead {
			a.data = bytes.Repeat([]byte{0xee}, int(min(length, 128<<20)))
		}
		switch {
		case magic == magicSimple && (c.structured && cmd == cmdRead || c.extended):
			c.tb.Fatal("simple reply to a read although structured replies were negotiated")
		case magic == magicSimple:
			a.errno = binary.BigEndian.Uint32(h[4:])
			if cmd == cmdRead && a.errno == 0 {
				a.data = c.read(int(length))
			}
			return a
		case magic == magicExtReply && c.extended:
			if c.chunkExt(&a, h, off) {
				return a
			}
		case magic != magicStructured || !c.structured || c.extended:
			c.tb.Fatalf("reply magic %#x, structured %v", magic, c.structured)
		case c.chunk(&a, h, off):
			return a
		}
	}
}

// chunkExt reads the rest of an extended chunk.
func (c *client) chunkExt(a *answer, h []byte, off uint64) bool {
	c.tb.Helper()
	rest := c.read(16)
	if at := binary.BigEndian.Uint64(rest); at != c.offsets[a.cookie] {
		c.tb.Fatalf("reply to %d echoes offset %d, not %d", a.cookie, at, c.offsets[a.cookie])
	}
	return c.takeChunk(a, h, c.read(int(binary.BigEndian.Uint64(rest[8:]))), off)
}

// chunk reads the rest of a structured chunk after magic, flags, type and cookie, and tells whether
// it was the last of its reply.
func (c *client) chunk(a *answer, h []byte, off uint64) bool {
	c.tb.Helper()
	return c.takeChunk(a, h, c.read(int(binary.BigEndian.Uint32(c.read(4)))), off)
}

// takeChunk takes in the payload p of a chunk whose header began with h.
func (c *client) takeChunk(a *answer, h, p []byte, off uint64) bool {
	c.tb.Helper()
	kind := binary.BigEndian.Uint16(h[6:])
	a.kinds = append(a.kinds, kind)
	switch kind {
	case chunkNone:
	case chunkOffsetData:
		copy(a.data[binary.BigEndian.Uint64(p)-off:], p[8:])
	case chunkOffsetHole:
		at := binary.BigEndian.Uint64(p) - off
		clear(a.data[at : at+uint64(binary.BigEndian.Uint32(p[8:]))])
	case chunkBlockStatus, chunkStatusExt:
		if (kind == chunkStatusExt) != c.extended {
			c.tb.Fatalf("chunk type %d, extended %v", kind, c.extended)
		}
		a.status(c.tb, p, c.extended)
	case chunkError, chunkErrorOffset:
		a.errno = binary.BigEndian.Uint32(p)
		n := binary.BigEndian.Uint16(p[4:])
		a.message = string(p[6 : 6+n])
		if kind == chunkErrorOffset {
			a.located, a.errorOff = true, binary.BigEndian.Uint64(p[6+n:])
		}
	default:
		c.tb.Fatalf("chunk type %d", kind)
	}
	return binary.BigEndian.Uint16(h[4:])&chunkDone != 0
}

// status takes in the descriptors of one context.
func (a *answer) status(tb testing.TB, p []byte, extended bool) {
	tb.Helper()
	id := binary.BigEndian.Uint32(p)
	if a.states == nil {
		a.states = map[uint32][]uint64{}
	}
	if len(a.states[id]) > 0 {
		tb.Fatalf("two chunks of context %d", id)
	}
	if extended {
		if n := binary.BigEndian.Uint32(p[4:]); int(n)*16+8 != len(p) || n == 0 {
			tb.Fatalf("%d descriptors in %d bytes", n, len(p))
		}
		for p = p[8:]; len(p) > 0; p = p[8:] {
			a.states[id] = append(a.states[id], binary.BigEndian.Uint64(p))
		}
	} else {
		for p = p[4:]; len(p) > 0; p = p[4:] {
			a.states[id] = append(a.states[id], uint64(binary.BigEndian.Uint32(p)))
		}
	}
	if id == metaBaseID {
		for _, v := range a.states[id] {
			a.extents = append(a.extents, uint32(v))
		}
	}
}

// do sends a request and waits for its reply.
func (c *client) do(cmd, flags uint16, off uint64, length uint32, payload []byte) answer {
	c.tb.Helper()
	cookie := c.send(cmd, flags, off, length, payload)
	a := c.receive(cmd, off, length)
	if a.cookie != cookie {
		c.tb.Fatalf("cookie %d, want %d", a.cookie, cookie)
	}
	return a
}

// want does a request and checks its error.
func (c *client) want(
	errno uint32, cmd, flags uint16, off uint64, n uint32, payload []byte,
) answer {
	c.tb.Helper()
	a := c.do(cmd, flags, off, n, payload)
	if a.errno != errno {
		c.tb.Fatalf("cmd %d flags %#x %d+%d: error %d %q, want %d", cmd, flags, off, n, a.errno,
			a.message, errno)
	}
	return a
}
