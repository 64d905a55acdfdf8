package iod

import "github.com/sluice-storage/sluice/hint"

// How are the mode and the hints of a request; Mode is one of its parts.
type (
	How  = hint.Hints
	Mode = hint.Mode
)

// UnitMax is the largest unit of the cache.
const UnitMax = hint.UnitMax

// PolicyNames are the names of the policies, in the order of their numbers.
func PolicyNames() []string { return hint.PolicyNames() }

// The modes, policies and streams of a How.
const (
	Cached      = hint.Cached
	Direct      = hint.Direct
	DirectReads = hint.DirectReads

	PolicyScan   = hint.PolicyScan
	PolicyLRU    = hint.PolicyLRU
	PolicyStream = hint.PolicyStream
	PolicyKeep   = hint.PolicyKeep
	PolicyNone   = hint.PolicyNone
	Policies     = hint.Policies

	StreamsDefault  = hint.StreamsDefault
	StreamsPlain    = hint.StreamsPlain
	StreamsSingle   = hint.StreamsSingle
	StreamsMultiple = hint.StreamsMultiple
)
