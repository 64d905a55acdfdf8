//go:build !race

package hooktest

const raceEnabled = false
