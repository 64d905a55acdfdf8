package trace

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Dump writes the last events, one line each:
//
//	0.000012345 post     send         4096 B context 7 signaled   tcp 127.0.0.1:4001->...
//
// A first line tells how many events were lost before them, if any were.
func (d *Domain) Dump(w io.Writer) error {
	events, lost := d.rec.last()
	out := bufio.NewWriter(w)
	if lost > 0 {
		fmt.Fprintf(out, "%d earlier events lost\n", lost)
	}
	for i := range events {
		writeLine(out, &events[i])
	}
	return errs.Wrap("trace.Dump", "", out.Flush()) // it keeps the first error
}

func writeLine(out *bufio.Writer, ev *Event) {
	op := ""
	if ev.Op != 0 {
		op = opName(ev.Op)
	}
	fmt.Fprintf(out, "%14.9f %-8s %-8s %12s", ev.At.Seconds(), ev.Kind, op, size(ev))
	switch ev.Kind {
	case Post, Complete:
		fmt.Fprintf(out, " context %d", ev.Context)
	case Grant, Revoke:
		fmt.Fprintf(out, " key %#x", ev.Context)
	}
	if ev.Kind == Post && ev.Flags != 0 {
		fmt.Fprintf(out, " %s", flagNames(ev.Flags))
	}
	if ev.Err != errs.OK {
		fmt.Fprintf(out, " failed: %s", ev.Err)
	}
	if ev.Name != "" {
		fmt.Fprintf(out, "  %s", ev.Name)
	}
	_ = out.WriteByte('\n')
}

func size(ev *Event) string {
	switch ev.Kind {
	case Post, Complete, Grant, Revoke, Register:
		return fmt.Sprintf("%d B", ev.Len)
	}
	return ""
}

func flagNames(flags fabric.Flags) string {
	var names []string
	for i, name := range []string{"signaled", "inline", "solicited", "fence"} {
		if flags&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
