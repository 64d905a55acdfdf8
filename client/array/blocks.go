package array

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
)

// BlockOptions of Tiles.Blocks.
type BlockOptions struct {
	// Memory, in bytes, bounds what is cached, prefetched and lent together. At least two tiles.
	// Default 64 MiB, or two tiles if these are more.
	Memory int64

	// Ahead is how many tiles are brought before they are asked for, in one request to each server.
	// At most half of what Memory holds. Negative: none. Default 4.
	Ahead int
}

const (
	blocksMemory = 64 << 20
	blocksAhead  = 4
)

// Blocks is a cache of the tiles of an array, which are the unit of all that it does: a program
// walks over blocks, in any direction, and finds the next ones in memory. Safe for concurrent use.
//
// A walk is two steps of the same kind: along one axis or several, forwards or backwards, one tile
// or several at a time. Where the tiles of an axis end it goes on with the next line. What such a
// walk will ask for next is read ahead.
//
// What is cached is what was in the file when it was read. Put forgets the tiles that it changes,
// also those that have some of it as ghost cells; what other programs write, or this one by other
// ways, is seen after Forget.
type Blocks struct {
	t      *Tiles
	limit  int64 // of memory
	ahead  int
	ctx    context.Context // of reads, which several may wait for; ends with Close
	cancel context.CancelFunc
	reads  sync.WaitGroup

	mu     sync.Mutex
	all    map[string]*Block
	idle   list.List[Block] // that nobody has, the longest unused first
	memory int64            // of all blocks
	closed bool
	walk   walk
	stats  BlockStats
}

// BlockStats counts what a cache did.
type BlockStats struct {
	Hits       int64 `json:"hits"`       // found in memory, or on its way
	Misses     int64 `json:"misses"`     // read when they were asked for
	Prefetched int64 `json:"prefetched"` // read before
	Unused     int64 `json:"unused"`     // of these, displaced before anybody asked
	Memory     int64 `json:"memory"`     // bytes in use
}

// Block is a tile that is lent.
type Block struct {
	cache *Blocks
	at    []int64
	key   string
	bytes []byte
	ready chan struct{} // closed when it was read
	err   error         // why it was not
	early bool          // it was read before anybody asked
	asked bool          // somebody has
	users int
	gone  bool // not in the cache any more: its memory is free when nobody has it
	link  list.Link[Block]
}

// Blocks makes a cache of the tiles. Close it.
func (t *Tiles) Blocks(opts BlockOptions) (*Blocks, error) {
	each, err := arrayBytes(t.a.header.Type.Bytes, t.largest())
	if err != nil {
		return nil, err
	}
	each = max(each, 1)
	switch {
	case opts.Memory == 0:
		opts.Memory = max(blocksMemory, 2*each)
	case opts.Memory < 2*each:
		return nil, errs.Newf(errs.Invalid, "array.Blocks", "",
			"%d bytes of memory: two tiles take %d", opts.Memory, 2*each)
	}
	if opts.Ahead == 0 {
		opts.Ahead = blocksAhead
	}
	b := &Blocks{t: t, limit: opts.Memory, all: map[string]*Block{},
		ahead: int(max(min(int64(opts.Ahead), opts.Memory/each/2), 0))}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close ends reads that are under way, and waits for them. Blocks that are lent stay valid.
func (b *Blocks) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.reads.Wait()
	b.Forget()
}

// Stats tells what the cache did since it was made.
func (b *Blocks) Stats() BlockStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Memory = b.memory
	return s
}

// Get lends a tile, with its ghost cells, and reads it if it is not there. Release it. It fails
// with errs.Busy when so many tiles are lent that there is no memory for another one: whoever
// waited for memory while he has some could wait for ever.
func (b *Blocks) Get(ctx context.Context, at ...int64) (*Block, error) {
	if _, _, err := b.t.Box(at...); err != nil {
		return nil, err
	}
	for {
		k, err := b.take(at)
		if err != nil {
			return nil, err
		}
		select {
		case <-k.ready:
		case <-ctx.Done():
			k.Release()
			return nil, errs.Wrap("array.Blocks.Get", "", ctx.Err())
		}
		if k.err == nil {
			return k, nil
		}
		k.Release()
		if !k.early {
			return nil, k.err
		}
		// It was read before anybody asked, and failed: what counts is what happens now.
	}
}

// take finds a block or begins to read it, and what the walk will ask for next.
func (b *Blocks) take(at []int64) (*Block, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errs.New(errs.Closed, "array.Blocks.Get", "", nil)
	}
	k := b.all[blockKey(at)]
	if k != nil {
		b.stats.Hits++
	} else {
		if k = b.makeLocked(at); k == nil {
			return nil, errs.Newf(errs.Busy, "array.Blocks.Get", "",
				"all of the %d bytes of memory are lent", b.limit)
		}
		b.stats.Misses++
		b.startLocked([]*Block{k})
	}
	if k.link.In() {
		b.idle.Remove(&k.link)
	}
	k.users++
	k.asked = true
	b.aheadLocked(at)
	return k, nil
}

// aheadLocked begins to read what a walk asks for next.
func (b *Blocks) aheadLocked(at []int64) {
	var next []*Block
	for _, to := range b.walk.step(at, b.t.grid, b.ahead) {
		if b.all[blockKey(to)] != nil {
			continue
		}
		k := b.makeLocked(to)
		if k == nil {
			break
		}
		k.early = true
		b.stats.Prefetched++
		next = append(next, k)
	}
	if len(next) > 0 {
		b.startLocked(next)
	}
}

// makeLocked makes an entry, and room for it: nil if there is none.
func (b *Blocks) makeLocked(at []int64) *Block {
	n, err := b.t.Bytes(at...)
	if err != nil {
		return nil
	}
	var memory []byte
	for b.memory+n > b.limit {
		oldest := b.idle.First()
		if oldest == nil {
			return nil
		}
		b.dropLocked(oldest)
		memory = oldest.bytes
	}
	if int64(len(memory)) != n {
		memory = make([]byte, n)
	} else if b.t.ghosts && b.t.opts.Edge == Clip {
		clear(memory) // what lies outside is not read
	}
	b.memory += n
	k := &Block{cache: b, at: slices.Clone(at), key: blockKey(at), bytes: memory,
		ready: make(chan struct{})}
	b.all[k.key] = k
	return k
}

// dropLocked takes a block out of the cache.
func (b *Blocks) dropLocked(k *Block) {
	if b.all[k.key] == k {
		delete(b.all, k.key)
	}
	if k.gone {
		return
	}
	k.gone = true
	if k.link.In() {
		b.idle.Remove(&k.link)
		b.freeLocked(k)
	}
}

func (b *Blocks) freeLocked(k *Block) {
	b.memory -= int64(len(k.bytes))
	if k.early && !k.asked {
		b.stats.Unused++
	}
}

// startLocked reads blocks in one call. The read counts as their user.
func (b *Blocks) startLocked(blocks []*Block) {
	for _, k := range blocks {
		k.users++
	}
	b.reads.Go(func() {
		err := b.read(blocks)
		for _, k := range blocks {
			b.mu.Lock()
			k.err = err
			if err != nil {
				b.dropLocked(k)
			}
			b.mu.Unlock()
			close(k.ready)
			k.Release()
		}
	})
}

func (b *Blocks) read(blocks []*Block) error {
	var legs []leg
	for _, k := range blocks {
		var err error
		if legs, err = b.t.legs(legs, "array.Blocks", k.bytes, k.at); err != nil {
			return err
		}
	}
	return errs.Wrap("array.Blocks", "", b.t.a.move(b.ctx, reading, legs))
}

// Bytes is the tile with its ghost cells, as Tiles.Read has it; those outside of the array are zero
// (Clip). Others may have it, too: do not change it, and do not use it after Release.
func (k *Block) Bytes() []byte { return k.bytes }

// Release gives the block back.
func (k *Block) Release() {
	b := k.cache
	b.mu.Lock()
	defer b.mu.Unlock()
	if k.users--; k.users > 0 {
		return
	}
	if k.gone {
		b.freeLocked(k)
		return
	}
	b.idle.PushLast(&k.link, k)
}

// Put writes a tile, without its ghost cells, to the file, as Tiles.Write does. Who asks after it
// has returned gets what it wrote; blocks that are lent stay as they are.
func (b *Blocks) Put(ctx context.Context, p []byte, at ...int64) error {
	if _, _, err := b.t.Box(at...); err != nil {
		return err
	}
	// Before: who asks from now on reads it again, and may read either. After: what was read
	// meanwhile goes, too.
	b.forget(at)
	defer b.forget(at)
	return b.t.Write(ctx, p, at...)
}

// Forget empties the cache: what is asked for from now on is read from the file.
func (b *Blocks) Forget() { b.forget(nil) }

// forget drops the blocks that have something of a tile; of all, if it is nil.
func (b *Blocks) forget(at []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.all {
		if at == nil || b.t.touches(k.at, at) {
			b.dropLocked(k)
		}
	}
}

// touches tells whether tile a, with its ghost cells, has something of tile b.
func (t *Tiles) touches(a, b []int64) bool {
	box, _, err := t.Box(a...)
	_, core, err2 := t.Box(b...)
	if err != nil || err2 != nil {
		return false
	}
	for i, n := range t.a.header.Shape {
		near := false
		for _, shift := range []int64{-n, 0, n} {
			if shift != 0 && t.opts.Edge == Clip {
				continue
			}
			near = near || core.Low[i]+shift < box.High[i] && box.Low[i] < core.High[i]+shift
		}
		if !near {
			return false
		}
	}
	return true
}

// blockKey is a tile's number as a key.
func blockKey(at []int64) string {
	key := make([]byte, 0, 8*len(at))
	for _, k := range at {
		for s := 0; s < 64; s += 8 {
			key = append(key, byte(k>>s))
		}
	}
	return string(key)
}
