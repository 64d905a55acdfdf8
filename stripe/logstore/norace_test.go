//go:build !race

package logstore

// raceEnabled tells tests that counting allocations makes no sense: pools drop what they are given.
const raceEnabled = false
