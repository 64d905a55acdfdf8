// Package top is the live view of a cluster: what its processes tell of themselves at two moments
// (activity.Snapshot), turned into rates and latencies of the time in between, and drawn for a
// terminal of any size, or as plain text.
//
// It asks nobody and reads no keys: snapshots come in, text goes out. Package main finds the
// processes, and the terminal.
//
// Read view.go first (what is shown), then rates.go (how it is computed), table.go and draw.go.
package top

import (
	"time"

	"github.com/sluice-storage/sluice/internal/activity"
)

// Sample is what a process told, or why it did not.
type Sample struct {
	At      time.Time
	Snap    *activity.Snapshot // nil: it did not answer
	Problem string             // why
}

// View is what is shown, and what `sluice top --json` prints. Rates are per second, of the
// interval; latencies are in milliseconds.
type View struct {
	Time      time.Time `json:"time"`
	Interval  float64   `json:"interval_seconds"`
	Cluster   string    `json:"cluster"`
	Totals    Totals    `json:"totals"`
	Processes []Process `json:"processes"`
	Ops       []Op      `json:"ops"`
	Clients   []Client  `json:"clients"`
	Programs  []Client  `json:"programs"` // processes on mounts
	Files     []File    `json:"files"`
	Slow      []Slow    `json:"slow"`
}

// Totals are of all servers. What goes through a mount is a part of that, or came from its cache.
type Totals struct {
	Clients  int     `json:"clients"`
	Open     int     `json:"open_files"`
	Requests float64 `json:"requests"`
	Failed   float64 `json:"failed"`
	Read     float64 `json:"read_bytes"`
	Written  float64 `json:"written_bytes"`
}

// Process is a metadata service, an I/O server or a mount.
type Process struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"`
	PID      int     `json:"pid"`
	Up       bool    `json:"up"`
	Problem  string  `json:"problem,omitempty"`
	Uptime   float64 `json:"uptime_seconds"`
	CPU      float64 `json:"cpu"` // of one processor: 1 is all of it
	Memory   int64   `json:"memory_bytes"`
	Open     int     `json:"open_files"`
	Untold   int64   `json:"untold"`  // names that a mount is about to tell the metadata service
	Running  int     `json:"running"` // requests that are under way for more than 100 ms
	Requests float64 `json:"requests"`
	Failed   float64 `json:"failed"`
	Read     float64 `json:"read_bytes"`
	Written  float64 `json:"written_bytes"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
}

// Op is an operation of all processes of a kind.
type Op struct {
	Kind     string  `json:"kind"`
	Op       string  `json:"op"`
	Waits    bool    `json:"waits,omitempty"` // it waits by its nature: its latency tells nothing
	Requests float64 `json:"requests"`
	Failed   float64 `json:"failed"`
	Mean     float64 `json:"mean_ms"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Busy     float64 `json:"busy"` // how many were under way on average
}

// Client is a session, as the servers see it, or a process on a mount.
type Client struct {
	ID       uint64  `json:"id"`
	Name     string  `json:"name"`
	Mount    string  `json:"mount,omitempty"` // of a process
	Open     int     `json:"open_files"`
	Requests float64 `json:"requests"`
	Read     float64 `json:"read_bytes"`
	Written  float64 `json:"written_bytes"`
}

// File is an inode that requests were about.
type File struct {
	Inode    uint64  `json:"inode"`
	Requests float64 `json:"requests"`
	Read     float64 `json:"read_bytes"`
	Written  float64 `json:"written_bytes"`
}

// Slow is a request that took long within the last minute, or does now.
type Slow struct {
	Process string           `json:"process"`
	Op      string           `json:"op"`
	Client  string           `json:"client,omitempty"`
	Inode   uint64           `json:"inode,omitempty"`
	Name    string           `json:"name,omitempty"`
	Running bool             `json:"running"`
	Ago     float64          `json:"ago_seconds"` // since its end
	Took    float64          `json:"took_ms"`
	Bytes   int64            `json:"bytes"`
	Failed  bool             `json:"failed"`
	Where   string           `json:"where,omitempty"` // it waited
	Phases  []activity.Phase `json:"phases,omitempty"`
}
