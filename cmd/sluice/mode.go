package main

import (
	"strings"

	"github.com/sluice-storage/sluice/client"
)

// modeText is what people read about modes.
const modeText = "the way of data at the I/O servers: cached; stream (through the cache, without " +
	"displacing what others use); direct (past it, straight between disks and network); " +
	"cached-writes (reads direct)"

// modeNames are the modes in the order in which they are explained.
func modeNames() []string { return []string{"cached", "stream", "direct", "cached-writes"} }

// parseMode reads one.
func parseMode(text string) (client.How, error) {
	switch text {
	case "cached":
		return client.How{}, nil
	case "stream":
		return client.How{Policy: client.PolicyStream}, nil
	case "direct":
		return client.How{Mode: client.Direct}, nil
	case "cached-writes":
		return client.How{Mode: client.DirectReads}, nil
	}
	return client.How{}, refuse("there is no mode "+text,
		"Choose of "+strings.Join(modeNames(), ", "))
}
