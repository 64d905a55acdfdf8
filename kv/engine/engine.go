// Package engine holds what the engines of package kv share: checking a transaction against the
// current state (check.go), remembering recent changes for "unchanged since" (changes.go and
// recent.go) and recognising repeated requests (replay.go).
//
// It stores nothing, locks nothing and starts nothing: an engine calls it inside its own apply
// section. Users of a store never import it.
//
// Read check.go first.
package engine
