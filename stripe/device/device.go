// Package device is what a store keeps its blocks on: a file with direct I/O, a block device, or
// memory, behind one small interface. All of them take batches and finish each operation with an
// error of its own; the first two through internal/uring.
//
// It knows no format. What it promises: a write whose Stable is set is on stable storage when it
// is finished; a Sync makes stable all that was finished before it began; whatever else was
// written may be lost, or be there in parts of whole sectors of 512 bytes, after a power cut, in
// any order. Two processes cannot have one device open for writing.
//
// Read device.go first, then file.go.
package device

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/uring"
)

// BlockBytes is the unit: offsets, lengths and the addresses of buffers are multiples of it, or
// the transfer is copied or refused by the kernel.
const BlockBytes = 4096

// Op is one operation. File is 0.
type Op = uring.Op

// Kind is what an operation does.
type Kind = uring.Kind

// The kinds of operations.
const (
	Read  = uring.Read
	Write = uring.Write
	Sync  = uring.Sync
)

// Device is a fixed number of bytes. Safe for concurrent use.
type Device interface {
	// Do carries out the operations, in any order, and returns when all are finished. Operations
	// and buffers belong to the device until then.
	Do(ops []*Op)

	// Size is in bytes and does not change.
	Size() int64

	// Reserve makes sure that writes to the range never fail for lack of space. Errors:
	// errs.NoSpace, and then nothing has happened.
	Reserve(off, length int64) error

	// Name is what people call it: a path.
	Name() string

	// Close releases the device. What is not stable stays as it is.
	Close() error
}

// Starter is a device that can begin operations, so that its user does something else until Wait.
// Between Begin and Wait an operation and its buffers belong to the device; each one that was begun
// must be waited for.
type Starter interface {
	Begin(ops []*Op)
	Wait(op *Op)
}

// Sparse is a device that takes space of a file system as it is reserved. Throttle passes it on.
type Sparse interface {
	// Room is how many bytes the file system has in all and how many it could still give, to anybody;
	// not ok where the device owns all of its space.
	Room() (total, free int64, ok bool)

	// Punch gives the space of a range back: it reads as zeroes then and has to be reserved again.
	Punch(off, length int64) error
}

// One carries out one operation and gives its error, with the device's name.
func One(d Device, op *Op) error {
	ops := [1]*Op{op}
	d.Do(ops[:])
	return Failed(d, op)
}

// Failed puts the device's name and the place around an operation's error.
func Failed(d Device, op *Op) error {
	if op.Err == nil {
		return nil
	}
	verb := "read"
	switch op.Kind {
	case Write:
		verb = "write"
	case Sync:
		return errs.New(errs.KindOf(op.Err), "sync", d.Name(), op.Err)
	}
	return errs.Newf(errs.KindOf(op.Err), verb, d.Name(), "%d bytes at offset %d: %w",
		op.N, op.Off, op.Err)
}
