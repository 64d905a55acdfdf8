package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// keyedCluster is a folder, and a metadata service whose keys a test changes.
func keyedCluster(t *testing.T) (*cluster, *store.Store, *capability.Keyring) {
	t.Helper()
	c, err := createCluster(filepath.Join(t.TempDir(), "c"), clusterConfig{Iods: 2, Host: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	ring := c.key.Keyring()
	db := memkv.New(memkv.Options{})
	names, err := store.New(t.Context(), db, store.Options{Objects: metatest.NewObjects(), Key: ring})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Stop(); _ = db.Close() })
	return c, names, ring
}

// TestServerKeysAreKept: without an authority the keys are those of cluster.key and no file is
// made; with one they are what was told last, also at a start without the metadata service.
func TestServerKeysAreKept(t *testing.T) {
	c, names, ring := keyedCluster(t)
	log := slog.New(slog.DiscardHandler)
	open := func(want ...uint32) *serverKeys {
		t.Helper()
		k, err := c.serverKeys(1, log)
		if err != nil {
			t.Fatal(err)
		}
		if got := k.ring.Ring().Gens(); !slices.Equal(got, want) {
			t.Fatalf("begins with %v, want %v", got, want)
		}
		return k
	}
	ask := func(k *serverKeys, want ...uint32) {
		t.Helper()
		if err := k.ask(t.Context(), names); err != nil {
			t.Fatal(err)
		}
		if got := k.ring.Ring(); !slices.Equal(got.Gens(), want) ||
			!slices.Equal(got, ring.Ring().For(1)) {
			t.Fatalf("%v, want %v", got.Gens(), want)
		}
	}
	k := open(1)
	ask(k, 1)
	if _, err := os.Stat(c.serverKeysFile(1)); !os.IsNotExist(err) {
		t.Fatalf("a file without need: %v", err)
	}
	s := meta.Server{ID: 1, Addr: "a:1", StoreID: 1, Host: c.hostName()}
	mac, err := k.sign(&s)
	if err != nil || names.Join(t.Context(), s, mac) != nil {
		t.Fatal(err)
	}
	ring.Set(capability.Ring{{Gen: 2, Key: capability.Key{2}}, {Gen: 3, Key: capability.Key{3}}})
	ask(k, 2, 3)
	if all, err := names.Servers(t.Context()); err != nil || all[0].Keys != 3 || all[0].Host != "h1" {
		t.Fatalf("%v: what the server has is not confirmed at once: %+v", err, all)
	}
	info, err := os.Stat(c.serverKeysFile(1))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v: %v", err, info.Mode())
	}
	ask(open(2, 3), 2, 3)
	ring.Set(ring.Ring()[1:])
	ask(open(2, 3), 3)
	open(3)
}

// TestServerKeysOfAnotherHost: a host without cluster.key waits for the service, and a file that is
// not its own, damaged, or open to others is refused.
func TestServerKeysOfAnotherHost(t *testing.T) {
	c, names, ring := keyedCluster(t)
	ring.Set(capability.Ring{{Gen: 5, Key: capability.Key{5}}})
	if err := os.Remove(c.keyFile()); err != nil {
		t.Fatal(err)
	}
	if _, err := openCluster(c.dir); !os.IsNotExist(err) {
		t.Fatalf("a cluster's first host without its key: %v", err)
	}
	c.cfg.Joined = true
	if err := c.saveConfig(); err != nil {
		t.Fatal(err)
	}
	c, err := openCluster(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	k, err := c.serverKeys(2, log)
	if err != nil || len(k.ring.Ring()) != 0 {
		t.Fatalf("%v: %v", err, k.ring.Ring().Gens())
	}
	if _, err := k.sign(&meta.Server{ID: 2}); errs.KindOf(err) != errs.Again {
		t.Fatalf("a proof without a key: %v", err)
	}
	if err := k.ask(t.Context(), names); err != nil || k.ring.Ring().Newest() != 5 {
		t.Fatalf("%v: %v", err, k.ring.Ring().Gens())
	}
	file := c.serverKeysFile(2)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"open to others": func() error { return os.Chmod(file, 0o640) },
		"no JSON":        func() error { return os.WriteFile(file, good[:len(good)/2], 0o600) },
		"another's":      func() error { return os.Rename(file, c.serverKeysFile(1)) },
		"no keys": func() error {
			return os.WriteFile(file, []byte(`{"format": 1, "server": 2, "keys": []}`), 0o600)
		},
		"a short key": func() error {
			return os.WriteFile(file, []byte(
				`{"format": 1, "server": 2, "keys": [{"generation": 2, "key": "AAAA"}]}`), 0o600)
		},
		"newer": func() error { return os.WriteFile(file, []byte(`{"format": 2, "server": 2}`), 0o600) },
	} {
		id := uint32(2)
		if name == "another's" {
			id = 1
		}
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		_, err := c.serverKeys(id, log)
		if kind := errs.KindOf(err); kind != errs.Perm && kind != errs.Corrupt {
			t.Errorf("%s: %v", name, err)
		}
		_ = os.Remove(c.serverKeysFile(1))
		_ = os.Remove(file)
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// forgetful is a service whose answers are lost.
type forgetful struct{ *store.Store }

func (f forgetful) ReserveServers(ctx context.Context, c meta.Caller, host string, n int) (
	[]uint32, error) {
	if _, err := f.Store.ReserveServers(ctx, c, host, n); err != nil {
		return nil, err
	}
	return nil, errs.Newf(errs.Disconnected, "test", "", "the answer is lost")
}

// TestReservedIDsAreKept: whatever is lost, a host asks for no more ids than it needs.
func TestReservedIDsAreKept(t *testing.T) {
	c, names, _ := keyedCluster(t)
	for range 3 {
		_, err := c.reserveServers(t.Context(), forgetful{names}, 2)
		if errs.KindOf(err) != errs.Disconnected {
			t.Fatal(err)
		}
	}
	for range 2 {
		ids, err := c.reserveServers(t.Context(), names, 2)
		if err != nil || !slices.Equal(ids, []uint32{1, 2}) {
			t.Fatalf("%v: %v", err, ids)
		}
	}
	ids, err := c.reserveServers(t.Context(), names, 20)
	if err != nil || len(ids) != 20 || ids[19] != 20 {
		t.Fatalf("%v: %v", err, ids)
	}
	if err := os.WriteFile(c.reservedFile(), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.reserveServers(t.Context(), names, 2); errs.KindOf(err) != errs.Corrupt {
		t.Fatal(err)
	}
}
