package client

import "github.com/sluice-storage/sluice/iod"

// How is the way that a handle's data takes at the I/O servers, and hints to their caches. The zero
// value, through the cache, is right for most.
type How = iod.How

// The modes. They may be mixed, on one file and at one moment: all see the same bytes.
const (
	Cached      = iod.Cached      // reads and writes through the servers' caches
	Direct      = iod.Direct      // both past them, straight between disks and network
	DirectReads = iod.DirectReads // writes through the caches, reads past them
)

// The hints to the caches.
const (
	PolicyScan   = iod.PolicyScan   // what is used once does not displace what is used often
	PolicyLRU    = iod.PolicyLRU    // the least recently used goes first
	PolicyStream = iod.PolicyStream // read or written once, in order
	PolicyKeep   = iod.PolicyKeep   // goes last
	PolicyNone   = iod.PolicyNone   // is not kept
)

// SetHow changes the mode and the hints of a handle, from the next request on. Servers refuse hints
// that make no sense with errs.Invalid.
func (f *File) SetHow(h How) { f.how.Store(&h) }

// How are the handle's mode and hints.
func (f *File) How() How {
	if h := f.how.Load(); h != nil {
		return *h
	}
	return How{}
}
