package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// A session belongs to the member that has opened it. When a member is removed its sessions end as
// those of a client that was not heard of for too long: what it has open is closed when the last of
// its capabilities has run out, files that it may have written are measured, locks go. Until its
// certificates are refused everywhere it may have connections: what comes by them is refused here.

// banned is what the process knows of members that have asked something: true for those that are
// none any more. Who gets in here has a certificate of the cluster, so that it is bounded by these.
type banned struct {
	mu    sync.RWMutex
	peers map[meta.Peer]bool
	some  int // of peers, those that are true

	refuse logonce.Logger
	count  atomic.Uint64 // requests that were refused
}

func (b *banned) set(p meta.Peer, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.peers[p] {
		b.some--
	}
	if b.peers[p] = on; on {
		b.some++
	}
}

func (b *banned) has(p meta.Peer) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.peers[p]
}

// knows is has, and tells whether anything is known.
func (b *banned) knows(p meta.Peer) (on, known bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	on, known = b.peers[p]
	return on, known
}

func (b *banned) any() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.some > 0
}

// learn notes what the registry says, unless somebody has noted something since.
func (b *banned) learn(p meta.Peer, on bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, known := b.peers[p]; known {
		return was
	}
	if b.peers[p] = on; on {
		b.some++
	}
	return on
}

// clientKey is what sessions of one client have in common: the name that it gave itself, which
// counts among those of the same member only.
func clientKey(p meta.Peer, client string) string {
	if p == (meta.Peer{}) {
		return client
	}
	return p.Kind.String() + "/" + p.Name + "\x00" + client
}

// Admit implements meta.Sentry.
func (s *Store) Admit(p meta.Peer, sessions ...uint64) error {
	out, err := s.isBanned(p)
	switch {
	case err != nil:
	case out:
		err = errs.Newf(errs.Perm, "meta.Admit", "", "%s was removed", p)
	case !s.sessions.belong(p, sessions):
		err = errs.Newf(errs.Perm, "meta.Admit", "", "the session is not one of %s", p)
	}
	if errs.KindOf(err) == errs.Perm {
		s.banned.count.Add(1)
		s.banned.refuse.Warn(p.String(), "refused a member", "why", err)
	}
	return err
}

// isBanned tells whether somebody is no member; the registry is asked the first time.
func (s *Store) isBanned(p meta.Peer) (out bool, err error) {
	out, known := s.banned.knows(p)
	if known {
		return out, nil
	}
	err = s.look(func(t *txn) error {
		m, err := t.peekMember(p)
		out = m == nil
		return err
	})
	if err != nil {
		return false, err
	}
	return s.banned.learn(p, out), nil
}

// belong tells whether all sessions that are known were opened by a member.
func (x *sessions) belong(p meta.Peer, ids []uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		if a := x.byID[id]; a != nil && a.peer != p {
			return false
		}
	}
	return true
}

// mayBegin refuses a session to who is no member.
func (t *txn) mayBegin(p meta.Peer) error {
	if p == (meta.Peer{}) {
		return nil
	}
	m, err := t.peekMember(p)
	if err == nil && m == nil {
		err = errs.Newf(errs.Perm, "", "", "%s was removed", p)
	}
	return err
}

// banish ends what a removed member has. What cannot be written down now is tried again.
func (s *Store) banish(ctx context.Context, p meta.Peer) {
	s.banned.set(p, true)
	s.endBanned(ctx)
	wake(s.swept)
}

// pardon lets a member of that name in who has joined anew. Sessions of the removed one end first.
func (s *Store) pardon(ctx context.Context, p meta.Peer) {
	if s.banned.has(p) {
		s.endBanned(ctx)
	}
	s.banned.set(p, false)
}

// endBanned marks the sessions of members that were removed as dead.
func (s *Store) endBanned(ctx context.Context) {
	for s.banned.any() && ctx.Err() == nil {
		some := s.sessions.pick(deadMax, func(a *alive) bool {
			return !a.ending && a.peer != (meta.Peer{}) && s.banned.has(a.peer)
		})
		for _, id := range some {
			s.opt.Log.Warn("session of a removed member ends", "session", id)
			later := s.steady().Add(time.Hour) // however lately it was heard of
			err := s.beginEnd(ctx, id, sessionDead, later)
			if err != nil {
				s.opt.Log.Error("session not ended", "session", id, "error", err)
				return
			}
		}
		if len(some) == 0 {
			return
		}
	}
}

// findBanned finds sessions of members that were removed when the last process died, which had no
// time to end them.
func (s *Store) findBanned(t *txn) error {
	gone := map[meta.Peer]bool{}
	for _, a := range s.sessions.byID {
		if _, known := gone[a.peer]; known || a.peer == (meta.Peer{}) {
			continue
		}
		m, err := t.peekMember(a.peer)
		if err != nil {
			return err
		}
		if gone[a.peer] = m == nil; m == nil {
			s.banned.set(a.peer, true)
		}
	}
	return nil
}

// demandSecret notes that the keys that a host knows are to be replaced.
func (t *txn) demandSecret() error {
	var g meta.Generation
	found, err := t.readStored(generationKey(identity.SecretKey), &g)
	if err != nil || !found {
		return err // a cluster without secrets
	}
	t.putStored(secretMinKey(), &secretMin{g.Number + 1})
	return nil
}

// secretMin is what 'H' 'm' keeps: |ver |generation u64 |.
type secretMin struct{ Generation uint64 }

func (m *secretMin) Append(e *wire.Enc) { e.U64(m.Generation) }
func (m *secretMin) Decode(d *wire.Dec) { m.Generation = d.U64() }

func secretMinKey() []byte { return registryPrefix(registrySecretMin) }

// sameClient tells whether two sessions are of one client, if that has a name.
func (a *alive) sameClient(b *alive) bool {
	return b != nil && a.client == b.client && a.peer == b.peer
}
