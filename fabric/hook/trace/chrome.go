package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
)

// chromeEvent is one entry of the trace event format: "b" and "e" begin and end what is under way
// beside other things, found together by id; "i" is a moment; "M" gives a name to a thread, which
// here is an endpoint.
type chromeEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	TS    float64        `json:"ts"` // microseconds
	PID   int            `json:"pid"`
	TID   uint64         `json:"tid"`
	ID    string         `json:"id,omitempty"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// DumpChrome writes the last events as JSON for the trace viewers of browsers. A request is a bar
// on the line of its endpoint; one that succeeded silently ends where a later completion told so.
// What began before the oldest event that is kept, or failed to be posted, is a moment.
func (d *Domain) DumpChrome(w io.Writer) error {
	events, _ := d.rec.last()
	c := chrome{out: bufio.NewWriter(w), lines: map[uint64]*line{}}
	_, _ = c.out.WriteString(`{"displayTimeUnit":"ns","traceEvents":[`)
	for i := range events {
		c.event(&events[i])
	}
	_, _ = c.out.WriteString("\n]}\n")
	if err := c.out.Flush(); c.err == nil {
		c.err = err
	}
	return errs.Wrap("trace.DumpChrome", "", c.err)
}

// chrome replays the events.
type chrome struct {
	out   *bufio.Writer
	lines map[uint64]*line // by the endpoint's serial
	bars  int              // so far
	some  bool             // something was written
	err   error
}

// line is an endpoint: the bars that are open, by what was posted.
type line struct {
	sends, recvs hook.Pending[bar]
}

// replayDepth is how many silent requests of an endpoint may be open; what was posted is in the
// ring, so more than that are not.
const replayDepth = 1 << 30

type bar struct {
	id string
	ev *Event
}

func (c *chrome) event(ev *Event) {
	if ev.Kind == Post && ev.Err == errs.OK {
		c.begin(ev)
		return
	}
	if ev.Kind == Complete && c.end(ev) {
		return
	}
	name := ev.Kind.String()
	if ev.Op != 0 {
		name += " " + opName(ev.Op)
	}
	c.line(ev)
	c.write(ev, chromeEvent{Name: name, Phase: "i", Scope: "t"})
}

// line finds the endpoint of an event, and introduces it.
func (c *chrome) line(ev *Event) *line {
	l := c.lines[ev.serial]
	if l == nil {
		l = &line{hook.NewPending[bar](replayDepth), hook.NewPending[bar](replayDepth)}
		c.lines[ev.serial] = l
		name := ev.Name
		if ev.serial == 0 {
			name = "domain"
		}
		c.write(ev, chromeEvent{Name: "thread_name", Phase: "M", Args: map[string]any{"name": name}})
	}
	return l
}

func (l *line) pending(op fabric.Op) *hook.Pending[bar] {
	if op == fabric.OpRecv {
		return &l.recvs
	}
	return &l.sends
}

func (c *chrome) begin(ev *Event) {
	c.bars++
	b := bar{fmt.Sprintf("%#x", c.bars), ev}
	c.line(ev).pending(ev.Op).Add(ev.Op, ev.Flags, ev.Context, b)
	c.write(ev, chromeEvent{Name: opName(ev.Op), Cat: "fabric", Phase: "b", ID: b.id})
}

// end tells whether the bar that ends is known.
func (c *chrome) end(ev *Event) bool {
	done := fabric.Completion{Op: ev.Op, Context: ev.Context}
	if ev.Err != errs.OK {
		done.Err = ev.Err
	}
	finish := func(b bar) {
		c.write(ev, chromeEvent{Name: opName(b.ev.Op), Cat: "fabric", Phase: "e", ID: b.id})
	}
	b, _, ok := c.line(ev).pending(ev.Op).Done(&done, finish)
	if ok {
		finish(b)
	}
	return ok
}

// write fills in what every entry has.
func (c *chrome) write(ev *Event, ce chromeEvent) {
	ce.PID, ce.TID = 1, ev.serial
	ce.TS = float64(ev.At) / float64(time.Microsecond)
	if ce.Phase != "M" {
		ce.Args = args(ev, ce.Phase)
	}
	text, err := json.Marshal(ce)
	if err != nil && c.err == nil {
		c.err = err
	}
	if c.some {
		_ = c.out.WriteByte(',')
	}
	c.some = true
	_ = c.out.WriteByte('\n')
	_, _ = c.out.Write(text)
}

// args are the details. Contexts and keys are text, since numbers lose bits in browsers.
func args(ev *Event, phase string) map[string]any {
	all := map[string]any{}
	if phase != "e" {
		switch ev.Kind {
		case Post, Complete:
			all["len"], all["context"] = ev.Len, strconv.FormatUint(ev.Context, 10)
		case Grant, Revoke:
			all["len"], all["key"] = ev.Len, fmt.Sprintf("%#x", ev.Context)
		case Register:
			all["len"] = ev.Len
		}
	}
	if ev.Err != errs.OK {
		all["error"] = ev.Err.String()
	}
	return all
}
