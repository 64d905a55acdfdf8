package attach

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// The part of the protocol that a client needs to choose an export (all big-endian):
//
//	greeting       "NBDMAGIC" "IHAVEOPT" u16 flags      answered by u32 flags
//	option         "IHAVEOPT" u32 option u32 length data
//	its replies    u64 magic u32 option u32 type u32 length data, until type ack or an error
//	info export    u16 0 u64 size u16 transmission flags
//	info block     u16 3 u32 minimum u32 preferred u32 maximum
//
// Structured replies are not asked for: the kernel does not know them.
const (
	greetingMagic = "NBDMAGICIHAVEOPT"
	optionMagic   = 0x49484156454f5054
	replyMagic    = 0x0003e889045565a9

	fixedNewstyle = 1 << 0
	noZeroes      = 1 << 1

	optStartTLS = 5
	optGo       = 7

	repAck      = 1
	repInfo     = 3
	repError    = 1 << 31
	repPolicy   = repError + 2
	repTLSReqd  = repError + 5
	repUnknown  = repError + 6
	repShutdown = repError + 7

	infoExport    = 0
	infoBlockSize = 3

	flagReadOnly  = 1 << 1
	flagMultiConn = 1 << 8

	replyMax     = 64 << 10 // bytes of a reply's data
	repliesMax   = 64       // to one option
	handshakeMax = 20 * time.Second
)

// negotiate chooses an export. With secure TLS is started first. It returns what the transmission
// goes over, which is nc, or TLS over it. nothing is read ahead: the next byte belongs to the
// transmission.
func negotiate(ctx context.Context, nc net.Conn, name string, secure *tls.Config) (
	net.Conn, Export, error) {
	h := handshake{link: nc}
	e, err := h.within(ctx, func() (e Export, err error) {
		flags, err := h.greeting()
		if err != nil {
			return e, err
		}
		answer := uint32(fixedNewstyle | flags&noZeroes)
		if _, err := h.link.Write(binary.BigEndian.AppendUint32(nil, answer)); err != nil {
			return e, err
		}
		if secure != nil {
			if err := h.startTLS(ctx, secure); err != nil {
				return e, err
			}
		}
		if err := h.send(optGo, goData(name)); err != nil {
			return e, err
		}
		return h.chosen()
	})
	return h.link, e, errs.Wrap("attach.negotiate", name, err)
}

// negotiateOwn chooses the only export of a server of this process, which is known: all that it is
// told is written before it has said anything, so that neither side waits for the other's answer.
func negotiateOwn(ctx context.Context, nc net.Conn) (Export, error) {
	h := handshake{link: nc}
	e, err := h.within(ctx, func() (e Export, err error) {
		b := binary.BigEndian.AppendUint32(nil, fixedNewstyle|noZeroes)
		if _, err := h.link.Write(appendOption(b, optGo, goData(""))); err != nil {
			return e, err
		}
		if _, err := h.greeting(); err != nil {
			return e, err
		}
		return h.chosen()
	})
	return e, errs.Wrap("attach.negotiate", "", err)
}

// handshake is the option phase, of the client's side.
type handshake struct{ link net.Conn }

// within runs the handshake in the time that it may take.
func (h *handshake) within(ctx context.Context, run func() (Export, error)) (Export, error) {
	nc := h.link
	limit := time.Now().Add(handshakeMax)
	if at, ok := ctx.Deadline(); ok && at.Before(limit) {
		limit = at
	}
	if err := nc.SetDeadline(limit); err != nil {
		return Export{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	e, err := run()
	if err != nil {
		return Export{}, err
	}
	return e, nc.SetDeadline(time.Time{})
}

// greeting reads the server's, and returns its flags.
func (h *handshake) greeting() (flags uint16, err error) {
	var b [18]byte
	if _, err := io.ReadFull(h.link, b[:]); err != nil {
		return 0, err
	}
	flags = binary.BigEndian.Uint16(b[16:])
	if string(b[:16]) != greetingMagic || flags&fixedNewstyle == 0 {
		return 0, errs.Newf(errs.Protocol, "", "", "no server of the fixed newstyle is there")
	}
	return flags, nil
}

func (h *handshake) send(option uint32, data []byte) error {
	_, err := h.link.Write(appendOption(nil, option, data))
	return err
}

func appendOption(b []byte, option uint32, data []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, optionMagic)
	b = binary.BigEndian.AppendUint32(b, option)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// reply reads one reply to an option. An error of the server is an error.
func (h *handshake) reply(option uint32) (kind uint32, data []byte, err error) {
	var b [20]byte
	if _, err := io.ReadFull(h.link, b[:]); err != nil {
		return 0, nil, err
	}
	kind, length := binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[16:])
	if binary.BigEndian.Uint64(b[:]) != replyMagic || binary.BigEndian.Uint32(b[8:]) != option ||
		length > replyMax {
		return 0, nil, errs.Newf(errs.Protocol, "", "", "this is no reply to option %d", option)
	}
	data = make([]byte, length)
	if _, err := io.ReadFull(h.link, data); err != nil {
		return 0, nil, err
	}
	if kind&repError != 0 {
		return kind, nil, refusal(kind, string(data))
	}
	return kind, data, nil
}

// refusal is what a server refuses an option with.
func refusal(kind uint32, text string) error {
	if text == "" {
		text = "the server refuses"
	}
	k := errs.Invalid
	switch kind {
	case repPolicy, repTLSReqd:
		k = errs.Perm
	case repUnknown:
		k = errs.NotFound
	case repShutdown:
		k = errs.Shutdown
	}
	return errs.Newf(k, "", "", "%s (NBD error %d)", text, kind&^uint32(repError))
}

func (h *handshake) startTLS(ctx context.Context, cfg *tls.Config) error {
	if err := h.send(optStartTLS, nil); err != nil {
		return err
	}
	kind, _, err := h.reply(optStartTLS)
	if err == nil && kind != repAck {
		err = errs.Newf(errs.Protocol, "", "", "reply %d to STARTTLS", kind)
	}
	if err != nil {
		return err
	}
	link := tls.Client(h.link, cfg)
	if err := link.HandshakeContext(ctx); err != nil {
		return err
	}
	h.link = link
	return nil
}

// goData is the data of GO: the export's name, and one request, for block sizes.
func goData(name string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
	b = append(b, name...)
	return append(b, 0, 1, 0, infoBlockSize)
}

// chosen reads what the server tells of the export that GO names.
func (h *handshake) chosen() (e Export, err error) {
	told := false
	for range repliesMax {
		kind, data, err := h.reply(optGo)
		switch {
		case err != nil:
			return e, err
		case kind == repAck && !told:
			return e, errs.Newf(errs.Protocol, "", "", "the server does not tell the size")
		case kind == repAck:
			return e, nil
		case kind == repInfo:
			told = e.take(data) || told
		}
	}
	return e, errs.Newf(errs.Protocol, "", "", "more than %d replies", repliesMax)
}

// take notes one piece of information. told: it was the one with the size.
func (e *Export) take(data []byte) (told bool) {
	if len(data) < 2 {
		return false
	}
	kind, data := binary.BigEndian.Uint16(data), data[2:]
	switch {
	case kind == infoExport && len(data) >= 10:
		e.Size = int64(binary.BigEndian.Uint64(data))
		e.Flags = binary.BigEndian.Uint16(data[8:])
		return e.Size >= 0
	case kind == infoBlockSize && len(data) >= 12:
		e.Least = int(binary.BigEndian.Uint32(data))
	}
	return false
}
