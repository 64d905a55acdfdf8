package store

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// TestHomes: whatever names come and go, those that are noted are there, and with few directories
// all are.
func TestHomes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	for _, dirs := range []int{3, meta.HomesMax, 3 * meta.HomesMax} {
		var h homes
		there, total := map[meta.Ino]int{}, 0
		for range 2000 {
			dir := meta.Ino(1 + rng.IntN(dirs))
			if rng.IntN(2) == 0 {
				h.add(dir)
				there[dir]++
				total++
			} else if there[dir] > 0 {
				h.remove(dir)
				there[dir]--
				total--
			}
			for _, x := range append([]home{h.first}, h.rest...) {
				if there[x.dir] < int(x.names) {
					t.Fatalf("%d names in %d, %d are noted", there[x.dir], x.dir, x.names)
				}
			}
			if dirs <= meta.HomesMax && int(h.names()) != total {
				t.Fatalf("%d names, %d are noted", total, h.names())
			}
			var e wire.Enc
			h.append(&e)
			d := wire.NewDec(e.B)
			var again homes
			if again.decode(&d); d.Done() != nil || again.names() != h.names() {
				t.Fatalf("%v is decoded as %v: %v", h, again, d.Done())
			}
		}
	}
}
