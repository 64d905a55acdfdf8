package store

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// Every I/O server belongs to a host, by a record that is never removed: an id that files name must
// not come to stand for another server. The hosts of a cluster are members of the registry; in a
// cluster without keys there is one host, which nobody has to prove to be.

// reservation is what 'H' 'i' keeps: |ver |host |since i64 |.
type reservation struct {
	Host  string
	Since int64
}

func (r *reservation) Append(e *wire.Enc) {
	e.String(r.Host)
	e.I64(r.Since)
}

func (r *reservation) Decode(d *wire.Dec) {
	r.Host = d.String(identity.NameMax)
	r.Since = d.I64()
}

func reservationKey(id uint32) []byte {
	return binary.BigEndian.AppendUint32(registryPrefix(registryServer), id)
}

// owners is what the process knows of who has which I/O server, and of what these know. Its lock is
// taken last.
type owners struct {
	mu     sync.Mutex
	hosts  map[uint32]string
	known  map[uint32]uint32 // server id -> the highest generation of its keys that it has
	refuse logonce.Logger
	count  atomic.Uint64 // requests that were refused
}

func (o *owners) set(host string, ids ...uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		o.hosts[id] = host
	}
}

func (o *owners) of(id uint32) (host string, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	host, known = o.hosts[id]
	return host, known
}

// speaks tells whether a heartbeat of a server that is known is its owner's, which it then names.
// All others are looked at by a transaction.
func (o *owners) speaks(p meta.Peer, s *meta.Server) bool {
	owner, known := o.of(s.ID)
	switch {
	case p == (meta.Peer{}) && s.Host == "":
		return true // who does not say who he is takes nothing from anybody
	case p == (meta.Peer{}):
		return known && owner == s.Host
	case p.Kind != identity.Host || !known || owner != p.Name:
		return false
	}
	s.Host = owner
	return true
}

// note remembers which keys a server has, if it is one: nothing is kept for ids that nobody has.
func (o *owners) note(id, gen uint32, joined bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, owned := o.hosts[id]; owned || joined {
		o.known[id] = gen
	}
}

// tell fills in what is known of a server.
func (o *owners) tell(s *meta.Server) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Host, s.Keys = o.hosts[s.ID], o.known[s.ID]
}

// refused counts and logs an attempt to be a server that one is not.
func (o *owners) refused(p meta.Peer, id uint32, err error) {
	if k := errs.KindOf(err); k == errs.Perm || k == errs.Forged {
		o.count.Add(1)
		o.refuse.Warn(p.String(), "refused an I/O server", "server", id, "why", err)
	}
}

// loadOwners reads who has which server.
func (s *Store) loadOwners(t *txn) error {
	var bad error
	err := t.scan(registryPrefix(registryServer), func(key, value []byte) bool {
		var r reservation
		if bad = parse(key, value, registryRecord{&r}); bad == nil && len(key) == registryServerBytes {
			s.owners.set(r.Host, binary.BigEndian.Uint32(key[2:]))
		}
		return bad == nil
	})
	return unlessNil(err, bad)
}

// hostOf is the host that a request is of, which may have I/O servers. name is what the service's
// own host calls itself.
func (t *txn) hostOf(p meta.Peer, name string) (string, error) {
	switch {
	case p == (meta.Peer{}):
		return name, nil
	case p.Kind != identity.Host:
		return "", errs.Newf(errs.Perm, "", "", "%s is no host", p)
	}
	m, err := t.peekMember(p)
	switch {
	case err != nil:
		return "", err
	case m == nil:
		return "", errs.Newf(errs.Perm, "", "", "%s was removed", p)
	case m.Roles&identity.RoleIod == 0:
		return "", errs.Newf(errs.Perm, "", "", "%s has not the role iod: let it join with a token of "+
			"sluice token create --host --role iod", p)
	}
	return p.Name, nil
}

// peekMember reads a member without depending on it; nil: there is none.
func (t *txn) peekMember(p meta.Peer) (*meta.Member, error) {
	key := memberKey(p.Kind, p.Name)
	value, err := t.peek(key)
	if err != nil || value == nil {
		return nil, err
	}
	m := &meta.Member{}
	return m, parse(key, value, registryRecord{m})
}

// claim makes sure that a server belongs to a host, or gives it one that nobody has reserved: the
// first servers of a cluster belong to the host of the service. The service's own host may also
// take what belongs to a name that is no member: it was called otherwise before.
func (t *txn) claim(p meta.Peer, own func() string, host string, id uint32) error {
	var r reservation
	found, err := t.readStored(reservationKey(id), &r)
	if err != nil || found && r.Host == host {
		return err
	}
	trusted := p == (meta.Peer{})
	if trusted && host == "" {
		return nil // who does not say who he is takes nothing from anybody
	}
	if found {
		taken := !trusted
		if trusted {
			m, err := t.peekMember(meta.Peer{Kind: identity.Host, Name: r.Host})
			if err != nil {
				return err
			}
			taken = m != nil
		}
		if taken {
			return errs.Newf(errs.Perm, "", "", "I/O server %d belongs to host %s, not to %s", id, r.Host,
				host)
		}
	}
	if !found && !trusted && host != own() {
		return errs.Newf(errs.Perm, "", "", "I/O server %d was not reserved by host %s", id, host)
	}
	t.putStored(reservationKey(id), &reservation{host, t.now.UnixNano()})
	return nil
}

// ReserveServers implements meta.ServerKeys. Which ids it has given out is the answer that is kept
// with the request, so that a repetition gets the same.
func (s *Store) ReserveServers(ctx context.Context, c meta.Caller, host string, n int) (
	ids []uint32, err error) {

	const op = "meta.ReserveServers"
	if err := checkCaller(&c); err != nil {
		return nil, errs.Wrap(op, "", err)
	}
	if n < 1 || n > meta.ReserveMax {
		return nil, errs.Newf(errs.Invalid, op, "", "%d ids, want 1 to %d", n, meta.ReserveMax)
	}
	var owner string
	first, replayed, err := s.answer(ctx, &c, func(t *txn) (err error) {
		t.kv.Sync = true
		if owner, err = t.hostOf(c.Peer, host); err != nil {
			return err
		}
		if err := identity.CheckName(owner); err != nil {
			return err
		}
		return t.reserve(owner, n, s.servers.last())
	})
	if err == nil && replayed {
		err = s.kv.Sync(ctx)
	}
	if err != nil {
		s.owners.refused(c.Peer, 0, err)
		return nil, errs.Wrap(op, host, err)
	}
	for i := range n {
		ids = append(ids, uint32(first)+uint32(i))
	}
	s.owners.set(owner, ids...)
	return ids, nil
}

// reserve notes down ids behind all that there are.
func (t *txn) reserve(host string, n int, last uint32) error {
	var bad error
	all, own := 0, 0
	err := t.scan(registryPrefix(registryServer), func(key, value []byte) bool {
		var r reservation
		if bad = parse(key, value, registryRecord{&r}); bad != nil || len(key) != registryServerBytes {
			return bad == nil
		}
		all++
		if r.Host == host {
			own++
		}
		last = max(last, binary.BigEndian.Uint32(key[2:]))
		return true
	})
	switch {
	case err != nil || bad != nil:
		return unlessNil(err, bad)
	case own+n > meta.HostServersMax:
		return errs.Newf(errs.Quota, "", "", "host %s has %d I/O servers already", host, own)
	case all+n > serversMax:
		return errs.Newf(errs.Quota, "", "", "there are %d I/O servers already", all)
	}
	for i := range uint32(n) {
		key := reservationKey(last + 1 + i)
		if _, err := t.read(key); err != nil { // of two who want it one begins anew
			return err
		}
		t.putStored(key, &reservation{host, t.now.UnixNano()})
	}
	t.kv.Answer = uint64(last + 1)
	return nil
}

// ServerKeys implements meta.ServerKeys.
func (s *Store) ServerKeys(ctx context.Context, c meta.Caller, id, have uint32) (
	capability.Ring, error) {

	err := checkCaller(&c)
	if err == nil && id == 0 {
		err = errs.Newf(errs.Invalid, "", "", "no I/O server has the id 0")
	}
	if err == nil && c.Peer != (meta.Peer{}) {
		err = s.checkOwner(ctx, c.Peer, id)
	}
	ring := s.keys.Ring()
	if err == nil && len(ring) == 0 {
		err = errs.Newf(errs.Again, "", "", "the service has no keys yet")
	}
	if err != nil {
		s.owners.refused(c.Peer, id, err)
		return nil, errs.Wrap("meta.ServerKeys", "", err)
	}
	s.owners.note(id, have, s.servers.has(id))
	return ring.For(id), nil
}

// checkOwner refuses a host that a server does not belong to.
func (s *Store) checkOwner(ctx context.Context, p meta.Peer, id uint32) error {
	var host string
	err := s.look(func(t *txn) (err error) {
		host, err = t.hostOf(p, "")
		return err
	})
	if owner, known := s.owners.of(id); err != nil || known && owner == host {
		return err
	}
	_, err = s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.Sync = true
		return t.claim(p, s.opt.Host, host, id)
	})
	if err == nil {
		s.owners.set(host, id)
	}
	return err
}

// KnowKeys tells whether all I/O servers that are up know the keys of a generation.
func (s *Store) KnowKeys(gen uint32) bool {
	up := s.servers.up(s.heardSince())
	s.owners.mu.Lock()
	defer s.owners.mu.Unlock()
	for _, id := range up {
		if s.owners.known[id] < gen {
			return false
		}
	}
	return true
}

// last is the highest id of a server that has joined, and has tells whether one has.
func (x *servers) last() uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.ids) == 0 {
		return 0
	}
	return x.ids[len(x.ids)-1]
}

func (x *servers) has(id uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[id] != nil
}
