package crc32c

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// An emulated processor may know the instruction that sums and be slow at it: in QEMU it took three
// times as long as tables do. So both are measured, once, and tables are taken where they win
// clearly. Every start of the program pays for that, so it is little that is summed.
var byTables = tablesWin()

// sliced[k] appends k bytes of zeroes to the sum of one byte.
var sliced = slicedTables()

func slicedTables() (t [8][256]uint32) {
	t[0] = *castagnoli
	for k := 1; k < len(t); k++ {
		for v, s := range t[k-1] {
			t[k][v] = t[0][byte(s)] ^ s>>8
		}
	}
	return t
}

// slices sums 8 bytes at a time by tables.
func slices(crc uint32, b []byte) uint32 {
	t, crc := &sliced, ^crc
	for ; len(b) >= 8; b = b[8:] {
		v := binary.LittleEndian.Uint64(b) ^ uint64(crc)
		crc = t[7][byte(v)] ^ t[6][byte(v>>8)] ^ t[5][byte(v>>16)] ^ t[4][byte(v>>24)] ^
			t[3][byte(v>>32)] ^ t[2][byte(v>>40)] ^ t[1][byte(v>>48)] ^ t[0][byte(v>>56)]
	}
	for _, c := range b {
		crc = t[0][byte(crc)^c] ^ crc>>8
	}
	return ^crc
}

// instruction sums by what hash/crc32 takes: the processor's instruction, where it has one.
func instruction(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// tablesWin measures. The least of several times is one that nobody has disturbed: a real processor
// is some ten times as fast as tables, so that chance does not make it lose.
func tablesWin() bool {
	const rounds, size = 4, 1 << 10
	b := make([]byte, size)
	least := [2]time.Duration{time.Hour, time.Hour}
	for range rounds {
		for i, by := range []func(uint32, []byte) uint32{instruction, slices} {
			begin := time.Now()
			by(0, b)
			least[i] = min(least[i], time.Since(begin))
		}
	}
	return least[1]*3/2 < least[0]
}
