package journal

import (
	"sync/atomic"
	"unsafe"
)

// mapped is memory that does not move, and begins at a multiple of 8.
type mapped []byte

func (m mapped) word(at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m[at : at+8][0]))
}

func (m mapped) load(at int) uint64 { return m.word(at).Load() }

func (m mapped) store(at int, v uint64) { m.word(at).Store(v) }

func (m mapped) read(at int, to []byte) { copy(to, m[at:]) }

func (m mapped) write(at int, from []byte) { copy(m[at:], from) }
