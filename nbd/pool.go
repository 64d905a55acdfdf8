package nbd

import (
	"math/bits"
	"sync"
)

const (
	classShift = 12 // the smallest buffer is 4 KiB
	classCount = 20 // the largest 2 GiB
)

// classOf is the index of the smallest power of two, from 4 KiB up, that holds n bytes.
func classOf(n int) int {
	if n <= 1<<classShift {
		return 0
	}
	return bits.Len(uint(n-1)) - classShift
}

// classBytes is what a buffer for n bytes really takes, which is what the gates count.
func classBytes(n int) int64 { return 1 << (classOf(n) + classShift) }

// pool keeps payload buffers for reuse. What is lent is bounded by the gates, not here; what lies
// idle is bounded by idleMax bytes, and the garbage collector gets the rest.
type pool struct {
	idleMax int64

	mu   sync.Mutex
	idle int64
	free [classCount][][]byte
}

// get returns a buffer of n bytes with undefined content.
func (p *pool) get(n int) []byte {
	class := classOf(n)
	p.mu.Lock()
	if list := p.free[class]; len(list) > 0 {
		last := len(list) - 1
		buf := list[last]
		list[last] = nil
		p.free[class] = list[:last]
		p.idle -= int64(cap(buf))
		p.mu.Unlock()
		return buf[:n]
	}
	p.mu.Unlock()
	return make([]byte, n, 1<<(class+classShift))
}

// put takes back a buffer of get. The caller must not touch it any more.
func (p *pool) put(buf []byte) {
	size := int64(cap(buf))
	class := classOf(int(size))
	p.mu.Lock()
	if p.idle+size <= p.idleMax {
		p.idle += size
		p.free[class] = append(p.free[class], buf)
	}
	p.mu.Unlock()
}
