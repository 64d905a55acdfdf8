package client

import (
	"fmt"
	"os"

	"github.com/sluice-storage/sluice/internal/procid"
)

// A client's sessions are named after its process (see procid). When the process is dead nothing of
// it can be written any more, and what it had open for writing can be taken over at once.

// nameMax is how long the readable part of a name may be: together with an identity it is shorter
// than what the metadata service takes.
const nameMax = 128

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.100s:%d", host, os.Getpid())
}

// knownDead tells whether the process of a client is known to have ended.
func knownDead(name string) bool {
	dead, _ := procid.Dead(name)
	return dead
}
