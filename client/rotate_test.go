package client

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// rotating is a cluster whose keys are those of an authority, and follow it.
type rotating struct {
	*wired
	authority *identity.Authority
	peer      meta.Peer // the host of the I/O servers
	rounds    atomic.Int64
}

// newRotating makes one with I/O servers of a host that has proved itself, which ask for their keys
// as the product's do.
func newRotating(t *testing.T, servers uint32, ttl time.Duration) *rotating {
	ctx, cancel := context.WithCancel(context.Background())
	dir := filepath.Join(t.TempDir(), "keys")
	a, err := identity.CreateAuthority(dir, identity.NewClusterID(), time.Now())
	must(t, err)
	mine, err := identity.OpenAuthority(dir)
	must(t, err)
	secrets, err := join.NewSecrets(join.SecretsOptions{Authority: a, TTL: ttl,
		Margin: 200 * time.Millisecond, Refresh: 20 * time.Millisecond})
	must(t, err)
	r := &rotating{authority: mine, peer: meta.Peer{Kind: identity.Host, Name: "h1"},
		wired: newWiredWith(t, servers, false, store.Options{Key: secrets.Keys(), CapTTL: ttl,
			Host: func() string { return "h1" }})}
	_, err = r.meta.EnlistMember(ctx, meta.Caller{}, meta.Member{Kind: identity.Host, Name: "h1",
		Roles: identity.RoleIod, Certificates: []meta.Certificate{{Serial: identity.Serial{1},
			NotAfter: time.Now().Add(time.Hour).UnixNano()}}})
	must(t, err)
	_, err = join.Record(ctx, r.meta, meta.Caller{}, a)
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { secrets.Run(ctx, r.meta) })
	for id := uint32(1); id <= servers; id++ {
		wg.Go(func() { r.beat(ctx, id) })
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

// beat is the part of an I/O server's heartbeat that asks for keys.
func (r *rotating) beat(ctx context.Context, id uint32) {
	for ctx.Err() == nil {
		told, err := r.meta.ServerKeys(ctx, meta.Caller{Peer: r.peer}, id, r.own[id].Ring().Newest())
		if err != nil && ctx.Err() == nil {
			r.t.Errorf("server %d: %v", id, err)
			return
		}
		if err == nil {
			r.own[id].Set(told)
			r.rounds.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// await waits until the secret has a generation and the one before is retired.
func (r *rotating) await(generation uint64) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		_, err := r.authority.Reload()
		must(r.t, err)
		s := r.authority.Secrets()
		if len(s) == 1 && s[0].Generation == generation {
			for _, own := range r.own {
				if ring := own.Ring(); len(ring) != 1 || ring[0].Gen != meta.SecretGen(generation) {
					s = nil
				}
			}
			if s != nil {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("generation %d never is the only one: %+v", generation, r.authority.Secrets())
}

// TestSecretRotatesUnderLoad: the cluster's secret changes three times, by itself to the end each
// time, and programs that write, sync, read, truncate and remove notice nothing.
func TestSecretRotatesUnderLoad(t *testing.T) {
	r := newRotating(t, 2, 1500*time.Millisecond)
	fs := r.dial("")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	var done atomic.Int64
	for i := range 3 {
		f, err := fs.Create(ctx, fmt.Sprint("/f", i))
		must(t, err)
		wg.Go(func() {
			for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
				if err := rotateWork(fs, f, i, n); err != nil {
					t.Errorf("file %d, round %d: %v", i, n, err)
				}
				done.Add(1)
			}
			if err := f.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	for generation := uint64(2); generation <= 4; generation++ {
		before := done.Load()
		must(t, r.authority.Rotate(identity.SecretKey, time.Now()))
		r.await(generation)
		for done.Load() < before+6 && !t.Failed() { // everybody has worked under the new key
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	wg.Wait()
	all, err := r.meta.Servers(context.Background())
	must(t, err)
	for _, s := range all {
		if s.Keys != meta.SecretGen(4) || s.Host != "h1" {
			t.Errorf("server %d of %q knows key %d", s.ID, s.Host, s.Keys)
		}
	}
}

// rotateWork does some of everything that needs a capability.
func rotateWork(fs *FS, f *File, i, n int) error {
	ctx := context.Background()
	data := bytes.Repeat([]byte{byte(i), byte(n)}, 150<<10)
	if _, err := f.WriteAt(ctx, data, 0); err != nil {
		return err
	}
	if err := f.Sync(ctx); err != nil {
		return err
	}
	got := make([]byte, len(data))
	if _, err := f.ReadAt(ctx, got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errs.Newf(errs.Corrupt, "read", "", "other bytes")
	}
	name := fmt.Sprint("/t", i)
	g, err := fs.Create(ctx, name)
	if err != nil {
		return err
	}
	if _, err := g.WriteAt(ctx, data, 0); err != nil {
		return err
	}
	if err := g.Truncate(ctx, 1000); err != nil {
		return err
	}
	if err := g.Close(ctx); err != nil {
		return err
	}
	return fs.Remove(ctx, name)
}

// TestRemovedHostRotates: with a host go the keys that it knew, by themselves; and a host that
// claims another's server gets nothing.
func TestRemovedHostRotates(t *testing.T) {
	r := newRotating(t, 2, 500*time.Millisecond)
	ctx := context.Background()
	_, err := r.meta.EnlistMember(ctx, meta.Caller{}, meta.Member{Kind: identity.Host, Name: "h2",
		Roles: identity.RoleIod, Certificates: []meta.Certificate{{Serial: identity.Serial{9},
			NotAfter: time.Now().Add(time.Hour).UnixNano()}}})
	must(t, err)
	h2 := meta.Caller{Peer: meta.Peer{Kind: identity.Host, Name: "h2"}}
	_, err = r.meta.ServerKeys(ctx, h2, 1, 0)
	if errs.KindOf(err) != errs.Perm {
		t.Fatalf("the keys of another host's server: %v", err)
	}
	ids, err := r.meta.ReserveServers(ctx, h2, "", 1)
	must(t, err)
	knows, err := r.meta.ServerKeys(ctx, h2, ids[0], 0)
	must(t, err)
	must(t, r.meta.RemoveMember(ctx, meta.Caller{}, identity.Host, "h2"))
	s := meta.Server{ID: ids[0], Addr: "a:1", StoreID: 77}
	err = r.meta.Join(meta.WithPeer(ctx, h2.Peer), s, meta.SignJoin(knows[0].Key, &s))
	if errs.KindOf(err) != errs.Perm {
		t.Fatalf("a removed host joins: %v", err)
	}
	r.await(2)
	err = r.meta.Join(ctx, s, meta.SignJoin(knows[0].Key, &s))
	if errs.KindOf(err) != errs.Forged {
		t.Fatalf("a key that the removed host knew: %v", err)
	}
	if st, err := r.meta.Status(); err != nil || st.Refused < 3 {
		t.Fatalf("%v: %d refusals are counted", err, st.Refused)
	}
}
