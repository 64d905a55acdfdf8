// Package frame is how a test and the agent in its guest talk over a serial port: commands there,
// output and exit codes back, many at once. It holds the frames and their bodies.
//
// It does no I/O of its own but reading from and appending to what it is given; vmtest has the
// host's end and vmtest/agent the guest's.
package frame

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/sluice-storage/sluice/errs"
)

// A frame, all numbers little-endian:
//
//	0      1      4        8          12
//	| kind | zero | id u32 | size u32 | payload, size bytes |
//
// id names the command that the frame belongs to; the host counts it up.
const headerBytes = 12

// PayloadMax bounds a payload, and so what a broken peer can make the reader allocate. Output comes
// in pieces of PieceBytes; only a command's script can be large.
const (
	PayloadMax = 1 << 20
	PieceBytes = 32 << 10
)

// Version is what Hello carries. Both ends are built from the same tree, so that unequal versions
// only say that an agent of another tree was started.
const Version = 1

// Kind says what a frame is.
type Kind uint8

// The kinds.
const (
	Hello  Kind = 1 + iota // to the host, first of all: Greeting
	Run                    // to the guest: Command
	Kill                   // to the guest: end the command and all that it started; no payload
	Sync                   // to the guest: write dirty pages, then answer Exit; no payload
	Stdout                 // to the host: output as it comes
	Stderr                 // to the host
	Exit                   // to the host, last of a command: Status
	kindEnd
)

// Greeting is the body of Hello.
type Greeting struct {
	Version int    `json:"version"`
	Kernel  string `json:"kernel"` // uname -r
}

// Command is the body of Run.
type Command struct {
	Script string   `json:"script"` // for bash -c
	Env    []string `json:"env"`    // the whole environment, NAME=value
	Dir    string   `json:"dir"`
}

// Status is the body of Exit.
type Status struct {
	Code  int    `json:"code"`            // as a shell says it: 128+n for signal n
	Error string `json:"error,omitempty"` // why the command was not started, or cannot be waited for
}

// Frame is one frame. Payload belongs to the Reader that gave it, until its next Next.
type Frame struct {
	Kind    Kind
	ID      uint32
	Payload []byte
}

// Append adds the frame to dst.
func Append(dst []byte, f Frame) []byte {
	dst = append(dst, byte(f.Kind), 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, f.ID)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Payload)))
	return append(dst, f.Payload...)
}

// AppendJSON adds a frame whose payload is body as JSON. It fails for a body beyond PayloadMax.
func AppendJSON(dst []byte, kind Kind, id uint32, body any) ([]byte, error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return dst, errs.New(errs.Invalid, "frame.Append", "", err)
	}
	if len(payload) > PayloadMax {
		return dst, errs.Newf(errs.TooBig, "frame.Append", "", "%d bytes; at most %d",
			len(payload), PayloadMax)
	}
	return Append(dst, Frame{Kind: kind, ID: id, Payload: payload}), nil
}

// Reader takes frames off a stream.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, headerBytes+PieceBytes)}
}

// Next gives the next frame. io.EOF, as it is, says that the stream ended between two frames.
func (r *Reader) Next() (Frame, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(r.r, h[:1]); err != nil {
		return Frame{}, err
	}
	if _, err := io.ReadFull(r.r, h[1:]); err != nil {
		return Frame{}, errs.New(errs.Disconnected, "frame.Next", "header", err)
	}
	f := Frame{Kind: Kind(h[0]), ID: binary.LittleEndian.Uint32(h[4:])}
	size := binary.LittleEndian.Uint32(h[8:])
	switch {
	case f.Kind == 0 || f.Kind >= kindEnd || h[1]|h[2]|h[3] != 0:
		return Frame{}, errs.Newf(errs.Protocol, "frame.Next", "", "a header that begins %x", h[:4])
	case size > PayloadMax:
		return Frame{}, errs.Newf(errs.TooBig, "frame.Next", "", "a payload of %d bytes", size)
	}
	if int(size) > cap(r.buf) {
		r.buf = make([]byte, size)
	}
	f.Payload = r.buf[:size]
	if _, err := io.ReadFull(r.r, f.Payload); err != nil {
		return Frame{}, errs.New(errs.Disconnected, "frame.Next", "payload", err)
	}
	return f, nil
}

// Body reads a payload that is JSON.
func (f Frame) Body(into any) error {
	if err := json.Unmarshal(f.Payload, into); err != nil {
		return errs.New(errs.Protocol, "frame.Body", "", err)
	}
	return nil
}
