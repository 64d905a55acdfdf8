package shm

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/keytable"
)

// A slot tells the peer of a grant on arena memory, which it uses directly. The owner fills it in;
// the peer only counts its users.
//
//	0      8     16    24    32     36      40    64
//	|word  |key  |off  |len  |arena |rights |zero |
//
//	word: 0                          44       64
//	      |upper bits of the key, or 0 |users |      0: nobody enters any more
//
// To enter, the peer adds 1 to a word that holds the upper bits of its key; to leave it subtracts
// 1. Revoke clears the upper bits and waits until the users are gone. The other fields do not
// change while the slot has users.
type slot struct {
	word   atomic.Uint64
	key    atomic.Uint64
	off    atomic.Uint64 // in the arena
	length atomic.Uint64
	arena  atomic.Uint32 // its number on this connection
	rights atomic.Uint32
	_      [24]byte
}

// open publishes a grant to the peer.
func (s *slot) open(key, off, length uint64, arena uint32, rights fabric.Rights) {
	s.key.Store(key)
	s.off.Store(off)
	s.length.Store(length)
	s.arena.Store(arena)
	s.rights.Store(uint32(rights))
	s.word.Store(key >> keytable.PlaceBits << keytable.PlaceBits)
}

// enter adds the caller to the users, if the slot holds this key.
func (s *slot) enter(key uint64) bool {
	for {
		w := s.word.Load()
		full := w&(1<<keytable.PlaceBits-1) == 1<<keytable.PlaceBits-1
		if w>>keytable.PlaceBits != key>>keytable.PlaceBits || w>>keytable.PlaceBits == 0 || full {
			return false
		}
		if s.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

func (s *slot) leave() { s.word.Add(^uint64(0)) }

// shut lets nobody enter any more, and tells whether there are no users.
func (s *slot) shut() bool {
	for {
		w := s.word.Load()
		users := w & (1<<keytable.PlaceBits - 1)
		if w == users || s.word.CompareAndSwap(w, users) {
			return users == 0
		}
	}
}

// slotTable allocates the slots of this side.
type slotTable struct {
	mu   sync.Mutex
	free []uint32 // from 1
}

func (t *slotTable) init(n int) {
	t.free = make([]uint32, n)
	for i := range t.free {
		t.free[i] = uint32(n - i)
	}
}

func (t *slotTable) take() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.free)
	if n == 0 {
		return 0
	}
	at := t.free[n-1]
	t.free = t.free[:n-1]
	return at
}

func (t *slotTable) giveBack(at uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, at)
}

// openSlot publishes a grant on arena memory to the peer and returns its slot; 0 if that is not
// possible: then the grant is used through the ring.
func (e *endpoint) openSlot(r *region, key uint64, off, length int, rights fabric.Rights) uint32 {
	defer e.guard().off()
	if !e.exports || r.arena == nil {
		return 0
	}
	id := r.arena.export(e)
	if id == 0 {
		return 0
	}
	at := e.slots.take()
	if at == 0 {
		return 0
	}
	e.life.RLock()
	defer e.life.RUnlock()
	if e.excluded.Load() {
		e.slots.giveBack(at)
		return 0
	}
	e.view.grants[at-1].open(key, uint64(r.base+off), uint64(length), id, rights)
	return at
}

// closeSlot ends direct use of a grant: when it returns the peer has stopped, or is gone, or took
// longer than StallTimeout, which ended the connection.
func (e *endpoint) closeSlot(at uint32) {
	defer e.guard().off()
	e.life.RLock()
	defer e.life.RUnlock()
	if e.excluded.Load() { // all slots are shut
		return
	}
	s := &e.view.grants[at-1]
	if !s.shut() && !e.await(func() bool { return s.shut() || e.excluded.Load() }) {
		e.Die(errs.Disconnected, "the peer stopped in the middle of a copy while a grant was revoked")
		return // the slot is not used again
	}
	e.slots.giveBack(at)
}

// await polls until so is true or the peer is gone. It is false after StallTimeout.
func (e *endpoint) await(so func() bool) bool {
	begin := time.Now()
	for i := 0; !so() && !e.hungUp(); i++ {
		switch waited := time.Since(begin); {
		case waited < 50*time.Microsecond:
			yield()
		case waited < e.d.opts.StallTimeout:
			time.Sleep(50 * time.Microsecond)
		default:
			return false
		}
	}
	return true
}

// exclude ends all direct use of this side's memory, at the end of the connection. It waits for
// users, but not longer than StallTimeout.
func (e *endpoint) exclude() {
	grants := e.view.grants
	e.await(func() bool {
		quiet := true
		for i := range grants {
			if !grants[i].shut() {
				quiet = false
			}
		}
		return quiet
	})
	e.excluded.Store(true)
}

// hungUp tells whether the peer has closed its socket: it has stopped touching memory, or is gone.
func (e *endpoint) hungUp() bool {
	gone := true
	_ = e.raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n == 1 && fds[0].Revents&unix.POLLHUP != 0
	})
	return gone
}
