package shm

import (
	"bytes"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestRingAgainstQueue holds a ring against a slice of frames, over many turns around its end.
func TestRingAgainstQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var head atomic.Uint64
		buf := make([]byte, 1024)
		p := producer{buf: buf, seen: &head}
		c := consumer{buf: buf, told: &head}
		lim := limits{message: 1 << 20, part: uint32(partMax(len(buf)))}
		var model [][]byte
		next := byte(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				want := rapid.IntRange(0, 600).Draw(t, "size")
				part, ok, err := p.part(want)
				if err != nil || part > want {
					t.Fatalf("part %d of %d: %v", part, want, err)
				}
				if !ok {
					continue
				}
				next++
				data := bytes.Repeat([]byte{next}, part)
				a, b := p.payload(part)
				copy(b, data[copy(a, data):])
				p.put(&header{kind: frameSend, length: uint32(part), part: uint32(part)})
				model = append(model, data)
				continue
			}
			var h header
			a, b, ok, err := c.next(lim, &h)
			if err != nil || ok != (len(model) > 0) {
				t.Fatalf("%v, %v with %d frames", ok, err, len(model))
			}
			if !ok {
				continue
			}
			if got := append(bytes.Clone(a), b...); !bytes.Equal(got, model[0]) {
				t.Fatalf("took %x, want %x", got, model[0])
			}
			c.drop(&h)
			model = model[1:]
		}
	})
}

// TestRingTakesEverything shows that whatever is asked for, a ring that is empty takes a part of
// it.
func TestRingTakesEverything(t *testing.T) {
	for size := ringMin; size <= ringMax; size *= 2 {
		var head atomic.Uint64
		p := producer{buf: make([]byte, size), seen: &head}
		for _, want := range []int{0, 1, partMax(size), size, maxTransfer} {
			part, ok, err := p.part(want)
			if err != nil || !ok || part == 0 && want > 0 || frameBytes(part) > size/4 {
				t.Fatalf("ring of %d, %d wanted: %d, %v, %v", size, want, part, ok, err)
			}
		}
	}
}

func TestBitmap(t *testing.T) {
	var b bitmap
	for _, n := range []uint64{0, 1, 63, 64, maxQueueDepth - 1, maxQueueDepth, 1 << 40} {
		b.set(n, true)
		if !b.get(n) || b.get(n+1) {
			t.Fatalf("bit %d", n)
		}
		b.set(n, false)
		if b.get(n) {
			t.Fatalf("bit %d stays", n)
		}
	}
}
