//go:build race

package shm

import (
	"runtime"
	"unsafe"
)

// The race detector does not see what happens in shared memory, nor that what was put into a ring
// happened before it was taken out. So it is told: otherwise tests with both ends in one process
// report races that are none. Only builds with -race have this variable.
var ringOrder byte

// raceEnabled tells tests that counting allocations makes no sense.
const raceEnabled = true

// raceRelease comes before an index is told to the peer, raceAcquire after one was seen.
func raceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&ringOrder)) }
func raceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&ringOrder)) }
