//go:build !race

package unifier

const raceEnabled = false
