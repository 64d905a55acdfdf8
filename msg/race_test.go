//go:build race

package msg

const raceEnabled = true
