package client

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod/objects"
	iodremote "github.com/sluice-storage/sluice/iod/remote"
	iodserver "github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/meta"
	metaserver "github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
)

// wired is a cluster on tcp and, if wished for, shared memory, or on other providers: every part is
// the real one.
type wired struct {
	t      testing.TB
	domain fabric.Domain            // tcp, or what else the servers' addresses are of
	places func(name string) string // where a server listens
	net    *peer.Network            // of the servers
	lent   mem.Source               // of their caches; nil: memory of their own
	key    capability.Key           // of most tests
	ring   *capability.Keyring      // of key, or what the options say
	own    map[uint32]*capability.Keyring
	meta   *store.Store
	db     *memkv.Store
	opts   store.Options
	listen *msg.Server
	addr   string // of the metadata service
	mu     sync.Mutex
	addrs  map[uint32]string
	stop   map[uint32]func() // stops an I/O server and returns when it is down
	start  map[uint32]func()

	crashes bool // what is started from now on has lost its volatile state
}

func newWired(t testing.TB, servers uint32) *wired { return newWiredBy(t, servers, false) }

func newWiredBy(t testing.TB, servers uint32, near bool) *wired {
	t.Helper()
	return newWiredWith(t, servers, near, store.Options{})
}

func newWiredWith(t testing.TB, servers uint32, near bool, opts store.Options) *wired {
	t.Helper()
	base, err := tcp.Open(tcp.Options{})
	must(t, err)
	if !near {
		return newWiredOn(t, servers, []fabric.Domain{base},
			func(string) string { return "127.0.0.1:0" }, opts)
	}
	lent := shm.NewLent()
	d, err := shm.Open(shm.Options{Lent: lent})
	must(t, err)
	sock := t.TempDir()
	must(t, os.Chmod(sock, 0o700))
	return newWiredLent(t, servers, []fabric.Domain{d, base}, func(name string) string {
		return "tcp:127.0.0.1:0,shm:" + filepath.Join(sock, name)
	}, opts, lent)
}

// newWiredOn is a cluster on any domains, best first, which end with it.
func newWiredOn(t testing.TB, servers uint32, domains []fabric.Domain,
	places func(name string) string, opts store.Options) *wired {
	t.Helper()
	return newWiredLent(t, servers, domains, places, opts, nil)
}

// newWiredLent is newWiredOn with servers that lend their caches.
func newWiredLent(t testing.TB, servers uint32, domains []fabric.Domain,
	places func(name string) string, opts store.Options, lent mem.Source) *wired {
	t.Helper()
	w := &wired{t: t, domain: domains[len(domains)-1], places: places, key: capability.Key{3},
		lent: lent, addrs: map[uint32]string{}, stop: map[uint32]func(){}, start: map[uint32]func(){},
		own: map[uint32]*capability.Keyring{}}
	var err error
	w.net, err = peer.New(&peer.Providers{Domains: domains}, msg.Options{})
	must(t, err)
	pool := peer.NewPool(w.net, func(_ context.Context, id uint32) (string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.addrs[id], nil
	})
	far := iodremote.New(pool, iodremote.Options{WaitMax: 30 * time.Second})
	w.db = memkv.New(memkv.Options{})
	if opts.Key == nil {
		opts.Key = w.key
	}
	w.ring = opts.Key.Keyring()
	opts.Key, opts.Objects = w.ring, objects.New(far, w.ring, nil)
	opts.RootMode, opts.HeartbeatMax = 0o777, time.Hour
	w.opts = opts
	w.startMeta(w.places("meta"))
	w.addr = w.listen.Addr()
	for id := uint32(1); id <= servers; id++ {
		w.addServer(id)
	}
	t.Cleanup(func() {
		for _, stop := range w.stop {
			stop()
		}
		must(t, w.listen.Close(context.Background()))
		w.meta.Stop()
		must(t, w.db.Close())
		must(t, pool.Close())
		must(t, w.net.Close())
		for _, d := range domains {
			must(t, d.Close())
		}
	})
	return w
}

func (w *wired) startMeta(place string) {
	var err error
	w.meta, err = store.New(context.Background(), w.db, w.opts)
	must(w.t, err)
	srv, err := metaserver.New(w.meta, metaserver.Options{Node: w.net.Node})
	must(w.t, err)
	w.listen, err = w.net.Serve(place, srv, msg.ServeOptions{Quick: metaserver.Quick})
	must(w.t, err)
}

// restartMeta ends the metadata service, as a crash of its process would, and starts it again.
func (w *wired) restartMeta() {
	ctx := context.Background()
	must(w.t, w.listen.Close(ctx))
	w.meta.Stop()
	w.startMeta(w.addr)
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, addr := range w.addrs {
		s := meta.Server{ID: id, Addr: addr, StoreID: uint64(id), Total: 1 << 30, Free: 1 << 30}
		must(w.t, w.meta.Join(ctx, s, w.signJoin(&s)))
	}
}

// addServer starts an I/O server that can be stopped and started again at another address.
func (w *wired) addServer(id uint32) {
	t := w.t
	disk, err := memstore.New(memstore.Options{})
	must(t, err)
	w.start[id] = func() {
		disk := &reborn{disk, disk.Verifier()}
		if w.crashes {
			disk.verifier = rand.Uint64()
		}
		cache, err := unifier.New(unifier.Config{MemoryBytes: 64 << 20, Registrar: w.net.Node,
			Source: w.lent}, disk)
		must(t, err)
		w.own[id] = capability.NewKeyring(w.ring.Ring().For(id))
		srv, err := iodserver.New(iodserver.Config{ID: id, Key: w.own[id], Store: disk, Cache: cache})
		must(t, err)
		listen, err := w.net.Serve(w.places(fmt.Sprint("iod", id)), srv, msg.ServeOptions{})
		must(t, err)
		w.mu.Lock()
		w.addrs[id] = listen.Addr()
		w.mu.Unlock()
		s := meta.Server{ID: id, Addr: listen.Addr(), StoreID: uint64(id), Total: 1 << 30, Free: 1 << 30}
		must(t, w.meta.Join(context.Background(), s, w.signJoin(&s)))
		w.stop[id] = func() {
			must(t, listen.Close(context.Background()))
			srv.Close()
			must(t, cache.Close())
			w.stop[id] = func() {}
		}
	}
	w.start[id]()
}

// signJoin proves that this is a server of the cluster.
func (w *wired) signJoin(s *meta.Server) [32]byte {
	return meta.SignJoin(w.ring.Ring()[0].Key.ServerKey(s.ID), s)
}

// reborn is a store that has another verifier than the one that it was, as after a crash.
type reborn struct {
	*memstore.Store
	verifier uint64
}

func (r *reborn) Verifier() uint64 { return r.verifier }

// far is how a client without shared memory reaches the cluster.
func (w *wired) far() *peer.Providers {
	return &peer.Providers{Domains: []fabric.Domain{w.domain}}
}

func (w *wired) dial(path string) *FS {
	w.t.Helper()
	fs, err := Dial(context.Background(), "sluice://"+w.addr+path,
		Options{Providers: w.far(), WaitMax: 30 * time.Second, Cred: &meta.Cred{}})
	must(w.t, err)
	w.t.Cleanup(func() { must(w.t, fs.Close()) })
	return fs
}

// TestDial works on files over the network, from a directory that is the root, through the
// restart of a server at another address.
func TestDial(t *testing.T) {
	w := newWired(t, 4)
	ctx := context.Background()
	fs := w.dial("")
	must(t, fs.MkdirAll(ctx, "/home/me", 0o755))
	home := w.dial("/home/me")
	f, err := home.Create(ctx, "/data")
	must(t, err)
	want := pattern(9<<20+5, 4)
	write(t, f, want, 0)
	must(t, f.Sync(ctx))
	w.stop[2]()
	w.start[2]()
	if got := contents(t, f); !bytes.Equal(got, want) {
		t.Fatal("other bytes after a server moved")
	}
	write(t, f, want[:3<<20], 1<<20)
	must(t, f.Sync(ctx))
	must(t, f.Close(ctx))
	if a, err := fs.Stat(ctx, "/home/me/data"); err != nil || a.Size != int64(len(want)) {
		t.Fatalf("size %d, %v", a.Size, err)
	}
	if _, err := home.Stat(ctx, "/../../home"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("left the root: %v", err)
	}
}

func TestDialRefuses(t *testing.T) {
	w := newWired(t, 1)
	ctx := context.Background()
	opts := Options{Providers: w.far(), Cred: &meta.Cred{}}
	for _, url := range []string{"", "http://x:1/", "sluice://", "sluice://host", "sluice:///x"} {
		if _, err := Dial(ctx, url, opts); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%q: %v", url, err)
		}
	}
	none := Options{Peer: peer.Options{Use: []string{peer.SHM}}}
	if _, err := Dial(ctx, "sluice://"+w.addr, none); errs.KindOf(err) != errs.Invalid {
		t.Errorf("without tcp: %v", err)
	}
	if _, err := Dial(ctx, "sluice://"+w.addr+"/none", opts); errs.KindOf(err) != errs.NotFound {
		t.Errorf("a root that does not exist: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // it would wait for the server
	defer cancel()
	if _, err := Dial(short, "sluice://127.0.0.1:1", opts); err == nil {
		t.Error("dialed nobody")
	}
}
