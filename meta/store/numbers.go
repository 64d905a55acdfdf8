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

// numbersMax is above every number that was ever given out.
const numbersMax = 1 << 62

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

// reserve takes numbers that lie side by side, for one session.
func (n *numbers) reserve(ctx context.Context, count uint64) (first uint64, err error) {
	select {
	case <-n.refill: // whoever fetches a block meanwhile would only be in the way
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { n.refill <- struct{}{} }()
	for attempt := range attemptsMax {
		first, err = n.block(ctx, count)
		if k := errs.KindOf(err); k != errs.Conflict && k != errs.MaybeDone {
			return first, err
		}
		if err := pause(ctx, attempt); err != nil {
			return 0, err
		}
	}
	return 0, err
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
		start, err := n.block(ctx, blockNumbers)
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

// skip makes sure that no number up to held is given out any more: an I/O server has objects of it.
// That is so anyway, unless the service has lost what it knew, by a backup that was put back, say:
// then a new file would show the bytes of one that is forgotten. A server's numbers are skipped
// before the server counts as up, and so before a new file is placed on it.
func (n *numbers) skip(ctx context.Context, held uint64) error {
	next, _, _, err := n.state()
	if err != nil || next > held {
		return err
	}
	if held >= numbersMax {
		return errs.Newf(errs.Invalid, "meta.numbers", "", "an object of file %d: none has it", held)
	}
	select {
	case <-n.refill:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { n.refill <- struct{}{} }()
	next, version, lost, err := n.state()
	if err != nil || next > held {
		return err
	}
	if lost.from == lost.to {
		lost.from = next
	}
	lost.to = held + 1
	_, err = n.kv.Commit(ctx, &kv.Txn{
		Checks: []kv.Check{{Key: []byte(keyNumbers), Version: version}},
		Puts: []kv.Put{
			{Key: []byte(keyNumbers), Value: binary.BigEndian.AppendUint64(nil, held+1)},
			{Key: []byte(keyForgotten), Value: lost.encode()},
		},
		Sync: true,
	})
	if err != nil {
		return err // the server joins again in a moment
	}
	n.mu.Lock()
	n.next, n.end = 0, 0
	n.mu.Unlock()
	return nil
}

// forgotten are numbers that may have belonged to files of which the service knows nothing any
// more, [from, to). Their objects are left alone: somebody may want them back.
type forgotten struct{ from, to uint64 }

func (f forgotten) has(number uint64) bool { return f.from <= number && number < f.to }

func (f forgotten) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, f.from), f.to)
}

// decodeForgotten reads the numbers; false if there are none.
func decodeForgotten(value []byte) (f forgotten, ok bool) {
	if len(value) == 16 {
		f = forgotten{binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:])}
	}
	return f, f.from < f.to
}

// state reads the next number that nobody has, and those that were forgotten.
func (n *numbers) state() (next uint64, version kv.Version, lost forgotten, err error) {
	snap := n.kv.Snapshot()
	defer snap.Close()
	return numbersOf(snap)
}

func numbersOf(snap kv.Snapshot) (next uint64, version kv.Version, lost forgotten, err error) {
	value, version, err := snap.Get([]byte(keyNumbers))
	if err != nil {
		return 0, 0, lost, err
	}
	span, _, err := snap.Get([]byte(keyForgotten))
	if err != nil {
		return 0, 0, lost, err
	}
	if len(value) != 8 || len(span) != 0 && len(span) != 16 {
		return 0, 0, lost, errs.Newf(errs.Corrupt, "meta.numbers", "", "%s has %d bytes, %s %d",
			keyNumbers, len(value), keyForgotten, len(span))
	}
	lost, _ = decodeForgotten(span)
	return binary.BigEndian.Uint64(value), version, lost, nil
}

func (n *numbers) block(ctx context.Context, count uint64) (uint64, error) {
	start, version, _, err := n.state()
	if err != nil {
		return 0, err
	}
	_, err = n.kv.Commit(ctx, &kv.Txn{
		Checks: []kv.Check{{Key: []byte(keyNumbers), Version: version}},
		Puts: []kv.Put{{Key: []byte(keyNumbers),
			Value: binary.BigEndian.AppendUint64(nil, start+count)}},
		Sync: true,
	})
	return start, err
}
