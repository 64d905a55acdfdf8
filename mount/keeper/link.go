package keeper

import (
	"encoding/json"
	"net"
	"os"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mount"
	"github.com/sluice-storage/sluice/mount/state"
)

// What the two say to each other, one message in JSON at a time:
//
//	process: connected   the cluster answers; the connection to the kernel is wanted
//	keeper:  serve       here it is
//	process: serving     text: for whoever mounted it
//	keeper:  hand        make yourself dispensable, and end
//	process: handed      that is done
//	process: failed      text, advice: why it does not serve, or does not hand over
//	keeper:  leave       programs have lost the mount: give up what waits
//	process: ended       the mount is gone, and all is closed
const (
	stateConnected = "connected"
	stateServe     = "serve"
	stateServing   = "serving"
	stateHand      = "hand"
	stateHanded    = "handed"
	stateFailed    = "failed"
	stateLeave     = "leave"
	stateEnded     = "ended"
)

type message struct {
	State  string `json:"state"`
	Text   string `json:"text,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// messageMax bounds a message, textMax what it says.
const (
	messageMax = 64 << 10
	textMax    = 4 << 10
)

// link is one end of the conversation.
type link struct{ conn *net.UnixConn }

func (l *link) send(m *message) error {
	b, err := m.encode()
	if err == nil {
		_, err = l.conn.Write(b)
	}
	return err
}

func (l *link) sendFile(m *message, f *os.File) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	return mount.SendFile(l.conn, b, f)
}

func (m *message) encode() ([]byte, error) {
	return json.Marshal(message{State: m.State, Text: shorten(m.Text), Advice: shorten(m.Advice)})
}

// shorten leaves out the end of a text that is too long, and what is half a letter then.
func shorten(text string) string {
	if len(text) <= textMax {
		return text
	}
	return strings.ToValidUTF8(text[:textMax], "")
}

// receive returns a file only without an error. errs.Protocol: what was said is not understood.
func (l *link) receive() (m message, f *os.File, err error) {
	buf := make([]byte, messageMax)
	n, f, err := mount.ReceiveFile(l.conn, buf)
	if err == nil && n == 0 {
		err = errs.New(errs.Closed, "keeper", "", nil)
	}
	if err == nil {
		m, err = decode(buf[:n])
	}
	if err != nil && f != nil {
		_ = f.Close()
		f = nil
	}
	return m, f, err
}

// decode reads a message, whole: a socket cuts what is longer than messageMax. What a later version
// may say more is left out.
func decode(b []byte) (m message, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return message{}, errs.Newf(errs.Protocol, "keeper", "", "%d bytes that are no message: %w",
			len(b), err)
	}
	if m.State == "" {
		return message{}, errs.Newf(errs.Protocol, "keeper", "", "a message that says nothing")
	}
	return m, nil
}

// Descriptors of a process that serves.
const (
	linkFD   = 3
	memoryFD = 4
)

// Served is the side of the process that serves.
type Served struct {
	link *link

	Table *state.Table // what the processes before this one have noted

	// Orders are what the keeper wants; closed when it is dead.
	Orders <-chan Order
}

// Order is what a keeper wants of the process that serves.
type Order uint8

// The orders.
const (
	HandOver Order = iota + 1 // make the process dispensable, say Handed or Failed, and end
	Leave                     // programs have lost the mount
)

// Join is for a process that a keeper has started.
func Join() (*Served, error) {
	own, memory := os.NewFile(linkFD, "keeper"), os.NewFile(memoryFD, "memory")
	defer own.Close()
	defer memory.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		return nil, errs.Newf(errs.Invalid, "keeper.Join", "", "no keeper has started this: %w", err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, errs.Newf(errs.Invalid, "keeper.Join", "", "no keeper has started this")
	}
	t, err := state.Open(memory)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Served{link: &link{unix}, Table: t}, nil
}

// Connection says that the cluster answers, and waits for the connection to the kernel.
func (s *Served) Connection() (*os.File, error) {
	if err := s.link.send(&message{State: stateConnected}); err != nil {
		return nil, errs.Wrap("keeper", "", err)
	}
	m, f, err := s.link.receive()
	if err == nil && (m.State != stateServe || f == nil) {
		err = errs.Newf(errs.Protocol, "keeper", "", "%q in place of a connection", m.State)
	}
	return f, errs.Wrap("keeper", "", err)
}

// Serving says that the mount is served, and begins to listen for Orders.
func (s *Served) Serving(text string) error {
	orders := make(chan Order, 4)
	s.Orders = orders
	go s.listen(orders)
	return errs.Wrap("keeper", "", s.link.send(&message{State: stateServing, Text: text}))
}

func (s *Served) listen(orders chan<- Order) {
	defer close(orders)
	for {
		m, f, err := s.link.receive()
		if f != nil {
			_ = f.Close()
		}
		switch {
		case err != nil:
			return
		case m.State == stateHand:
			orders <- HandOver
		case m.State == stateLeave:
			orders <- Leave
		}
	}
}

// Handed says that the process is dispensable. The keeper may be dead, here and below.
func (s *Served) Handed() { _ = s.link.send(&message{State: stateHanded}) }

// Failed says why the process does not serve, or does not hand over.
func (s *Served) Failed(text, advice string) {
	_ = s.link.send(&message{State: stateFailed, Text: text, Advice: advice})
}

// Ended says that the mount is gone and all is closed.
func (s *Served) Ended() { _ = s.link.send(&message{State: stateEnded}) }
