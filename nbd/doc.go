// Package nbd is a server for the NBD protocol (fixed newstyle): it turns an Export into a block
// device that QEMU, libnbd, fio and the Linux kernel attach. Requests of one connection run
// concurrently in bounded memory; a flush covers every connection; a panic in one connection
// kills only it.
//
// It knows nothing of clusters: exports of striped volumes are made elsewhere and handed in. It
// does not listen beyond loopback or a unix socket: whoever opens the listener decides that.
//
// Read export.go first (what is served), then server.go (a connection's life).
package nbd
