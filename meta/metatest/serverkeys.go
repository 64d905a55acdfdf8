package metatest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// serverKeyCases are the tests of meta.ServerKeys, and of what belongs to members.
var serverKeyCases = []testCase{
	{"ReserveServers", testReserveServers},
	{"ReserveRefusals", testReserveRefusals},
	{"RaceReserve", testRaceReserve},
	{"ServerKeys", testServerKeys},
	{"ServerOfAnotherHost", testServerOfAnotherHost},
	{"FirstServers", testFirstServers},
	{"RotatedKeys", testRotatedKeys},
	{"RemovedHost", testRemovedHost},
	{"SessionsOfMembers", testSessionsOfMembers},
	{"RemovedClient", testRemovedClient},
}

// ownHost is what the service's own host is called.
const ownHost = "own"

func host(name string) meta.Peer   { return meta.Peer{Kind: identity.Host, Name: name} }
func client(name string) meta.Peer { return meta.Peer{Kind: identity.Client, Name: name} }

// enlist makes a member.
func (e *env) enlist(p meta.Peer, roles identity.Roles, serial byte) {
	e.Helper()
	m := meta.Member{Kind: p.Kind, Name: p.Name, Certificates: []meta.Certificate{e.cert(serial)}}
	if m.Roles = roles; p.Kind == identity.Client {
		m.Rights.Path = "/"
	}
	_, err := e.Service.EnlistMember(e.ctx, e.root(), m)
	e.must(err)
}

// reserve gets ids for a member.
func (e *env) reserve(p meta.Peer, n int) []uint32 {
	e.Helper()
	ids, err := e.As(p).ReserveServers(e.ctx, meta.Caller{}, "whatever", n)
	e.must(err)
	if len(ids) != n {
		e.Fatalf("%d ids, want %d: %v", len(ids), n, ids)
	}
	return ids
}

// joinAs joins a server with the right key.
func (e *env) joinAs(s meta.Service, id uint32, host string) error {
	srv := meta.Server{ID: id, Addr: "host:1", StoreID: 100 + uint64(id), Total: 1000, Free: 500,
		Host: host}
	return s.Join(e.ctx, srv, meta.SignJoin(e.ring.Ring()[0].Key.ServerKey(id), &srv))
}

// server is one as the service shows it.
func (e *env) server(id uint32) meta.Server {
	e.Helper()
	all, err := e.Service.Servers(e.ctx)
	e.must(err)
	i := slices.IndexFunc(all, func(s meta.Server) bool { return s.ID == id })
	if i < 0 {
		e.Fatalf("there is no server %d: %+v", id, all)
	}
	return all[i]
}

func testReserveServers(e *env) {
	e.enlist(host("a"), identity.RoleIod, 1)
	e.enlist(host("b"), identity.RolesAll, 2)
	if got := e.reserve(host("a"), 2); !slices.Equal(got, []uint32{4, 5}) {
		e.Fatalf("behind the three that have joined: %v", got)
	}
	c := meta.Caller{ReqID: [16]byte{1, 2, 3}}
	first, err := e.As(host("b")).ReserveServers(e.ctx, c, "", 3)
	e.must(err)
	e.reserve(host("a"), 1)
	again, err := e.As(host("b")).ReserveServers(e.ctx, c, "", 3)
	if err != nil || !slices.Equal(first, again) || !slices.Equal(first, []uint32{6, 7, 8}) {
		e.Fatalf("%v: repeated after a lost answer: %v, then %v", err, first, again)
	}
	e.restart()
	again, err = e.As(host("b")).ReserveServers(e.ctx, c, "", 3)
	if err != nil || !slices.Equal(first, again) {
		e.Fatalf("%v: repeated after a restart: %v, then %v", err, first, again)
	}
	own, err := e.Service.ReserveServers(e.ctx, meta.Caller{}, ownHost, 1)
	if err != nil || !slices.Equal(own, []uint32{10}) {
		e.Fatalf("%v: %v", err, own)
	}
	e.must(e.joinAs(e.As(host("b")), 7, "b"))
	e.must(e.joinAs(e.Service, 10, ownHost))
	if a, b := e.server(7).Host, e.server(10).Host; a != "b" || b != ownHost {
		e.Fatalf("servers of %q and %q", a, b)
	}
	e.restart()
	if a, b := e.server(7).Host, e.server(10).Host; a != "b" || b != ownHost {
		e.Fatalf("after a restart servers of %q and %q", a, b)
	}
}

func testReserveRefusals(e *env) {
	e.enlist(host("a"), identity.RoleIod, 1)
	e.enlist(host("m"), identity.RoleMeta, 2)
	e.enlist(client("c"), 0, 3)
	for _, c := range []struct {
		name string
		by   meta.Service
		host string
		n    int
		want errs.Kind
	}{
		{"none", e.As(host("a")), "", 0, errs.Invalid},
		{"too many at once", e.As(host("a")), "", meta.ReserveMax + 1, errs.Invalid},
		{"less than none", e.As(host("a")), "", -1, errs.Invalid},
		{"a host without the role", e.As(host("m")), "", 1, errs.Perm},
		{"a client", e.As(client("c")), "a", 1, errs.Perm},
		{"somebody who is no member", e.As(host("x")), "", 1, errs.Perm},
		{"a host without a name", e.Service, "", 1, errs.Invalid},
		{"a host with a wrong name", e.Service, "A b", 1, errs.Invalid},
	} {
		_, err := c.by.ReserveServers(e.ctx, meta.Caller{}, c.host, c.n)
		e.want(c.want, err, c.name)
	}
	for range meta.HostServersMax / meta.ReserveMax {
		e.reserve(host("a"), meta.ReserveMax)
	}
	_, err := e.As(host("a")).ReserveServers(e.ctx, meta.Caller{}, "", 1)
	e.want(errs.Quota, err, "more than a host may have")
	if ids, err := e.Service.ReserveServers(e.ctx, meta.Caller{}, ownHost, 1); err != nil {
		e.Fatalf("%v: another host is kept off: %v", err, ids)
	}
}

// testRaceReserve: nobody gets what somebody else has got.
func testRaceReserve(e *env) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[uint32]string{}
	for i := range 4 {
		name := fmt.Sprint("h", i)
		e.enlist(host(name), identity.RoleIod, byte(i+1))
		as := e.As(host(name))
		wg.Go(func() {
			for range 5 {
				ids, err := as.ReserveServers(e.ctx, meta.Caller{}, "", 2)
				if err != nil {
					e.Error(err)
				}
				mu.Lock()
				for _, id := range ids {
					if seen[id] != "" {
						e.Errorf("server %d is given to %s and %s", id, seen[id], name)
					}
					seen[id] = name
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 40 && !e.Failed() {
		e.Fatalf("%d ids", len(seen))
	}
}

func testServerKeys(e *env) {
	e.enlist(host("a"), identity.RoleIod, 1)
	id := e.reserve(host("a"), 1)[0]
	want := e.ring.Ring().For(id)
	for who, s := range map[string]meta.Service{"its host": e.As(host("a")), "this host": e.Service} {
		got, err := s.ServerKeys(e.ctx, meta.Caller{}, id, 0)
		if err != nil || !slices.Equal(got, want) {
			e.Fatalf("%s: %v: %v", who, err, got.Gens())
		}
	}
	_, err := e.Service.ServerKeys(e.ctx, meta.Caller{}, 0, 0)
	e.want(errs.Invalid, err, "no server")
	e.must(e.joinAs(e.As(host("a")), id, ""))
	if got := e.server(id); got.Host != "a" || got.Keys != 0 {
		e.Fatalf("%+v", got)
	}
	_, err = e.As(host("a")).ServerKeys(e.ctx, meta.Caller{}, id, 1)
	e.must(err)
	if got := e.server(id); got.Keys != 1 {
		e.Fatalf("what the server has said is not shown: %+v", got)
	}
}

// testServerOfAnotherHost: who claims an id that is another's gets neither keys nor a place, not
// even if he has stolen the key.
func testServerOfAnotherHost(e *env) {
	for i, name := range []string{"a", "b"} {
		e.enlist(host(name), identity.RoleIod, byte(i+1))
	}
	e.enlist(client("c"), 0, 3)
	id := e.reserve(host("a"), 1)[0]
	e.must(e.joinAs(e.As(host("a")), id, "a"))
	for who, s := range map[string]meta.Service{"b": e.As(host("b")), "c": e.As(client("c"))} {
		_, err := s.ServerKeys(e.ctx, meta.Caller{}, id, 1)
		e.want(errs.Perm, err, who+" asks for the keys of a's server")
		e.want(errs.Perm, e.joinAs(s, id, "a"), who+" joins as a's server")
		_, err = s.ServerKeys(e.ctx, meta.Caller{}, 77, 1)
		e.want(errs.Perm, err, who+" asks for the keys of a server that nobody has reserved")
		e.want(errs.Perm, e.joinAs(s, 77, who), who+" joins as a server that nobody has reserved")
	}
	e.want(errs.Perm, e.joinAs(e.Service, id, ownHost), "this host joins as a's server")
	if got := e.server(id); got.Host != "a" || got.Keys != 0 {
		e.Fatalf("%+v", got)
	}
	e.must(e.joinAs(e.As(host("a")), id, "a"))
}

// testFirstServers: servers that were there before anybody reserved ids belong to the host of the
// service, by whatever way it comes.
func testFirstServers(e *env) {
	e.enlist(host(ownHost), identity.RolesAll, 1)
	e.enlist(host("b"), identity.RolesAll, 2)
	if got := e.server(1); got.Host != "" {
		e.Fatalf("%+v", got)
	}
	_, err := e.As(host("b")).ServerKeys(e.ctx, meta.Caller{}, 1, 0)
	e.want(errs.Perm, err, "another host takes the first server")
	e.want(errs.Perm, e.joinAs(e.As(host("b")), 1, ""), "another host joins as the first server")
	_, err = e.As(host(ownHost)).ServerKeys(e.ctx, meta.Caller{}, 1, 0)
	e.must(err)
	e.must(e.joinAs(e.As(host(ownHost)), 1, ""))
	e.must(e.joinAs(e.Service, 2, ownHost))
	e.must(e.joinAs(e.Service, 2, "")) // who does not say who he is takes nothing from anybody
	if a, b := e.server(1).Host, e.server(2).Host; a != ownHost || b != ownHost {
		e.Fatalf("servers of %q and %q", a, b)
	}
	// It may be called otherwise, as long as nobody else is.
	e.must(e.joinAs(e.Service, 3, "former"))
	e.must(e.joinAs(e.Service, 3, ownHost))
	e.want(errs.Perm, e.joinAs(e.Service, 3, "b"), "this host under another's name")
	if got := e.server(3).Host; got != ownHost {
		e.Fatalf("server of %q", got)
	}
}

// testRotatedKeys: capabilities are signed with the first key, servers may prove themselves by any
// that is valid, and are told all of them.
func testRotatedKeys(e *env) {
	one := e.ring.Ring()[0]
	two := capability.Numbered{Gen: 2, Key: capability.Key{8, 8}}
	h, err := e.Service.Create(e.ctx, e.root(), meta.RootIno, "f", meta.NewFile{Mode: 0o644, Width: 1},
		readWrite)
	e.must(err)
	id := h.Attr.Layout.Servers[0]
	for _, step := range []struct {
		ring        capability.Ring
		joins       []errs.Kind // by the keys one and two
		still, next errs.Kind   // of the first capability, and of a new one, for who knows the last key
	}{
		{capability.Ring{one}, []errs.Kind{errs.OK, errs.Forged}, errs.OK, errs.OK},
		{capability.Ring{one, two}, []errs.Kind{errs.OK, errs.OK}, errs.OK, errs.OK},
		{capability.Ring{two, one}, []errs.Kind{errs.OK, errs.OK}, errs.OK, errs.OK},
		{capability.Ring{two}, []errs.Kind{errs.Forged, errs.OK}, errs.Expired, errs.OK},
	} {
		e.ring.Set(step.ring)
		got, err := e.Service.ServerKeys(e.ctx, meta.Caller{}, id, 0)
		if err != nil || !slices.Equal(got, step.ring.For(id)) {
			e.Fatalf("%v: %v, want %v", err, got.Gens(), step.ring.Gens())
		}
		for i, k := range []capability.Numbered{one, two} {
			s := meta.Server{ID: id, Addr: "host:1", StoreID: 100 + uint64(id), Total: 1000, Free: 500}
			err := e.Service.Join(e.ctx, s, meta.SignJoin(k.Key.ServerKey(id), &s))
			e.want(step.joins[i], err, fmt.Sprint("a join by key ", i+1, " of ", step.ring.Gens()))
		}
		v := capability.NewVerifier(capability.NewKeyring(got))
		_, err = v.Verify(h.Caps[0][:])
		e.want(step.still, err, fmt.Sprint("the first capability under ", step.ring.Gens()))
		again, err := e.Service.Renew(e.ctx, e.root(), []uint64{h.ID})
		e.must(err)
		_, err = v.Verify(again[0].Caps[0][:])
		e.want(step.next, err, fmt.Sprint("a renewed capability under ", step.ring.Gens()))
		_, err = capability.NewVerifier(capability.NewKeyring(got[:1])).Verify(again[0].Caps[0][:])
		e.want(errs.OK, err, fmt.Sprint("signed with the first of ", step.ring.Gens()))
	}
}

// testRemovedHost: what a removed host has is refused, and there has to be another secret.
func testRemovedHost(e *env) {
	e.enlist(host("a"), identity.RoleIod, 1)
	e.enlist(host("b"), identity.RoleIod, 2)
	id := e.reserve(host("a"), 1)[0]
	e.must(e.joinAs(e.As(host("a")), id, "a"))
	e.must(e.Service.RemoveMember(e.ctx, e.root(), identity.Host, "b"))
	r, err := e.Service.Registry(e.ctx, e.root())
	if err != nil || r.SecretMin != 0 || r.Signs != capability.First {
		e.Fatalf("%v: a cluster without secrets: %+v", err, r)
	}
	_, err = e.Service.SetGeneration(e.ctx, e.root(), identity.SecretKey,
		meta.Generation{Number: 3, Fingerprint: identity.Hash{1}})
	e.must(err)
	e.must(e.Service.RemoveMember(e.ctx, e.root(), identity.Host, "a"))
	e.want(errs.Perm, e.joinAs(e.As(host("a")), id, "a"), "a join of a removed host")
	_, err = e.As(host("a")).ServerKeys(e.ctx, meta.Caller{}, id, 0)
	e.want(errs.Perm, err, "keys of a removed host")
	_, err = e.As(host("a")).ReserveServers(e.ctx, meta.Caller{}, "", 1)
	e.want(errs.Perm, err, "ids for a removed host")
	for range 2 {
		r, err = e.Service.Registry(e.ctx, e.root())
		if err != nil || r.SecretMin != 4 {
			e.Fatalf("%v: %+v", err, r)
		}
		e.restart()
	}
	e.want(errs.Perm, e.joinAs(e.As(host("a")), id, "a"), "a join of a removed host")
	// Who joins again under the name has what the name had.
	e.enlist(host("a"), identity.RoleIod, 3)
	e.must(e.joinAs(e.As(host("a")), id, "a"))
}

// testSessionsOfMembers: a session is of use to who has opened it only, and what a client calls
// itself counts among those of one member.
func testSessionsOfMembers(e *env) {
	for i, name := range []string{"ann", "bob"} {
		e.enlist(client(name), 0, byte(i+1))
	}
	ann, bob := e.As(client("ann")), e.As(client("bob"))
	_, err := e.As(client("eve")).NewSession(e.ctx, "x")
	e.want(errs.Perm, err, "a session of nobody")
	e.want(errs.Perm, e.As(client("eve")).KeepAlive(e.ctx, 1), "a request of nobody")
	hers, err := ann.NewSession(e.ctx, "mount")
	e.must(err)
	his, err := bob.NewSession(e.ctx, "mount")
	e.must(err)
	check := func() {
		e.Helper()
		ann, bob = e.As(client("ann")), e.As(client("bob"))
		e.must(ann.KeepAlive(e.ctx, hers.ID))
		e.want(errs.Perm, bob.KeepAlive(e.ctx, hers.ID), "another's session kept alive")
		e.want(errs.Perm, bob.EndSession(e.ctx, hers.ID), "another's session ended")
		_, err = bob.Renew(e.ctx, meta.Caller{Session: hers.ID}, nil)
		e.want(errs.Perm, err, "another's session used")
		e.want(errs.Perm, ann.KeepAlive(e.ctx, e.session), "a session of this host used")
		e.want(errs.Perm, bob.Succeed(e.ctx, meta.Caller{Session: his.ID}, hers.ID, true),
			"another's session taken over")
	}
	check()
	e.restart()
	check()
	e.must(e.Service.KeepAlive(e.ctx, hers.ID)) // nothing is kept from this host
	e.clock.advance(lease/2 + time.Second)
	e.must(bob.EndClient(e.ctx, "mount"))
	e.must(ann.KeepAlive(e.ctx, hers.ID))
	e.want(errs.Stale, bob.KeepAlive(e.ctx, his.ID), "a session that its owner has ended")
}

// testRemovedClient: a client that is removed can do nothing from then on, what it had open is
// closed when its capabilities have run out, and others are not touched.
func testRemovedClient(e *env) {
	e.enlist(client("ann"), 0, 1)
	e.enlist(client("bob"), 0, 2)
	ann, bob := e.As(client("ann")), e.As(client("bob"))
	var hers []meta.Caller
	for range 3 {
		info, err := ann.NewSession(e.ctx, "mount")
		e.must(err)
		hers = append(hers, meta.Caller{Session: info.ID})
	}
	his, err := bob.NewSession(e.ctx, "mount")
	e.must(err)
	h, err := ann.Create(e.ctx, hers[0], meta.RootIno, "f", meta.NewFile{Mode: 0o644}, readWrite)
	e.must(err)
	e.objects.Write(h.Attr.Ino, 1000)
	e.must(e.Service.RemoveMember(e.ctx, e.root(), identity.Client, "ann"))
	for _, c := range hers {
		e.want(errs.Perm, ann.KeepAlive(e.ctx, c.Session), "a request of a removed client")
		e.want(errs.Stale, e.Service.KeepAlive(e.ctx, c.Session), "a session of a removed client")
	}
	_, err = e.Service.Renew(e.ctx, hers[0], []uint64{h.ID})
	e.want(errs.Stale, err, "capabilities of a removed client renewed")
	_, err = ann.NewSession(e.ctx, "again")
	e.want(errs.Perm, err, "a session of a removed client")
	e.must(bob.KeepAlive(e.ctx, his.ID))
	if a := e.attr(h.Attr.Ino); !a.Writers || a.Size != 1000 {
		e.Fatalf("closed before its capabilities have run out: %+v", a)
	}
	// The service may die at any moment.
	e.restart()
	e.claim(his.ID)
	_, err = e.As(client("ann")).NewSession(e.ctx, "again")
	e.want(errs.Perm, err, "a session of a removed client, after a restart")
	for range 5 {
		e.clock.advance(capTTL / 4)
		e.must(e.keepOwn())
		e.must(e.As(client("bob")).KeepAlive(e.ctx, his.ID))
	}
	e.joinAll()
	e.eventually("what the removed client had open is closed", func() bool {
		a := e.attr(h.Attr.Ino)
		return !a.Writers && a.Size == 1000
	})
	e.enlist(client("ann"), 0, 3)
	_, err = e.As(client("ann")).NewSession(e.ctx, "mount")
	e.must(err)
}
