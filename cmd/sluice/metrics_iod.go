package main

import (
	"math"
	"strings"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/unifier"
)

// iodMetric is what a number of an I/O server's Status is called among the metrics.
type iodMetric struct {
	kind       admin.Kind
	name, help string
}

// iodMetrics are those without labels, by the server's names.
func iodMetrics() map[string]iodMetric {
	const g, c = admin.Gauge, admin.Counter
	return map[string]iodMetric{
		"requests_running": {g, "requests_running", "Requests that are being carried out."},
		"errors":           {c, "errors_total", "Requests that failed."},
		"read_bytes":       {c, "read_bytes_total", "Bytes read by clients."},
		"write_bytes":      {c, "write_bytes_total", "Bytes written by clients."},
		"direct_read_bytes": {c, "direct_read_bytes_total",
			"Of the bytes read, those that went past the cache."},
		"direct_write_bytes": {c, "direct_write_bytes_total",
			"Of the bytes written, those that went past the cache."},
		"repeated":        {c, "repeated_total", "Changes that had been carried out before."},
		"corrupt_writes":  {c, "corrupt_writes_total", "Writes refused: their checksums were wrong."},
		"lent_bytes":      {g, "lent_bytes", "Memory of the cache lent to reads."},
		"lent_bytes_high": {g, "lent_bytes_high", "The most that was lent so far."},
		"lent_waits":      {c, "lent_waits_total", "Reads that had to wait for memory."},
		"busy_slots": {c, "busy_slots_total",
			"Numbered requests that met their predecessor still under way."},
	}
}

// gateMetrics are those of the request manager's gates, by the end of the server's names.
func gateMetrics() map[string]iodMetric {
	const g, c = admin.Gauge, admin.Counter
	return map[string]iodMetric{
		"running": {g, "gate_running", "Requests that a gate has let through and that are not over."},
		"waiting": {g, "gate_waiting", "Requests that wait at a gate."},
		"bytes":   {g, "gate_bytes", "What those that were let through stand for."},
		"passed":  {c, "gate_passed_total", "Requests that a gate has let through."},
		"waits":   {c, "gate_waits_total", "Requests that had to wait at a gate."},
		"aged":    {c, "gate_aged_total", "Of these, let through because they had waited long enough."},
		"refused": {c, "gate_refused_total", "Requests told to come again: too many waited."},
	}
}

// counts are an I/O server's own, which have names already. It returns those that have no place
// here, because others tell the same better: of cache, message layer, memory, and sums of times.
func (f *families) counts(all []iod.Count) (left []string) {
	plain, gates := iodMetrics(), gateMetrics()
	for _, c := range all {
		v := float64(c.Value)
		if m, ok := plain[c.Name]; ok {
			f.one(m.kind, "iod_"+m.name, m.help, v)
			continue
		}
		kind, rest, _ := strings.Cut(c.Name, "_")
		switch {
		case kind == "requests":
			f.by(admin.Counter, "iod_requests_total", "Requests, by what they ask for.", "op", rest, v)
		case kind == "policy":
			f.by(admin.Counter, "iod_policy_requests_total",
				"Reads and writes, by their hint to the cache.", "policy", rest, v)
		case kind == "capabilities" && rest != "refused": // the sum of the others
			f.by(admin.Counter, "iod_capabilities_refused_total",
				"Requests refused because of their capability, by reason.", "reason", rest, v)
		case kind == "gate":
			gate, what, _ := strings.Cut(rest, "_")
			if m, ok := gates[what]; ok {
				f.by(m.kind, "iod_"+m.name, m.help, "gate", gate, v)
			}
		default:
			left = append(left, c.Name)
		}
	}
	return left
}

// states are histograms of where requests spend their time. A part of the server's histogram that
// counts times below 2^i nanoseconds is a bucket; those below a microsecond are one.
func (f *families) states(all []server.State) {
	const first, last = 10, server.StateBuckets - 1
	d := admin.Family{Name: "iod_state_seconds", Kind: admin.Histogram,
		Help:   "Time that requests spend in each state of their life.",
		Labels: []string{"op", "state"}}
	for _, s := range all {
		dist := &admin.Dist{Count: s.Count, Sum: s.Sum.Seconds()}
		sum := uint64(0)
		for i, n := range s.Buckets[:last] {
			sum += n
			if i >= first {
				dist.Bounds = append(dist.Bounds, math.Ldexp(1e-9, i))
				dist.Counts = append(dist.Counts, sum)
			}
		}
		d.Series = append(d.Series, admin.Series{Labels: []string{s.Op, s.State}, Dist: dist})
	}
	f.all = append(f.all, d)
}

// cache are those of the memory that all data lies in.
func (f *families) cache(c *unifier.Cache) {
	st := c.Stats()
	f.count("cache_hits_total", "Units asked for that were there.", st.Hits)
	f.count("cache_misses_total", "Units asked for that were not.", st.Misses)
	f.count("cache_fills_total", "Reads of the store for the cache.", st.Fills)
	f.count("cache_evictions_total", "Units that made room for others.", st.Evictions)
	f.count("cache_ghost_hits_total", "Units asked for soon after they had made room.", st.GhostHits)
	f.count("cache_exchanged_total", "Whole units that were published without a copy.", st.Exchanged)
	f.count("cache_merged_total", "Units into which a part was merged.", st.Merged)
	f.count("cache_dropped_total", "Units that a change took out of the cache.", st.Dropped)
	f.count("cache_waits_total", "How often somebody waited for memory.", st.Waits)
	f.count("cache_reader_waits_total", "How often a writer waited for a reader.", st.ReaderWaits)
	f.count("cache_map_failures_total", "How often the host had no memory.", st.MapFailures)
	f.count("cache_ahead_total", "Units read ahead.", st.Ahead)
	f.count("cache_ahead_used_total", "Of these, those that somebody asked for.", st.AheadUsed)
	f.count("cache_ahead_wasted_total", "Of these, those that nobody asked for in time.",
		st.AheadWasted)
	f.count("cache_flushes_total", "Writes of data that had been acknowledged before.", st.Flushes)
	f.count("cache_flushed_requests_total", "Requests that were written so.", st.Flushed)
	f.count("cache_losses_total", "How often acknowledged data was lost by the disk: clients send "+
		"it again.", st.Losses)
	f.cacheNow(&st)
}

// cacheNow are those that go up and down.
func (f *families) cacheNow(st *unifier.Stats) {
	f.gauge("cache_ahead_window_bytes", "How far streams are read ahead now.", st.AheadWindow)
	f.gauge("cache_bytes", "What is cached.", st.Bytes)
	f.gauge("cache_protected_bytes", "Of that, what a scan does not sweep out.", st.Protected)
	f.gauge("cache_kept_bytes", "Of that, what goes last because of a hint.", st.Kept)
	f.gauge("cache_dirty_bytes", "Acknowledged and not yet written to the store.", st.Dirty)
	f.gauge("cache_drafted_bytes", "Held by writes under way.", st.Drafted)
	f.gauge("cache_taken_bytes", "Held by direct transfers.", st.Taken)
	f.gauge("cache_held_slabs", "Slabs of 64 KiB in which something is lent or waits to be written.",
		int64(st.HeldSlabs))
	f.gauge("cache_objects", "Objects of which something is cached or under way.",
		int64(st.Objects))
	f.gauge("cache_ready_bytes", "Memory that is resident and registered from the start.", st.Ready)
	f.gauge("cache_mapped_bytes", "Memory that is mapped now.", st.Mapped)
	f.gauge("cache_bytes_high", "The most memory in use so far: never above its bound.", st.HighWater)
}
