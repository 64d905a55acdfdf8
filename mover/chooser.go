package mover

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// Chooser decides between gathering and packing by what real transfers of the same shape took. It
// is for who moves data by requests and cannot measure beforehand: Tune needs both ends of an
// endpoint to itself. It begins with the provider's Defaults; near the crossover that they name it
// tries both, keeps the medians, and tries the slower one again now and then, since hosts change.
// The zero value is ready. Safe for concurrent use.
type Chooser struct {
	mu    sync.Mutex
	cells map[cellKey]*cell
}

// Shape is what a choice depends on.
type Shape struct {
	Put       bool // from this side's pieces; else into them
	Fragments int
	Bytes     int64
}

func (s *Shape) mean() int64 { return s.Bytes / int64(max(s.Fragments, 1)) }

// cellKey joins shapes that are alike: fragments to a factor of four, their lengths to one of two.
type cellKey struct {
	provider          string
	put               bool
	fragments, length uint8
}

func (s *Shape) key(provider string) cellKey {
	return cellKey{provider, s.Put, uint8(bits.Len(uint(s.Fragments)) / 2),
		uint8(bits.Len64(uint64(s.mean())))}
}

// cell is what is known of one kind of shape.
type cell struct {
	times [2][]float64 // the last ones of Gather and of Pack, in ns a byte
	uses  uint64
}

// How a Chooser measures.
const (
	trials     = 3         // samples of each method before they are compared
	remembered = 5         // samples that count
	retry      = 64        // of so many choices one is for the slower method,
	retryFar   = 16 * 1024 // or of so many, where it is slower by
	far        = 4.0
	near       = 16 // shapes are tried both ways within this factor of the default crossover
)

// Choose returns the method for a shape, and why.
func (c *Chooser) Choose(caps *fabric.Caps, s Shape) (Method, string) {
	t := Defaults(*caps)
	prior := t.Method(s.Fragments, s.Bytes)
	if why := settled(caps, &s); why != "" {
		return prior, why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cells == nil {
		c.cells = map[cellKey]*cell{}
	}
	key := s.key(caps.Provider)
	x := c.cells[key]
	if x == nil {
		x = &cell{}
		c.cells[key] = x
	}
	x.uses++
	return x.choose(prior)
}

// settled is why a shape needs no measurements; empty: it does.
func settled(caps *fabric.Caps, s *Shape) string {
	mean, cross := s.mean(), int64(caps.PackBelow)
	switch {
	case s.Fragments < 8:
		return "few pieces"
	case cross == 0:
		return "the provider moves pieces as they are"
	case mean < cross/near:
		return fmt.Sprintf("pieces of %d bytes, far below %d", mean, cross)
	case mean > cross*near:
		return fmt.Sprintf("pieces of %d bytes, far above %d", mean, cross)
	}
	return ""
}

func (x *cell) choose(prior Method) (Method, string) {
	for _, m := range []Method{prior, other(prior)} {
		if len(x.times[m-Gather]) < trials {
			return m, "measuring"
		}
	}
	gather, pack := middle(x.times[0]), middle(x.times[1])
	best, gap := Gather, pack*packMargin/gather
	if pack*packMargin < gather {
		best, gap = Pack, gather/(pack*packMargin)
	}
	why := fmt.Sprintf("measured: gather %.2f ns/B, pack %.2f ns/B", gather, pack)
	if gap < far && x.uses%retry == 0 || x.uses%retryFar == 0 {
		return other(best), why + ", measuring again"
	}
	return best, why
}

func other(m Method) Method {
	if m == Gather {
		return Pack
	}
	return Gather
}

// Took notes how long a transfer of the shape took by a method.
func (c *Chooser) Took(caps *fabric.Caps, s Shape, m Method, d time.Duration) {
	if s.Bytes <= 0 || m != Gather && m != Pack {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.cells[s.key(caps.Provider)]
	if x == nil {
		return // nobody asked: its shape is settled
	}
	t := &x.times[m-Gather]
	if len(*t) == remembered {
		*t = append((*t)[:0], (*t)[1:]...)
	}
	*t = append(*t, float64(d)/float64(s.Bytes))
}

func middle(times []float64) float64 {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}
