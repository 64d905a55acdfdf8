package mem

import "sync/atomic"

// CopyReason is why payload bytes had to be copied.
type CopyReason uint8

// The reasons.
const (
	CopyOther  CopyReason = iota // not stated
	CopyInline                   // into or out of a message
	CopySlot                     // into or out of an eager slot: the memory was not registered
	CopyPack                     // many pieces into one, because that is cheaper than a list
	CopyUnpack                   // one piece into many
	CopyMerge                    // a part written into a cached unit
	CopyCaller                   // into or out of a caller's memory: not registered, or kept

	copyReasons
)

func (r CopyReason) String() string {
	switch r {
	case CopyOther:
		return "other"
	case CopyInline:
		return "inline"
	case CopySlot:
		return "slot"
	case CopyPack:
		return "pack"
	case CopyUnpack:
		return "unpack"
	case CopyMerge:
		return "merge"
	case CopyCaller:
		return "caller"
	}
	return "unknown"
}

// copyCounter is padded to a cache line, so that copies for different reasons do not slow each
// other down.
type copyCounter struct {
	bytes atomic.Uint64
	calls atomic.Uint64
	_     [48]byte
}

// copied counts what was copied since the process began. It is the one package variable of this
// layer: "copies per byte" is a property of the process, not of one object.
var copied [copyReasons]copyCounter

// Copy is the built-in copy, counted. Messages, moves, the cache and the I/O client copy payload
// through it or CopyFor, so that the copies per byte of a path can be measured. Copies by
// providers, stores, the mount, block exports and the kernel are not counted.
func Copy(dst, src []byte) int { return CopyFor(CopyOther, dst, src) }

// copyPart is how much is copied at a time. From 1 MiB on the built-in copy writes around the
// processor's caches: where it was measured that took 1.6 times as long for memory that is in no
// cache, and four times as long for memory that is (BenchmarkCopy).
const copyPart = 256 << 10

// CopyFor is Copy with a reason. Where more than copyPart overlaps, dst must not begin within src.
func CopyFor(why CopyReason, dst, src []byte) int {
	n := min(len(dst), len(src))
	if n <= copyPart {
		copy(dst, src)
	} else {
		copyLong(dst[:n], src[:n])
	}
	c := &copied[why]
	c.bytes.Add(uint64(n))
	c.calls.Add(1)
	return n
}

func copyLong(dst, src []byte) {
	for len(src) > 0 {
		n := copy(dst[:min(copyPart, len(dst))], src)
		dst, src = dst[n:], src[n:]
	}
}

// Copied is how many bytes were copied so far, for whatever reason.
func Copied() uint64 {
	var n uint64
	for i := range copied {
		n += copied[i].bytes.Load()
	}
	return n
}

// CopyCount is what one reason has cost.
type CopyCount struct{ Bytes, Calls uint64 }

// CopyCounts is a snapshot of all copies, by reason.
type CopyCounts [copyReasons]CopyCount

// Copies returns how much was copied so far, by reason.
func Copies() CopyCounts {
	var s CopyCounts
	for i := range copied {
		s[i] = CopyCount{Bytes: copied[i].bytes.Load(), Calls: copied[i].calls.Load()}
	}
	return s
}

// Since is the difference to an earlier snapshot.
func (s CopyCounts) Since(earlier CopyCounts) CopyCounts {
	for i := range s {
		s[i].Bytes -= earlier[i].Bytes
		s[i].Calls -= earlier[i].Calls
	}
	return s
}

// Total adds up all reasons.
func (s CopyCounts) Total() CopyCount {
	var t CopyCount
	for _, c := range s {
		t.Bytes += c.Bytes
		t.Calls += c.Calls
	}
	return t
}
