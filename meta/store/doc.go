// Package store is the metadata service on a transactional key-value store: names, attributes,
// layouts, sessions, small files, volumes and the I/O servers. Every operation is one transaction
// as data: it reads a snapshot, lists what must still be true and what changes, and is committed
// as a whole; a conflict means to read again. What it must do at I/O servers (truncate, remove,
// measure) is written down in a transaction first and is therefore carried out whatever dies in
// between.
//
// It moves no data between clients and I/O servers, speaks no network protocol (package server
// does) and knows no engine: any kv.Store serves. One process at a time serves a kv.Store, because
// open files, leases, the state of I/O servers and requests that are being repeated are known to
// that process only; the next process hears from clients what they have open (claim.go).
//
// Read keys.go and record.go first (what is stored), then txn.go (how an operation is done),
// handles.go and leases.go (what is only known), then any operation: each has a file of its own.
// What goes on in the background begins in recover.go, removal.go, trees.go and collect.go;
// check.go compares all records with each other, dump.go and load.go are backups.
package store
