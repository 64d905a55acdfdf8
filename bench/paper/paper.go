// Package paper is bench paper: the tables and figures of the five papers that sluice comes from,
// as experiments that anybody can repeat, with what the paper reported beside what is measured
// here.
//
// An experiment is a choice of cases: of bench fabric, net, iod and nbd, which measure everything
// else too, and of files.go, which measures the client library as the papers' programs did. Nothing
// is measured twice in different ways. It starts no servers: package main does.
//
// Read paper.go first, then the tables: message.go (M), pvfs.go (P), unifier.go (U and X),
// block.go (G); files.go is what they need of their own, show.go how it is shown.
package paper

import (
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/bench"
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
	Claims   []Claim // what the paper reported
	Differs  string  // what is another here
	CannotBe string  // why it cannot be run here; "": it can
}

// OwnBench is the bench of the cases in files.go.
const OwnBench = "files"

// Part is a bench and some of its cases.
type Part struct {
	Bench     string   // fabric, net, iod, nbd, or files: those of this package
	Cases     []string // regular expressions for their names
	Providers []string // nil: all that work here
}

// Claim is what a paper says, beside what was measured.
type Claim struct {
	What  string
	Paper string       // in its own units
	Of    bench.Finder // nil: nothing here compares
	Unit  string
}

// All are the experiments, paper by paper.
func All() []Experiment {
	return slices.Concat(message(), pvfs(), pvfsTransfers(), unifier(), exio(), block())
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

// through is one row's figure through another's.
func through(name, provider, otherName, other string) bench.Finder {
	return bench.Both(bench.Value(name, provider, ""), bench.Value(otherName, other, ""),
		bench.Through)
}
