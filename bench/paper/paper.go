// Package paper is bench paper: the tables and figures of the five papers that sluice comes from,
// as experiments that anybody can repeat, with what the paper reported beside what is measured
// here.
//
// An experiment is a choice of cases: of bench fabric, net, iod and nbd, which measure everything
// else too, and of files.go and local.go, which measure the client library and this host's own
// storage as the papers' programs did. Nothing is measured twice in different ways. What is shown
// of the rows are graphs, which have the axes of the paper's figure, and claims, which are the
// numbers that the paper gives. It starts no servers: package main does.
//
// Read paper.go first, then graph.go and claim.go, and the tables: message.go (M), pvfs.go (P),
// unifier.go (U), exio.go (X), block.go (G); show.go is how it is shown to people.
package paper

import (
	"slices"
	"strings"
)

// Papers are the papers, by the letters of their experiments.
func Papers() map[string]string {
	return map[string]string{
		"M": "message middleware for clients and servers over system-area networks",
		"P": "PVFS over InfiniBand",
		"U": "Unifier: one cache for storage and network",
		"X": "EXIO: noncontiguous I/O over RDMA for Globus",
		"G": "gmblock: block devices with a direct path from disk to network",
	}
}

// Experiment is a table or a figure of a paper.
type Experiment struct {
	Name     string   // letter of the paper and number: P8, MT1 (a table)
	Also     []string // further figures that it is: the same on another network
	Title    string
	Parts    []Part  // what is run
	Same     string  // an experiment whose rows are those of this one, too, if it was run before
	Graphs   []Graph // what the paper's figure shows
	Says     string  // what the paper found: the shape, in a sentence
	Claims   []Claim // what it reported, in numbers
	Differs  string  // what is another here
	Device   bool    // only a host with an RDMA device can run it, see On
	CannotBe string  // why it cannot be run here; "": it can
}

// The benches of this package's own cases.
const (
	OwnBench   = "files" // files.go
	LocalBench = "local" // local.go
)

// Part is a bench and some of its cases.
type Part struct {
	Bench     string   // fabric, net, iod, nbd, or one of this package
	Cases     []string // regular expressions for their names
	Providers []string // nil: all that work here; of nbd: servers
	Ways      []string // regular expressions for the contenders that belong to it; nil: all
}

// All are the experiments, paper by paper.
func All() []Experiment {
	return slices.Concat(message(), pvfs(), pvfsTransfers(), unifier(), exio(), block(), blockSends())
}

// NoDevice says why an experiment that needs a device is not run on a host without one.
const NoDevice = "It needs an RDMA device, whose memory is registered: this host has none. " +
	"In the virtual machines of docs/ops/vmlab.md there is an emulated one."

// On is the experiment on a host with a device, or without.
func (e Experiment) On(device bool) Experiment {
	if e.Device && !device {
		e.CannotBe = NoDevice
	}
	return e
}

// Find is the experiment of a name, whatever its case.
func Find(name string) (Experiment, bool) {
	all := All()
	i := slices.IndexFunc(all, func(e Experiment) bool {
		return slices.ContainsFunc(e.names(), func(n string) bool { return strings.EqualFold(n, name) })
	})
	if i < 0 {
		return Experiment{}, false
	}
	return all[i], true
}

func (e *Experiment) names() []string { return append([]string{e.Name}, e.Also...) }

// Letter is its paper's.
func (e *Experiment) Letter() string { return e.Name[:1] }

// Names are all figures that it is: P7, M7, M8.
func (e *Experiment) Names() string { return strings.Join(e.names(), ", ") }

// Weight is how much of the time of all it should have: how many figures it shows.
func (e *Experiment) Weight() int {
	n := 0
	for i := range e.Graphs {
		n += len(e.Graphs[i].Ticks) * len(e.Graphs[i].Lines)
	}
	return min(max(n, 4), 32)
}
