package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/stripe"
)

// fencesMax bounds the fences that are remembered besides the store.
const fencesMax = 64 << 10

// fences are the files that were fenced a moment ago. The store refuses old generations for ever,
// but a read of what is cached does not ask it. After the longest life of a capability nobody can
// show one for an old generation any more, so a fence is forgotten then.
type fences struct {
	some atomic.Bool // so that requests need not lock while there is none

	mu    sync.Mutex
	files map[uint64]fencedFile
	order []uint64 // files, oldest fence first
}

type fencedFile struct {
	gen   uint32
	until time.Time
}

// add remembers that generations of the file below gen are refused.
func (f *fences) add(file uint64, gen uint32, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files == nil {
		f.files = map[uint64]fencedFile{}
	}
	for len(f.order) > 0 {
		old := f.files[f.order[0]]
		if now.Before(old.until) && len(f.order) < fencesMax {
			break
		}
		delete(f.files, f.order[0])
		f.order = f.order[1:]
	}
	have, there := f.files[file]
	if !there {
		f.order = append(f.order, file)
	}
	f.files[file] = fencedFile{gen: max(gen, have.gen), until: now.Add(2 * capability.TTLMax)}
	f.some.Store(true)
}

// check refuses a generation that was fenced.
func (f *fences) check(id stripe.ObjectID, noFence bool) error {
	if !f.some.Load() || noFence {
		return nil
	}
	f.mu.Lock()
	min := f.files[id.File].gen
	f.mu.Unlock()
	return stripe.CheckFence("iod.Serve", id, min)
}

// fence refuses old generations at once, brings what was acknowledged of them to the store, and
// makes the store refuse them too.
func (s *Server) fence(ctx context.Context, t *iod.Target) error {
	s.fences.add(t.Object.File, t.Object.Gen, s.cfg.Clock())
	if err := s.cfg.Cache.Settle(ctx, stripe.ObjectID{}, 0, stripe.MaxObjectBytes); err != nil {
		return errs.Wrap("iod.Fence", t.Object.String(), err)
	}
	return s.cfg.Store.SetMinGeneration(ctx, t.Object.File, t.Object.Gen)
}
