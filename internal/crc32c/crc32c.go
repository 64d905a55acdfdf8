// Package crc32c sums data with the plain CRC-32C (Castagnoli, as in iSCSI and ext4), and joins
// sums: the sum of two pieces in a row follows from the sums of the pieces, without the data. So
// bytes are summed once, where they are made, in blocks of 4 KiB; the sum of a larger piece is
// joined from these.
//
// It does not seed: a store may fold more into its sums itself.
//
// Read crc32c.go first; fold_amd64.go is how wide processors sum, slices.go how emulated ones do.
package crc32c

import "hash/crc32"

// BlockBytes is the length of the blocks that JoinBlocks knows.
const BlockBytes = 4096

// ZeroBlock is the sum of a block of zeroes.
const ZeroBlock uint32 = 0x98f94189

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC-32C of b.
func Sum(b []byte) uint32 { return update(0, b) }

// Update is the sum of A||b, where crc is the sum of A. The sum of nothing is 0.
func Update(crc uint32, b []byte) uint32 { return update(crc, b) }

// Join is the sum of A||B from the sums a of A and b of B, which is lenB bytes long.
//
// To append lenB bytes is to multiply the sum of what is before them by x to the power of 8*lenB,
// and to add, which is to xor, their own sum: the constants that a CRC begins and ends with cancel
// each other out.
func Join(a, b uint32, lenB int64) uint32 {
	for k, n := 3, uint64(lenB); n > 0 && lenB > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			a = multiply(powers[k], a)
		}
	}
	return a ^ b
}

// JoinBlocks is the sum of blocks of BlockBytes in a row from the sums of each. Of none it is 0.
func JoinBlocks(sums []uint32) uint32 {
	var crc uint32
	t := &blockShift
	for _, s := range sums {
		crc = t[0][byte(crc)] ^ t[1][byte(crc>>8)] ^ t[2][byte(crc>>16)] ^ t[3][byte(crc>>24)] ^ s
	}
	return crc
}

// Polynomials modulo the Castagnoli polynomial are written as the sums are: the highest bit is the
// coefficient of x to the power of 0.
const (
	one  = 1 << 31
	theX = 1 << 30
)

// multiply multiplies two polynomials.
func multiply(a, b uint32) uint32 {
	var p uint32
	for bit := uint32(one); bit > 0; bit >>= 1 {
		if a&bit != 0 {
			p ^= b
		}
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}

// powers[k] is x to the power of 2^k: enough for 8 times any int64.
var powers = squares()

func squares() (p [66]uint32) {
	p[0] = theX
	for k := 1; k < len(p); k++ {
		p[k] = multiply(p[k-1], p[k-1])
	}
	return p
}

// power is x to the power of n.
func power(n int) uint32 {
	p := uint32(one)
	for k := 0; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			p = multiply(powers[k], p)
		}
	}
	return p
}

// blockShift appends BlockBytes to a sum, a table for each byte of the sum: multiplying is linear,
// so that the products of the four bytes are added.
var blockShift = shifts(BlockBytes)

func shifts(bytes int64) (t [4][256]uint32) {
	for i := range t {
		for v := range t[i] {
			t[i][v] = Join(uint32(v)<<(8*i), 0, bytes)
		}
	}
	return t
}
