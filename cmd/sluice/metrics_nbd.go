package main

import (
	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/nbd"
)

// families are the metrics of a gateway.
func (g *gateway) families() []admin.Family {
	var f families
	if g.conn != nil {
		f.all = clientFamilies(g.conn.fs.Stats(), g.conn.fs.Network())
	} else {
		f.process()
	}
	f.block(g.server)
	return f.all
}

// block are those of a block server, and of each of its exports.
func (f *families) block(s *nbd.Server) {
	st := s.Stats()
	f.gauge("nbd_connections", "Connections of clients.", int64(st.Conns))
	f.count("nbd_connections_total", "Connections so far.", uint64(st.Accepted))
	f.count("nbd_connections_refused_total", "Connections beyond the bound, closed on arrival.",
		uint64(st.Refused))
	f.count("nbd_connections_evicted_total",
		"Connections that took nothing while others waited for memory.", uint64(st.Evicted))
	f.count("nbd_panics_total", "Connections lost to a bug.", uint64(st.Panics))
	f.gauge("nbd_memory_used_bytes", "Memory of payloads under way.", st.MemoryBytes)
	f.gauge("nbd_memory_peak_bytes", "The most that it ever was.", st.MemoryPeak)
	f.count("nbd_memory_waits_total", "Requests that waited for memory.", uint64(st.MemoryWaits))
	for _, e := range s.Exports() {
		f.export(&e)
	}
}

func (f *families) export(e *nbd.ExportStats) {
	by := func(kind admin.Kind, name, help string, value int64) {
		f.by(kind, name, help, "export", e.Name, float64(value))
	}
	by(admin.Gauge, "nbd_export_connections", "Connections that use an export.", int64(e.Conns))
	for _, c := range []struct {
		name, help string
		value      int64
	}{
		{"reads", "Reads of an export.", e.Reads},
		{"writes", "Writes to it.", e.Writes},
		{"flushes", "Flushes of it.", e.Flushes},
		{"trims", "Trims of it.", e.Trims},
		{"zeroes", "Ranges of it that were zeroed.", e.Zeroes},
		{"caches", "Ranges of it that were to be fetched.", e.Caches},
		{"statuses", "Questions what is allocated in it.", e.Statuses},
		{"errors", "Requests to it that were answered with an error.", e.Errors},
		{"read_bytes", "Bytes read from it.", e.BytesRead},
		{"written_bytes", "Bytes written to it.", e.BytesWritten},
	} {
		by(admin.Counter, "nbd_export_"+c.name+"_total", c.help, c.value)
	}
	f.stateTimes(e)
}

// stateTimes are what requests that were watched spent in each state.
func (f *families) stateTimes(e *nbd.ExportStats) {
	for _, c := range []struct {
		name string
		nbd.Times
	}{{"read", e.ReadTimes}, {"write", e.WriteTimes}} {
		by := func(what, help string, value float64) {
			f.by(admin.Counter, "nbd_export_"+c.name+"_"+what+"_total", help, "export", e.Name, value)
		}
		by("sampled", "Requests whose time was measured.", float64(c.Sampled))
		by("wait_seconds", "Of these: for payload, memory and their turn.", c.Wait.Seconds())
		by("run_seconds", "Of these: in the export.", c.Run.Seconds())
		by("send_seconds", "Of these: until the reply has left.", c.Send.Seconds())
	}
}

// activity is what onlookers see of a gateway.
func (g *gateway) activity(s *activity.Snapshot) {
	st := g.server.Stats()
	s.Sessions, s.Open = st.Conns, len(g.server.Exports())
	for _, op := range []struct {
		name  string
		count int64
	}{
		{"read", st.Reads}, {"write", st.Writes}, {"flush", st.Flushes}, {"trim", st.Trims},
		{"zero", st.Zeroes}, {"cache", st.Caches}, {"status", st.Statuses},
	} {
		if op.count > 0 {
			s.Ops = append(s.Ops, activity.OpUse{Op: op.name, Count: uint64(op.count)})
		}
	}
}
