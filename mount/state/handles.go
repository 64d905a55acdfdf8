package state

import (
	"slices"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
)

// A handle takes 8 words:
//
//	0  number     by which the kernel names it; 0: the slot is free
//	1  inode
//	2  flags      of the kernel's request that opened it; in the upper half: bits
//	3  request    that opened it
//	4  mode       of a directory that was removed; in the upper half: its owner. Of a file: edition
//	5  group      of it
//	6  owner      of locks that were taken through it; 0: none
//	7  owner      another one
const (
	wordNumber = iota
	wordInode
	wordFlags
	wordRequest
	wordMode
	wordGroup
	wordOwner
)

// ownersMax is how many owners of locks are remembered of a handle. Most have one: the process, or
// the open file itself.
const ownersMax = 2

// Bits of a handle.
type Bits uint32

// The bits.
const (
	Directory Bits = 1 << iota
	Direct         // the kernel keeps no pages of it
	Removed        // a directory that has no name any more
	Locked         // locks were taken through it
	Written        // it was written through, and that may not have been told
	Unsynced       // the same, and that may not be durable
)

// Handle is an open file or directory.
type Handle struct {
	Number         uint64
	Ino            uint64
	Flags          uint32
	Bits           Bits
	Request        uint64
	Mode, UID, GID uint32 // with Removed
	Edition        uint64 // of a file: which of the kernel's inodes of it was opened
	Owners         []uint64
}

// numbersAhead is how many numbers of handles are noted down as given away at once.
const numbersAhead = 64 << 10

// Next is a number that no handle has had.
func (t *Table) Next() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reserved
}

// Add notes a handle that is about to be given to the kernel, and returns its place.
func (t *Table) Add(h *Handle) (slot int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.Number == 0 {
		return 0, errs.Newf(errs.Invalid, "state.Add", "", "a handle without a number")
	}
	if n := len(t.free); n > 0 {
		slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if t.used == handlesMax {
			return 0, errs.Newf(errs.TooManyOpen, "state.Add", "", "%d files are open", handlesMax)
		}
		slot = t.used
		t.used++
		t.word(atSlots).Store(uint64(t.used))
	}
	if h.Number >= t.reserved {
		t.reserved = h.Number + numbersAhead
		t.word(atHandle).Store(t.reserved)
	}
	t.handleWord(slot, wordInode).Store(h.Ino)
	t.handleWord(slot, wordFlags).Store(uint64(h.Flags) | uint64(h.Bits)<<32)
	t.handleWord(slot, wordRequest).Store(h.Request)
	t.handleWord(slot, wordMode).Store(h.Edition)
	for i := range ownersMax {
		t.handleWord(slot, wordOwner+i).Store(0)
	}
	t.handleWord(slot, wordNumber).Store(h.Number)
	return slot, nil
}

// Remove notes that the kernel has let go of a handle.
func (t *Table) Remove(slot int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handleWord(slot, wordNumber).Store(0)
	t.free = append(t.free, slot)
}

// Bury notes what a directory was that has lost its name while it is open.
func (t *Table) Bury(slot int, mode, uid, gid uint32) {
	t.handleWord(slot, wordMode).Store(uint64(mode) | uint64(uid)<<32)
	t.handleWord(slot, wordGroup).Store(uint64(gid))
	t.setBit(slot, Removed)
}

// Own notes that somebody has taken locks through a handle.
func (t *Table) Own(slot int, owner uint64) {
	t.setBit(slot, Locked)
	t.mu.Lock()
	defer t.mu.Unlock()
	free := -1
	for i := range ownersMax {
		switch t.handleWord(slot, wordOwner+i).Load() {
		case owner:
			return
		case 0:
			free = i
		}
	}
	if free >= 0 {
		t.handleWord(slot, wordOwner+free).Store(owner)
	}
}

// Disown notes that an owner has released them.
func (t *Table) Disown(slot int, owner uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range ownersMax {
		if w := t.handleWord(slot, wordOwner+i); w.Load() == owner {
			w.Store(0)
		}
	}
}

// SetWritten notes that a file was written through a handle, or that this was told.
func (t *Table) SetWritten(slot int, is bool) { t.changeBit(slot, Written, is) }

func (t *Table) setBit(slot int, b Bits) { t.changeBit(slot, b, true) }

func (t *Table) changeBit(slot int, b Bits, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.handleWord(slot, wordFlags)
	if is {
		w.Store(w.Load() | uint64(b)<<32)
	} else {
		w.Store(w.Load() &^ (uint64(b) << 32))
	}
}

// Handles calls fn for every handle with its place. Of several of one number only the first counts.
func (t *Table) Handles(fn func(slot int, h Handle)) {
	seen := map[uint64]bool{}
	for slot := range t.used {
		h := t.handle(slot)
		if h.Number == 0 || seen[h.Number] {
			continue
		}
		seen[h.Number] = true
		fn(slot, h)
	}
}

func (t *Table) handle(slot int) Handle {
	word := func(i int) uint64 { return t.handleWord(slot, i).Load() }
	h := Handle{Number: word(wordNumber), Ino: word(wordInode), Flags: uint32(word(wordFlags)),
		Bits: Bits(word(wordFlags) >> 32), Request: word(wordRequest), Mode: uint32(word(wordMode)),
		UID: uint32(word(wordMode) >> 32), GID: uint32(word(wordGroup))}
	if h.Bits&Removed == 0 {
		h.Edition, h.Mode, h.UID = word(wordMode), 0, 0
	}
	for i := range ownersMax {
		if o := word(wordOwner + i); o != 0 && !slices.Contains(h.Owners, o) {
			h.Owners = append(h.Owners, o)
		}
	}
	return h
}

func (t *Table) handleWord(slot, i int) *atomic.Uint64 {
	return t.word(atHandles + slot*handleBytes + 8*i)
}
