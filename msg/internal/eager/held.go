package eager

import (
	"math/bits"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// WantSlots is how many slots a client asks for at once.
const WantSlots = 2

// wantPause is after how many requests a client asks again when the server had nothing to give.
const wantPause = 256

// Held are the slots that a client holds at its server.
type Held struct {
	slots  [MaxSlots]fabric.Remote
	held   uint64 // set of slots that are ours
	free   uint64 // of these, without a request
	asked  bool   // it has asked for more, and was not answered
	silent int    // requests until it may ask again
}

// Take finds a slot for n bytes; -1 for none. ask tells that the caller should ask for slots,
// because one would have been used.
func (h *Held) Take(n int64) (slot int, ask bool) {
	if h.free != 0 {
		i := bits.TrailingZeros64(h.free)
		if uint64(n) <= h.slots[i].Len {
			h.free &^= 1 << i
			return i, false
		}
	}
	ask = !h.asked && h.silent == 0
	h.asked = h.asked || ask
	h.silent = max(h.silent-1, 0)
	return -1, ask
}

// Remote is the memory of a slot.
func (h *Held) Remote(slot int) fabric.Remote { return h.slots[slot] }

// Free ends the use of a slot: its request was answered.
func (h *Held) Free(slot int) { h.free |= 1 << slot & h.held }

// Given takes new slots; none means that the server has none to give.
func (h *Held) Given(gifts []Gift) error {
	if !h.asked || len(gifts) > WantSlots {
		return errs.Newf(errs.Protocol, "msg", "", "eager slots that were not asked for")
	}
	h.asked = false
	if len(gifts) == 0 {
		h.silent = wantPause
	}
	for _, g := range gifts {
		if h.held&(1<<g.Index) != 0 {
			return errs.Newf(errs.Protocol, "msg", "", "an eager slot given twice")
		}
		h.held |= 1 << g.Index
		h.free |= 1 << g.Index
		h.slots[g.Index] = g.Remote
	}
	return nil
}

// GiveBack gives up the slots that carry no request, and returns their set.
func (h *Held) GiveBack() uint64 {
	set := h.free
	h.held &^= set
	h.free = 0
	return set
}

// Sets are the slots that are held, and those of them that carry no request.
func (h *Held) Sets() (held, free uint64) { return h.held, h.free }
