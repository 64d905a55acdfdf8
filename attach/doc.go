// Package attach makes a block device of the kernel, /dev/nbdN, out of an export or of a server
// that speaks NBD, and keeps it: sockets that die are replaced, a size that grows is told, and a
// process that was killed is succeeded by another one, which gives the same device new sockets.
// Programs that use the device wait meanwhile; they see no errors.
//
// Of the kernel it needs four calls (Kernel, which attach/netlink has); everything else runs
// without it. It opens no volumes and starts no processes: package main does.
//
// How nothing is lost. The kernel sends a request again when it has no answer after Options.Resend,
// and closes the socket that it had used: so it is after the death of a process, and so it is when
// servers are away for longer than that. A request whose socket is closed may still be under way
// here; a later one that meets it waits for its end (order.go), so that an old write never lands
// on a newer one. What a dead process still had under way is refused by the I/O servers: its
// successor has the next generation of the volume, unless that is shared with other hosts: then
// both are of one generation, and nothing keeps its last writes off.
//
// Read device.go first (a device's life), then source.go, local.go (exports), remote.go (servers)
// and order.go; place.go has what processes leave to each other.
package attach
