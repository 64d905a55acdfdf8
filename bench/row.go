// Package bench measures sluice against what the same machine can do without it. Each figure is a
// Row that names its ceiling: the plain Go TCP, RDMA test program, memory file system or NBD server
// that was measured in the same run, in turns with ours, so that a busy machine slows both down
// alike.
//
// It starts no servers and opens no providers: package main does, and passes in what to measure.
//
// Read row.go first (what comes out), then run.go and result.go (how a figure is made), plan.go
// (how many fit into the time) and figure.go (what is promised). print.go, markdown.go, plot.go and
// svg.go show rows to people. What is measured is in the packages below, each a table of cases:
// fabric and net (the network; plain has their ceilings, peer the other process), store, iod,
// meta, fs, list, mount and nbd.
package bench

import "strings"

// Row is one figure. The order of the fields is that of the JSON, which others rely on.
type Row struct {
	Bench    string  `json:"bench"`    // net, iod, fs, list, nbd, fabric, store, meta, mount
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

	// What bench net knows besides: how the data of a request travels, and which goroutines poll.
	Protocol string `json:"protocol,omitempty"` // Inline, Eager or Rendezvous
	Progress string `json:"progress,omitempty"` // as package msg calls it
	Cost

	// What bench mount and nbd compare besides: the best of others that run on the same host.
	Peer      string  `json:"peer,omitempty"`
	PeerRatio float64 `json:"peer_ratio,omitempty"` // Value through the peer's value

	Conns int `json:"conns,omitempty"` // of bench nbd: connections of the client
}

// Cost is what moving data costs besides time; nil where it was not measured.
type Cost struct {
	LocalCPU  *float64 `json:"cpu_s_per_gib_local,omitempty"`  // of the process that measures
	RemoteCPU *float64 `json:"cpu_s_per_gib_remote,omitempty"` // of the other
	Copies    *float64 `json:"copies_per_byte,omitempty"`      // by both, as package mem counts

	// ProviderCopies is how often the provider copies a byte, as it says itself: it is not
	// measured.
	ProviderCopies *float64 `json:"provider_copies_per_byte,omitempty"`

	Allocs *float64 `json:"allocs_per_op,omitempty"` // by both
}

func (c *Cost) parts() []**float64 {
	return []**float64{&c.LocalCPU, &c.RemoteCPU, &c.Copies, &c.ProviderCopies, &c.Allocs}
}

// medianCost is the median of each cost that all measurements have.
func medianCost(all []Cost) Cost {
	var m Cost
	for i, part := range m.parts() {
		var values []float64
		for j := range all {
			if v := *all[j].parts()[i]; v != nil {
				values = append(values, *v)
			}
		}
		if len(values) > 0 && len(values) == len(all) {
			middle := Median(values)
			*part = &middle
		}
	}
	return m
}

// IsCeiling tells whether other rows are compared with this one.
func (r Row) IsCeiling() bool { return r.Ceiling == r.Provider }

// The metrics. Of Bandwidth and Rate more is better; of the others less.
const (
	Latency   = "latency"
	Bandwidth = "bandwidth"
	Rate      = "rate"
	CPU       = "cpu"      // of both sides together
	PeerCPU   = "cpu-peer" // of the side that is written to
	Requests  = "requests" // work requests of one move; of bench list: requests to servers
	Doorbells = "chains"   // how often they were posted, together

	// Of bench store.
	Amplification = "amplification" // bytes written to the disk for each byte of a request
	Allocations   = "allocations"   // of memory, for each request
	Copied        = "copied"        // bytes copied in memory for each byte of a request
	Restart       = "restart"       // time to open a store
	LogRead       = "log-read"      // of a restart: bytes of the log

	// Of bench meta, for each operation.
	ClientCPU   = "cpu-client"    // processor time of the process that measures
	ServiceCPU  = "cpu-service"   // of the metadata service
	ServersCPU  = "cpu-servers"   // of all I/O servers
	TotalCPU    = "cpu-all"       // of all of them
	NameMsgs    = "requests-meta" // to the metadata service
	DataMsgs    = "requests-io"   // to I/O servers
	Memory      = "memory"        // of the service, resident
	FileBytes   = "bytes"         // that the metadata of a file takes on disk
	EndToStart  = "end-to-start"  // what is left of a rate, or how often a time has grown
	ListMemory  = "list-memory"   // that the service and the client took more while listing
	ListEntries = "list-rate"     // entries a second

	ClientMemory = "client-memory" // of the service, for each client
	BeatCPU      = "cpu-beat"      // of the service, for all clients in an interval of heartbeats
	Beats        = "beats"         // heartbeats in an interval

	// Of bench mount and nbd; processor time is in PerGiB or PerThousand, as the unit says.
	Elapsed   = "time"       // of a program, from its start to its end
	SystemCPU = "cpu-system" // processor time of all processes of a file system
	ReaderCPU = "cpu-reader" // of the program, the kernel's work on its behalf included

	// Of bench nbd: how many times longer a memory-bound program takes beside it.
	SlowDown = "slow-down"

	// Of bench paper: processor time of the clients through the time that passes.
	Busy = "busy"

	// Of bench iod.
	CacheHits = "hits"   // units that the cache had
	StateTime = "state-" // and a state's name: the time that a request spends in it at the server
	Arrival   = "chunk-" // and a chunk's number: when it is in the client's memory
)

// Units of processor time.
const (
	PerGiB      = "s/GiB"
	PerThousand = "s/1000 files"
)

// Unit is that of a metric which has one only.
func Unit(metric string) string { return unitOf(metric) }

func unitOf(metric string) string {
	if strings.HasPrefix(metric, StateTime) || strings.HasPrefix(metric, Arrival) {
		return "us"
	}
	if unit, ok := units()[metric]; ok {
		return unit
	}
	return "op/s"
}

func units() map[string]string {
	return map[string]string{
		Latency: "us", Bandwidth: "MB/s", CPU: "s/GiB", PeerCPU: "s/GiB",
		Requests: "per move", Doorbells: "per move", Amplification: "B/B", Copied: "B/B",
		Allocations: "/op", Restart: "s", LogRead: "MiB", CacheHits: "%", Busy: "%",
		ClientCPU: "us/op", ServiceCPU: "us/op", ServersCPU: "us/op", TotalCPU: "us/op",
		NameMsgs: "/op", DataMsgs: "/op", Memory: "MiB", FileBytes: "B/file", EndToStart: Times,
		ListMemory: "MiB", ListEntries: "entries/s",
		SlowDown: Times, ClientMemory: "KiB", BeatCPU: "ms/interval", Beats: "/interval",
	}
}
