package store

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/version"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/member"
)

// The cluster's map: which servers and hosts there are, where, in which state. Their records say
// it, and the tables in memory (servers, hosts) say the same and when each was heard of. A
// heartbeat that is like the one before changes the tables only. Everything else is one transaction
// that raises the version (changeMap); then the tables follow, and then the version is told, so
// that who has heard of a version and asks for the map gets that one or a later one.
//
// What silence means is package member's to say. A loop looks at it (judgeLoop).

// membership is what the process knows of the map beside the servers and hosts in it.
type membership struct {
	turn    chan struct{} // room for one: held while the map is changed
	version atomic.Uint64

	mu      sync.Mutex
	changed chan struct{}   // closed when there is a later version
	judged  time.Time       // when silence was looked at last, by the clock of pulse
	seen    map[string]bool // versions of programs that were logged
}

// mapFirst is the version of a map that was never changed: 0 is what one knows who knows nothing.
const mapFirst = 1

// judgeMax is how many states change in one transaction: their records, each read and written, are
// below kv.MaxOps.
const judgeMax = 24

// versionsMax bounds the versions of programs that are remembered as having been logged.
const versionsMax = 64

func newMembership() *membership {
	return &membership{turn: make(chan struct{}, 1), changed: make(chan struct{}),
		seen: map[string]bool{}}
}

// MapVersion is the version of the cluster's map. It is cheap: every answer tells it.
func (s *Store) MapVersion() uint64 { return s.members.version.Load() }

// limits say what silence means.
func (s *Store) limits() member.Limits {
	return member.Limits{Slow: s.opt.SlowAfter, Down: s.opt.HeartbeatMax}
}

// watch returns the version, and what is closed when there is a later one.
func (x *membership) watch() (uint64, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.version.Load(), x.changed
}

// publish tells a version.
func (x *membership) publish(v uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if v <= x.version.Load() {
		return
	}
	x.version.Store(v)
	close(x.changed)
	x.changed = make(chan struct{})
}

func parseMap(value []byte) (uint64, error) {
	switch len(value) {
	case 0:
		return mapFirst, nil
	case 8:
		return binary.BigEndian.Uint64(value), nil
	}
	return 0, errs.Newf(errs.Corrupt, "meta.map", "", "%s has %d bytes", keyMap, len(value))
}

// loadMap reads the version.
func (s *Store) loadMap(t *txn) error {
	value, err := t.read([]byte(keyMap))
	if err != nil {
		return err
	}
	v, err := parseMap(value)
	s.members.version.Store(v)
	return err
}

// raiseMap makes the transaction a change of the map. It is on stable storage before anybody hears
// of the version: no two maps have one number.
func (t *txn) raiseMap() (uint64, error) {
	value, err := t.read([]byte(keyMap))
	if err != nil {
		return 0, err
	}
	v, err := parseMap(value)
	if err != nil {
		return 0, err
	}
	t.put([]byte(keyMap), binary.BigEndian.AppendUint64(nil, v+1))
	t.kv.Sync, t.kv.MakesRoom = true, true
	return v + 1, nil
}

// changeMap is one change of the map: build writes the records, and applied has the tables follow.
// A build that returns errNothing has changed nothing.
func (s *Store) changeMap(ctx context.Context, build func(t *txn) error, applied func()) error {
	select {
	case s.members.turn <- struct{}{}:
		defer func() { <-s.members.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var next uint64
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) (err error) {
		next = 0
		if err := build(t); err != nil {
			return err
		}
		next, err = t.raiseMap()
		return err
	})
	if err != nil || next == 0 {
		return err
	}
	applied()
	s.members.publish(next)
	return nil
}

// judgeLoop notes down what silence means.
func (s *Store) judgeLoop(ctx context.Context) {
	s.loop(ctx, nil, true, func() bool {
		if err := s.judge(ctx); err != nil && ctx.Err() == nil {
			s.opt.Log.Warn("states of servers and hosts are noted down later", "err", err)
		}
		return true
	})
}

// verdict is a change of state by silence.
type verdict struct {
	id       uint32 // of a server; 0: of the host
	host     string
	was, now meta.State
}

// judge looks for who is silent. When the service itself did not run, nobody was.
func (s *Store) judge(ctx context.Context) error {
	s.members.mu.Lock()
	now := s.opt.Pulse()
	pause := now.Sub(s.members.judged)
	first := s.members.judged.IsZero()
	s.members.judged = now
	s.members.mu.Unlock()
	if !first && pause > s.opt.Tick+s.opt.SlowAfter/2 {
		s.servers.excuse(pause - s.opt.Tick)
		s.hosts.excuse(pause - s.opt.Tick)
	}
	for {
		n, err := s.judgeSome(ctx)
		if err != nil || n < judgeMax {
			return err
		}
	}
}

// judgeSome changes up to judgeMax states.
func (s *Store) judgeSome(ctx context.Context) (n int, err error) {
	if len(s.silent()) == 0 {
		return 0, nil
	}
	return s.pass(ctx, s.silent)
}

// pass changes the states that a list says, made in the transaction that notes them down, and tells
// how many.
func (s *Store) pass(ctx context.Context, verdicts func() []verdict) (n int, err error) {
	var list []verdict
	at := s.now().UnixNano()
	err = s.changeMap(ctx, func(t *txn) error {
		list = verdicts()
		for _, v := range list {
			if err := t.judge(v, at); err != nil {
				return err
			}
		}
		if len(list) == 0 {
			return errNothing
		}
		return nil
	}, func() {
		for _, v := range list {
			s.sentence(v, at)
		}
	})
	return len(list), err
}

// silent lists whose state is not what was noted down.
func (s *Store) silent() []verdict {
	now, l := s.steady(), s.limits()
	list := s.servers.due(now, l, nil)
	return s.hosts.due(now, l, list)
}

// judge writes a state down.
func (t *txn) judge(v verdict, at int64) error {
	if v.id == 0 {
		h := meta.Host{Name: v.host}
		if _, err := t.readStored(hostKey(v.host), &h); err != nil {
			if errs.KindOf(err) != errs.Corrupt {
				return err
			}
			h = meta.Host{Name: v.host}
		}
		h.State, h.Since = v.now, at
		t.putStored(hostKey(v.host), &h)
		return nil
	}
	key := serverKey(v.id)
	value, err := t.read(key)
	if err != nil || value == nil {
		return err
	}
	var rec server
	if err := parse(key, value, &rec); err != nil {
		return err
	}
	rec.State, rec.Since = v.now, at
	t.put(key, rec.encode())
	return nil
}

// sentence has the tables follow, and says it.
func (s *Store) sentence(v verdict, at int64) {
	say := s.opt.Log.Warn
	if v.now == meta.StateUp || v.now == meta.StateGone {
		say = s.opt.Log.Info
	}
	if v.id != 0 {
		s.servers.state(v.id, v.now, at)
		say("an I/O server has another state", "server", v.id, "state", v.now, "was", v.was)
		return
	}
	s.hosts.state(v.host, v.now, at)
	say("a host has another state", "host", v.host, "state", v.now, "was", v.was)
}

// noteVersion says, once for each version, that somebody runs another one than the service.
func (s *Store) noteVersion(kind, who, theirs string) {
	if theirs == "" || theirs == version.String() {
		return
	}
	s.members.mu.Lock()
	known := s.members.seen[theirs] || len(s.members.seen) >= versionsMax
	if !known {
		s.members.seen[theirs] = true
	}
	s.members.mu.Unlock()
	if !known {
		s.opt.Log.Warn("versions differ: install one version of sluice everywhere", "kind", kind,
			"who", who, "version", theirs, "here", version.String())
	}
}

// RemoveServer implements meta.Membership.
func (s *Store) RemoveServer(ctx context.Context, c meta.Caller, id uint32) error {
	const op = "meta.RemoveServer"
	at := s.now().UnixNano()
	err := checkCaller(&c)
	if err == nil {
		err = s.changeMap(ctx, func(t *txn) error {
			if err := t.mayMaintain(&c.Cred); err != nil {
				return err
			}
			switch state, known := s.servers.at(id, s.steady(), s.limits()); {
			case !known:
				return errs.Newf(errs.NotFound, "", "", "there is no I/O server %d", id)
			case state == meta.StateGone:
				return errNothing
			case state != meta.StateDown:
				return errs.Newf(errs.Busy, "", "", "I/O server %d is %v: stop it first, and wait until it "+
					"is down", id, state)
			}
			return t.judge(verdict{id: id, now: meta.StateGone}, at)
		}, func() { s.servers.state(id, meta.StateGone, at) })
	}
	return errs.Wrap(op, "", err)
}

// removeHost marks a host that was removed from the registry, and its I/O servers, as gone: they
// are refused until they are started by somebody who has joined again.
func (s *Store) removeHost(ctx context.Context, name string) error {
	for {
		n, err := s.removeSome(ctx, name)
		if err != nil || n < judgeMax {
			return err
		}
	}
}

func (s *Store) removeSome(ctx context.Context, name string) (n int, err error) {
	return s.pass(ctx, func() []verdict {
		list := s.hosts.goes(name, s.servers.of(name))
		return list[:min(len(list), judgeMax)]
	})
}
