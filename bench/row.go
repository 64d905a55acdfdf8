// Package bench measures sluice against what the same machine can do without it. Each figure is a
// Row that names its ceiling: the plain Go TCP, RDMA test program, memory file system or NBD server
// that was measured in the same run, in turns with ours, so that a busy machine slows both down
// alike.
//
// It starts no servers and opens no providers: package main does, and hands in what to measure.
//
// Read row.go first (what comes out), then run.go (how a figure is made) and plan.go (how many fit
// into the time), then fs.go and nbd.go; for the fabric plain.go and perftest.go (the ceilings),
// fabric.go (the cases), fabricend.go, fabricpeer.go and fabricop.go (ours); for package msg
// netcases.go (the cases), netspec.go and netpeer.go (what the other process does), netcall.go (a
// contender) and netcopy.go (the ceiling of shared memory), and tune.go; for the local store
// store.go (the cases), storeload.go (what both sides do), storeraw.go (the ceiling) and
// storeasked.go; for I/O servers iod.go and iodmembers.go (the cases), iodspec.go (what the other
// process starts), iodcall.go (a contender), iodnaive.go (servers without a cache), iodfigures.go.
// print.go, plot.go and svg.go show rows to people.
package bench

import "strings"

// Row is one figure. The order of the fields is that of the JSON, which others rely on.
type Row struct {
	Bench    string  `json:"bench"`    // net, iod, fs, nbd, fabric, store
	Case     string  `json:"case"`     // what was done
	Provider string  `json:"provider"` // by whom: tcp, mount, nbd; or the ceiling's name
	Size     int64   `json:"size"`     // bytes of one operation
	Depth    int     `json:"depth"`    // operations under way at once
	Metric   string  `json:"metric"`   // Latency, Bandwidth, Rate, CPU or PeerCPU
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`   // median over the rounds
	Ceiling  string  `json:"ceiling"` // the Provider of the row that this one is held against, or ""
	Ratio    float64 `json:"ratio"`   // Value through the ceiling's value; 0 without one
	Low      float64 `json:"low"`     // the least of the rounds
	High     float64 `json:"high"`    // the most of them

	// What bench net knows besides: how the data of a request travels, and who makes progress.
	Protocol string `json:"protocol,omitempty"` // Inline, Eager or Rendezvous
	Progress string `json:"progress,omitempty"` // as package msg calls it
	Cost
}

// Cost is what moving data costs besides time; nil where it was not measured.
type Cost struct {
	LocalCPU  *float64 `json:"cpu_s_per_gib_local,omitempty"`  // of the process that measures
	RemoteCPU *float64 `json:"cpu_s_per_gib_remote,omitempty"` // of the other
	Copies    *float64 `json:"copies_per_byte,omitempty"`      // by both, as package mem counts

	// ProviderCopies is how often the provider copies a byte, as it says itself: it is not measured.
	ProviderCopies *float64 `json:"provider_copies_per_byte,omitempty"`

	Allocs *float64 `json:"allocs_per_op,omitempty"` // by both
}

// IsCeiling tells whether others are held against this row.
func (r Row) IsCeiling() bool { return r.Ceiling == r.Provider }

// The metrics. Of Bandwidth and Rate more is better; of the others less.
const (
	Latency   = "latency"
	Bandwidth = "bandwidth"
	Rate      = "rate"
	CPU       = "cpu"      // of both sides together
	PeerCPU   = "cpu-peer" // of the side that is written to
	Requests  = "requests" // work requests of one move
	Doorbells = "chains"   // how often they were posted, together

	// Of bench store.
	Amplification = "amplification" // bytes written to the disk for each byte of a request
	Allocations   = "allocations"   // of memory, for each request
	Copied        = "copied"        // bytes copied in memory for each byte of a request
	Restart       = "restart"       // time to open a store
	LogRead       = "log-read"      // of a restart: bytes of the log

	// Of bench iod.
	CacheHits  = "hits"   // units that the cache had
	BesideLoad = "beside" // what the load beside a loop moved
	StateTime  = "state-" // and a state's name: the time that a request spends in it at the server
)

func unitOf(metric string) string {
	if strings.HasPrefix(metric, StateTime) {
		return "us"
	}
	switch metric {
	case Latency:
		return "us"
	case Bandwidth:
		return "MB/s"
	case CPU, PeerCPU:
		return "s/GiB"
	case Requests, Doorbells:
		return "per move"
	case Amplification, Copied:
		return "B/B"
	case Allocations:
		return "/op"
	case Restart:
		return "s"
	case LogRead:
		return "MiB"
	case CacheHits:
		return "%"
	case BesideLoad:
		return "MB/s"
	}
	return "op/s"
}
