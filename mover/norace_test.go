//go:build !race

package mover_test

const raceEnabled = false
