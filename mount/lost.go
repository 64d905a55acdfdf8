package mount

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// lost are files that programs have open and that are gone: the process before this one had made
// them, and died before the service knew of them (client.FS.Deferred), and the one after it came
// too late to tell them (client.Options.Journal). By their numbers.
type lost struct {
	mu      sync.Mutex
	numbers map[uint64]bool
}

func (l *lost) add(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.numbers == nil {
		l.numbers = map[uint64]bool{}
	}
	l.numbers[number] = true
}

// noFile is the answer to who uses a file by a number that stands for none.
func (b *bridge) noFile(number uint64) fuse.Status {
	b.lost.mu.Lock()
	defer b.lost.mu.Unlock()
	if b.lost.numbers[number] {
		return fuse.Status(unix.ESTALE)
	}
	return fuse.EBADF
}
