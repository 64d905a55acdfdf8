package memstore

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// Remove implements stripe.Remover.
func (s *Store) Remove(ctx context.Context, id stripe.ObjectID) error {
	const op = "memstore.Remove"
	if err := stripe.CheckID(ctx, op, id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errs.New(errs.Closed, op, "", nil)
	}
	if o := s.objects[id]; o != nil {
		delete(s.objects, id)
		o.free()
	}
	return nil
}

// Stat implements stripe.Stater.
func (s *Store) Stat(ctx context.Context, id stripe.ObjectID) (stripe.Info, error) {
	const op = "memstore.Stat"
	if err := stripe.CheckID(ctx, op, id); err != nil {
		return stripe.Info{}, err
	}
	o, err := s.enter(op, id)
	if err != nil {
		return stripe.Info{}, err
	}
	defer s.mu.RUnlock()
	if o == nil {
		return stripe.Info{ID: id}, nil
	}
	return o.info(id), nil
}

// Map implements stripe.Mapper.
func (s *Store) Map(ctx context.Context, id stripe.ObjectID, off, length int64,
	max int) ([]stripe.Extent, error) {
	const op = "memstore.Map"
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return nil, err
	}
	o, err := s.enter(op, id)
	if err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	return o.extents(off, length, max), nil
}

// extents walks the pages in order and lets neighbours of one kind flow together. A nil object is
// one hole.
func (o *object) extents(off, length int64, max int) []stripe.Extent {
	b := stripe.NewExtents(off, length, max)
	if o == nil {
		return b.Finish()
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	end := o.size
	if len(o.held) > 0 { // what is reserved may lie behind the object's end
		end = stripe.MaxObjectBytes
	}
	for _, index := range o.indexesLocked() {
		name := b.Data
		if o.held[index] {
			name = b.Reserved
		}
		if !name(index*pageBytes, min(pageBytes, end-index*pageBytes)) {
			break
		}
	}
	return b.Finish()
}

// List implements stripe.Lister.
func (s *Store) List(ctx context.Context, fn func(stripe.Info) bool) error {
	const op = "memstore.List"
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return errs.New(errs.Closed, op, "", nil)
	}
	infos := make([]stripe.Info, 0, len(s.objects))
	for id, o := range s.objects {
		infos = append(infos, o.info(id))
	}
	s.mu.RUnlock()
	for _, in := range infos {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(op, "", err)
		}
		if !fn(in) {
			break
		}
	}
	return errs.Wrap(op, "", ctx.Err())
}

// SetMinGeneration implements stripe.Fencer.
func (s *Store) SetMinGeneration(ctx context.Context, file uint64, gen uint32) error {
	const op = "memstore.SetMinGeneration"
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, "", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errs.New(errs.Closed, op, "", nil)
	}
	if gen > 0 {
		s.minGen[file] = max(s.minGen[file], gen)
	}
	return nil
}

// SetMinEpoch implements stripe.Fencer.
func (s *Store) SetMinEpoch(ctx context.Context, file uint64, epoch uint32) error {
	const op = "memstore.SetMinEpoch"
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, "", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errs.New(errs.Closed, op, "", nil)
	}
	if epoch > 0 {
		s.epochs[file] = max(s.epochs[file], epoch)
	}
	return nil
}

// MinEpoch implements stripe.Fencer.
func (s *Store) MinEpoch(file uint64) uint32 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epochs[file]
}

// Verifier implements stripe.Keeper: it lives as long as the memory.
func (s *Store) Verifier() uint64 { return s.verifier }

// Life implements stripe.Keeper.
func (s *Store) Life() uint64 { return s.life.Load() }

// NewLife implements stripe.Keeper.
func (s *Store) NewLife() { s.life.Add(1) }

// Space implements stripe.Spacer.
func (s *Store) Space() (stripe.Space, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return stripe.Space{}, errs.New(errs.Closed, "memstore.Space", "", nil)
	}
	free := max(s.budget.left.Load(), 0) // below zero for a moment while a take is refused
	return stripe.Space{Total: s.budget.total * pageBytes, Free: free * pageBytes}, nil
}
