package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

var inProj = identity.Rights{Path: "/proj", Squash: identity.SquashNone}

// want asks as ana and demands a kind of answer.
func (r *rights) want(kind errs.Kind, op meta.Op, a meta.Args) meta.Result {
	r.Helper()
	if a.Caller.Session == 0 {
		a.Caller.Session = r.session
	}
	out, err := r.ask(ana, op, a)
	if errs.KindOf(err) != kind {
		r.Fatalf("%v: %v, want %v", op, err, kind)
	}
	return out
}

func (r *rights) refusals(reason string) uint64 {
	for _, c := range r.server.Refused() {
		if c.Reason == reason {
			return c.N
		}
	}
	r.Fatalf("no reason %q", reason)
	return 0
}

// TestSubtreeIsTheRoot: a client sees the directory that its rights name as its root, which is its
// own parent, in every answer.
func TestSubtreeIsTheRoot(t *testing.T) {
	r := newRights(t, inProj)
	top, err := r.store.GetAttr(t.Context(), admin, r.top)
	r.must(err)
	root := func(a *meta.Attr) {
		t.Helper()
		if a.Ino != meta.RootIno || a.Parent != meta.RootIno || a.Btime != top.Btime {
			t.Fatalf("the root is inode %d in %d, made at %v", a.Ino, a.Parent, a.Btime)
		}
	}
	got := r.want(errs.OK, meta.OpGetAttr, meta.Args{Ino: meta.RootIno})
	root(&got.Attr)
	for _, name := range []string{".", ".."} {
		got = r.want(errs.OK, meta.OpLookup, meta.Args{Dir: meta.RootIno, Name: name})
		root(&got.Attr)
		got = r.want(errs.OK, meta.OpFind, meta.Args{Dir: meta.RootIno, Name: name})
		root(&got.Found.Dir)
		root(&got.Found.Attr)
	}
	got = r.want(errs.OK, meta.OpLookup, meta.Args{Dir: r.inDir, Name: ".."})
	root(&got.Attr)
	got = r.want(errs.OK, meta.OpScan, meta.Args{Dir: meta.RootIno,
		Scan: meta.Scan{Max: 10, Attrs: true}})
	root(&got.Scanned.Dir)
	for _, e := range got.Scanned.Entries {
		if e.Ino == r.inDir && e.Attr.Parent != meta.RootIno {
			t.Fatalf("%s is in %d", e.Name, e.Attr.Parent)
		}
	}
	got = r.want(errs.OK, meta.OpMake, meta.Args{Dir: meta.RootIno, Name: "new",
		File: meta.NewFile{Type: meta.Directory, Mode: 0o755}})
	if got.Attr.Parent != meta.RootIno {
		t.Fatalf("what was made is in %d", got.Attr.Parent)
	}
	if _, err := r.store.Resolve("/proj/new"); err != nil {
		t.Fatal(err)
	}
	a := meta.Args{Lock: meta.Lock{Ino: meta.RootIno, Kind: meta.LockFlock, Type: meta.LockShared,
		End: meta.LockEndMax}, Mode: meta.LockTry}
	r.want(errs.OK, meta.OpLock, a)
	got = r.want(errs.OK, meta.OpHeldLocks, meta.Args{})
	if len(got.Locks) != 1 || got.Locks[0].Ino != meta.RootIno {
		t.Fatalf("%+v", got.Locks)
	}
	r.want(errs.OK, meta.OpUnlock, a)
	if got = r.want(errs.OK, meta.OpHeldLocks, meta.Args{}); len(got.Locks) != 0 {
		t.Fatalf("%+v", got.Locks)
	}
}

// TestPathIsFollowed: the path of a client's rights is a name. Where nothing is yet it is told so;
// when it becomes another directory that one counts.
func TestPathIsFollowed(t *testing.T) {
	r := newRights(t, inProj)
	ctx := t.Context()
	at := func(kind errs.Kind, name string) {
		t.Helper()
		r.want(kind, meta.OpLookup, meta.Args{Dir: meta.RootIno, Name: name})
	}
	at(errs.OK, "in")
	_, err := r.store.Rename(ctx, admin, meta.RootIno, "proj", meta.RootIno, "old", 0)
	r.must(err)
	out, err := r.ask(ana, meta.OpNewSession, meta.Args{Client: "x"})
	if errs.KindOf(err) != errs.NotFound || !strings.Contains(err.Error(), "/proj, which client ana "+
		"may see, is not there (yet)") {
		t.Fatalf("%v, %v", out.Session, err)
	}
	at(errs.NotFound, "in")
	r.want(errs.OK, meta.OpStatFS, meta.Args{Ino: meta.RootIno})
	r.want(errs.OK, meta.OpKeepAlive, meta.Args{Session: r.session})
	r.make(meta.RootIno, "proj", meta.Regular)
	at(errs.NotDir, "in")
	_, err = r.store.Remove(ctx, admin, meta.RootIno, "proj", false)
	r.must(err)
	r.make(r.make(meta.RootIno, "proj", meta.Directory), "fresh", meta.Regular)
	at(errs.OK, "fresh")
	r.want(errs.NotFound, meta.OpGetAttr, meta.Args{Ino: r.in})
	if r.refusals("path") == 0 || r.refusals("outside") == 0 {
		t.Fatalf("%+v", r.server.Refused())
	}
}

// TestRightsChange: what the registry says counts at once, and who is no member any more is served
// no more.
func TestRightsChange(t *testing.T) {
	r := newRights(t, inProj)
	set := meta.Args{Ino: r.in, Mask: meta.SetMode, Attr: meta.Attr{Mode: 0o644}}
	r.want(errs.OK, meta.OpSetAttr, set)
	open := meta.Args{Ino: r.in, Open: meta.OpenRead | meta.OpenWrite}
	h := r.want(errs.OK, meta.OpOpen, open).Handle
	ro := inProj
	ro.ReadOnly = true
	r.enlist("ana", ro)
	r.want(errs.ReadOnly, meta.OpSetAttr, set)
	renewed := r.want(errs.OK, meta.OpRenew, meta.Args{Handles: []uint64{h.ID}}).Handles[0]
	key := capability.Key{7}
	for i, raw := range renewed.Caps {
		server := renewed.Attr.Layout.Servers[i]
		c, err := key.ServerKey(server).Verify(raw[:])
		if err != nil || c.Rights&capability.Write != 0 || c.Rights&capability.Read == 0 {
			t.Fatalf("server %d: %+v, %v", server, c, err)
		}
	}
	closing := meta.Closing{Handle: h.ID, Dirty: true, Change: meta.Change{Size: 9}}
	r.want(errs.ReadOnly, meta.OpClose, meta.Args{Closing: closing})
	if a, err := r.store.GetAttr(t.Context(), admin, r.in); err != nil || a.Size != 0 || a.Writers {
		t.Fatalf("%+v, %v", a, err)
	}
	r.must(r.store.RemoveMember(t.Context(), admin, identity.Client, "ana"))
	r.want(errs.Perm, meta.OpGetAttr, meta.Args{Ino: r.in})
	r.want(errs.Perm, meta.OpKeepAlive, meta.Args{Session: r.session})
	if r.refusals("member") != 2 {
		t.Fatalf("%+v", r.server.Refused())
	}
	if n := strings.Count(r.log.String(), "refused a request of a client"); n != 1 {
		t.Fatalf("%d lines about one client in a minute:\n%s", n, r.log)
	}
}

// TestReadOnlyReads: who changes nothing reads everything, and times of access are not kept.
func TestReadOnlyReads(t *testing.T) {
	ro := inProj
	ro.ReadOnly = true
	r := newRights(t, ro)
	before, err := r.store.GetAttr(t.Context(), admin, r.in)
	r.must(err)
	h := r.want(errs.OK, meta.OpOpen, meta.Args{Ino: r.in, Open: meta.OpenRead}).Handle
	r.want(errs.OK, meta.OpAccessed, meta.Args{Accesses: []meta.Access{{Ino: r.in, Was: before.Atime,
		At: meta.Time{Sec: 1 << 40}}}})
	r.want(errs.OK, meta.OpCloseMany, meta.Args{Closings: []meta.Closing{{Handle: h.ID}}})
	r.want(errs.OK, meta.OpReadDir, meta.Args{Dir: meta.RootIno, Max: 10})
	claim := meta.Args{Session: r.session, Life: 1, Claims: []meta.Claimed{
		{Handle: 7, Ino: r.in, Flags: meta.OpenRead | meta.OpenWrite, Write: true},
		{Handle: 8, Ino: r.in, Flags: meta.OpenWrite}}}
	claimed := r.want(errs.OK, meta.OpClaim, claim).Claims
	if claimed[0].Gone || claimed[0].Lease != meta.LeaseNone || !claimed[1].Gone {
		t.Fatalf("%+v", claimed)
	}
	after, err := r.store.GetAttr(t.Context(), admin, r.in)
	if err != nil || after.Atime != before.Atime || after.Writers {
		t.Fatalf("%v, %v, %v", before.Atime, after.Atime, err)
	}
	if s, err := r.ask(ana, meta.OpNewSession, meta.Args{Client: "x"}); err != nil ||
		!s.Session.ReadOnly || s.Session.Squashed {
		t.Fatalf("%+v, %v", s.Session, err)
	}
}

// TestSquash: whom a client may not speak for, it does not.
func TestSquash(t *testing.T) {
	r := newRights(t, identity.Rights{Path: "/proj", Squash: identity.SquashRoot})
	made := func(as meta.Cred, name string) (uid, gid uint32) {
		t.Helper()
		f := meta.NewFile{Type: meta.Regular, Mode: 0o600, Checked: true}
		got := r.want(errs.OK, meta.OpMake, meta.Args{Dir: r.inDir, Name: name, File: f,
			Caller: meta.Caller{Cred: as}})
		return got.Attr.UID, got.Attr.GID
	}
	if uid, gid := made(meta.Cred{}, "a"); uid != identity.Nobody || gid != identity.Nobody {
		t.Fatalf("root is %d:%d", uid, gid)
	}
	if uid, gid := made(meta.Cred{UID: 1000, GID: 100}, "b"); uid != 1000 || gid != 100 {
		t.Fatalf("a user is %d:%d", uid, gid)
	}
	if uid, gid := made(meta.Cred{UID: 1000, Groups: []uint32{0}}, "c"); uid != 1000 ||
		gid != identity.Nobody {
		t.Fatalf("a user of root's group is %d:%d", uid, gid)
	}
	// What the client's kernel says it has checked is not believed.
	dir := r.make(r.top, "roots", meta.Directory)
	_, err := r.store.SetAttr(t.Context(), admin, dir, meta.SetMode, meta.Attr{Mode: 0o755})
	r.must(err)
	for _, op := range []meta.Op{meta.OpMake, meta.OpCreate} {
		r.want(errs.Access, op, meta.Args{Dir: dir, Name: "x", Open: meta.OpenWrite,
			File: meta.NewFile{Type: meta.Regular, Checked: true}})
	}
	// Nor is a claim: it opens nothing that no open would.
	_, err = r.store.SetAttr(t.Context(), admin, r.in, meta.SetMode, meta.Attr{Mode: 0o600})
	r.must(err)
	info := r.want(errs.OK, meta.OpNewSession, meta.Args{Client: "x"}).Session
	claim := meta.Args{Session: info.ID, Life: info.Life, Last: true, Claims: []meta.Claimed{
		{Handle: 7, Ino: r.in, Flags: meta.OpenRead}, {Handle: 8, Ino: r.out, Flags: meta.OpenRead}}}
	for i, c := range r.want(errs.OK, meta.OpClaim, claim).Claims {
		if !c.Gone {
			t.Errorf("claim %d was granted", i)
		}
	}
	r.enlist("ana", identity.Rights{Path: "/proj", Squash: identity.SquashAll})
	if uid, gid := made(meta.Cred{UID: 1000, GID: 100}, "d"); uid != identity.Nobody ||
		gid != identity.Nobody {
		t.Fatalf("a user is %d:%d where all are nobody", uid, gid)
	}
}

// TestRootOfOpenFiles: what the library does as root to a file that a user has open is done as that
// user, where root is not believed.
func TestRootOfOpenFiles(t *testing.T) {
	r := newRights(t, identity.Rights{Path: "/proj", Squash: identity.SquashRoot})
	bob := meta.Caller{Cred: meta.Cred{UID: 1000, GID: 100}}
	h := r.want(errs.OK, meta.OpCreate, meta.Args{Caller: bob, Dir: r.inDir, Name: "f",
		File: meta.NewFile{Mode: 0o400}, Open: meta.OpenWrite}).Handle
	cut := meta.Args{Ino: h.Attr.Ino, Mask: meta.SetSize, Attr: meta.Attr{Size: 5}}
	r.want(errs.OK, meta.OpSetAttr, cut)
	r.want(errs.OK, meta.OpOpen, meta.Args{Ino: h.Attr.Ino, Open: meta.OpenRead})
	r.must(r.store.EndSession(t.Context(), r.session))
	r.session = r.begin(ana, "three")
	r.want(errs.Access, meta.OpSetAttr, cut)
}

// TestVolumes: a client uses volumes that its rights name, whoever owns them, and no others.
func TestVolumes(t *testing.T) {
	r := newRights(t, identity.Rights{Path: "/none", Volumes: []string{"mine", "b", "a"}})
	a := meta.Args{Name: "mine", Open: meta.OpenRead | meta.OpenWrite}
	h := r.want(errs.OK, meta.OpOpenVolume, a).Handle
	r.want(errs.OK, meta.OpGetAttr, meta.Args{Ino: r.volume})
	r.want(errs.OK, meta.OpRenew, meta.Args{Handles: []uint64{h.ID}})
	r.want(errs.OK, meta.OpClose, meta.Args{Closing: meta.Closing{Handle: h.ID}})
	r.want(errs.OK, meta.OpOpen, meta.Args{Ino: r.volume, Open: meta.OpenRead})
	theirs, err := r.store.ListVolumes(t.Context(), admin, "theirs", 1)
	r.must(err)
	r.want(errs.NotFound, meta.OpOpen, meta.Args{Ino: theirs[0].Ino, Open: meta.OpenRead})
	r.want(errs.Perm, meta.OpOpenVolume, meta.Args{Name: "theirs", Open: meta.OpenRead})
	r.want(errs.OK, meta.OpCreateVolume, meta.Args{Name: "b", Size: 1 << 20})
	r.want(errs.Perm, meta.OpCreateVolume, meta.Args{Name: "c", Size: 1 << 20})
	names := func(from string, max uint32) string {
		var list []string
		for _, v := range r.want(errs.OK, meta.OpListVolumes, meta.Args{Name: from, Max: max}).Volumes {
			list = append(list, v.Name)
		}
		return strings.Join(list, " ")
	}
	for _, c := range []struct {
		from string
		max  uint32
		want string
	}{{"", 10, "b mine"}, {"", 1, "b"}, {meta.NextVolume("b"), 10, "mine"}, {"n", 10, ""}} {
		if got := names(c.from, c.max); got != c.want {
			t.Errorf("from %q: %q, want %q", c.from, got, c.want)
		}
	}
	r.want(errs.OK, meta.OpResizeVolume, meta.Args{Name: "b", Size: 2 << 20})
	r.want(errs.Perm, meta.OpResizeVolume, meta.Args{Name: "theirs", Size: 1 << 30})
	r.want(errs.OK, meta.OpHandOver, meta.Args{Name: "b", Force: true})
	r.want(errs.Perm, meta.OpHandOver, meta.Args{Name: "theirs", Force: true})
	r.want(errs.OK, meta.OpAwaitVolume, meta.Args{Name: "b"})
	r.want(errs.Perm, meta.OpAwaitVolume, meta.Args{Name: "theirs"})
	r.want(errs.OK, meta.OpRemoveVolume, meta.Args{Name: "b"})
	r.enlist("ana", identity.Rights{Path: "/none", Volumes: []string{identity.AllVolumes}})
	if got := names("", 10); got != "mine theirs" {
		t.Errorf("all of them: %q", got)
	}
	r.enlist("ana", identity.Rights{Path: "/proj"})
	if got := names("", 10); got != "" {
		t.Errorf("none are named: %q", got)
	}
	r.want(errs.NotFound, meta.OpGetAttr, meta.Args{Ino: theirs[0].Ino})
}

// TestMovedAway: what a client has open stays its own when it is moved elsewhere or removed; what
// it has not is gone.
func TestMovedAway(t *testing.T) {
	r := newRights(t, inProj)
	ctx := t.Context()
	second := r.make(r.top, "second", meta.Regular)
	r.want(errs.OK, meta.OpOpen, meta.Args{Ino: r.in, Open: meta.OpenRead | meta.OpenWrite})
	for _, name := range []string{"in", "second"} {
		_, err := r.store.Rename(ctx, admin, r.top, name, r.other, name, 0)
		r.must(err)
	}
	r.want(errs.OK, meta.OpGetAttr, meta.Args{Ino: r.in})
	r.want(errs.NotFound, meta.OpGetAttr, meta.Args{Ino: second})
	_, err := r.store.Remove(ctx, admin, r.other, "in", false)
	r.must(err)
	r.want(errs.OK, meta.OpGetAttr, meta.Args{Ino: r.in})
	// A directory takes all that is below it along, back and forth.
	deep := r.make(r.make(r.inDir, "e", meta.Directory), "f", meta.Regular)
	r.want(errs.OK, meta.OpGetAttr, meta.Args{Ino: deep})
	_, err = r.store.Rename(ctx, admin, r.top, "d", r.outDir, "d", 0)
	r.must(err)
	r.want(errs.NotFound, meta.OpGetAttr, meta.Args{Ino: deep})
	r.want(errs.NotFound, meta.OpReadDir, meta.Args{Dir: r.inDir, Max: 10})
	_, err = r.store.Rename(ctx, admin, r.outDir, "d", r.top, "d", 0)
	r.must(err)
	r.want(errs.OK, meta.OpGetAttr, meta.Args{Ino: deep})
	r.must(r.store.RemoveTree(ctx, admin, r.top, "d"))
	r.want(errs.NotFound, meta.OpReadDir, meta.Args{Dir: r.inDir, Max: 10})
}

// TestLinksAcrossTheBorder: a file is inside as long as one of its names is, also where it has too
// many of them to be noted.
func TestLinksAcrossTheBorder(t *testing.T) {
	r := newRights(t, inProj)
	ctx := t.Context()
	link := func(dir meta.Ino, name string) {
		t.Helper()
		_, err := r.store.Link(ctx, admin, r.out, dir, name)
		r.must(err)
	}
	get := meta.Args{Ino: r.out}
	r.want(errs.NotFound, meta.OpGetAttr, get)
	link(r.inDir, "link")
	r.want(errs.OK, meta.OpGetAttr, get)
	_, err := r.store.Remove(ctx, admin, r.inDir, "link", false)
	r.must(err)
	r.want(errs.NotFound, meta.OpGetAttr, get)
	for i := range meta.HomesMax {
		link(r.make(r.other, fmt.Sprint("more", i), meta.Directory), "link")
	}
	link(r.inDir, "link")
	r.want(errs.NotFound, meta.OpGetAttr, get) // one name more than is noted
	r.want(errs.OK, meta.OpLookup, meta.Args{Dir: r.inDir, Name: "link"})
	r.want(errs.OK, meta.OpGetAttr, get)
	err = r.store.Verify(ctx, func(problem string) { t.Error(problem) })
	r.must(err)
}

// TestClaimsOfRights: after a restart of the service a client claims what it had open inside, also
// what has no name any more.
func TestClaimsOfRights(t *testing.T) {
	r := newRights(t, identity.Rights{Path: "/proj", Squash: identity.SquashRoot})
	bob := meta.Caller{Cred: meta.Cred{UID: 1000, GID: 100}}
	h := r.want(errs.OK, meta.OpCreate, meta.Args{Caller: bob, Dir: r.inDir, Name: "f",
		File: meta.NewFile{Mode: 0o400}, Open: meta.OpenWrite | meta.OpenRead}).Handle
	_, err := r.store.Remove(t.Context(), admin, r.inDir, "f", false)
	r.must(err)
	r.store.Stop()
	r.engine, err = r.engine.Reopen()
	r.must(err)
	r.store, err = store.New(t.Context(), r.engine, store.Options{Objects: metatest.NewObjects(),
		Key: capability.Key{7}, HeartbeatMax: time.Hour})
	r.must(err)
	r.server, err = New(r.store, r.server.opt)
	r.must(err)
	life := r.want(errs.OK, meta.OpNewSession, meta.Args{Client: "life"}).Session.Life
	claims := []meta.Claimed{{Handle: h.ID, Ino: h.Attr.Ino, Flags: meta.OpenRead | meta.OpenWrite,
		UID: 1000}, {Handle: 99, Ino: r.out, Flags: meta.OpenRead, UID: 1000}}
	got := r.want(errs.OK, meta.OpClaim, meta.Args{Session: r.session, Life: life, Claims: claims,
		Last: true}).Claims
	if len(got) != 2 || got[0].Gone || !got[1].Gone {
		t.Fatalf("%+v", got)
	}
	r.want(errs.OK, meta.OpGetAttr, meta.Args{Ino: h.Attr.Ino})
	r.want(errs.Stale, meta.OpClaim, meta.Args{Session: r.foreign, Life: life})
}

// TestSessionsOfRights: clients end their own sessions only, whatever names they give.
func TestSessionsOfRights(t *testing.T) {
	r := newRights(t, inProj)
	r.enlist("bo", inProj)
	bo := meta.Peer{Kind: identity.Client, Name: "bo"}
	own := r.begin(bo, "one")
	for _, name := range []string{"one", "client/ana/one", "two"} {
		_, _ = r.ask(bo, meta.OpEndClient, meta.Args{Client: name})
	}
	for _, session := range []uint64{r.session, r.foreign} {
		r.must(r.store.KeepAlive(t.Context(), session))
	}
	_, err := r.ask(bo, meta.OpSucceed, meta.Args{Caller: meta.Caller{Session: own},
		Session: r.session, Last: true})
	if errs.KindOf(err) != errs.Perm {
		t.Fatal(err)
	}
	if _, err = r.ask(bo, meta.OpEndSession, meta.Args{Session: own}); err != nil {
		t.Fatal(err)
	}
}

// TestClusterOfRights: what is told of the cluster as a whole says nothing of other trees.
func TestClusterOfRights(t *testing.T) {
	r := newRights(t, inProj)
	for _, s := range r.want(errs.OK, meta.OpServers, meta.Args{}).Servers {
		if s.MaxFile != 0 || s.Addr == "" {
			t.Fatalf("%+v", s)
		}
	}
	if fs := r.want(errs.OK, meta.OpStatFS, meta.Args{Ino: r.out}).FS; fs.Total != 3000 {
		t.Fatalf("%+v", fs)
	}
	h1 := meta.Peer{Kind: identity.Host, Name: "h1"}
	r.enlist("bo", inProj)
	r.begin(meta.Peer{Kind: identity.Client, Name: "bo"}, "secret plans")
	_, err := r.ask(h1, meta.OpBeat, meta.Args{Host: meta.Host{Name: "h1", Incarnation: 3, Start: 77,
		Version: "v7"}})
	r.must(err)
	hosts := r.want(errs.OK, meta.OpHosts, meta.Args{}).Hosts
	if len(hosts) != 1 || hosts[0].Name != "h1" || hosts[0].Version != "v7" || hosts[0].Start != 0 {
		t.Fatalf("%+v", hosts)
	}
	clients := r.want(errs.OK, meta.OpListClients, meta.Args{Max: meta.ClientPageMax}).Clients
	if len(clients) != 1 || clients[0].Session != r.session || clients[0].Peer != ana {
		t.Fatalf("a client is told of others: %+v", clients)
	}
	if all, err := r.ask(h1, meta.OpListClients, meta.Args{Max: meta.ClientPageMax}); err != nil ||
		len(all.Clients) != 3 {
		t.Fatalf("%v: %+v", err, all.Clients)
	}
	_, err = r.store.SetQuota(t.Context(), admin, r.inDir, meta.Usage{Inodes: 9})
	r.must(err)
	q := r.want(errs.OK, meta.OpGetQuota, meta.Args{Ino: r.inDir}).Quota
	if q.Path != "/d" || q.Dir != r.inDir {
		t.Fatalf("%+v", q)
	}
	r.must(r.store.RemoveQuota(t.Context(), admin, r.inDir))
	_, err = r.store.SetQuota(t.Context(), admin, meta.RootIno, meta.Usage{Inodes: 99})
	r.must(err)
	got, err := r.ask(ana, meta.OpGetQuota, meta.Args{Ino: r.inDir})
	if err == nil && (got.Quota.Path != "" || got.Quota.Dir != meta.RootIno) {
		t.Fatalf("%+v", got.Quota)
	}
}

// TestHostsAreFree: nothing is kept from hosts and from the service's own.
func TestHostsAreFree(t *testing.T) {
	r := newRights(t, inProj)
	for _, p := range []meta.Peer{{}, {Kind: identity.Host, Name: "h1"}} {
		for _, ino := range []meta.Ino{meta.RootIno, r.out, r.in} {
			if got, err := r.ask(p, meta.OpGetAttr, meta.Args{Ino: ino}); err != nil || got.Attr.Ino != ino {
				t.Fatalf("%v: inode %d: %+v, %v", p, ino, got.Attr, err)
			}
		}
	}
	a := meta.Args{Ino: r.in, Caller: meta.Caller{Session: r.foreign}}
	task, ctx := &task{args: a}, t.Context()
	allocs := testing.AllocsPerRun(100, func() {
		_ = r.server.guarded(ctx, meta.OpTime, &task.args, 1<<20, &task.result)
	})
	if allocs != 0 {
		t.Errorf("%v allocations for who has no limits", allocs)
	}
}
