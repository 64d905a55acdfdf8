package store

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// blockNumbers is how many numbers are taken from the store at once: one synced commit per so many
// creates. What is left of a block at the end of the process is never used.
const blockNumbers = 1024

// numbers gives out inode numbers and cookies, none of them twice. A block is on disk before its
// first number is given out: otherwise a power cut could take the block's record away and leave
// stripe objects of its numbers behind, and a new file would show old data.
type numbers struct {
	kv     kv.Store
	refill chan struct{} // holds one token: who has it fetches a block

	mu        sync.Mutex
	next, end uint64
}

func newNumbers(store kv.Store) *numbers {
	n := &numbers{kv: store, refill: make(chan struct{}, 1)}
	n.refill <- struct{}{}
	return n
}

func (n *numbers) take(ctx context.Context) (uint64, error) {
	for {
		if v := n.pop(); v != 0 {
			return v, nil
		}
		select {
		case <-n.refill:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		err := n.fetch(ctx)
		n.refill <- struct{}{}
		if err != nil {
			return 0, err
		}
	}
}

func (n *numbers) pop() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.end {
		return 0
	}
	n.next++
	return n.next - 1
}

// fetch takes a block unless somebody else just did.
func (n *numbers) fetch(ctx context.Context) error {
	n.mu.Lock()
	full := n.next != n.end
	n.mu.Unlock()
	if full {
		return nil
	}
	for attempt := range attemptsMax {
		start, err := n.block(ctx)
		if err == nil {
			n.mu.Lock()
			n.next, n.end = start, start+blockNumbers
			n.mu.Unlock()
			return nil
		}
		// After an unknown outcome the block may be taken and nobody's: take another.
		if k := errs.KindOf(err); k != errs.Conflict && k != errs.MaybeDone {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	return errs.Newf(errs.Again, "meta.numbers", "", "no block of numbers could be taken")
}

func (n *numbers) block(ctx context.Context) (uint64, error) {
	snap := n.kv.Snapshot()
	value, version, err := snap.Get([]byte(keyNumbers))
	snap.Close()
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, errs.Newf(errs.Corrupt, "meta.numbers", "", "%s has %d bytes",
			keyNumbers, len(value))
	}
	start := binary.BigEndian.Uint64(value)
	_, err = n.kv.Commit(ctx, &kv.Txn{
		Checks: []kv.Check{{Key: []byte(keyNumbers), Version: version}},
		Puts: []kv.Put{{Key: []byte(keyNumbers),
			Value: binary.BigEndian.AppendUint64(nil, start+blockNumbers)}},
		Sync: true,
	})
	return start, err
}
