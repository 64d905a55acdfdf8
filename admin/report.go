// Package admin is how a cluster looks to the people who run it: one report of its processes,
// servers, space and counters, as JSON for programs and as text for people; and an address of each
// process where its metrics, its health and its profiles are found.
//
// It asks nobody: whoever makes a report, or a metric, fills it in.
//
// Read report.go first, then text.go; for metrics family.go and web.go.
package admin

import (
	"time"

	"github.com/sluice-storage/sluice/internal/supervise"
)

// Report is what `sluice status` tells. What could not be found out is empty, and Problems says
// why.
type Report struct {
	Cluster  string    `json:"cluster"` // its id
	Dir      string    `json:"dir"`
	URL      string    `json:"url"` // empty while the metadata service has no address
	Mount    string    `json:"mount,omitempty"`
	Running  bool      `json:"running"`
	PID      int       `json:"pid,omitempty"` // of the process that supervises
	Since    time.Time `json:"since,omitzero"`
	Problems []string  `json:"problems,omitempty"`

	// Local tells whether this is of a cluster's folder, with the processes that run there; otherwise
	// it is what the metadata service knows.
	Local bool   `json:"local"`
	Map   uint64 `json:"map,omitempty"` // version of the map of servers and hosts

	Meta      *Meta               `json:"meta,omitempty"`
	Processes []supervise.Process `json:"processes"`
	Hosts     []Host              `json:"hosts"`
	Clients   []Client            `json:"clients"`
	Admin     map[string]string   `json:"admin,omitempty"` // where each process shows its metrics
	Servers   []Server            `json:"servers"`
	Volumes   int                 `json:"volumes"`
	Space     Space               `json:"space"`
}

// Meta is what the metadata service says of itself.
type Meta struct {
	Sessions int     `json:"sessions"`
	Handles  int     `json:"handles"` // open files of all sessions
	Files    int64   `json:"files"`
	Queued   int     `json:"queued"`  // files whose remains wait to be removed
	Removed  int64   `json:"removed"` // since the service started
	Ops      []OpUse `json:"ops"`     // those that were used, in the order of their numbers
	Counts   []Count `json:"counts"`  // of its connections
	Problem  string  `json:"problem,omitempty"`
	Cluster  string  `json:"cluster,omitempty"` // id of what it keeps
	Version  string  `json:"version,omitempty"` // of its program
	Memory   int64   `json:"memory,omitempty"`  // resident bytes

	Way // to it, from where the report was made
}

// Way is how a server is reached from where the report was made.
type Way struct {
	Provider string `json:"provider"`          // what carries data to it
	Known    string `json:"known,omitempty"`   // how it is known who is there
	WhyNot   []Step `json:"why_not,omitempty"` // better providers, and why they do not
}

// Step is a provider that could have carried a connection.
type Step struct {
	Provider string `json:"provider"`
	At       string `json:"at,omitempty"` // where it was tried; empty if it was not
	Kind     string `json:"kind"`         // of the reason
	Reason   string `json:"reason"`
}

// OpUse is how often an operation was asked for.
type OpUse struct {
	Op     string  `json:"op"`
	Calls  uint64  `json:"calls"`
	Failed uint64  `json:"failed"`
	MeanUs float64 `json:"mean_us"`
}

// Space is the room of all servers together.
type Space struct {
	Total int64 `json:"total"`
	Free  int64 `json:"free"`
	Files int64 `json:"files"`
}

// Server is one I/O server.
type Server struct {
	ID       uint32    `json:"id"`
	Addr     string    `json:"addr"`
	Up       bool      `json:"up"`    // the metadata service hears of it
	State    string    `json:"state"` // up, slow, down, leaving, gone
	Host     string    `json:"host,omitempty"`
	Version  string    `json:"version,omitempty"`
	Start    uint64    `json:"start"` // how often it was started
	Since    time.Time `json:"since,omitzero"`
	LastSeen time.Time `json:"last_seen"`
	Total    int64     `json:"total"`
	Free     int64     `json:"free"`
	Verifier uint64    `json:"verifier"`          // changes when unsynced writes may be lost
	Uptime   int64     `json:"uptime_ms"`         // 0: it did not answer
	Counts   []Count   `json:"counts,omitempty"`  // in the server's order
	Problem  string    `json:"problem,omitempty"` // why it did not answer

	Way
}

// Count is one named number.
type Count struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Count finds a number by its name; 0 if there is none.
func (s *Server) Count(name string) uint64 {
	for _, c := range s.Counts {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}
