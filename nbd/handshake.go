package nbd

import (
	"errors"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// errAborted ends a handshake that the client wanted to end.
var errAborted = errors.New("client aborted the negotiation")

// negotiated is all that options have settled. It is one value so that it can be dropped whole,
// as an upgrade to TLS must do.
type negotiated struct {
	structured bool
	extended   bool
	contexts   uint64 // that were selected, as bits of their numbers
	metaName   string // for the export of this name
}

// handshake is the option phase of one connection.
type handshake struct {
	c        *conn
	fixed    bool // the client knows how options are answered
	noZeroes bool
	state    negotiated
	secure   bool     // TLS has been started
	names    []string // who the client is, then
	out      []byte   // replies that are not sent yet
}

// chosen is what a handshake ends with.
type chosen struct {
	shared     *shared
	open       *opened
	structured bool   // replies are chunks
	extended   bool   // requests and replies have extended headers
	contexts   uint64 // metadata contexts, as bits of their numbers
}

// run greets the client and answers options until one of them chooses an export. The export is open
// then, and its reference belongs to the caller.
func (h *handshake) run() (*chosen, error) {
	if err := h.greet(); err != nil {
		return nil, err
	}
	for range optionsMax {
		opt, data, err := h.nextOption()
		if err != nil {
			return nil, err
		}
		pick, err := h.answer(opt, data)
		if err != nil {
			return nil, err
		}
		if err := h.send(); err != nil {
			if pick != nil {
				h.c.logClose(pick.shared.release())
			}
			return nil, err
		}
		if pick != nil {
			return pick, nil
		}
	}
	return nil, errs.Newf(errs.Protocol, "nbd.handshake", "", "more than %d options", optionsMax)
}

// greet sends the greeting: "NBDMAGIC", "IHAVEOPT", flags u16; the client answers with flags u32.
func (h *handshake) greet() error {
	h.out = appendGreeting(h.out)
	if err := h.send(); err != nil {
		return err
	}
	p, err := h.c.in.next(4)
	if err != nil {
		return err
	}
	const known = flagFixedNewstyle | flagNoZeroes
	flags := uint32(p[0])<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3])
	if flags&^known != 0 {
		return errs.Newf(errs.Protocol, "nbd.handshake", "", "unknown client flags %#x", flags)
	}
	h.fixed, h.noZeroes = flags&flagFixedNewstyle != 0, flags&flagNoZeroes != 0
	if t := h.c.srv.cfg.TLS; t != nil && !t.Selective && !h.fixed {
		return errs.Newf(errs.Protocol, "nbd.handshake", "", "a client that cannot start TLS")
	}
	return nil
}

// nextOption reads one option. Data that is too long to be looked at is skipped and comes as nil
// with its option marked, so that the answer can say so.
func (h *handshake) nextOption() (opt uint32, data optionData, err error) {
	p, err := h.c.in.next(optionBytes)
	if err != nil {
		return 0, data, err
	}
	opt, length, ok := decodeOption(p)
	if !ok {
		return 0, data, errs.New(errs.Protocol, "nbd.handshake", "option magic", nil)
	}
	if length > optionDataMax || !optionKnown(opt) {
		return opt, optionData{tooBig: length > optionDataMax}, h.c.in.discard(int64(length))
	}
	data.bytes = make([]byte, length)
	return opt, data, h.c.in.payload(data.bytes)
}

type optionData struct {
	bytes  []byte
	tooBig bool
}

func (h *handshake) send() error {
	if len(h.out) == 0 {
		return nil
	}
	_, err := h.c.link.Write(h.out)
	h.out = h.out[:0]
	return err
}

func (h *handshake) reply(opt, kind uint32, data []byte) {
	h.out = appendOptionReply(h.out, opt, kind, len(data))
	h.out = append(h.out, data...)
}

func (h *handshake) ack(opt uint32) { h.reply(opt, repAck, nil) }

// refuse answers with an error and a message for people.
func (h *handshake) refuse(opt, kind uint32, message string) {
	h.reply(opt, kind, []byte(clip(message)))
}

// deadline starts or ends the time that the client has for the handshake.
func (c *conn) deadline(d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	// A deadline that cannot be set means a dead connection, which the next read finds out.
	_ = c.nc.SetDeadline(at)
}
