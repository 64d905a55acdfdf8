package peer

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
)

// What those need to know who connect endpoints by themselves, without a Network: package transfer
// does, because its data does not go in requests and replies.

// HostID identifies this host and boot: processes with the same one can share memory.
func HostID() [32]byte { return hostID() }

// Told is where others find what listens at addr of a domain. One that listens on all addresses is
// at those that there are now.
func Told(d fabric.Domain, addr string) []string {
	return told(msg.Place{Domain: d, Addr: addr})
}

// AllDevices is an address at which all devices of a domain listen, those that come later included.
func AllDevices(d fabric.Domain) string { return allDevices(d.Connector()) }
