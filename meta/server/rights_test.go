package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
)

// rights is a service with a client that may see /proj, and others.
type rights struct {
	testing.TB
	store  *store.Store
	engine *memkv.Store
	server *Server
	log    *bytes.Buffer
	serial byte

	top, other meta.Ino // /proj, /other
	in, out    meta.Ino // a file in each
	inDir      meta.Ino // a directory in /proj
	outDir     meta.Ino // and one in /other
	volume     meta.Ino // "mine"
	session    uint64   // of ana
	foreign    uint64   // of a host
}

var (
	ana   = meta.Peer{Kind: identity.Client, Name: "ana"}
	admin = meta.Caller{}
)

func (r *rights) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func newRights(t testing.TB, what identity.Rights) *rights {
	r := &rights{TB: t, engine: memkv.New(memkv.Options{}), log: &bytes.Buffer{}}
	key := capability.Key{7}
	var err error
	r.store, err = store.New(t.Context(), r.engine, store.Options{Objects: metatest.NewObjects(),
		Key: key, HeartbeatMax: time.Hour})
	r.must(err)
	domain := sim.New(sim.Options{}).Open()
	node, err := msg.NewNode(msg.Options{Domain: domain})
	r.must(err)
	t.Cleanup(func() {
		_ = node.Close()
		_ = domain.Close()
		r.store.Stop()
		_ = r.engine.Close()
	})
	r.server, err = New(r.store, Options{Node: node, RightsFresh: time.Nanosecond,
		Log: slog.New(slog.NewTextHandler(r.log, nil))})
	r.must(err)
	for id := range uint32(3) {
		s := meta.Server{ID: id + 1, Addr: "h:1", StoreID: 9 + uint64(id), Total: 1000, Free: 500,
			MaxFile: 7}
		r.must(r.store.Join(t.Context(), s, meta.SignJoin(key.ServerKey(s.ID), &s)))
	}
	r.fill()
	r.enlist("ana", what)
	r.session = r.begin(ana, "one")
	r.foreign = r.begin(meta.Peer{Kind: identity.Host, Name: "h1"}, "two")
	return r
}

func (r *rights) fill() {
	r.Helper()
	r.top, r.other = r.make(meta.RootIno, "proj", meta.Directory), r.make(meta.RootIno, "other",
		meta.Directory)
	r.in, r.out = r.make(r.top, "in", meta.Regular), r.make(r.other, "out", meta.Regular)
	r.inDir, r.outDir = r.make(r.top, "d", meta.Directory), r.make(r.other, "d", meta.Directory)
	for _, dir := range []meta.Ino{r.inDir, r.outDir, r.other} {
		r.make(dir, "n", meta.Regular)
	}
	for _, name := range []string{"mine", "theirs"} {
		v, err := r.store.CreateVolume(r.Context(), admin, name, 1<<20, meta.NewFile{})
		r.must(err)
		if name == "mine" {
			r.volume = v.Ino
		}
	}
}

func (r *rights) make(dir meta.Ino, name string, typ meta.Type) meta.Ino {
	r.Helper()
	a, err := r.store.Make(r.Context(), admin, dir, name, meta.NewFile{Type: typ, Mode: 0o777})
	r.must(err)
	return a.Ino
}

func (r *rights) enlist(name string, what identity.Rights) {
	r.Helper()
	r.serial++
	_, err := r.store.EnlistMember(r.Context(), admin, meta.Member{Kind: identity.Client, Name: name,
		Rights: what, Certificates: []meta.Certificate{{Serial: identity.Serial{r.serial},
			NotAfter: time.Now().Add(time.Hour).UnixNano()}}})
	r.must(err)
}

func (r *rights) begin(p meta.Peer, name string) uint64 {
	r.Helper()
	got, err := r.ask(p, meta.OpNewSession, meta.Args{Client: name})
	r.must(err)
	return got.Session.ID
}

// ask does what the server does with a request of a peer.
func (r *rights) ask(p meta.Peer, op meta.Op, a meta.Args) (meta.Result, error) {
	var out meta.Result
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	a.Caller.Peer = p
	if p.Kind == identity.Client {
		ctx = meta.WithPeer(ctx, p) // h1 has not joined
	}
	err := r.server.guarded(ctx, op, &a, 1<<20, &out)
	return out, err
}

// records is everything that is stored, but for sessions, for files that have no name any more (the
// last close ends them, whoever closes), for the queue that they end in, and for how many files
// there are, which counts these as well.
func (r *rights) records() string {
	var text strings.Builder
	snap := r.engine.Snapshot()
	defer snap.Close()
	nameless := map[string]bool{}
	r.must(snap.Scan([]byte{'U'}, []byte{'U' + 1}, func(key, _ []byte, _ kv.Version) bool {
		nameless[string(key[1:])] = true
		return true
	}))
	r.must(snap.Scan(nil, nil, func(key, value []byte, _ kv.Version) bool {
		ends := len(key) >= 9 && nameless[string(key[1:9])] || key[0] == 'Q'
		if key[0] != 'S' && string(key) != "Afiles" && !ends {
			fmt.Fprintf(&text, "%q %q\n", key, value)
		}
		return true
	}))
	return text.String()
}

var (
	changing = []meta.Op{meta.OpMake, meta.OpLink, meta.OpRemove, meta.OpRename, meta.OpSetAttr,
		meta.OpSetXattr, meta.OpRemoveXattr, meta.OpCreate, meta.OpCommit, meta.OpCreateVolume,
		meta.OpRemoveVolume, meta.OpResizeVolume, meta.OpHandOver, meta.OpAppend, meta.OpMoveOut,
		meta.OpRemoveTree, meta.OpGrow, meta.OpSetLayout}
	opening = []meta.Op{meta.OpOpen, meta.OpOpenVolume}

	ofVolumes = []meta.Op{meta.OpCreateVolume, meta.OpRemoveVolume, meta.OpOpenVolume,
		meta.OpResizeVolume, meta.OpHandOver, meta.OpAwaitVolume}
	withDir = []meta.Op{meta.OpLookup, meta.OpMake, meta.OpLink, meta.OpRemove, meta.OpRename,
		meta.OpReadDir, meta.OpCreate, meta.OpFind, meta.OpScan, meta.OpRemoveTree}
	withIno = []meta.Op{meta.OpLink, meta.OpReadLink, meta.OpGetAttr, meta.OpSetAttr,
		meta.OpGetXattr, meta.OpListXattr, meta.OpSetXattr, meta.OpRemoveXattr, meta.OpOpen,
		meta.OpReadSmall, meta.OpGrow, meta.OpGetQuota, meta.OpGetLayout, meta.OpSetLayout}
	forAdmins = []meta.Op{meta.OpJoin, meta.OpSetQuota, meta.OpListQuotas, meta.OpRemoveQuota,
		meta.OpCreatePool, meta.OpChangePool, meta.OpRemovePool, meta.OpCheck, meta.OpDump,
		meta.OpCreateToken, meta.OpListTokens, meta.OpRemoveToken, meta.OpUseToken,
		meta.OpListMembers, meta.OpGetMember, meta.OpEnlistMember, meta.OpRenewMember,
		meta.OpRemoveMember, meta.OpListDenied, meta.OpRegistry, meta.OpSetGeneration,
		meta.OpReserveServers, meta.OpServerKeys, meta.OpBeat, meta.OpRemoveServer}
)

// args are of a request that could be anything: all that it names is inside.
func (r *rights) args() meta.Args {
	a := meta.Args{Caller: meta.Caller{Session: r.session}, Ino: r.in, Dir: r.inDir, NewDir: r.inDir,
		Name: "n", NewName: "m", Client: "c", Open: meta.OpenRead, Max: 10, Size: 10, Session: r.session,
		Mask: meta.SetMode, Attr: meta.Attr{Mode: 0o600}, Handle: 1, Handles: []uint64{1},
		Change: meta.Change{Ino: r.in}, Closing: meta.Closing{Handle: 1}, Value: []byte("v"),
		File: meta.NewFile{Type: meta.Regular, Mode: 0o644},
		Lock: meta.Lock{Ino: r.in, Kind: meta.LockFlock, Type: meta.LockShared, End: meta.LockEndMax},
		Mode: meta.LockTry, Scan: meta.Scan{Max: 10}, Listen: meta.Listening{Session: r.session}}
	a.Registry = &meta.RegistryArgs{Kind: identity.Client}
	return a
}

// TestEveryOperation holds each operation against each right: what goes beyond it has no effect.
func TestEveryOperation(t *testing.T) {
	all := identity.Rights{Path: "/proj", Squash: identity.SquashNone, Volumes: []string{"mine"}}
	ro := all
	ro.ReadOnly = true
	free, bound := newRights(t, all), newRights(t, ro)
	for op := range meta.OpEnd {
		if !op.Valid() {
			continue
		}
		is := func(list []meta.Op) bool { return slices.Contains(list, op) }
		refused := func(r *rights, want errs.Kind, what string, change func(a *meta.Args)) {
			t.Helper()
			a := r.args()
			if is(ofVolumes) {
				a.Name = "mine"
			}
			change(&a)
			before := r.records()
			if _, err := r.ask(ana, op, a); errs.KindOf(err) != want {
				t.Errorf("%v %s: %v, want %v", op, what, err, want)
			}
			if r.records() != before {
				t.Errorf("%v %s: it was refused, and has changed something", op, what)
			}
		}
		if is(changing) {
			refused(bound, errs.ReadOnly, "read-only", func(*meta.Args) {})
		}
		if is(opening) {
			refused(bound, errs.ReadOnly, "read-only", func(a *meta.Args) { a.Open = meta.OpenWrite })
		}
		if is(forAdmins) {
			refused(free, errs.Perm, "by a client", func(*meta.Args) {})
			continue
		}
		if is(withDir) {
			refused(free, errs.NotFound, "elsewhere", func(a *meta.Args) { a.Dir = free.outDir })
			refused(free, errs.NotFound, "elsewhere", func(a *meta.Args) { a.Dir = free.other })
		}
		if is(withIno) {
			refused(free, errs.NotFound, "elsewhere", func(a *meta.Args) { a.Ino = free.out })
			refused(free, errs.NotFound, "elsewhere", func(a *meta.Args) { a.Ino = free.outDir })
		}
		if op == meta.OpRename {
			refused(free, errs.NotFound, "elsewhere", func(a *meta.Args) { a.NewDir = free.outDir })
		}
		if is([]meta.Op{meta.OpLock, meta.OpTestLock}) {
			refused(free, errs.NotFound, "elsewhere", func(a *meta.Args) { a.Lock.Ino = free.out })
		}
		if is([]meta.Op{meta.OpCommit, meta.OpMoveOut}) {
			refused(free, errs.NotFound, "elsewhere", func(a *meta.Args) { a.Change.Ino = free.out })
		}
		if is(ofVolumes) {
			refused(free, errs.Perm, "of another volume", func(a *meta.Args) { a.Name = "theirs" })
		}
		if is([]meta.Op{meta.OpKeepAlive, meta.OpEndSession, meta.OpClaim}) {
			refused(free, errs.Stale, "of another session", func(a *meta.Args) { a.Session = free.foreign })
		}
		if op == meta.OpListen {
			refused(free, errs.Stale, "of another session",
				func(a *meta.Args) { a.Listen.Session = free.foreign })
		} else {
			refused(free, errs.Stale, "of another session",
				func(a *meta.Args) { a.Caller.Session = free.foreign })
		}
	}
}
