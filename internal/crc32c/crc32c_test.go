package crc32c

import (
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// naive is the definition, bit by bit: what hash/crc32 says is held against it too.
func naive(b []byte) uint32 {
	crc := ^uint32(0)
	for _, v := range b {
		crc ^= uint32(v)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ crc32.Castagnoli
			} else {
				crc >>= 1
			}
		}
	}
	return ^crc
}

func TestKnownSums(t *testing.T) {
	ascending := make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	for _, c := range []struct { // RFC 3720, appendix B.4, and the check value of the catalogues
		name string
		data []byte
		want uint32
	}{
		{"nothing", nil, 0},
		{"check", []byte("123456789"), 0xe3069283},
		{"32 zeroes", make([]byte, 32), 0x8a9136aa},
		{"ascending", ascending, 0x46dd794e},
		{"a block of zeroes", make([]byte, BlockBytes), ZeroBlock},
	} {
		if got := Sum(c.data); got != c.want || naive(c.data) != c.want {
			t.Errorf("%s: %08x, by definition %08x, want %08x", c.name, got, naive(c.data), c.want)
		}
	}
}

// TestEveryLength holds sums of all lengths, places in memory and beginnings against hash/crc32,
// whose sums TestKnownSums holds against the definition.
func TestEveryLength(t *testing.T) {
	data := make([]byte, 1<<16)
	for i := range data {
		data[i] = byte(i*i>>3 ^ i*131)
	}
	for n := range 1600 {
		for _, from := range []int{0, 1, 7, 63} {
			b, crc := data[from:from+n], uint32(n*0x9e3779b1)
			want := crc32.Update(crc, castagnoli, b)
			if got, tables := Update(crc, b), slices(crc, b); got != want || tables != want {
				t.Fatalf("%d bytes from %d after %08x: %08x, by tables %08x, want %08x", n, from, crc,
					got, tables, want)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, len(data)).Draw(t, "from")
		b := data[from : from+rapid.IntRange(0, len(data)-from).Draw(t, "length")]
		crc := rapid.Uint32().Draw(t, "before")
		if got, want := Update(crc, b), crc32.Update(crc, castagnoli, b); got != want {
			t.Fatalf("%d bytes from %d after %08x: %08x, want %08x", len(b), from, crc, got, want)
		}
	})
}

func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "b")
		c := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "c")
		all := append(append(append([]byte(nil), a...), b...), c...)
		left := Join(Join(Sum(a), Sum(b), int64(len(b))), Sum(c), int64(len(c)))
		right := Join(Sum(a), Join(Sum(b), Sum(c), int64(len(c))), int64(len(b)+len(c)))
		if want := naive(all); left != want || right != want || Update(Sum(a), all[len(a):]) != want {
			t.Fatalf("joined %08x and %08x, want %08x", left, right, want)
		}
	})
}

// TestJoinFar joins over lengths that no memory holds, by two ways that must agree.
func TestJoinFar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Uint32().Draw(t, "sum")
		m := rapid.Int64Range(0, 1<<61).Draw(t, "first length")
		n := rapid.Int64Range(0, 1<<61).Draw(t, "second length")
		if got, want := Join(Join(a, 0, m), 0, n), Join(a, 0, m+n); got != want {
			t.Fatalf("%08x over %d and %d is %08x, over both at once %08x", a, m, n, got, want)
		}
	})
}

func TestJoinBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "blocks")
		seed := rapid.Uint64().Draw(t, "seed")
		data := make([]byte, n*BlockBytes)
		for i := range data {
			seed = seed*6364136223846793005 + 1442695040888963407
			data[i] = byte(seed >> 56)
		}
		var sums []uint32
		for i := range n {
			sums = append(sums, Sum(data[i*BlockBytes:(i+1)*BlockBytes]))
		}
		if got, want := JoinBlocks(sums), Sum(data); got != want {
			t.Fatalf("%d blocks: %08x, want %08x", n, got, want)
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	data, sums := make([]byte, 3*BlockBytes), make([]uint32, 16)
	var sink uint32
	got := alloctest.PerRun(0, 100, func() {
		sink ^= Sum(data) ^ Update(1, data) ^ Join(1, 2, 12345) ^ JoinBlocks(sums)
	})
	if got != 0 {
		t.Fatalf("%v allocations", got)
	}
	_ = sink
}

func FuzzJoin(f *testing.F) {
	f.Add([]byte("123456789"), 4)
	f.Add([]byte{}, 0)
	f.Add(make([]byte, BlockBytes+1), BlockBytes)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		cut = min(max(cut, 0), len(data))
		a, b := data[:cut], data[cut:]
		if got, want := Join(Sum(a), Sum(b), int64(len(b))), naive(data); got != want {
			t.Fatalf("%d bytes cut at %d: %08x, want %08x", len(data), cut, got, want)
		}
	})
}

func BenchmarkSumBlock(b *testing.B) {
	data := make([]byte, BlockBytes)
	b.SetBytes(BlockBytes)
	for b.Loop() {
		Sum(data)
	}
}

// BenchmarkWays holds the processor's instruction against tables, and tells which one is taken.
func BenchmarkWays(b *testing.B) {
	data := make([]byte, 64<<10)
	b.Logf("by tables: %v", byTables)
	for name, by := range map[string]func(uint32, []byte) uint32{
		"instruction": instruction, "tables": slices,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				by(0, data)
			}
		})
	}
}

func BenchmarkSum64K(b *testing.B) {
	data := make([]byte, 64<<10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		Sum(data)
	}
}

func BenchmarkJoinBlocks16(b *testing.B) {
	sums := make([]uint32, 16)
	for b.Loop() {
		JoinBlocks(sums)
	}
}

func BenchmarkJoin64K(b *testing.B) {
	var crc uint32
	for b.Loop() {
		crc = Join(crc, 7, 64<<10)
	}
}
