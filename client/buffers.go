package client

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// Buffer is memory that servers move data into and out of by themselves, by whatever provider they
// are reached: on one host in one copy, over a device without any. It is taken by FS.TryTake and
// given back by Return.
type Buffer = mem.Buf

// TryTake lends one piece of memory of at least n bytes, or nil if there is none for the moment, or
// none that is better than a program's own. It is worth while for data that a program only
// passes on: reads and writes of other memory go through such buffers anyway, with a copy, unless
// that memory is registered (see Options.Register).
func (fs *FS) TryTake(n int) *Buffer {
	if fs.buffers == nil {
		return nil
	}
	return fs.buffers.tryTake(n)
}

// Prepare makes the memory that TryTake lends, in the background, if it is not there yet: for who
// will soon need it. To make it takes as long as to read some ten MiB.
func (fs *FS) Prepare() {
	if b := fs.buffers; b != nil && !b.asked.Swap(true) {
		go b.once.Do(b.open)
	}
}

// buffers are the client's own memory, made when the first one is asked for, and the registrations
// of its callers' memory.
type buffers struct {
	bytes  int
	source mem.Source
	node   *msg.Node
	log    *slog.Logger

	asked atomic.Bool // somebody makes them in the background, or has
	once  sync.Once
	arena *mem.Arena // nil: there is none
	zones *mem.Zones
	lend  *mem.User // for data of callers on its way
	own   *mem.User // for those who take buffers themselves

	caches map[fabric.Domain]*regcache.Cache // of those that move registered memory only
	alones alones                            // large pieces, by Alloc
}

// newBuffers makes none yet; nil where the providers move any memory equally well.
func newBuffers(p *peer.Providers, node *msg.Node, o *Options) (*buffers, error) {
	if !worthwhile(p) {
		return nil, nil
	}
	b := &buffers{bytes: o.Buffers, source: p.Memory, node: node, log: o.Logger,
		caches: map[fabric.Domain]*regcache.Cache{}}
	for _, d := range p.Domains {
		if caps := d.Caps(); caps.AnyMemory || !caps.RegistersAny || o.Register < 0 {
			continue
		}
		c, err := regcache.New(d, regcache.Options{Bytes: o.Register, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		b.caches[d] = c
	}
	return b, nil
}

// worthwhile tells whether a provider prefers memory that was made for it.
func worthwhile(p *peer.Providers) bool {
	for _, d := range p.Domains {
		if !d.Caps().AnyMemory {
			return true
		}
	}
	return p.Memory != nil
}

// bufferCounts divides bytes: half for the largest transfers of a kernel or a block device, the
// rest for smaller ones. What is larger is put together from these.
func bufferCounts(bytes int) (counts [mem.Classes]int) {
	counts[4] = bytes / 2 / mem.ClassBytes(4)
	counts[2] = bytes / 4 / mem.ClassBytes(2)
	counts[0] = bytes / 4 / mem.ClassBytes(0)
	return counts
}

// open makes the memory. Without it data takes the slow way where there is one: that is no reason
// to fail.
func (b *buffers) open() {
	if err := b.tryOpen(); err != nil {
		b.log.Warn("no memory for buffers: data on this host is copied more often", "err", err)
		b.zones = nil
		if b.arena != nil {
			b.node.Detach(b.arena)
			_ = b.arena.Close() // nobody has seen it
			b.arena = nil
		}
	}
}

func (b *buffers) tryOpen() (err error) {
	counts := bufferCounts(b.bytes)
	b.arena, err = mem.OpenArena(mem.ArenaOptions{Bytes: mem.ZonesBytes(counts), Source: b.source,
		Lock: mem.No})
	if err != nil {
		return err
	}
	if err = b.node.Attach(b.arena); err != nil {
		return err
	}
	if b.zones, err = mem.NewZones(b.arena, mem.ZonesOptions{Counts: counts}); err != nil {
		return err
	}
	if b.lend, err = b.zones.NewUser(mem.UserOptions{Name: "callers"}); err != nil {
		return err
	}
	b.own, err = b.zones.NewUser(mem.UserOptions{Name: "buffers"})
	return err
}

// lender is what requests take buffers from; nil if there are none.
func (b *buffers) lender() *mem.User {
	b.once.Do(b.open)
	if b.zones == nil {
		return nil
	}
	return b.lend
}

// registrations is the cache of a provider that moves registered memory only; nil for others. The
// client's own memory comes first where the host bounds how much may be locked.
func (b *buffers) registrations(d fabric.Domain) *regcache.Cache {
	b.once.Do(b.open)
	return b.caches[d]
}

// registered adds up the caches' statistics.
func (b *buffers) registered() (s regcache.Stats) {
	for _, c := range b.caches {
		s = s.Add(c.Stats())
	}
	return s
}

// attach makes an arena known to all providers. Where the host refuses to lock more memory the
// registrations of callers' memory make way: that can be copied.
func (b *buffers) attach(a *mem.Arena) error {
	err := b.node.Attach(a)
	if errs.KindOf(err) != errs.NoMemory {
		return err
	}
	for _, c := range b.caches {
		c.Trim()
	}
	return b.node.Attach(a)
}

func (b *buffers) tryTake(n int) *Buffer {
	b.once.Do(b.open)
	if b.zones == nil || n <= 0 || n > mem.ClassBytes(4) {
		return nil
	}
	var few [4]*mem.Buf
	got, ok := b.own.TryTake(n, few[:0])
	if !ok {
		return nil
	}
	if len(got) == 1 {
		return got[0]
	}
	for _, one := range got { // in parts it is of no use
		one.Return()
	}
	return nil
}

// close gives the memory back. The node is closed already, so that no server touches it.
func (b *buffers) close() error {
	b.once.Do(func() {}) // none is made from here on
	var first error
	for _, c := range b.caches {
		if err := c.Close(); first == nil {
			first = err
		}
	}
	if err := b.alones.close(); first == nil {
		first = err
	}
	if b.arena == nil {
		return first
	}
	if err := b.zones.Close(); err != nil {
		// Somebody holds a buffer: its memory must stay mapped.
		return errs.Wrap("client.Close", "buffers", err)
	}
	if err := b.arena.Close(); first == nil {
		first = err
	}
	return first
}
