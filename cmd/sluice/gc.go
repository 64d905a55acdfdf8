package main

import (
	"os"
	"runtime/debug"
)

// gcPercent is Go's GOGC for processes that serve names: their heaps are small, and with the usual
// 100 the collector took a tenth of the time of a file that is created.
const gcPercent = 300

// collectSeldom lets the heap grow further between two collections, unless the user says otherwise.
func collectSeldom() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
