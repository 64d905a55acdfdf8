package store

import (
	"slices"

	"github.com/sluice-storage/sluice/meta"
)

// holders are the sessions that have an inode open, and how often. There is one, most of the time.
type holders struct {
	list  []holder
	first [1]holder // what list begins with
}

type holder struct {
	session uint64
	handles int
	uid     uint32 // on whose behalf the first of them was opened
}

func (h *holders) add(session uint64, uid uint32) {
	for i := range h.list {
		if h.list[i].session == session {
			h.list[i].handles++
			return
		}
	}
	if h.list == nil {
		h.list = h.first[:0]
	}
	h.list = append(h.list, holder{session, 1, uid})
}

func (h *holders) remove(session uint64) {
	for i := range h.list {
		if h.list[i].session != session {
			continue
		}
		if h.list[i].handles--; h.list[i].handles == 0 {
			h.list = slices.Delete(h.list, i, i+1)
		}
		return
	}
}

// others tells whether another session has the inode open.
func (h *holders) others(session uint64) bool {
	return len(h.list) > 1 || len(h.list) == 1 && h.list[0].session != session
}

// alone tells whether a session has a file open for writing, and whether no other one has it open,
// or may have: a session of the last process that was not heard of yet may claim it. Who has it
// open to read looks at its data without asking the service: so he counts, too. What the only one
// writes need not be at the I/O servers.
func (x *sessions) alone(ino meta.Ino, session uint64) (own, alone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	others := false
	if o := x.inodes[ino]; o != nil {
		own, others = o.writers[session] != nil, o.holders.others(session)
	}
	return own, x.unsettled == 0 && !others
}
