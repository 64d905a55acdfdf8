package main

import (
	"maps"
	"slices"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// waysOf are the numbers of what each provider has carried, of connections that have moved to a
// better one, and of peers that were not let in.
func waysOf(net *peer.Network, s *msg.Server) []iod.Count {
	var out []iod.Count
	if s != nil {
		all := s.Carried()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			c := all[name]
			out = append(out, iod.Count{Name: "calls_" + name, Value: c.Calls},
				iod.Count{Name: "bytes_in_" + name, Value: c.BytesIn},
				iod.Count{Name: "bytes_out_" + name, Value: c.BytesOut})
		}
	}
	for _, list := range []struct {
		prefix string
		counts map[string]uint64
	}{{"climbed_", net.Climbed()}, {"refused_", net.Refused()}} {
		for _, name := range slices.Sorted(maps.Keys(list.counts)) {
			out = append(out, iod.Count{Name: list.prefix + name, Value: list.counts[name]})
		}
	}
	return append(out, iod.Count{Name: "connections_revoked", Value: net.Revoked()})
}

// ways are the same numbers for Prometheus.
func (f *families) ways(net *peer.Network, s *msg.Server) {
	by := func(kind admin.Kind, name, help, provider string, n uint64) {
		f.by(kind, name, help, "provider", provider, float64(n))
	}
	for provider, n := range net.Climbed() {
		by(admin.Counter, "peer_climbed_total", "Connections that have replaced worse ones, by the "+
			"provider that they moved to.", provider, n)
	}
	for provider, n := range net.Refused() {
		by(admin.Counter, "peer_refused_total", "Peers that were not let in, by provider.", provider, n)
	}
	f.count("peer_revoked_total", "Connections that were ended because their peer is not believed "+
		"any more.", net.Revoked())
	if s == nil {
		return
	}
	for provider, c := range s.Carried() {
		by(admin.Gauge, "msg_connections", "Connections that are open, by provider.", provider,
			uint64(c.Conns))
		by(admin.Counter, "msg_provider_connections_total", "Connections so far, by provider.", provider,
			c.Accepted)
		by(admin.Counter, "msg_provider_calls_total", "Calls so far, by provider.", provider, c.Calls)
		by(admin.Counter, "msg_provider_pulled_bytes_total", "Request data fetched from clients, by "+
			"provider.", provider, c.BytesIn)
		by(admin.Counter, "msg_provider_pushed_bytes_total", "Reply data sent to clients, by provider.",
			provider, c.BytesOut)
	}
}
