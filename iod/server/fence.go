package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/stripe"
)

// fencesMax bounds the fences in memory: about 64 bytes each. They are divided into fenceParts
// parts, so that requests for different files seldom contend for a lock.
const (
	fencesMax  = 256 << 10
	fenceParts = 64
)

// fencesFor is how long a fence is remembered: the longest life of a capability.
const fencesFor = 2 * capability.TTLMax

// signedUnit is the resolution of a capability's time of signing.
const signedUnit = time.Millisecond

// fences are the generations of files that were fenced or removed recently. The store refuses old
// generations for ever, but a cached read does not ask it, and it knows nothing of removed objects:
// they would read as zeroes to a client that still has a capability. A fence is dropped after the
// longest life of a capability, when no capability from before it is valid any more.
//
// Fences may be lost earlier, because there were too many or because the server was restarted. Then
// blind is the time up to which fences may be unknown. A capability that is older than that is not
// accepted where an object is absent (see Server.believe).
type fences struct {
	some  atomic.Bool  // requests need no lock while there is none
	blind atomic.Int64 // fences made until then may be unknown; ns since the server's start
	parts [fenceParts]fencePart
}

type fencePart struct {
	mu    sync.Mutex
	files map[uint64]fencedFile
	order []fencedAt // oldest first
}

type fencedFile struct {
	gen  uint32        // generations below are fenced off
	gone uint32        // generations below were removed
	at   time.Duration // the last of it, since the server's start
}

// fencedAt is a fence as it was made. The file may have another one since.
type fencedAt struct {
	file uint64
	at   time.Duration
}

func (f *fences) part(file uint64) *fencePart { return &f.parts[file%fenceParts] }

// add records that generations of the file below gen are fenced, and those below gone removed. now
// is since the start.
func (f *fences) add(file uint64, gen, gone uint32, now time.Duration) {
	p := f.part(file)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files = map[uint64]fencedFile{}
	}
	for len(p.order) > 0 {
		old := p.order[0]
		over := now-old.at >= fencesFor
		if !over && len(p.order) < fencesMax/fenceParts {
			break
		}
		if p.files[old.file].at == old.at { // not renewed since
			delete(p.files, old.file)
			if !over {
				f.forgot(old.at + signedUnit)
			}
		}
		p.order = p.order[1:]
	}
	p.order = append(p.order, fencedAt{file, now})
	have := p.files[file]
	p.files[file] = fencedFile{gen: max(gen, have.gen), gone: max(gone, have.gone), at: now}
	f.some.Store(true)
}

// forgot records that a fence was dropped early.
func (f *fences) forgot(at time.Duration) {
	for {
		old := f.blind.Load()
		if int64(at) <= old || f.blind.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}

// check refuses a generation that was fenced, with errs.Fenced, or removed, with errs.NotFound.
func (f *fences) check(id stripe.ObjectID) error {
	if !f.some.Load() {
		return nil
	}
	p := f.part(id.File)
	p.mu.Lock()
	have := p.files[id.File]
	p.mu.Unlock()
	if id.Gen < have.gone {
		return errs.Newf(errs.NotFound, "iod.Serve", id.String(), "the object was removed")
	}
	return stripe.CheckFence("iod.Serve", id, have.gen)
}

// fence refuses old generations, or writers of old epochs, at once, writes back what was
// acknowledged of them, and makes the store refuse them too.
func (s *Server) fence(ctx context.Context, t *iod.Target) error {
	if epoch := t.Stamp.Epoch; epoch > 0 {
		if least := s.cfg.Store.MinEpoch(t.Object.File); epoch < least {
			return errs.Newf(errs.Stale, "iod.Fence", t.Object.String(),
				"writers of generation %d are refused already, from below %d on", epoch, least)
		}
		return s.writers.fence(ctx, t.Object.File, epoch, func() error {
			if err := s.cfg.Cache.SettleFile(ctx, t.Object.File); err != nil {
				return errs.Wrap("iod.Fence", t.Object.String(), err)
			}
			return s.cfg.Store.SetMinEpoch(ctx, t.Object.File, epoch)
		})
	}
	s.fences.add(t.Object.File, t.Object.Gen, 0, time.Since(s.seen.Base()))
	if err := s.cfg.Cache.SettleFile(ctx, t.Object.File); err != nil {
		return errs.Wrap("iod.Fence", t.Object.String(), err)
	}
	return s.cfg.Store.SetMinGeneration(ctx, t.Object.File, t.Object.Gen)
}

// remove removes an object. Its file's generation is refused before that. A read that was admitted
// earlier and finds nothing checks the fences once more before it answers.
func (s *Server) remove(ctx context.Context, id stripe.ObjectID) error {
	s.fences.add(id.File, 0, id.Gen+1, time.Since(s.seen.Base()))
	return s.cfg.Cache.Discard(ctx, id, func() error {
		err := s.cfg.Store.Remove(ctx, id)
		if err == nil {
			s.cfg.Cache.Wrote(id, 0, stripe.MaxObjectBytes)
		}
		return err
	})
}

// believe decides whether a capability that was signed at a given time may read an object. One that
// is older than blind is accepted for an object that exists. An object that does not exist was
// never written, or it was removed: only the metadata service knows, and a client that renews its
// capability there has asked it.
func (s *Server) believe(ctx context.Context, id stripe.ObjectID, signed time.Time) error {
	up := time.Since(s.seen.Base())
	blind := time.Duration(s.fences.blind.Load())
	if up-blind >= fencesFor || !signed.Before(s.cfg.Clock().Add(blind-up-signedUnit)) {
		return nil
	}
	there, err := s.exists(ctx, id)
	if err != nil || there {
		return err
	}
	s.count.refused.why[capability.RunOut].Add(1)
	return errs.Newf(errs.Expired, "iod.Serve", id.String(),
		"nothing of the object is here, and the capability is older than this server's memory of "+
			"removed ones; renew it")
}

// exists tells whether something was written to the object. It writes back what only the cache has.
func (s *Server) exists(ctx context.Context, id stripe.ObjectID) (bool, error) {
	wait.Announce(ctx)
	info, err := s.cfg.Store.Stat(ctx, id)
	if err != nil || info != (stripe.Info{ID: id}) {
		return err == nil, err
	}
	if err := s.cfg.Cache.Settle(ctx, id, 0, stripe.MaxObjectBytes); err != nil {
		return false, err
	}
	info, err = s.cfg.Store.Stat(ctx, id)
	return info != (stripe.Info{ID: id}), err
}
