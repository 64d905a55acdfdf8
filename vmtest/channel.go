package vmtest

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/vmtest/frame"
)

// sendLimit is how long the agent has to take a frame off the port, which it does at
// once unless the host is very busy.
const sendLimit = time.Minute

// channel is the host's end of the conversation with the agent. One goroutine reads; writers send
// whole frames, which a connection never mixes.
type channel struct {
	conn  net.Conn
	hello chan frame.Greeting // gets the first frame
	done  chan struct{}       // closed when the reader has ended

	mu     sync.Mutex
	nextID uint32
	calls  map[uint32]*call
	err    error // why there are no calls any more
}

// sinks are where a command's output goes.
type sinks struct {
	keep           int       // bytes of each that are kept for the Result
	stdout, stderr io.Writer // these get all of it; they may be nil
}

// call is a command that runs.
type call struct {
	id     uint32
	out    sinks
	done   chan struct{} // closed on Exit, or when the channel breaks
	status frame.Status  // this and what follows is guarded by the channel's mu until done
	err    error
	stdout []byte
	stderr []byte
	over   bool // more came than is kept
}

func (c *call) result() Result {
	return Result{
		Stdout: string(c.stdout), Stderr: string(c.stderr), Code: c.status.Code, Truncated: c.over,
	}
}

func newChannel(conn net.Conn) *channel {
	c := &channel{
		conn: conn, hello: make(chan frame.Greeting, 1), done: make(chan struct{}),
		calls: map[uint32]*call{},
	}
	go c.read()
	return c
}

// close ends the reader and every call.
func (c *channel) close() {
	c.conn.Close()
	<-c.done
}

func (c *channel) read() {
	defer close(c.done)
	r := frame.NewReader(c.conn)
	for greeted := false; ; {
		f, err := r.Next()
		if err == nil {
			err = c.take(f, &greeted)
		}
		if err != nil {
			c.fail(errs.New(errs.Disconnected, "vmtest", "agent", err))
			return
		}
	}
}

func (c *channel) take(f frame.Frame, greeted *bool) error {
	switch f.Kind {
	case frame.Hello:
		var g frame.Greeting
		if err := f.Body(&g); err != nil {
			return err
		}
		if *greeted || g.Version != frame.Version {
			return errs.Newf(errs.Protocol, "vmtest", "agent", "an unexpected hello: %+v", g)
		}
		*greeted = true
		c.hello <- g
		return nil
	case frame.Stdout, frame.Stderr, frame.Exit:
		return c.takeOutput(f)
	}
	return errs.Newf(errs.Protocol, "vmtest", "agent", "a frame of kind %d", f.Kind)
}

// takeOutput gives a frame to its call. A call that nobody waits for any more is no mistake.
func (c *channel) takeOutput(f frame.Frame) error {
	call := c.find(f.ID)
	if call == nil {
		return nil
	}
	call.copyOut(f) // calls out, so without the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[f.ID] != call { // given up meanwhile
		return nil
	}
	switch f.Kind {
	case frame.Stdout:
		call.add(&call.stdout, f.Payload)
	case frame.Stderr:
		call.add(&call.stderr, f.Payload)
	default:
		delete(c.calls, f.ID)
		call.err = f.Body(&call.status)
		close(call.done)
		return call.err
	}
	return nil
}

func (c *channel) find(id uint32) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id]
}

// copyOut gives output to whoever wants it at once. One who cannot take it is no reason to stop.
func (c *call) copyOut(f frame.Frame) {
	switch {
	case f.Kind == frame.Stdout && c.out.stdout != nil:
		_, _ = c.out.stdout.Write(f.Payload)
	case f.Kind == frame.Stderr && c.out.stderr != nil:
		_, _ = c.out.stderr.Write(f.Payload)
	}
}

func (c *call) add(to *[]byte, piece []byte) {
	if room := c.out.keep - len(*to); len(piece) > room {
		c.over = true
		piece = piece[:room]
	}
	*to = append(*to, piece...)
}

// fail ends every call and refuses those to come.
func (c *channel) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for id, call := range c.calls {
		call.err = err
		close(call.done)
		delete(c.calls, id)
	}
}

// begin makes a call known; its frame is sent by the caller.
func (c *channel) begin(out sinks) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.nextID++
	call := &call{id: c.nextID, out: out, done: make(chan struct{})}
	c.calls[call.id] = call
	return call, nil
}

// forget gives what a call has printed so far and lets go of it.
func (c *channel) forget(call *call) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, call.id)
	return call.result()
}

// send writes one frame.
func (c *channel) send(b []byte) error {
	err := c.conn.SetWriteDeadline(time.Now().Add(sendLimit))
	if err == nil {
		_, err = c.conn.Write(b)
	}
	if err != nil {
		return errs.New(errs.Disconnected, "vmtest", "agent", err)
	}
	return nil
}
