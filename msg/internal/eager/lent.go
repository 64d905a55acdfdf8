package eager

import (
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Lent are the slots that a server has given to one client.
type Lent struct {
	user   *mem.User // nil until there was a first one
	slots  [MaxSlots]Slot
	held   uint64 // set of slots that the client has
	uses   uint64
	seen   uint64    // uses, at the last sweep
	since  time.Time // when the sweep last saw uses change
	taking bool      // slots were asked back
}

// Slot is memory that was lent.
type Slot struct {
	Buf    *mem.Buf
	Remote fabric.Remote
	refs   int // calls that were sent with it and are not answered
}

// Give allocates one more slot from the store, up to limit, and has grant open it to the client;
// false where there is none to spare. It does not wait.
func (l *Lent) Give(st *Store, name string, limit, size int,
	grant func(buf *mem.Buf) (fabric.Remote, error)) (Gift, bool) {
	index := bits.TrailingZeros64(^l.held)
	if index >= limit || size == 0 || !st.Has() {
		return Gift{}, false
	}
	if l.user == nil {
		u, err := st.open(name)
		if err != nil {
			return Gift{}, false
		}
		l.user = u
	}
	buf := st.take(l.user, size)
	if buf == nil {
		return Gift{}, false
	}
	remote, err := grant(buf)
	if err != nil {
		st.Drop(buf)
		return Gift{}, false
	}
	l.held |= 1 << index
	l.slots[index] = Slot{Buf: buf, Remote: remote}
	l.uses++ // it is about to be used
	return Gift{index, remote}, true
}

// Use returns n bytes of a slot for a call, until Unuse; false where the client has no such slot.
func (l *Lent) Use(slot int, n int64) ([]byte, bool) {
	if slot >= MaxSlots || l.held&(1<<slot) == 0 || uint64(n) > l.slots[slot].Remote.Len {
		return nil, false
	}
	l.uses++
	l.slots[slot].refs++
	return l.slots[slot].Buf.Bytes()[:n], true
}

// Unuse ends a call's use of a slot.
func (l *Lent) Unuse(slot int) { l.slots[slot].refs-- }

// Back takes a set of slots back that the client was asked for, and appends them to dst. It is
// false where the client does not have one of them, or uses it.
func (l *Lent) Back(set uint64, dst []Slot) ([]Slot, bool) {
	if set&^l.held != 0 || !l.taking {
		return dst, false
	}
	l.taking = false
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		if l.slots[i].refs > 0 {
			return dst, false
		}
		dst = append(dst, l.remove(i))
	}
	return dst, true
}

func (l *Lent) remove(i int) Slot {
	slot := l.slots[i]
	l.slots[i] = Slot{}
	l.held &^= 1 << i
	return slot
}

// Idle tells, once, that the slots were not used for after, and that the client is to be asked for
// them.
func (l *Lent) Idle(now time.Time, after time.Duration) bool {
	if l.uses != l.seen || l.since.IsZero() {
		l.seen, l.since = l.uses, now
	}
	ask := l.held != 0 && !l.taking && now.Sub(l.since) > after
	l.taking = l.taking || ask
	return ask
}

// Close appends all slots to dst and returns the user of the store, for Store.Leave when their
// memory is freed.
func (l *Lent) Close(dst []Slot) ([]Slot, *mem.User) {
	for l.held != 0 {
		dst = append(dst, l.remove(bits.TrailingZeros64(l.held)))
	}
	user := l.user
	l.user = nil
	return dst, user
}

// Slots is how many slots the client has, and how many calls use them.
func (l *Lent) Slots() (held, refs int) {
	for i := range l.slots {
		refs += l.slots[i].refs
	}
	return bits.OnesCount64(l.held), refs
}
