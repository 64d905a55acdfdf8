package shm

// mapping is an arena of the peer's that is mapped here. It is guarded by endpoint.mapMu; who moves
// requests may change reached and seen under a shared lock, because it is one goroutine at a time.
type mapping struct {
	mem     []byte
	lent    bool   // it may only be read
	reached []bool // which parts of aroundBytes are in this process's page tables
	seen    uint8  // what reach has read, so that it must
}

// aroundBytes is how much of a shared file Linux maps at once where a byte of it is read.
const aroundBytes = 64 << 10

func newMapping(mem []byte) *mapping {
	return &mapping{mem: mem, reached: make([]bool, (len(mem)+aroundBytes-1)/aroundBytes)}
}

// reach has the kernel map memory that is about to be written for the first time, by reading: then
// it maps 16 pages at once, but only one where it is written, which costs five times as much.
func (m *mapping) reach(off, n uint64) {
	if n == 0 {
		return
	}
	for i := off / aroundBytes; i <= (off+n-1)/aroundBytes; i++ {
		if !m.reached[i] {
			m.reached[i] = true
			m.seen += m.mem[i*aroundBytes]
		}
	}
}
