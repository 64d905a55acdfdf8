package guard_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// member makes a member of a cluster whose authority is at hand.
func member(t testing.TB, a *identity.Authority, kind identity.Kind, name string) *identity.Keeper {
	key, now := identity.NewKey(), time.Now()
	r := must(identity.ParseRequest(must(identity.NewRequest(key))))
	chain := must(a.Issue(r, kind, name, identity.Plan(now), now))
	c := must(identity.NewCredential(key, &identity.Grant{Cluster: a.Cluster(), Kind: kind, Name: name,
		Rights: &identity.Rights{Path: "/"}, Certificate: chain,
		Authorities: identity.RawChain(a.Roots())}))
	file := filepath.Join(t.TempDir(), name+".json")
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	return must(identity.NewKeeper(file,
		identity.KeeperOptions{Log: slog.New(slog.DiscardHandler)}))
}

// cluster is a service that is reached over TLS by a client.
type cluster struct {
	t      testing.TB
	c      metatest.Config
	what   identity.Rights
	host   *identity.Keeper
	engine *memkv.Store
	store  *store.Store
	domain fabric.Domain
	node   *msg.Node
	srv    *msg.Server
	top    meta.Ino
}

func (h *cluster) start() {
	h.store = must(store.New(context.Background(), h.engine, store.Options{Objects: h.c.Objects,
		Key: h.c.Key, Clock: h.c.Clock, Lease: h.c.Lease, CapTTL: h.c.CapTTL,
		LeaseTime: h.c.LeaseTime, Tick: h.c.Tick}))
	h.domain = must(tcp.Open(tcp.Options{Linger: 50 * time.Millisecond,
		Security: peer.Security(h.host, false)}))
	h.node = must(msg.NewNode(msg.Options{Domain: h.domain}))
	handler := must(server.New(h.store, server.Options{Node: h.node}))
	h.srv = must(h.node.Serve("127.0.0.1:0", handler, msg.ServeOptions{Quick: server.Quick}))
}

func (h *cluster) stop() {
	_ = h.node.Close()
	_ = h.domain.Close()
	h.store.Stop()
}

// enlist makes the directory that the client sees, and the client.
func (h *cluster) enlist(name string) {
	h.top = must(h.store.Make(h.t.Context(), meta.Caller{}, meta.RootIno, h.what.Path[1:],
		meta.NewFile{Type: meta.Directory, Mode: 0o755})).Ino
	must(h.store.EnlistMember(h.t.Context(), meta.Caller{}, meta.Member{Kind: identity.Client,
		Name: name, Rights: h.what, Certificates: []meta.Certificate{{Serial: identity.Serial{1},
			NotAfter: time.Now().Add(time.Hour).UnixNano()}}}))
}

// newCluster starts a service and a client with rights that is connected to it.
func newCluster(t testing.TB, c metatest.Config, what identity.Rights) (*cluster, meta.Service) {
	a := must(identity.CreateAuthority(filepath.Join(t.TempDir(), "keys"), identity.NewClusterID(),
		time.Now()))
	h := &cluster{t: t, c: c, what: what, host: member(t, a, identity.Host, "h1"),
		engine: memkv.New(memkv.Options{})}
	h.start()
	h.enlist("suite")
	domain := must(tcp.Open(tcp.Options{Linger: 50 * time.Millisecond,
		Security: peer.Security(member(t, a, identity.Client, "suite"), false)}))
	node := must(msg.NewNode(msg.Options{Domain: domain}))
	pool := peer.NewPool(node, func(context.Context, uint32) (string, error) {
		return h.srv.Addr(), nil
	})
	t.Cleanup(func() {
		_ = pool.Close()
		_ = node.Close()
		_ = domain.Close()
		h.stop()
		_ = h.engine.Close()
	})
	return h, must(remote.New(remote.Options{Pool: pool, Node: node, WaitMax: 5 * time.Second,
		Backoff: peer.Backoff{First: time.Millisecond, Max: 10 * time.Millisecond}}))
}

// both is a client of a service for all that clients may ask for, and its owner for the rest.
type both struct {
	meta.Service
	h *cluster
}

func (b both) Join(ctx context.Context, s meta.Server, mac [32]byte) error {
	return b.h.store.Join(ctx, s, mac)
}

func (b both) SetQuota(ctx context.Context, c meta.Caller, dir meta.Ino, l meta.Usage) (
	meta.Quota, error) {
	return b.h.store.SetQuota(ctx, c, b.real(dir), l)
}

func (b both) RemoveQuota(ctx context.Context, c meta.Caller, dir meta.Ino) error {
	return b.h.store.RemoveQuota(ctx, c, b.real(dir))
}

func (b both) ListQuotas(ctx context.Context, c meta.Caller, after uint64, max int) (
	[]meta.Quota, error) {
	return b.h.store.ListQuotas(ctx, c, after, max)
}

func (b both) CreatePool(ctx context.Context, c meta.Caller, name string, servers []uint32) (
	meta.Pool, error) {
	return b.h.store.CreatePool(ctx, c, name, servers)
}

func (b both) ChangePool(ctx context.Context, c meta.Caller, name string, add, drop []uint32) (
	meta.Pool, error) {
	return b.h.store.ChangePool(ctx, c, name, add, drop)
}

func (b both) RemovePool(ctx context.Context, c meta.Caller, name string) error {
	return b.h.store.RemovePool(ctx, c, name)
}

func (b both) Check(ctx context.Context, c meta.Caller, s meta.CheckStep) (meta.CheckPage, error) {
	return b.h.store.Check(ctx, c, s)
}

func (b both) Dump(ctx context.Context, c meta.Caller, view uint64, after []byte) (
	meta.DumpPage, error) {
	return b.h.store.Dump(ctx, c, view, after)
}

func (b both) real(ino meta.Ino) meta.Ino {
	if ino == meta.RootIno {
		return b.h.top
	}
	return ino
}

// TestSuite runs what defines a service for a client that sees a subtree of it as its root, over
// TLS: it cannot tell the difference.
func TestSuite(t *testing.T) {
	what := identity.Rights{Path: "/sub", Squash: identity.SquashNone,
		Volumes: []string{identity.AllVolumes}}
	open := func(t testing.TB, c metatest.Config) *metatest.Instance {
		h, service := newCluster(t, c, what)
		return &metatest.Instance{Service: both{service, h},
			Verify: func(t testing.TB) {
				if err := h.store.Verify(context.Background(), func(p string) { t.Error(p) }); err != nil {
					t.Error(err)
				}
			},
			Restart: func(testing.TB) {
				h.stop()
				h.engine = must(h.engine.Reopen())
				h.start()
			}}
	}
	except := map[string]string{
		"QuotaPages": "paths of all quotas are told to the owner, from the cluster's root",
		"Volumes":    "what the rights name is the client's, whoever owns it",
		"Clients":    "a client sees its own, whoever asks",
	}
	for _, name := range []string{"Tokens", "TokenRefusals", "TokenUses", "TokenRepeated",
		"TokenExpires", "TokenClock", "EndedMembersJoinAgain", "RaceLastUse", "Members",
		"MemberPages", "Denials", "Generations", "RegistryRights", "ReserveServers",
		"ReserveRefusals", "RaceReserve", "ServerKeys", "ServerOfAnotherHost", "FirstServers",
		"RotatedKeys", "RemovedHost", "SessionsOfMembers", "RemovedClient", "ServerRemoved",
		"Hosts", "HostRemoved", "HostSpeaksForItself", "ClientsOfMembers"} {
		except[name] = "the registry is not for clients"
	}
	metatest.RunExcept(t, open, except)
}
