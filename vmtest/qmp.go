package vmtest

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// monitorLimit is how long QEMU has to answer. It answers at once unless the host is very busy.
const monitorLimit = time.Minute

// monitor speaks QMP, QEMU's own control protocol: JSON objects, one command at a time, with events
// in between that nobody here needs.
type monitor struct {
	conn net.Conn
	dec  *json.Decoder
	turn chan struct{} // holds a token while nobody talks
}

// qmpReply is a greeting, an answer, or an event; only answers have Return or Error.
type qmpReply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

// newMonitor owns conn from now on.
func newMonitor(conn net.Conn) *monitor {
	m := &monitor{conn: conn, dec: json.NewDecoder(conn), turn: make(chan struct{}, 1)}
	m.turn <- struct{}{}
	return m
}

// hello is what QEMU wants before it takes commands.
func (m *monitor) hello(ctx context.Context) error {
	return m.execute(ctx, "qmp_capabilities", nil)
}

func (m *monitor) close() { m.conn.Close() }

// execute runs one command; the context bounds the wait for the turn. An error other than QEMU's
// refusal leaves the conversation at an unknown place, so it ends it.
func (m *monitor) execute(ctx context.Context, command string, arguments any) error {
	select {
	case <-m.turn:
	case <-ctx.Done():
		return errs.Wrap("vmtest.monitor", command, ctx.Err())
	}
	defer func() { m.turn <- struct{}{} }()
	refused, err := m.exchange(command, arguments)
	if err != nil {
		m.conn.Close()
		return errs.New(errs.Disconnected, "vmtest.monitor", command, err)
	}
	return refused
}

func (m *monitor) exchange(command string, arguments any) (refused, err error) {
	if err := m.conn.SetDeadline(time.Now().Add(monitorLimit)); err != nil {
		return nil, err
	}
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	b, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if _, err := m.conn.Write(append(b, '\n')); err != nil {
		return nil, err
	}
	for {
		var r qmpReply
		if err := m.dec.Decode(&r); err != nil {
			return nil, err
		}
		if r.Error != nil {
			return errs.Newf(errs.Invalid, "vmtest.monitor", command, "%s: %s", r.Error.Class,
				r.Error.Desc), nil
		}
		if r.Return != nil {
			return nil, nil
		}
	}
}

// setLink plugs a network device in or out: the guest's kernel sees the carrier come and go.
func (m *monitor) setLink(ctx context.Context, netdev string, up bool) error {
	return m.execute(ctx, "set_link", map[string]any{"name": netdev, "up": up})
}
