package exio

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// The driver of plain sockets. The protocol is that of the fabric's driver, but an accepted message
// follows as a data frame, which is read from the socket straight into the pieces of its read. It
// asks nobody who it is: that is up to who has made the connection.

// socketBuffer is what is read at once where headers are expected.
const socketBuffer = 32 << 10

// frame is what waits to be written to a socket.
type frame struct {
	head   []byte
	pieces [][]byte
	task   *task // ends when the frame has been written
}

type socket struct {
	*engine
	nc net.Conn

	// frames is guarded by engine.mu; it is bounded by the protocol.
	frames []frame
	more   *sync.Cond

	running sync.WaitGroup
	done    chan struct{}
}

// NewSocket makes a handle of a connection, which belongs to it from then on. The other end does
// the same, with the same options.
func NewSocket(nc net.Conn, opts Options) (Handle, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &socket{nc: nc, done: make(chan struct{})}
	s.engine = newEngine(opts, s, s.end)
	s.name = nc.LocalAddr().String() + "->" + nc.RemoteAddr().String()
	s.more = sync.NewCond(&s.mu)
	s.running.Add(2)
	go s.receive()
	go s.transmit()
	go func() {
		s.running.Wait()
		s.fail()
		close(s.done)
	}()
	return s, nil
}

// end is called when the connection has failed.
func (s *socket) end() {
	_ = s.nc.Close() // both goroutines notice
	s.more.Broadcast()
}

// Read implements Handle.
func (s *socket) Read(op *Op) error { return s.read(op) }

// Write implements Handle.
func (s *socket) Write(op *Op) error { return s.write(op) }

// Info implements Handle.
func (s *socket) Info() Info { return Info{Driver: "socket", Name: s.name, Peer: "not asked"} }

// Close implements Handle.
func (s *socket) Close() error {
	s.close()
	<-s.done
	return nil
}

// lastMax is how long a peer that takes nothing any more may still be listened to.
const lastMax = time.Second

// transmit writes frames until the connection ends. Where it fails it leaves the end to receive:
// what the peer has said before may be there still.
func (s *socket) transmit() {
	defer s.running.Done()
	var failed error
	for {
		s.mu.Lock()
		for len(s.frames) == 0 && s.dead == nil {
			s.more.Wait()
		}
		frames, err := s.frames, s.dead
		s.frames = nil
		s.mu.Unlock()
		var out net.Buffers
		for _, f := range frames {
			out = append(append(out, f.head), f.pieces...)
		}
		if err == nil && failed == nil {
			if _, err = out.WriteTo(s.nc); err != nil {
				failed = errs.New(errs.Disconnected, "exio.Write", s.name, err)
				_ = s.nc.SetReadDeadline(time.Now().Add(lastMax)) // fails only on a closed socket
			}
		}
		s.mu.Lock()
		if failed != nil {
			err = failed
		}
		if err != nil && s.dead != nil {
			err = s.dead
		}
		for _, f := range frames {
			if f.task != nil {
				s.brokenLocked(s.wroteLocked(f.task, err))
			}
		}
		ended := s.dead != nil && len(s.frames) == 0
		s.leave()
		if ended {
			return
		}
	}
}

func (s *socket) push(h header, pieces [][]byte, t *task, words ...uint16) error {
	e := wire.Enc{B: h.append(make([]byte, 0, headerBytes+2))}
	for _, w := range words {
		e.U16(w)
	}
	s.frames = append(s.frames, frame{head: e.B, pieces: pieces, task: t})
	s.more.Signal()
	return nil
}

// sendEager implements carrier. The data is written from where it is.
func (s *socket) sendEager(h header, t *task) error { return s.push(h, t.op.Pieces, t) }

// sendRequest implements carrier.
func (s *socket) sendRequest(h header, _ *task) error { return s.push(h, nil, nil) }

// accept implements carrier.
func (s *socket) accept(t *task, a *arrival, want [][]byte) error {
	t.carry = want
	return s.push(s.stampLocked(header{kind: kindAccept, id: a.id, peer: t.id,
		length: uint64(a.length)}), nil, nil)
}

// sendWord implements carrier.
func (s *socket) sendWord(h header, kind errs.Kind) error {
	if h.kind == kindCredit {
		return s.push(h, nil, nil)
	}
	return s.push(h, nil, nil, uint16(kind))
}

// ended implements carrier.
func (s *socket) ended(*task) func() { return nil }

// receive reads frames until the connection ends.
func (s *socket) receive() {
	defer s.running.Done()
	in := bufio.NewReaderSize(s.nc, socketBuffer)
	head := make([]byte, headerBytes)
	for {
		_, err := io.ReadFull(in, head)
		var h header
		if err != nil {
			err = errs.New(errs.Disconnected, "exio.Read", s.name, err)
		} else if h, _, err = parseHeader(head); err == nil {
			err = s.take(&h, in)
		}
		if err != nil {
			s.mu.Lock()
			s.brokenLocked(err)
			s.leave()
			return
		}
	}
}

// take reads what is behind a header, and does what it says.
func (s *socket) take(h *header, in io.Reader) error {
	var body []byte
	switch {
	case h.kind == kindData:
		return s.data(h, in)
	case h.kind == kindEager && h.length > uint64(s.opts.EagerBytes):
		return malformed("%d bytes in an eager message", h.length)
	case h.kind == kindEager:
		body = make([]byte, h.length)
	case h.kind == kindRefuse || h.kind == kindFetched:
		body = make([]byte, 2)
	}
	if _, err := io.ReadFull(in, body); err != nil {
		return errs.New(errs.Disconnected, "exio.Read", s.name, err)
	}
	s.mu.Lock()
	defer s.leave()
	if s.dead != nil {
		return s.dead
	}
	if err := s.creditLocked(h.credits); err != nil {
		return err
	}
	switch h.kind {
	case kindEager:
		return s.arrived(&arrival{tag: h.tag, note: h.note, length: len(body), eager: true,
			payload: body, release: func() {}})
	case kindRequest:
		return s.arrived(&arrival{tag: h.tag, note: h.note, length: int(h.length), id: h.id})
	case kindCredit:
		return nil
	}
	return s.answerLocked(h, body)
}

// answerLocked takes what a reader says of a message that was announced.
func (s *socket) answerLocked(h *header, body []byte) error {
	t, err := s.lookLocked(s.writes, h.id)
	switch {
	case err != nil:
		return err
	case t.moving || h.kind != kindAccept && h.kind != kindRefuse ||
		h.kind == kindAccept && h.length != uint64(t.bytes):
		return malformed("a message that was not asked for")
	case h.kind == kindRefuse:
		kind, err := parseKind(body)
		if err != nil {
			return err
		}
		return s.wroteLocked(t, errs.Newf(kind, "exio.Write", s.name,
			"the reader has refused the message"))
	}
	t.moving = true
	return s.push(s.stampLocked(header{kind: kindData, peer: h.peer, tag: t.op.Tag,
		length: h.length}), t.op.Pieces, t)
}

// data reads a message into the pieces of its read.
func (s *socket) data(h *header, in io.Reader) error {
	s.mu.Lock()
	t, err := s.lookLocked(s.reads, h.peer)
	if err == nil && h.length != uint64(t.sent) {
		err = malformed("%d bytes of a message of %d", h.length, t.sent)
	}
	if err == nil && s.dead != nil {
		err = s.dead
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	t.moving = true
	want := t.carry.([][]byte)
	err = s.creditLocked(h.credits)
	s.leave()
	for _, p := range want {
		if err == nil {
			_, err = io.ReadFull(in, p)
		}
	}
	if err != nil && errs.KindOf(err) != errs.Protocol {
		err = errs.New(errs.Disconnected, "exio.Read", s.name, err)
	}
	s.mu.Lock()
	s.filledLocked(t, err)
	s.leave()
	return err
}
