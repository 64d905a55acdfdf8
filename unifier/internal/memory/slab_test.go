package memory

import (
	"testing"

	"github.com/sluice-storage/sluice/mem"
	"pgregory.net/rapid"
)

// Blocks that are out never overlap, whatever classes they are of, and when all are back all slabs
// are free for any class again.
func TestSlabs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m freeList
		for range 2 {
			a, err := mem.NewArena(5*SlabBytes, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			m.add(newChunk(a, 5*SlabBytes, false))
		}
		out := map[*chunk]map[int]Block{m.chunks[0]: {}, m.chunks[1]: {}} // by the place of a block
		var all []Block
		var last Block
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(all) > 0 && rapid.IntRange(0, 2).Draw(t, "give") == 0 {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				b := all[i]
				all = append(all[:i], all[i+1:]...)
				for at := b.start(); at < b.start()+b.Size(); at += BlockBytes {
					delete(out[b.slab.chunk], at)
				}
				m.give(b)
				last = Block{}
				continue
			}
			shift := uint8(rapid.IntRange(BlockShift, SlabShift).Draw(t, "class"))
			b, ok := m.take(shift, last)
			if !ok {
				if m.free > 0 || !m.partial[shift].Empty() {
					t.Fatal("memory is free, and cannot be had")
				}
				continue
			}
			if b.Size() != 1<<shift || b.start()%b.Size() != 0 {
				t.Fatalf("block of %d bytes at %d, want %d", b.Size(), b.start(), 1<<shift)
			}
			for at := b.start(); at < b.start()+b.Size(); at += BlockBytes {
				if _, taken := out[b.slab.chunk][at]; taken {
					t.Fatalf("byte %d is handed out twice", at)
				}
				out[b.slab.chunk][at] = b
			}
			all, last = append(all, b), b
			if n := len(out[m.chunks[0]]) + len(out[m.chunks[1]]); int64(n)*BlockBytes != m.inUse {
				t.Fatalf("%d bytes are out, counted are %d", n*BlockBytes, m.inUse)
			}
		}
		for _, b := range all {
			m.give(b)
		}
		if m.free != 10 || m.inUse != 0 {
			t.Fatalf("%d slabs are free, %d bytes are in use", m.free, m.inUse)
		}
	})
}
