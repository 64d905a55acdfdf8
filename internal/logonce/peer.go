package logonce

import (
	"net"
	"strings"
)

// Peer is the part of an endpoint's name that does not change when the peer comes back from another
// port: its host, as far as the name tells.
func Peer(name string) string {
	if i := strings.LastIndex(name, "->"); i >= 0 {
		name = name[i+2:]
	}
	if host, _, err := net.SplitHostPort(name); err == nil {
		return host
	}
	return name
}
