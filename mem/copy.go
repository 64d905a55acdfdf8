package mem

import "sync/atomic"

// copied counts the bytes that Copy has moved since the process began. It is the one package
// variable of this layer: "copies per byte" is a property of the process, not of one object.
var copied atomic.Uint64

// Copy is the built-in copy, counted. Every copy of payload bytes in sluice goes through it,
// so that the number of copies per byte that a path costs can be measured instead of
// believed.
func Copy(dst, src []byte) int {
	n := copy(dst, src)
	copied.Add(uint64(n))
	return n
}

// Copied is how many bytes Copy has moved so far.
func Copied() uint64 { return copied.Load() }
