// Package clustertest runs a cluster inside of a test or an example: the real services on the real
// transport, with stores in memory. It is for tests of what stands on package client; programs that
// are run by people start one with `sluice up`.
package clustertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod/objects"
	iodremote "github.com/sluice-storage/sluice/iod/remote"
	iodserver "github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	metaserver "github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
)

// Start runs a metadata service and I/O servers that keep everything in memory, as they are in
// processes of their own: behind a secret, reachable by every provider that this host has. It
// returns what client.Open takes. stop ends them; it can be called in any case.
func Start(servers uint32) (url string, stop func(), err error) {
	url, _, stop, err = start(servers, func(dir string) (peer.Options, error) {
		secret := filepath.Join(dir, tcp.SecretName)
		err := os.WriteFile(secret, []byte(strings.Repeat("c0", 32)), 0o600)
		return peer.Options{Secret: &tcp.Secret{File: secret}}, err
	})
	return url, stop, err
}

// start is Start for who says how peers prove who they are.
func start(servers uint32, how func(dir string) (peer.Options, error)) (url string,
	names *store.Store, stop func(), err error) {
	var undo []func()
	stop = func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	dir, err := os.MkdirTemp("", "sluice-example-")
	if err != nil {
		return "", nil, stop, err
	}
	undo = append(undo, func() { os.RemoveAll(dir) })
	options, err := how(dir)
	if err != nil {
		return "", nil, stop, err
	}
	options.Listens = true
	providers, err := peer.Open(options)
	if err != nil {
		return "", nil, stop, err
	}
	undo = append(undo, func() { providers.Close() })
	net, err := peer.New(providers, msg.Options{})
	if err != nil {
		return "", nil, stop, err
	}
	undo = append(undo, func() { net.Close() })

	addrs := map[uint32]string{}
	pool := peer.NewPool(net, func(_ context.Context, id uint32) (string, error) {
		return addrs[id], nil
	})
	undo = append(undo, func() { pool.Close() })
	far := iodremote.New(pool, iodremote.Options{})
	undo = append(undo, func() { far.Close() })
	key := capability.Key{7}
	names, err = store.New(context.Background(), memkv.New(memkv.Options{}), store.Options{
		Key: key, Objects: objects.New(far, key, nil), RootMode: 0o777, HeartbeatMax: time.Hour})
	if err != nil {
		return "", nil, stop, err
	}
	undo = append(undo, names.Stop)
	for id := uint32(1); id <= servers; id++ {
		s, end, err := startServer(net, filepath.Join(dir, fmt.Sprint(id)), id, key)
		if err != nil {
			return "", nil, stop, err
		}
		undo = append(undo, end)
		addrs[id] = s.Addr
		if err := names.Join(context.Background(), s, meta.SignJoin(key.ServerKey(id), &s)); err != nil {
			return "", nil, stop, err
		}
	}
	h, err := metaserver.New(names, metaserver.Options{Node: net.Node})
	if err != nil {
		return "", nil, stop, err
	}
	s, err := net.ServeHost("127.0.0.1:0", filepath.Join(dir, "meta"), h, msg.ServeOptions{})
	if err != nil {
		return "", nil, stop, err
	}
	undo = append(undo, func() { s.Close(context.Background()) })
	return "sluice://" + s.Addr(), names, stop, nil
}

// startServer runs an I/O server.
func startServer(net *peer.Network, socket string, id uint32, key capability.Key) (meta.Server,
	func(), error) {
	disk, err := memstore.New(memstore.Options{})
	if err != nil {
		return meta.Server{}, nil, err
	}
	cache, err := unifier.New(unifier.Config{MemoryBytes: 32 << 20, Registrar: net.Node}, disk)
	if err != nil {
		return meta.Server{}, nil, err
	}
	h, err := iodserver.New(iodserver.Config{ID: id, Key: key.ServerKey(id), Store: disk,
		Cache: cache})
	if err != nil {
		return meta.Server{}, nil, err
	}
	s, err := net.ServeHost("127.0.0.1:0", socket, h, msg.ServeOptions{})
	if err != nil {
		return meta.Server{}, nil, err
	}
	stop := func() {
		s.Close(context.Background())
		h.Close()
		cache.Close()
	}
	return meta.Server{ID: id, Addr: s.Addr(), StoreID: uint64(id), Total: 1 << 30, Free: 1 << 30},
		stop, nil
}
