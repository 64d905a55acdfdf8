package admin

import (
	"cmp"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-storage/sluice/internal/supervise"
)

// WriteText prints the report for people. now is what ages are counted from.
func (r *Report) WriteText(w io.Writer, now time.Time) error {
	b := &strings.Builder{}
	r.head(b, now)
	r.meta(b)
	r.versions(b)
	if len(r.Hosts) > 0 {
		r.hosts(b, now)
	}
	if len(r.Processes) > 0 {
		r.processes(b, now)
	}
	if len(r.Servers) > 0 {
		r.servers(b, now)
	}
	if len(r.Clients) > 0 {
		r.clients(b, now)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(b, "\n! %s\n", p)
	}
	_, err := io.WriteString(w, fit(b.String()))
	return err
}

func (r *Report) head(b *strings.Builder, now time.Time) {
	state := "not running"
	switch {
	case !r.Local && r.Running:
		state = "running"
	case !r.Local && r.URL != "": // from here nobody knows more
		state = "not reached"
	case r.Running:
		state = fmt.Sprintf("running for %s, supervised by process %d", Age(now.Sub(r.Since)), r.PID)
	}
	fmt.Fprintf(b, "cluster %s: %s\n", orDash(r.Cluster), state)
	for _, line := range []struct{ name, value string }{
		{"url", r.URL}, {"mount", r.Mount}, {"folder", r.Dir},
	} {
		if line.value != "" {
			fmt.Fprintf(b, "%-7s %s\n", line.name, line.value)
		}
	}
	if r.Space.Total > 0 {
		fmt.Fprintf(b, "%-7s %s free of %s, %d files, %d volumes\n", "space",
			Bytes(r.Space.Free), Bytes(r.Space.Total), r.Space.Files, r.Volumes)
	}
}

func (r *Report) meta(b *strings.Builder) {
	if r.Meta == nil {
		return
	}
	fmt.Fprintf(b, "%-7s %d sessions, %d open files", "clients", r.Meta.Sessions, r.Meta.Handles)
	if r.Meta.Queued > 0 {
		fmt.Fprintf(b, ", %d removed files being cleaned up", r.Meta.Queued)
	}
	b.WriteString("\n")
	if w := &r.Meta.Way; w.Provider != "" {
		fmt.Fprintf(b, "%-7s by %s, known by %s", "meta", w.Provider, w.proof())
		if r.Meta.Memory > 0 {
			fmt.Fprintf(b, ", memory %s", Bytes(r.Meta.Memory))
		}
		b.WriteString("\n")
	}
	ops := append([]OpUse(nil), r.Meta.Ops...)
	sort.SliceStable(ops, func(i, j int) bool { return ops[i].Calls > ops[j].Calls })
	const shown = 6
	for i, op := range ops[:min(len(ops), shown)] {
		if i == 0 {
			fmt.Fprintf(b, "%-7s ", "names")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%s %d", op.Op, op.Calls)
	}
	if len(ops) > 0 {
		b.WriteString("\n")
	}
}

func (r *Report) processes(b *strings.Builder, now time.Time) {
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROCESS\tPID\tSTATUS\tFOR\tADMIN\tRESTARTS\tLAST EXIT")
	for _, p := range r.Processes {
		pid, age := "-", "-"
		if p.Status == supervise.Running {
			pid, age = strconv.Itoa(p.PID), Age(now.Sub(p.Since))
		}
		last := "-"
		if n := len(p.Exits); n > 0 {
			e := p.Exits[n-1]
			last = fmt.Sprintf("%s, %s ago", e.How(), Age(now.Sub(e.At)))
		}
		web := r.Admin[p.Name]
		if web == "" {
			web = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", p.Name, pid, p.Status, age, web, p.Restarts,
			last)
	}
	_ = t.Flush() // a Builder takes everything
}

func (r *Report) servers(b *strings.Builder, now time.Time) {
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVER\tHOST\tADDRESS\tSTATE\tVIA\tKNOWN BY\tSTART\tHEARD\tFREE\tOF")
	for i := range r.Servers {
		if s := &r.Servers[i]; s.shownState() != stateGone {
			fmt.Fprintf(t, "iod%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", s.ID, orDash(clip(s.Host, 12)),
				clip(s.Addr, 24), s.shownState(), orDash(s.Provider), s.proof(), s.Start,
				ago(s.LastSeen, now), Bytes(s.Free), Bytes(s.Total))
		}
	}
	_ = t.Flush()
	r.loads(b)
	r.progress(b)
	r.plan(b)
	r.whyNot(b)
	for _, s := range r.Servers {
		if s.Problem != "" {
			fmt.Fprintf(b, "! iod%d: %s\n", s.ID, s.Problem)
		}
	}
}

// loads tells what the servers have done, of those that answer.
func (r *Report) loads(b *strings.Builder) {
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVER\tREADS\tWRITES\tREAD\tWRITTEN\tCACHED\tHITS\tERRORS\tMEMORY")
	for i := range r.Servers {
		s := &r.Servers[i]
		if len(s.Counts) == 0 {
			continue
		}
		fmt.Fprintf(t, "iod%d\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", s.ID, s.Count("requests_read"),
			s.Count("requests_write"), Bytes(int64(s.Count("read_bytes"))),
			Bytes(int64(s.Count("write_bytes"))), Bytes(int64(s.Count("cache_bytes"))), s.hits(),
			s.Count("errors"), s.memory())
	}
	_ = t.Flush()
}

// proof is the first word of how the server is known.
func (w *Way) proof() string {
	word, _, _ := strings.Cut(w.Known, " ")
	return cmp.Or(word, "-")
}

// planPrefix and planSuffix are around the names of parts of a server's memory among its counts.
const planPrefix, planSuffix = "memory_plan_", "_bytes"

// ProgressPrefix is before the way of progress that a server uses, among its counts.
const ProgressPrefix = "progress_"

// progress tells who polls at the servers, once for all that do it the same way.
func (r *Report) progress(b *strings.Builder) {
	var ways []string
	servers := map[string][]string{}
	note := func(server string, counts []Count) {
		for _, c := range counts {
			way, ok := strings.CutPrefix(c.Name, ProgressPrefix)
			if !ok {
				continue
			}
			if servers[way] == nil {
				ways = append(ways, way)
			}
			servers[way] = append(servers[way], server)
		}
	}
	if r.Meta != nil {
		note("meta", r.Meta.Counts)
	}
	for i := range r.Servers {
		note(fmt.Sprintf("iod%d", r.Servers[i].ID), r.Servers[i].Counts)
	}
	for _, way := range ways {
		fmt.Fprintf(b, "progress of %s: %s\n", strings.Join(servers[way], ", "), way)
	}
}

// plan tells what the servers' memory is meant for, once for all that have the same.
func (r *Report) plan(b *strings.Builder) {
	var plans []string
	servers := map[string][]string{}
	for i := range r.Servers {
		var parts []string
		for _, c := range r.Servers[i].Counts {
			name, ok := strings.CutPrefix(c.Name, planPrefix)
			if ok {
				parts = append(parts, strings.TrimSuffix(name, planSuffix)+" "+Bytes(int64(c.Value)))
			}
		}
		text := strings.Join(parts, ", ")
		if text != "" && servers[text] == nil {
			plans = append(plans, text)
		}
		servers[text] = append(servers[text], fmt.Sprintf("iod%d", r.Servers[i].ID))
	}
	for _, text := range plans {
		fmt.Fprintf(b, "memory of %s: %s\n", strings.Join(servers[text], ", "), text)
	}
}

// whyNot tells, for each reason, to which servers a better way was not taken.
func (r *Report) whyNot(b *strings.Builder) {
	var reasons []string
	servers := map[string][]string{}
	note := func(server string, w *Way) {
		for _, s := range w.WhyNot {
			key := "not " + s.Provider + " to %s: " + s.Reason
			if servers[key] == nil {
				reasons = append(reasons, key)
			}
			servers[key] = append(servers[key], server)
		}
	}
	if r.Meta != nil {
		note("meta", &r.Meta.Way)
	}
	for i := range r.Servers {
		note(fmt.Sprintf("iod%d", r.Servers[i].ID), &r.Servers[i].Way)
	}
	for _, key := range reasons {
		before, after, _ := strings.Cut(key, "%s")
		b.WriteString(before + strings.Join(servers[key], ", ") + after + "\n")
	}
}

// memory is what a server uses of what it was given.
func (s *Server) memory() string {
	bound := s.Count("memory_bound_bytes")
	if bound == 0 {
		return "-"
	}
	return Bytes(int64(s.Count("memory_resident_bytes"))) + " of " + Bytes(int64(bound))
}

func (s *Server) hits() string {
	hits, misses := s.Count("cache_hits"), s.Count("cache_misses")
	if hits+misses == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(hits)/float64(hits+misses))
}

// Bytes is a number of bytes for people: 1.5 MiB.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		v /= 1024
		if v < 1024 {
			break
		}
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + unit
}

// Age is a duration for people: the two largest units.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
