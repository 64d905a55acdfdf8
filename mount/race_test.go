//go:build race

package mount

const raceEnabled = true
