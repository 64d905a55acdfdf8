package transfer

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
	"github.com/sluice-storage/sluice/wire"
)

// Control messages go over a connection of their own, with the tag tagControl. Each begins with its
// kind, one byte; numbers are big-endian, text and bytes have their length before them (u32):
//
//	hello     |version u8 |host 32|
//	offers    |host 32 |key 16 |count u8| count x |driver |address |token 32|
//	probe     |handle u8 |block u32 |depth u16 |count u32 |shape|      probed says that all have come
//	put       |handle u8 |name |memory bool |mode u32 |overwrite bool |restart bool |moving|
//	get       |handle u8 |name |memory bool |moving|             handle 255: only how long it is
//	opened    |size i64 |mode u32 |
//	want      |first u32 |count u32| count x |has u8 |sum u32|
//	sent      |first u32 |count u32| count x |sent u8 |sum u32|
//	finished  |sum u32 |moved i64 |skipped i64|
//	failed    |kind u16 |text|
//	alive     nothing: the other end is at work, which takes long
//
//	moving is |size i64 |block u32 |depth u16 |timeout in ms u32 |verify bool |shape|
//	shape is  |count u16 |bytes u32 |stride u32|
//
// A connection for data begins with the message tagJoin: |key 16 |handle u8|. Then its messages are
// blocks: the tag is the index, the note the CRC-32C.
const (
	protocolVersion = 1

	tagControl = 1
	tagJoin    = 2

	controlMax = 12 << 10 // bytes of a control message
	windowMax  = 1024     // blocks of a window: 5 bytes each
	offersMax  = 16
	textMax    = 1024
	keyBytes   = 16
	noHandle   = 255
)

const (
	msgHello uint8 = iota + 1
	msgOffers
	msgProbe
	msgProbed
	msgPut
	msgGet
	msgOpened
	msgWant
	msgSent
	msgFinished
	msgFailed
	msgAlive
	msgEnd
)

// message is any of them: which fields count says its kind.
type message struct {
	kind uint8

	host    [32]byte
	key     [keyBytes]byte
	offers  []offer
	handle  int
	count   int // of probes
	name    string
	memory  bool
	mode    uint32
	put     Creation
	moving  Options
	size    int64
	first   int
	blocks  []block
	sum     uint32
	moved   int64
	skipped int64
	failure errs.Kind
	text    string
}

// block is what one end says of a block: that it has it, or has sent it.
type block struct {
	set bool
	sum uint32
}

// offer is a way in which a service can be reached.
type offer struct {
	driver, addr string
	token        [32]byte
}

func putMoving(e *wire.Enc, size int64, o *Options) {
	e.I64(size)
	e.U32(uint32(o.Block))
	e.U16(uint16(o.Depth))
	e.U32(uint32(o.Timeout / time.Millisecond))
	e.Bool(o.Verify)
	putShape(e, o.Shape)
}

func putShape(e *wire.Enc, s Shape) {
	e.U16(uint16(s.Count))
	e.U32(uint32(s.Bytes))
	e.U32(uint32(s.Stride))
}

func getMoving(d *wire.Dec) (size int64, o Options) {
	size = d.I64()
	o.Block = int(d.U32())
	o.Depth = int(d.U16())
	o.Timeout = time.Duration(d.U32()) * time.Millisecond
	o.Verify = d.Bool()
	o.Shape = getShape(d)
	return size, o
}

func getShape(d *wire.Dec) Shape {
	return Shape{Count: int(d.U16()), Bytes: int(d.U32()), Stride: int(d.U32())}
}

func (m *message) encode() []byte {
	var e wire.Enc
	e.U8(m.kind)
	switch m.kind {
	case msgHello:
		e.U8(protocolVersion)
		e.Raw(m.host[:])
	case msgOffers:
		e.Raw(m.host[:])
		e.Raw(m.key[:])
		e.U8(uint8(len(m.offers)))
		for _, o := range m.offers {
			e.String(o.driver)
			e.String(o.addr)
			e.Raw(o.token[:])
		}
	case msgProbe:
		e.U8(uint8(m.handle))
		e.U32(uint32(m.moving.Block))
		e.U16(uint16(m.moving.Depth))
		e.U32(uint32(m.count))
		putShape(&e, m.moving.Shape)
	case msgPut, msgGet:
		e.U8(uint8(m.handle))
		e.String(m.name)
		e.Bool(m.memory)
		if m.kind == msgPut {
			e.U32(uint32(m.put.Mode))
			e.Bool(m.put.Overwrite)
			e.Bool(m.put.Restart)
		}
		putMoving(&e, m.size, &m.moving)
	case msgOpened:
		e.I64(m.size)
		e.U32(m.mode)
	case msgWant, msgSent:
		e.U32(uint32(m.first))
		e.U32(uint32(len(m.blocks)))
		for _, b := range m.blocks {
			e.Bool(b.set)
			e.U32(b.sum)
		}
	case msgFinished:
		e.U32(m.sum)
		e.I64(m.moved)
		e.I64(m.skipped)
	case msgFailed:
		e.U16(uint16(m.failure))
		e.String(m.text[:min(len(m.text), textMax)])
	}
	return e.B
}

// decode reads a message of a peer, which is not trusted. What the numbers mean is checked by who
// uses them; that there are not too many of anything is checked here.
func decode(b []byte) (m message, err error) {
	d := wire.NewDec(b)
	m.kind = d.U8()
	switch m.kind {
	case msgHello:
		if v := d.U8(); d.Err() == nil && v != protocolVersion {
			return m, errs.Newf(errs.Version, "transfer", "", "the peer speaks version %d, this side %d",
				v, protocolVersion)
		}
		copy(m.host[:], d.Raw(32))
	case msgOffers:
		copy(m.host[:], d.Raw(32))
		copy(m.key[:], d.Raw(keyBytes))
		n := int(d.U8())
		if n > offersMax {
			d.Fail("too many offers")
		}
		for range n {
			if d.Err() != nil {
				break
			}
			o := offer{driver: d.String(16), addr: d.String(nameMax)}
			copy(o.token[:], d.Raw(32))
			m.offers = append(m.offers, o)
		}
	case msgProbe:
		m.handle = int(d.U8())
		m.moving.Block = int(d.U32())
		m.moving.Depth = int(d.U16())
		m.count = int(d.U32())
		m.moving.Shape = getShape(&d)
	case msgPut, msgGet:
		decodeRequest(&d, &m)
	case msgOpened:
		m.size = d.I64()
		m.mode = d.U32()
	case msgWant, msgSent:
		m.first = int(d.U32())
		for range d.Count(windowMax, 5) {
			m.blocks = append(m.blocks, block{d.Bool(), d.U32()})
		}
	case msgFinished:
		m.sum, m.moved, m.skipped = d.U32(), d.I64(), d.I64()
	case msgFailed:
		m.failure = errs.Kind(d.U16())
		m.text = d.String(textMax)
		if !m.failure.Valid() || m.failure == errs.OK {
			d.Fail("no such failure")
		}
	case msgProbed, msgAlive:
	default:
		d.Fail("no such message")
	}
	return m, d.Done()
}

func decodeRequest(d *wire.Dec, m *message) {
	m.handle = int(d.U8())
	m.name = d.String(nameMax)
	m.memory = d.Bool()
	if m.kind == msgPut {
		m.put.Mode = os.FileMode(d.U32()).Perm()
		m.put.Overwrite = d.Bool()
		m.put.Restart = d.Bool()
	}
	m.size, m.moving = getMoving(d)
	m.put.Size = m.size
}

// control is the connection that control messages go over.
type control struct {
	h     exio.Handle
	pulse pulse
	in    chan received
	said  atomic.Pointer[remoteError] // why the other end gives up; nil: it has not said so
}

// received is a message, or why there are no more.
type received struct {
	m   message
	err error
}

// remoteError is why the other end gives up.
type remoteError struct{ err error }

func (e *remoteError) Error() string { return e.err.Error() }
func (e *remoteError) Unwrap() error { return e.err }

// controlAhead is how many messages are received before somebody looks at them: two windows are
// open at most, and signs of life are not kept.
const controlAhead = 8

// newControl receives messages until the handle is closed.
func newControl(h exio.Handle) *control {
	c := &control{h: h, in: make(chan received, controlAhead)}
	c.pulse.began = time.Now()
	go c.receive()
	return c
}

func (c *control) receive() {
	defer close(c.in)
	b := make([]byte, controlMax)
	for {
		ev, err := exio.Wait(context.Background(), c.h.Read, exio.Op{Tag: tagControl,
			Pieces: [][]byte{b}})
		var m message
		if err == nil {
			c.pulse.beat()
			if m, err = decode(b[:ev.Len]); err != nil {
				err = errs.Wrap("transfer", c.h.Info().Name, err)
			} else if m.kind == msgFailed {
				remote := &remoteError{errs.Newf(m.failure, "the other side", "", "%s", m.text)}
				c.said.Store(remote)
				err = remote
			} else if m.kind == msgAlive {
				continue
			}
		}
		c.in <- received{m, err} // who has it reads until its end: see close
		if err != nil {
			return
		}
	}
}

// close ends the connection.
func (c *control) close() {
	_ = c.h.Close() // nothing is expected of it any more
	for range c.in {
	}
}

// send sends a message.
func (c *control) send(ctx context.Context, m message) error {
	_, err := exio.Wait(ctx, c.h.Write, exio.Op{Tag: tagControl, Pieces: [][]byte{m.encode()}})
	return err
}

// next is the next message. A failure of the other end is an error of its kind.
func (c *control) next(ctx context.Context) (message, error) {
	select {
	case r, ok := <-c.in:
		if !ok {
			return message{}, errs.Newf(errs.Disconnected, "transfer", c.h.Info().Name, "the connection "+
				"has ended")
		}
		return r.m, r.err
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

// reason is why a transfer has failed: what the other end says of it, where it says something and
// this end only knows that the connection has ended.
func (c *control) reason(err error) error {
	kind := errs.KindOf(err)
	if err == nil || kind != errs.Disconnected && kind != errs.Closed {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), failMax)
	defer cancel()
	for failed := error(nil); failed == nil; {
		_, failed = c.next(ctx)
	}
	if remote := c.said.Load(); remote != nil { // somebody may have taken it already
		return remote
	}
	return err
}

// expect is the next message, which must be of a kind.
func (c *control) expect(ctx context.Context, kind uint8) (message, error) {
	m, err := c.next(ctx)
	if err == nil && m.kind != kind {
		err = errs.Newf(errs.Protocol, "transfer", c.h.Info().Name, "message %d instead of %d", m.kind,
			kind)
	}
	return m, err
}

// fail tells the other end why this one gives up, unless it was that one which did. It may be gone.
func (c *control) fail(err error) {
	var remote *remoteError
	if errors.As(err, &remote) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), failMax)
	defer cancel()
	_ = c.send(ctx, message{kind: msgFailed, failure: errs.KindOf(err), text: err.Error()})
}

// failMax is how long a peer may take to hear of a failure.
const failMax = 2 * time.Second

// keepAlive tells the other end every second that this one is at work, until the function that it
// returns is called.
func (c *control) keepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = c.send(ctx, message{kind: msgAlive}) // its end is noticed by who reads
				c.pulse.beat()
			}
		}
	}()
	return func() { cancel(); <-over }
}

// pulse is when something was last seen of the other end, by the steady clock: that of the wall may
// be set meanwhile.
type pulse struct {
	began time.Time
	last  atomic.Int64 // since then
}

func (p *pulse) beat() { p.last.Store(int64(time.Since(p.began))) }

func (p *pulse) silence() time.Duration {
	return time.Since(p.began) - time.Duration(p.last.Load())
}

// watch ends a context with errs.TimedOut when nothing was seen for so long.
func (p *pulse) watch(ctx context.Context, limit time.Duration, name string) (
	context.Context, context.CancelFunc) {

	ctx, cancel := context.WithCancelCause(ctx)
	p.beat()
	go func() {
		tick := time.NewTicker(min(limit/4, time.Second))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if p.silence() > limit {
				cancel(errs.Newf(errs.TimedOut, "transfer", name, "the other side has done nothing for %v",
					limit))
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
