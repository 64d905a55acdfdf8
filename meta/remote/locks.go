package remote

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// Lock implements meta.Locks. A request that is repeated because its answer was lost has the same
// id, so that it is not done twice.
func (s *Service) Lock(ctx context.Context, c meta.Caller, l meta.Lock, mode meta.LockMode) (
	meta.LockState, error) {
	r, err := s.call(ctx, meta.OpLock, meta.Args{Caller: c, Lock: l, Mode: mode})
	return r.State, err
}

// Unlock implements meta.Locks.
func (s *Service) Unlock(ctx context.Context, c meta.Caller, l meta.Lock) error {
	_, err := s.call(ctx, meta.OpUnlock, meta.Args{Caller: c, Lock: l})
	return err
}

// TestLock implements meta.Locks.
func (s *Service) TestLock(ctx context.Context, c meta.Caller, l meta.Lock) (
	meta.Lock, bool, error) {
	r, err := s.call(ctx, meta.OpTestLock, meta.Args{Caller: c, Lock: l})
	return r.Lock, r.Held, err
}

// AwaitLocks implements meta.Locks. It waits for half of WaitMax at the most, so that a service
// that is silent because there is nothing to tell is not taken for one that is away.
func (s *Service) AwaitLocks(ctx context.Context, c meta.Caller, life, after uint64,
	wait time.Duration) (meta.LockNews, error) {
	wait = min(max(wait, 0), meta.LockAwaitMax)
	if s.opt.WaitMax >= 0 {
		wait = min(wait, s.opt.WaitMax/2)
	}
	r, err := s.call(ctx, meta.OpAwaitLocks, meta.Args{Caller: c, LockLife: life, LockAfter: after,
		WaitMs: uint32(wait.Milliseconds())})
	return r.News, err
}

// ClaimLocks implements meta.Locks. A long list goes in several requests.
func (s *Service) ClaimLocks(ctx context.Context, c meta.Caller, old uint64, locks []meta.Lock,
	more bool) (lost []meta.Lock, err error) {
	for first := true; first || len(locks) > 0; first = false {
		n := min(len(locks), meta.LockClaimMax)
		r, err := s.call(ctx, meta.OpClaimLocks, meta.Args{Caller: c, Session: old,
			Locks: locks[:n], More: more || n < len(locks)})
		if err != nil {
			return nil, err
		}
		lost = append(lost, r.Locks...)
		locks = locks[n:]
	}
	return lost, nil
}

// Succeed implements meta.Successions.
func (s *Service) Succeed(ctx context.Context, c meta.Caller, old uint64, done bool) error {
	_, err := s.call(ctx, meta.OpSucceed, meta.Args{Caller: c, Session: old, Last: done})
	return err
}

// HeldLocks implements meta.Successions.
func (s *Service) HeldLocks(ctx context.Context, c meta.Caller, after meta.Lock) (
	[]meta.Lock, error) {
	r, err := s.call(ctx, meta.OpHeldLocks, meta.Args{Caller: c, Lock: after})
	return r.Locks, err
}
