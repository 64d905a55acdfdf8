package shm

import (
	"runtime/debug"
	"time"
)

// guard makes a fault in shared memory end the connection and not the process. Sealed memory that
// has its pages does not fault; its owner can take pages away, though, and under strict overcommit
// there may be none to replace them.
type guard struct {
	e   *endpoint
	old bool
}

// guard is deferred, as in: defer e.guard().off()
func (e *endpoint) guard() guard { return guard{e, debug.SetPanicOnFault(true)} }

func (g guard) off() {
	debug.SetPanicOnFault(g.old)
	if r := recover(); r != nil {
		if _, fault := r.(interface{ Addr() uintptr }); !fault {
			panic(r) // a bug
		}
		g.e.fault()
	}
}

// fault takes no lock: the goroutine that touched the memory may hold any. run does the rest.
func (e *endpoint) fault() {
	e.faulted.Store(true)
	e.stopped.Store(true)
	_ = e.conn.SetReadDeadline(time.Unix(1, 0))
}
