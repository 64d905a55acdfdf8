package mount

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/meta"
)

// touchedMax is how many inodes are remembered. When there are more all are forgotten: pages that
// were read before count for nothing then.
const touchedMax = 4 << 10

// anyIno stands for an inode that is not known.
const anyIno = ^meta.Ino(0)

// touched knows which inodes this mount has changed since a page of a directory was read, or has
// heard newer attributes of when a program opened or locked them: what the page says of them must
// not reach the kernel, which takes it for new.
//
// It is enough to note a change when it has ended, before it is answered. The kernel reads no names
// of a directory while it changes some of them, and ignores attributes that it has asked for before
// a change of them was answered.
type touched struct {
	mu    sync.Mutex
	clock uint64
	floor uint64 // pages from before it count for nothing
	last  map[meta.Ino]uint64
}

// now is the moment before a page is read.
func (c *touched) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock
}

// note notes that inodes were changed, or may have been; of a directory that its names were. 0
// stands for none.
func (c *touched) note(inos ...meta.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	if c.last == nil || len(c.last) > touchedMax {
		c.floor, c.last = c.clock, make(map[meta.Ino]uint64)
	}
	for _, ino := range inos {
		switch ino {
		case 0:
		case anyIno:
			c.floor = c.clock
		default:
			c.last[ino] = c.clock
		}
	}
}

// since tells whether an inode may have been changed after a moment.
func (c *touched) since(at uint64, ino meta.Ino) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at < c.floor || at < c.last[ino]
}

// named tells the inode of a name that is about to be changed: it may have other names, which pages
// show. Without open directories there are no pages, and nobody needs to know.
func (b *bridge) named(ctx context.Context, dir meta.Ino, name string) meta.Ino {
	if b.dirs.count() == 0 {
		return anyIno
	}
	if ino, known := b.fs.NameOf(ctx, b.as(ctx), dir, name); known {
		return ino
	}
	return anyIno
}
