package main

import (
	"github.com/sluice-storage/sluice/admin"
)

// iodMetric is what a number of an I/O server's Status is called among the metrics.
type iodMetric struct {
	kind       admin.Kind
	name, help string
}

// iodMetrics are those that are no requests, by the server's names.
func iodMetrics() map[string]iodMetric {
	const g, c = admin.Gauge, admin.Counter
	return map[string]iodMetric{
		"requests_running": {g, "requests_running", "Requests that are being carried out."},
		"errors":           {c, "errors_total", "Requests that failed."},
		"capabilities_forged": {c, "capabilities_forged_total",
			"Requests refused because their capability was not signed by this cluster."},
		"capabilities_refused": {c, "capabilities_refused_total",
			"Requests refused because their capability does not cover them."},
		"read_bytes":       {c, "read_bytes_total", "Bytes read by clients."},
		"write_bytes":      {c, "write_bytes_total", "Bytes written by clients."},
		"lent_bytes":       {g, "lent_bytes", "Memory of the cache lent to reads."},
		"lent_bytes_high":  {g, "lent_bytes_high", "The most that was lent so far."},
		"lent_waits":       {c, "lent_waits_total", "Reads that had to wait for memory."},
		"cache_hits":       {c, "cache_hits_total", "Units of the cache that were there."},
		"cache_misses":     {c, "cache_misses_total", "Units of the cache that were not."},
		"cache_evictions":  {c, "cache_evictions_total", "Units that made room for others."},
		"cache_bytes":      {g, "cache_bytes", "What is cached."},
		"cache_bytes_high": {g, "cache_bytes_high", "The most memory of the cache in use so far."},
	}
}
