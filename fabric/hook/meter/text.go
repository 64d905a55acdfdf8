package meter

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

var opNames = [ops]string{"send", "write", "writeimm", "read", "recv"}

// String is a summary for people: a line for each operation that was used, then queues, links and
// errors. Times are from the post to the completion.
func (s *Snapshot) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %v\n", s.Provider, s.Age.Round(time.Millisecond))
	fmt.Fprintf(&b, "%-8s %10s %10s %10s %8s %12s %10s %9s %9s %9s\n", "", "posted", "completed",
		"silent", "pending", "bytes", "size p50", "time p50", "p99", "max")
	for i := range s.Ops {
		o := &s.Ops[i]
		if o.Posted+o.Completed+o.Refused.Total() == 0 {
			continue
		}
		fmt.Fprintf(&b, "%-8s %10d %10d %10d %8d %12d %10d %9s %9s %9s\n", opNames[i], o.Posted,
			o.Completed, o.Silent, o.Outstanding, o.Bytes, o.Sizes.Quantile(0.5),
			short(o.Times.Quantile(0.5)), short(o.Times.Quantile(0.99)), short(o.Times.Quantile(1)))
	}
	for i := range s.Ops {
		s.Ops[i].Failed.write(&b, opNames[i]+" failed")
		s.Ops[i].Refused.write(&b, opNames[i]+" refused")
	}
	q, l := &s.Queues, &s.Links
	fmt.Fprintf(&b, "queues: %d open, %d polls (%d empty), %d waits (%d empty), %s in them\n",
		q.Open, q.Polls, q.Empty, q.Waits, q.Wakes, short(q.Sleep))
	fmt.Fprintf(&b, "links: %d open, %d dialled, %d accepted; %d regions of %d bytes, "+
		"%d grants, %d revoked\n", l.Open, l.Dialled, l.Accepted, l.Regions, l.RegionBytes,
		l.Grants, l.Revokes)
	l.DialErrors.write(&b, "dial failed")
	l.AccErrors.write(&b, "accept failed")
	return b.String()
}

// write is a line of the kinds that were seen.
func (e *Errors) write(b *strings.Builder, what string) {
	if e.Total() == 0 {
		return
	}
	fmt.Fprintf(b, "%s:", what)
	for i, n := range e {
		if n > 0 {
			fmt.Fprintf(b, " %d %s;", n, errs.Kind(i))
		}
	}
	b.WriteByte('\n')
}

// short leaves the digits away that a histogram does not have.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}
