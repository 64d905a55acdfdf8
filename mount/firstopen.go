package mount

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/meta"
)

// firstBits is how many inodes are told apart: numbers are given out one after the other, so that
// it is long before two share a bit.
const firstBits = 1 << 23

// firsts knows which files were never opened through this mount: the kernel has no pages of them,
// and nothing to forget when they are opened. It may take a file for opened that was not.
type firsts struct {
	before atomic.Bool // another process has served the mount: nobody knows
	opened [firstBits / 64]atomic.Uint64
}

// open notes that an inode is opened; first: it was not before.
func (f *firsts) open(ino meta.Ino) (first bool) {
	i := uint64(ino) % firstBits
	bit := uint64(1) << (i % 64)
	return f.opened[i/64].Or(bit)&bit == 0 && !f.before.Load()
}
