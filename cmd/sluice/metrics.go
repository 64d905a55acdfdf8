package main

import (
	"runtime/debug"
	"strings"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe"
)

// families collects metrics. The data path keeps numbers of its own; here they get names.
type families struct{ all []admin.Family }

func (f *families) one(kind admin.Kind, name, help string, value float64) {
	f.all = append(f.all, admin.One(kind, name, help, value))
}

func (f *families) count(name, help string, value uint64) {
	f.one(admin.Counter, name, help, float64(value))
}

func (f *families) gauge(name, help string, value int64) {
	f.one(admin.Gauge, name, help, float64(value))
}

// by adds a value to a family with one label, which is made when it is first seen.
func (f *families) by(kind admin.Kind, name, help, label, of string, value float64) {
	s := admin.Series{Labels: []string{of}, Value: value}
	for i := range f.all {
		if f.all[i].Name == name {
			f.all[i].Series = append(f.all[i].Series, s)
			return
		}
	}
	f.all = append(f.all, admin.Family{Name: name, Help: help, Kind: kind, Labels: []string{label},
		Series: []admin.Series{s}})
}

// process are what every process tells.
func (f *families) process() {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	f.by(admin.Gauge, "build_info", "1, with what this program is.", "version", version, 1)
	f.gauge("memory_resident_bytes",
		"Memory of the process: its own pages, files and reserved huge pages.", residentBytes())
	f.gauge("memory_heap_bytes", "What Go uses of that.", heapBytes())
	for why, c := range mem.Copies() {
		f.by(admin.Counter, "copied_bytes_total", "Payload bytes that were copied, by reason.", "reason",
			mem.CopyReason(why).String(), float64(c.Bytes))
	}
}

// clientFamilies are those of a process that is a client.
func clientFamilies(st client.Stats, network msg.NodeStats) []admin.Family {
	var f families
	f.process()
	f.node(&network)
	f.gauge("client_kept_bytes", "Memory of writes that are kept until a sync confirms them.",
		st.KeptBytes)
	f.gauge("client_kept_writes", "Writes that are kept.", int64(st.KeptWrites))
	f.gauge("client_kept_objects", "Objects that they belong to.", int64(st.Objects))
	f.count("client_restarts_seen_total", "Servers that came back without what was not synced.",
		st.Restarts)
	f.count("client_resent_total", "Writes that were sent again after that.", st.Resent)
	f.count("client_superseded_total", "Writes that need not be: truncated or removed since.",
		st.Superseded)
	f.count("client_lost_total", "Writes that could not be.", st.Lost)
	f.count("client_forced_syncs_total", "Objects synced because memory or slots were scarce.",
		st.Forced)
	f.count("client_waits_total", "Writes that waited for that.", st.Waits)
	f.count("client_corrupt_reads_total", "Reads that arrived damaged and were asked for again.",
		st.ReadSums)
	f.count("client_corrupt_writes_total", "Writes that a server found damaged.", st.WriteSums)
	f.deferred(&st.Deferred)
	reg := &st.Registered
	f.count("client_register_hits_total", "Requests whose memory was registered with a device.",
		reg.Hits)
	f.count("client_register_misses_total", "Requests whose memory was registered for them.",
		reg.Misses)
	f.count("client_register_copied_total", "Requests whose data was copied instead.", reg.Copied)
	f.count("client_register_refused_total", "Registrations that failed or had no room.",
		reg.Refused)
	f.gauge("client_registered_bytes", "Memory of the program that is registered.", reg.Bytes)
	return f.all
}

// deferred are those of names that are told later.
func (f *families) deferred(st *client.DeferredStats) {
	f.count("client_names_held_total", "Directories that were there and were held alone.", st.Held)
	f.count("client_names_made_total", "Names that were made without asking, and told later.", st.Made)
	f.count("client_names_removed_total", "Names that were removed like that.", st.Removed)
	f.count("client_names_void_total", "Of these, what was removed before it was told.", st.Void)
	f.count("client_names_batches_total", "Requests in which they were told.", st.Batches)
	f.count("client_names_lost_total", "Names that could not be told.", st.Lost)
	f.count("client_names_inherited_total", "Names of a process that has died, told by this one.",
		st.Inherited)
	f.gauge("client_names_untold", "Names that are not told yet.", st.Untold)
	f.gauge("client_names_untold_bytes", "Bytes in closed files among them.", st.UntoldBytes)
	f.gauge("client_names_directories", "Directories that are held alone.", int64(st.Directories))
}

// node are those of the message layer that clients have too.
func (f *families) node(st *msg.NodeStats) {
	f.by(admin.Gauge, "msg_progress", "1, with who polls for what has arrived.", "way",
		st.Progress.String(), 1)
	f.count("msg_waits_spun_total", "Waits that were over while who polled spun.", st.Waits.Spun)
	f.count("msg_waits_slept_total", "How often who polled fell asleep.", st.Waits.Slept)
	f.count("msg_replies_woken_total",
		"Replies whose caller slept while another goroutine polled for it.", st.Woken)
}

// network are those of the message layer and of the providers.
func (f *families) network(net *peer.Network, s *msg.Server) {
	st := net.Stats()
	f.node(&st)
	f.count("msg_late_failures_total", "Errors of requests that nobody waited for any more.",
		st.LateFailures)
	f.gauge("msg_memory_mapped_bytes", "Memory of eager slots that is mapped.",
		int64(st.Memory.MappedBytes))
	f.gauge("msg_memory_used_bytes", "Of that, in use.", st.Memory.InUseBytes)
	f.gauge("msg_eager_bytes", "Of that, lent to clients as eager slots.", st.Memory.EagerBytes)
	for at, n := range net.LadderCounts() {
		outcome := "taken"
		if at.Outcome != 0 {
			outcome = at.Outcome.String()
		}
		f.ladder(at.Provider, outcome, n)
	}
	f.ways(net, s)
	if s == nil {
		return
	}
	c := s.Stats()
	f.gauge("msg_calls_running", "Calls in handlers.", int64(c.Running))
	f.gauge("msg_calls_queued", "Calls that wait because as many as allowed run.", int64(c.Queued))
	f.count("msg_calls_total", "Calls so far.", c.Calls)
	f.count("msg_calls_failed_total", "Of these, answered with an error.", c.Failed)
	f.count("msg_calls_handed_total", "Of these, given to workers by the goroutine that polled.",
		c.Handed)
	f.count("msg_calls_canceled_total", "Of these, given up by the client.", c.Canceled)
	f.count("msg_oneway_total", "Messages without an answer.", c.OneWay)
	f.count("msg_panics_total", "Handlers that panicked: a bug.", c.Panics)
	f.count("msg_pulled_bytes_total", "Request data fetched from clients.", c.BytesIn)
	f.count("msg_pushed_bytes_total", "Reply data sent to clients.", c.BytesOut)
}

func (f *families) ladder(provider, outcome string, n uint64) {
	const name = "msg_ladder_total"
	s := admin.Series{Labels: []string{provider, strings.ReplaceAll(outcome, " ", "_")},
		Value: float64(n)}
	for i := range f.all {
		if f.all[i].Name == name {
			f.all[i].Series = append(f.all[i].Series, s)
			return
		}
	}
	f.all = append(f.all, admin.Family{Name: name, Kind: admin.Counter,
		Help:   "Attempts of this process to reach others, by provider and what came of them.",
		Labels: []string{"provider", "outcome"}, Series: []admin.Series{s}})
}

// store are those of a local store.
func (f *families) store(s stripe.Engine) {
	st := s.Stats()
	f.count("store_reads_total", "Reads asked of the store.", st.Reads)
	f.count("store_writes_total", "Writes asked of the store.", st.Writes)
	f.count("store_read_bytes_total", "Bytes of those reads.", st.ReadBytes)
	f.count("store_write_bytes_total", "Bytes of those writes.", st.WriteBytes)
	f.count("store_disk_reads_total", "Operations on the disk for reading.", st.DiskReads)
	f.count("store_disk_writes_total", "Operations on the disk for writing.", st.DiskWrites)
	f.count("store_disk_read_bytes_total", "Bytes read from the disk.", st.DiskReadBytes)
	f.count("store_disk_write_bytes_total", "Bytes written to the disk: log, data and index.",
		st.DiskWriteBytes)
	f.count("store_syncs_total", "Flushes of the disk, and stable writes.", st.Syncs)
	f.count("store_groups_total", "Commits that served one or more requests.", st.Groups)
	f.count("store_checkpoints_total", "Checkpoints of the log.", st.Checkpoints)
	f.count("store_repeats_total", "Requests recognised and not applied again.", st.Repeats)
	f.count("store_checksum_errors_total", "Blocks that did not verify.", st.ChecksumErrors)
	f.count("store_copied_bytes_total", "Payload copied by the store.", st.CopiedBytes)
	f.gauge("store_objects", "Objects that are there.", int64(st.Objects))
	f.gauge("store_log_bytes", "Size of the log.", st.LogBytes)
	f.gauge("store_log_used_bytes", "Of that, what a restart would read.", st.LogUsed)
	f.gauge("store_memory_bytes", "Bound of the memory for index and unapplied data.", st.MemoryBytes)
	f.gauge("store_memory_used_bytes", "Of that, in use.", st.MemoryUsed)
	f.gauge("store_map_bytes", "Memory of the maps of objects, about.", st.MapBytes)
	if space, err := s.Space(); err == nil {
		f.gauge("store_space_bytes", "Room of the store.", space.Total)
		f.gauge("store_space_free_bytes", "Of that, free.", space.Free)
	}
}

// plan are what memory is meant for.
func (f *families) plan(p *memoryPlan) {
	f.gauge("memory_bound_bytes", "The memory that was configured.", p.total)
	for _, one := range p.parts() {
		f.by(admin.Gauge, "memory_plan_bytes", "Parts of the configured memory.", "part", one.name,
			float64(one.bytes))
	}
	f.gauge("msg_connections_max", "How many connections there is memory for.", int64(p.conns))
}
