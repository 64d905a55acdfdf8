package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/member"
)

// hosts is the table of hosts, as their last Beat left it.
type hosts struct {
	mu     sync.Mutex
	byName map[string]*heardHost
}

// heardHost is a host and when it was heard of by the clock that is not set; LastSeen is for
// people.
type heardHost struct {
	meta.Host
	heard time.Time
}

func (h *heardHost) member() member.Member {
	return member.Member{Incarnation: h.Incarnation, Start: h.Start, State: h.State, Heard: h.heard}
}

func hostBeat(h *meta.Host) member.Beat {
	return member.Beat{Incarnation: h.Incarnation, Start: h.Start, Leaving: h.Leaving}
}

// set takes in a host.
func (x *hosts) set(h *heardHost) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byName[h.Name] = h
}

func (x *hosts) has(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byName[name] != nil
}

// beat takes in a heartbeat that changes nothing of the map; false: it does.
func (x *hosts) beat(h *meta.Host, seen int64, now time.Time) (done bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.byName[h.Name]
	if old == nil {
		if len(x.byName) >= meta.HostsMax {
			err = errs.Newf(errs.NoSpace, "meta.beat", "", "%d hosts already", len(x.byName))
		}
		return false, err
	}
	_, changed, err := old.member().Hear(hostBeat(h), now)
	if err != nil || changed || old.Version != h.Version || old.Roles != h.Roles {
		return false, err
	}
	old.heard, old.LastSeen = now, seen
	return true, nil
}

// due adds those whose state is another one than what was noted down, up to judgeMax.
func (x *hosts) due(now time.Time, l member.Limits, list []verdict) []verdict {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, h := range x.byName {
		if m := h.member(); len(list) < judgeMax && m.Due(now, l) {
			list = append(list, verdict{host: name, was: h.State, now: m.At(now, l)})
		}
	}
	return list
}

// goes adds a host that goes.
func (x *hosts) goes(name string, list []verdict) []verdict {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := verdict{host: name, now: meta.StateGone}
	if h := x.byName[name]; h != nil {
		v.was = h.State
	}
	if v.was != meta.StateGone {
		list = append(list, v)
	}
	return list
}

func (x *hosts) state(name string, to meta.State, at int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.byName[name]
	if h == nil { // it was removed, and had never been heard of
		h = &heardHost{Host: meta.Host{Name: name}}
		x.byName[name] = h
	}
	h.State, h.Since = to, at
}

func (x *hosts) excuse(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range x.byName {
		m := h.member()
		m.Excuse(d)
		h.heard = m.Heard
	}
}

// Beat implements meta.Membership.
func (s *Store) Beat(ctx context.Context, c meta.Caller, h meta.Host) error {
	return errs.Wrap("meta.Beat", h.Name, s.beat(ctx, &c, &h))
}

func (s *Store) beat(ctx context.Context, c *meta.Caller, h *meta.Host) error {
	own := meta.Peer{Kind: identity.Host, Name: h.Name}
	if err := identity.CheckName(h.Name); err != nil {
		return err
	}
	switch {
	case c.Peer != (meta.Peer{}) && c.Peer != own:
		return errs.Newf(errs.Perm, "", "", "%s %s speaks for host %s", c.Peer.Kind, c.Peer.Name, h.Name)
	case len(h.Version) > meta.VersionMax:
		return errs.Invalid
	}
	at := s.now().UnixNano()
	done, err := s.hosts.beat(h, at, s.steady())
	if done || err != nil {
		return err
	}
	rec := &heardHost{Host: *h}
	err = s.changeMap(ctx, func(t *txn) error { return t.beat(rec, at) }, func() {
		rec.heard = s.steady()
		s.hosts.set(rec)
	})
	if errs.KindOf(err) == errs.NoSpace && s.hosts.has(h.Name) {
		return nil // it is heard of again when there is room
	}
	s.noteVersion("host", h.Name, h.Version)
	return err
}

// beat writes a host down.
func (t *txn) beat(rec *heardHost, at int64) error {
	var old meta.Host
	if _, err := t.readStored(hostKey(rec.Name), &old); err != nil {
		if errs.KindOf(err) != errs.Corrupt {
			return err
		}
		old = meta.Host{} // what it says now is all that there is to know
	}
	if err := t.maySpeak(&old); err != nil {
		return err
	}
	m := member.Member{Incarnation: old.Incarnation, Start: old.Start, State: old.State}
	m, changed, err := m.Hear(hostBeat(&rec.Host), time.Time{})
	if err != nil {
		return err
	}
	rec.State, rec.Since, rec.LastSeen = m.State, old.Since, at
	if changed {
		rec.Since = at
	}
	t.putStored(hostKey(rec.Name), &rec.Host)
	return nil
}

// maySpeak refuses a host that was removed, until it is in the registry again.
func (t *txn) maySpeak(h *meta.Host) error {
	if h.State != meta.StateGone {
		return nil
	}
	_, err := t.member(identity.Host, h.Name)
	return err
}

// mayServe refuses the I/O servers of a host that was removed.
func (t *txn) mayServe(name string) error {
	var h meta.Host
	if name == "" {
		return nil
	}
	if _, err := t.readStored(hostKey(name), &h); err != nil && errs.KindOf(err) != errs.Corrupt {
		return err
	}
	return t.maySpeak(&h)
}

// Hosts implements meta.Membership.
func (s *Store) Hosts(context.Context) ([]meta.Host, error) {
	now, l := s.steady(), s.limits()
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	all := make([]meta.Host, 0, len(s.hosts.byName))
	for _, name := range slices.Sorted(maps.Keys(s.hosts.byName)) {
		h := s.hosts.byName[name]
		m := h.member()
		one := h.Host
		if one.State = m.At(now, l); one.State != h.State {
			one.Since = s.now().UnixNano()
		}
		all = append(all, one)
	}
	return all, nil
}

// loadHosts reads what the last process knew. What cannot be read is heard of again.
func (s *Store) loadHosts(t *txn) error {
	return t.scan([]byte{kindHost}, func(key, value []byte) bool {
		var h meta.Host
		if err := parse(key, value, registryRecord{&h}); err != nil {
			s.opt.Log.Error("what was known of a host is lost", "err", err)
			return true
		}
		one := &heardHost{Host: h}
		one.heard = member.Loaded(one.member(), s.steady()).Heard
		s.hosts.set(one)
		return true
	})
}
