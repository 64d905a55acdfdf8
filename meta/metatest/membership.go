package metatest

import (
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// membershipCases are the tests of meta.Membership, and of what Join and Listen say of it.
var membershipCases = []testCase{
	{"ServerStates", testServerStates},
	{"ServerLeaves", testServerLeaves},
	{"ServerIncarnations", testServerIncarnations},
	{"ServerMoves", testServerMoves},
	{"ServerRemoved", testServerRemoved},
	{"SlowServersRest", testSlowServersRest},
	{"MapNotices", testMapNotices},
	{"MapSurvivesRestart", testMapSurvivesRestart},
	{"Hosts", testHosts},
	{"HostRemoved", testHostRemoved},
	{"HostSpeaksForItself", testHostSpeaksForItself},
	{"Clients", testClients},
	{"ClientsOfMembers", testClientsOfMembers},
	{"ClientPages", testClientPages},
}

// beats is an I/O server of the suite's, which counts its starts.
type beats struct {
	*env
	meta.Server
}

func (e *env) serverBeats(id uint32, incarnation uint64) *beats {
	return &beats{e, meta.Server{ID: id, Addr: "beat:1", StoreID: 100 + uint64(id), Total: 1000,
		Free: 500, Incarnation: incarnation, Start: 7*incarnation + 1, Host: "h1", Version: "v1"}}
}

func (b *beats) join() error {
	return b.Service.Join(b.ctx, b.Server, meta.SignJoin(b.key.ServerKey(b.ID), &b.Server))
}

// wantState fails the test unless a server has a state.
func (e *env) wantState(id uint32, want meta.State) {
	e.Helper()
	if s := e.server(id); s.State != want || s.Up != want.Serves() {
		e.Fatalf("server %d is %v (serves: %v), want %v", id, s.State, s.Up, want)
	}
}

// mapVersion is the version of the map, as a client hears it.
func (l *listener) mapVersion() uint64 { return l.hear(0).Map }

// raised waits until the map has a later version, and returns it.
func (l *listener) raised(before uint64, why string) (now uint64) {
	l.Helper()
	l.eventually("the map is another one because "+why, func() bool {
		now = l.mapVersion()
		return now > before
	})
	return now
}

// testServerStates: silence makes a server slow, then down; a heartbeat makes it up. Each is a
// version of the map, and heartbeats without news are none.
func testServerStates(e *env) {
	l := e.listen()
	b := e.serverBeats(4, 1)
	before := l.mapVersion()
	e.must(b.join())
	e.wantState(4, meta.StateUp)
	s := e.server(4)
	if s.Incarnation != 1 || s.Host != "h1" || s.Version != "v1" || s.Since == 0 || s.LastSeen == 0 {
		e.Fatalf("what it says of itself is not told: %+v", s)
	}
	v := l.mapVersion()
	if v != before+1 {
		e.Fatalf("a server has joined, and version %d of the map became %d", before, v)
	}
	for i := range 10 {
		e.clock.advance(200 * time.Millisecond)
		b.Free = int64(i)
		e.must(b.join())
	}
	e.joinAll()
	if now := l.mapVersion(); now != v {
		e.Fatalf("heartbeats without news made %d of version %d", now, v)
	}
	if got := e.server(4); got.Free != 9 || got.Since != s.Since || got.LastSeen <= s.LastSeen {
		e.Fatalf("what heartbeats tell beside the map: %+v", got)
	}
	e.clock.advance(5 * time.Second)
	e.wantState(4, meta.StateSlow)
	v = l.raised(v, "servers are slow")
	e.must(b.join())
	e.wantState(4, meta.StateUp)
	v = l.raised(v, "one is up again")
	e.clock.advance(8 * time.Second)
	e.must(b.join())
	e.clock.advance(8 * time.Second)
	e.wantState(1, meta.StateDown)
	e.wantState(4, meta.StateSlow)
	v = l.raised(v, "others are down")
	e.clock.advance(5 * time.Second)
	e.wantState(4, meta.StateDown)
	v = l.raised(v, "all are down")
	e.must(b.join())
	e.wantState(4, meta.StateUp)
	if l.mapVersion() <= v {
		e.Fatal("a server that is back is no news")
	}
}

// testServerLeaves: who says that it ends gets nothing new, and is not taken for one that crashed.
func testServerLeaves(e *env) {
	b := e.serverBeats(4, 1)
	e.must(b.join())
	l := e.listen()
	v := l.mapVersion()
	b.Leaving = true
	e.must(b.join())
	e.wantState(4, meta.StateLeaving)
	if l.mapVersion() != v+1 {
		e.Fatal("that it leaves is no news")
	}
	for i := range 20 {
		a := e.mustMake(meta.RootIno, fmt.Sprint("f", i), meta.NewFile{Type: meta.Regular, Width: 1})
		if a.Layout.Servers[0] == 4 {
			e.Fatal("a new file lies where somebody leaves")
		}
	}
	_, err := e.Service.Make(e.ctx, e.root(), meta.RootIno, "wide",
		meta.NewFile{Type: meta.Regular, Width: 4})
	e.want(errs.Again, err, "a file that needs the server that leaves")
	e.clock.advance(20 * time.Second)
	e.wantState(4, meta.StateDown)
	back := e.serverBeats(4, 2)
	e.must(back.join())
	e.wantState(4, meta.StateUp)
}

// testServerIncarnations: of the starts of a server the latest counts, whatever comes late.
func testServerIncarnations(e *env) {
	old, b := e.serverBeats(4, 1), e.serverBeats(4, 2)
	e.must(old.join())
	e.must(b.join())
	e.want(errs.Stale, old.join(), "a heartbeat of an earlier start")
	none := e.serverBeats(4, 0)
	e.want(errs.Stale, none.join(), "a heartbeat of one that does not count")
	twin := e.serverBeats(4, 2)
	twin.Start++
	e.want(errs.Stale, twin.join(), "a second process of the same start")
	old.Leaving = true
	e.want(errs.Stale, old.join(), "an earlier start that leaves")
	e.wantState(4, meta.StateUp)
	if s := e.server(4); s.Incarnation != 2 {
		e.Fatalf("%+v", s)
	}
	e.restart()
	e.want(errs.Stale, old.join(), "a heartbeat of an earlier start, after a restart of the service")
	e.must(b.join())
	skip := e.serverBeats(4, 9)
	e.must(skip.join())
	e.want(errs.Stale, b.join(), "a heartbeat of the start before")
}

// testServerMoves: another address is one change of the map.
func testServerMoves(e *env) {
	l := e.listen()
	b := e.serverBeats(4, 1)
	e.must(b.join())
	v := l.mapVersion()
	b.Addr = "elsewhere:2"
	e.must(b.join())
	if s := e.server(4); s.Addr != "elsewhere:2" || l.mapVersion() != v+1 {
		e.Fatalf("version %d of the map became %d: %+v", v, l.mapVersion(), s)
	}
	b.Version = "v2"
	e.must(b.join())
	if s := e.server(4); s.Version != "v2" || l.mapVersion() != v+2 {
		e.Fatalf("version %d of the map became %d: %+v", v, l.mapVersion(), s)
	}
}

// testServerRemoved: a server that was removed is gone, until it is started again.
func testServerRemoved(e *env) {
	b := e.serverBeats(4, 1)
	e.must(b.join())
	e.want(errs.Busy, e.Service.RemoveServer(e.ctx, e.root(), 4), "remove one that serves")
	e.want(errs.NotFound, e.Service.RemoveServer(e.ctx, e.root(), 44), "remove none")
	b.Leaving = true
	e.must(b.join())
	e.want(errs.Busy, e.Service.RemoveServer(e.ctx, e.root(), 4), "remove one that has just left")
	e.clock.advance(20 * time.Second)
	e.want(errs.Perm, e.Service.RemoveServer(e.ctx, e.user(alice), 4), "remove by a user")
	l := e.listen()
	e.must(e.Service.RemoveServer(e.ctx, e.root(), 4))
	e.wantState(4, meta.StateGone)
	v := l.mapVersion()
	e.must(e.Service.RemoveServer(e.ctx, e.root(), 4))
	b.Leaving = false
	e.want(errs.NotFound, b.join(), "a late heartbeat of what was removed")
	e.restart()
	e.wantState(4, meta.StateGone)
	e.clock.advance(time.Hour)
	e.wantState(4, meta.StateGone)
	back := e.serverBeats(4, 2)
	e.must(back.join())
	e.wantState(4, meta.StateUp)
	if now := e.listen().mapVersion(); now <= v {
		e.Fatalf("version %d of the map became %d", v, now)
	}
}

// testSlowServersRest: new files go to servers that are not slow, where there are such.
func testSlowServersRest(e *env) {
	large := func(id uint32) {
		b := e.serverBeats(id, 1)
		b.Total, b.Free = 1<<40, 1<<40
		e.must(b.join())
	}
	for id := range uint32(3) {
		large(id + 1)
	}
	e.clock.advance(5 * time.Second)
	large(2)
	a := e.mustMake(meta.RootIno, "narrow", meta.NewFile{Type: meta.Regular})
	if a.Layout.Width() != 1 || a.Layout.Servers[0] != 2 {
		e.Fatalf("a new file lies at %v, of which all but 2 are slow", a.Layout.Servers)
	}
	a = e.mustMake(meta.RootIno, "wide", meta.NewFile{Type: meta.Regular, Width: 3})
	if a.Layout.Width() != 3 {
		e.Fatalf("a file that needs all lies at %v", a.Layout.Servers)
	}
}

// testMapNotices: who listens hears at once that the map is another one, if he wants to.
func testMapNotices(e *env) {
	l, deaf := e.listen(), e.listen()
	v := l.mapVersion()
	begin := time.Now()
	over, done := e.background(func() error {
		h, err := e.Service.Listen(e.ctx, meta.Listening{Session: l.c.Session, Seen: l.seen,
			WaitMs: 60000, Map: v})
		if err == nil && h.Map <= v {
			err = fmt.Errorf("it hears of version %d after %d", h.Map, v)
		}
		return err
	})
	deafOver, deafDone := e.background(func() error {
		_, err := e.Service.Listen(e.ctx, meta.Listening{Session: deaf.c.Session, Seen: deaf.seen,
			WaitMs: 60000})
		return err
	})
	time.Sleep(50 * time.Millisecond)
	if done() {
		e.Fatalf("it does not wait: %v", over())
	}
	e.must(e.serverBeats(4, 1).join())
	e.must(over())
	// leaseTime/3 is when an answer without news comes.
	if took := time.Since(begin); took < leaseTime/3 && deafDone() {
		e.Fatalf("who does not want to know is told after %v: %v", took, deafOver())
	}
	h, err := e.Service.Listen(e.ctx, meta.Listening{Session: l.c.Session, Seen: l.seen, WaitMs: 60000,
		Map: v})
	if err != nil || h.Map <= v {
		e.Fatalf("who has missed a version is not told: %+v, %v", h, err)
	}
	e.must(deafOver())
}

// testMapSurvivesRestart: versions go on behind those that were told, and who was down stays so.
func testMapSurvivesRestart(e *env) {
	b := e.serverBeats(4, 1)
	e.must(b.join())
	l := e.listen()
	v := l.mapVersion()
	e.clock.advance(20 * time.Second)
	e.joinAll()
	v = l.raised(v, "a server is down")
	e.wantState(4, meta.StateDown)
	e.restart()
	if now := e.listen().mapVersion(); now < v {
		e.Fatalf("version %d of the map became %d by a restart", v, now)
	}
	e.wantState(4, meta.StateDown)
	e.wantState(2, meta.StateUp)
	e.must(b.join())
	e.wantState(4, meta.StateUp)
}

// host is what the service says of one.
func (e *env) host(name string) meta.Host {
	e.Helper()
	all, err := e.Service.Hosts(e.ctx)
	e.must(err)
	for _, h := range all {
		if h.Name == name {
			return h
		}
	}
	e.Fatalf("there is no host %s: %+v", name, all)
	return meta.Host{}
}

// testHosts: hosts have states and incarnations as servers have.
func testHosts(e *env) {
	l := e.listen()
	v := l.mapVersion()
	h := meta.Host{Name: "h1", Incarnation: 1, Start: 5, Version: "v1", Roles: identity.RoleIod}
	beat := func() error { return e.Service.Beat(e.ctx, e.root(), h) }
	e.must(beat())
	if got := e.host("h1"); got.State != meta.StateUp || got.Version != "v1" || got.Incarnation != 1 ||
		got.Roles != identity.RoleIod || got.LastSeen == 0 {
		e.Fatalf("%+v", got)
	}
	e.must(beat())
	if now := l.mapVersion(); now != v+1 {
		e.Fatalf("two heartbeats, and version %d of the map became %d", v, now)
	}
	e.clock.advance(5 * time.Second)
	if got := e.host("h1"); got.State != meta.StateSlow {
		e.Fatalf("%+v", got)
	}
	e.clock.advance(10 * time.Second)
	if got := e.host("h1"); got.State != meta.StateDown {
		e.Fatalf("%+v", got)
	}
	h.Incarnation, h.Start = 2, 6
	e.must(beat())
	h.Incarnation, h.Start = 1, 5
	e.want(errs.Stale, beat(), "a heartbeat of an earlier start")
	e.restart()
	e.want(errs.Stale, beat(), "a heartbeat of an earlier start, after a restart of the service")
	h.Incarnation, h.Start, h.Leaving = 2, 6, true
	e.must(beat())
	if got := e.host("h1"); got.State != meta.StateLeaving {
		e.Fatalf("%+v", got)
	}
	e.want(errs.Invalid, e.Service.Beat(e.ctx, e.root(), meta.Host{Name: "H 1"}), "no name")
	e.want(errs.Invalid, e.Service.Beat(e.ctx, e.root(),
		meta.Host{Name: "h2", Version: string(make([]byte, meta.VersionMax+1))}), "a long version")
}

// testHostRemoved: a host that is removed is gone with its servers, however often they are started,
// until it joins again.
func testHostRemoved(e *env) {
	enlist := func(serial byte) {
		e.Helper()
		_, err := e.Service.EnlistMember(e.ctx, e.root(), meta.Member{Kind: identity.Host, Name: "h1",
			Roles: identity.RoleIod, Certificates: []meta.Certificate{e.cert(serial)}})
		e.must(err)
	}
	enlist(1)
	h := meta.Host{Name: "h1", Incarnation: 1, Start: 5}
	e.must(e.Service.Beat(e.ctx, e.root(), h))
	b := e.serverBeats(4, 1)
	e.must(b.join())
	e.must(e.Service.RemoveMember(e.ctx, e.root(), identity.Host, "h1"))
	e.wantState(4, meta.StateGone)
	e.wantState(1, meta.StateUp)
	if got := e.host("h1"); got.State != meta.StateGone {
		e.Fatalf("%+v", got)
	}
	e.want(errs.NotFound, b.join(), "a server of a host that was removed")
	again := e.serverBeats(4, 2)
	e.want(errs.NotFound, again.join(), "a server of a host that was removed, started again")
	h.Incarnation = 2
	e.want(errs.NotFound, e.Service.Beat(e.ctx, e.root(), h), "a host that was removed, started again")
	enlist(2)
	e.must(e.Service.Beat(e.ctx, e.root(), h))
	e.must(again.join())
	e.wantState(4, meta.StateUp)
}

// testClients: who looks at the clients sees what they say of themselves, and how they are.
func testClients(e *env) {
	began := e.clock.read().UnixNano()
	info, err := e.Service.NewSession(e.ctx, "a mount")
	e.must(err)
	c := meta.Caller{Session: info.ID}
	_, err = e.Service.Listen(e.ctx, meta.Listening{Session: info.ID,
		About: &meta.About{Version: "v7", Mount: "/mnt/x"}})
	e.must(err)
	e.clock.advance(time.Second)
	_, err = e.Service.Create(e.ctx, c, meta.RootIno, "f", meta.NewFile{Type: meta.Regular}, readWrite)
	e.must(err)
	find := func() (one meta.Client, n int) {
		e.Helper()
		all, err := e.Service.ListClients(e.ctx, e.root(), 0, meta.ClientPageMax)
		e.must(err)
		for _, c := range all {
			if c.Session == info.ID {
				one = c
			}
		}
		return one, len(all)
	}
	got, n := find()
	if got.Name != "a mount" || got.About.Version != "v7" || got.About.Mount != "/mnt/x" ||
		got.Open != 1 || got.Since < began || got.LastSeen < got.Since {
		e.Fatalf("%+v of %d", got, n)
	}
	_, err = e.Service.ListClients(e.ctx, e.user(alice), 0, 9)
	e.want(errs.Perm, err, "a user looks at the clients")
	e.must(e.Service.EndSession(e.ctx, info.ID))
	if got, _ := find(); got.Session != 0 {
		e.Fatalf("a client that has ended is shown: %+v", got)
	}
}

// testClientPages: the pages together name each client once, in order.
func testClientPages(e *env) {
	want := map[uint64]bool{e.session: true}
	for range 20 {
		want[e.newSession()] = true
	}
	last := uint64(0)
	for {
		page, err := e.Service.ListClients(e.ctx, e.root(), last, 7)
		e.must(err)
		if len(page) == 0 {
			break
		}
		for _, c := range page {
			if c.Session <= last || !want[c.Session] || len(page) > 7 {
				e.Fatalf("%+v behind %x, in a page of %d", c, last, len(page))
			}
			delete(want, c.Session)
			last = c.Session
		}
	}
	if len(want) > 0 {
		e.Fatalf("%d clients are not listed", len(want))
	}
	_, err := e.Service.ListClients(e.ctx, e.root(), 0, 0)
	e.want(errs.Invalid, err, "a page without room")
}

// testHostSpeaksForItself: no member announces another one.
func testHostSpeaksForItself(e *env) {
	e.enlist(host("a"), identity.RoleIod, 1)
	e.enlist(client("ann"), 0, 2)
	beat := func(p meta.Peer, name string) error {
		return e.As(p).Beat(e.ctx, meta.Caller{}, meta.Host{Name: name, Incarnation: 1, Start: 1})
	}
	e.must(beat(host("a"), "a"))
	e.want(errs.Perm, beat(host("a"), "b"), "a host that speaks for another")
	e.want(errs.Perm, beat(client("ann"), "a"), "a client that speaks for a host")
	if got := e.host("a"); got.State != meta.StateUp {
		e.Fatalf("%+v", got)
	}
}

// testClientsOfMembers: who may not see all clients sees its own, and nothing of others: neither
// their names nor how many there are, whatever page it asks for.
func testClientsOfMembers(e *env) {
	e.enlist(client("ann"), 0, 1)
	e.enlist(client("bob"), 0, 2)
	e.enlist(host("ann"), identity.RoleIod, 3) // a host of the same name is somebody else
	own := map[uint64]bool{}
	ann := e.As(client("ann"))
	for range 3 {
		for _, p := range []meta.Peer{client("bob"), client("ann"), host("ann")} {
			info, err := e.As(p).NewSession(e.ctx, "a program of "+p.Name)
			e.must(err)
			if p == client("ann") {
				own[info.ID] = true
			}
		}
	}
	for _, user := range []meta.Caller{e.user(alice), e.root()} {
		user.Session = 0
		seen := 0
		for after := uint64(0); ; {
			page, err := ann.ListClients(e.ctx, user, after, 1)
			e.must(err)
			if len(page) == 0 {
				break
			}
			after = page[0].Session
			if seen++; len(page) != 1 || !own[after] || page[0].Peer != client("ann") {
				e.Fatalf("ann sees %+v", page)
			}
		}
		if seen != len(own) {
			e.Fatalf("ann sees %d of its own %d sessions", seen, len(own))
		}
	}
	page, err := e.Service.ListClients(e.ctx, e.root(), 0, meta.ClientPageMax)
	if err != nil || len(page) < 9 {
		e.Fatalf("%v: %+v", err, page)
	}
}
