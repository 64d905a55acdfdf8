package main

import (
	"os"
	"runtime"
)

// How many threads of a server or a mount may run Go code at once, however few cores the host has.
// Some of them sleep in the kernel nearly all the time: a mount reads requests from the kernel and
// replies from each I/O server, an I/O server reads requests of each busy client and waits for its
// disk. Go counts a thread that sleeps in a system call among those that run until it notices. That
// takes it 20 us and more, in which others wait although a core is idle; and a thread of the
// runtime looks for such sleepers 50,000 times a second, a sixth of an I/O server's processor time.
// With places to spare nobody waits for the places of sleepers, and nobody looks for them.
//
// Of a mount these sleep: four that read the kernel's requests, and one for each of four servers.
// go-fuse reads with as many threads at once as there are places when it mounts, so a mount has the
// rest of them later: each reader too many costs a switch of threads for each request, and each too
// few a goroutine that is made for it.
const (
	procsLeast = 8
	procsFUSE  = 4
)

// spareProcs makes room for threads that sleep, unless GOMAXPROCS in the environment says how many
// there are.
func spareProcs(least int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < least {
		runtime.GOMAXPROCS(least)
	}
}
