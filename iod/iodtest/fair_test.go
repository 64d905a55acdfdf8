package iodtest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
)

// paced is a store whose disk takes the same time for every read, one after the other. So the disk
// is what clients compete for, whatever else the machine does.
type paced struct {
	stripe.Engine
	each time.Duration

	mu   sync.Mutex
	next time.Time
}

// turn waits for the disk.
func (s *paced) turn() {
	s.mu.Lock()
	now := time.Now()
	if s.next.Before(now) {
		s.next = now
	}
	s.next = s.next.Add(s.each)
	at := s.next
	s.mu.Unlock()
	time.Sleep(time.Until(at))
}

func (s *paced) ReadAt(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64) error {
	s.turn()
	return s.Engine.ReadAt(ctx, id, bufs, off)
}

func (s *paced) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	s.turn()
	return s.Engine.ReadSums(ctx, id, bufs, off, sums)
}

// compete has each client read at random places of a file that is much larger than the cache, so
// many requests at a time as depths says, and returns how many each got done.
func (g *rig) compete(t *testing.T, depths []int, length time.Duration) []int64 {
	ctx, stop := context.WithCancel(t.Context())
	done := make([]atomic.Int64, len(depths))
	var all sync.WaitGroup
	for i, depth := range depths {
		p := g.join(uint64(i+1), remote.Options{}, nil)
		defer p.vanish()
		tg := g.target(p.session, stripe.ObjectID{File: uint64(i + 1), Gen: 1}, both, 0)
		for range depth {
			all.Go(func() {
				buf := make([]byte, 16<<10)
				for ctx.Err() == nil {
					at := seg.Contig(rand.Int64N(1<<24)<<16, int64(len(buf)))
					_, err := p.Read(ctx, tg, at, whole(buf))
					switch {
					case err == nil:
						done[i].Add(1)
					case ctx.Err() == nil && errs.KindOf(err) != errs.Again:
						t.Errorf("client %d: %v", i, err)
						return
					}
				}
			})
		}
	}
	time.Sleep(length / 5) // until all of them are at it
	first := make([]int64, len(depths))
	for i := range first {
		first[i] = done[i].Load()
	}
	time.Sleep(length)
	for i := range first {
		first[i] = done[i].Load() - first[i]
	}
	stop()
	all.Wait()
	return first
}

// TestFloodLeavesOthersTheirShare has one client keep as many requests outstanding as it can,
// beside three that are modest. Each of those must get most of an equal share of the disk. That
// is measured anew where the host was so busy with other things that the disk had nothing to do:
// then its processors were shared, not the disk.
func TestFloodLeavesOthersTheirShare(t *testing.T) {
	const each, length = 2 * time.Millisecond, 1500 * time.Millisecond
	g := newRig(t, rigOptions{net: tcpNetwork(), store: &paced{Engine: memStore(t), each: each},
		cache: unifier.Config{MemoryBytes: 48 << 20, ReadaheadBytes: -1}})
	var least float64
	for range 8 {
		flood := g.compete(t, []int{200, 8, 8, 8}, length)
		var total int64
		for _, n := range flood {
			total += n
		}
		fair := float64(total) / float64(len(flood))
		least = float64(min(flood[1], flood[2], flood[3])) / fair
		busy := float64(total) * float64(each) / float64(length)
		t.Logf("requests: %v; the disk was busy for %.0f %% of the time; at least %.0f %% of a fair "+
			"share", flood, 100*busy, 100*least)
		if least >= 0.8 {
			return
		}
	}
	t.Errorf("a client that floods leaves another one %.0f %% of its share", 100*least)
}
