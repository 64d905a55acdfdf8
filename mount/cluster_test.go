package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/objects"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	metaserver "github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// os/exec and the runtime's poller keep these.
		goleak.IgnoreTopFunction("os.(*Process).pidfdWait"))
}

// cluster is I/O servers on tcp and a metadata service, in this process; or everything over shared
// memory.
type cluster struct {
	t      testing.TB
	key    capability.Key
	meta   *store.Store
	data   *faulty
	spaces *spaces
	domain fabric.Domain
	addrs  map[uint32]string

	writeBehind int   // of its clients, in bytes; 0: as usual
	storeBytes  int64 // of each I/O server; 0: plenty

	sock string // folder of sockets; empty without shared memory
	addr string // of the metadata service, with it
}

func newCluster(t testing.TB, servers int) *cluster { return newClusterBy(t, servers, false) }

func newClusterBy(t testing.TB, servers int, near bool) *cluster {
	t.Helper()
	return startCluster(&cluster{t: t}, servers, near)
}

// startCluster starts what c describes.
func startCluster(c *cluster, servers int, near bool) *cluster {
	t := c.t
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c.key, c.addrs = capability.Key{9}, map[uint32]string{}
	var err error
	c.domain, err = tcp.Open(tcp.Options{})
	must(err)
	providers := &peer.Providers{Domains: []fabric.Domain{c.domain}}
	if near {
		d, err := shm.Open(shm.Options{})
		must(err)
		t.Cleanup(func() { must(d.Close()) })
		providers.Domains, c.sock = []fabric.Domain{d, c.domain}, t.TempDir()
		must(os.Chmod(c.sock, 0o700))
	}
	net, err := peer.New(providers, msg.Options{})
	must(err)
	for id := uint32(1); id <= uint32(servers); id++ {
		c.serve(net, id)
	}
	pool := peer.NewPool(net, func(_ context.Context, id uint32) (string, error) {
		return c.addrs[id], nil
	})
	far := remote.New(pool, remote.Options{WaitMax: 2 * time.Second})
	c.data = &faulty{Remote: far}
	c.spaces = &spaces{Objects: objects.New(far, c.key, nil)}
	db := memkv.New(memkv.Options{})
	c.meta, err = store.New(context.Background(), db, store.Options{
		Key: c.key, Objects: c.spaces, RootMode: 0o777, HeartbeatMax: time.Hour})
	must(err)
	for id, addr := range c.addrs {
		s := meta.Server{ID: id, Addr: addr, StoreID: uint64(id), Total: 1 << 30, Free: 1 << 30}
		must(c.meta.Join(context.Background(), s, meta.SignJoin(c.key.ServerKey(id), &s)))
	}
	if near {
		c.serveMeta(net)
	}
	t.Cleanup(func() {
		c.meta.Stop()
		must(db.Close())
		must(pool.Close())
		must(net.Close())
		must(c.domain.Close())
	})
	return c
}

// serveMeta puts the metadata service on the network.
func (c *cluster) serveMeta(net *peer.Network) {
	h, err := metaserver.New(c.meta, metaserver.Options{Node: net.Node})
	must(c.t, err)
	s, err := net.Serve(c.places("meta"), h, msg.ServeOptions{Quick: metaserver.Quick})
	must(c.t, err)
	c.addr = s.Addr()
	c.t.Cleanup(func() { must(c.t, s.Close(context.Background())) })
}

// places is where a server listens.
func (c *cluster) places(name string) string {
	if c.sock == "" {
		return "127.0.0.1:0"
	}
	return "tcp:127.0.0.1:0,shm:" + filepath.Join(c.sock, name)
}

// serve starts one I/O server.
func (c *cluster) serve(net *peer.Network, id uint32) {
	c.t.Helper()
	must := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	disk, err := memstore.New(memstore.Options{MaxBytes: c.storeBytes})
	must(err)
	cache, err := unifier.New(unifier.Config{MemoryBytes: 128 << 20, Registrar: net.Node}, disk)
	must(err)
	srv, err := server.New(server.Config{ID: id, Key: c.key.ServerKey(id), Store: disk, Cache: cache})
	must(err)
	listen, err := net.Serve(c.places(fmt.Sprint("iod", id)), srv, msg.ServeOptions{})
	must(err)
	c.addrs[id] = listen.Addr()
	c.t.Cleanup(func() {
		must(listen.Close(context.Background()))
		srv.Close()
		must(cache.Close())
		must(disk.Close())
	})
}

// faulty is the I/O servers with errors on demand.
type faulty struct {
	*remote.Remote
	write atomic.Pointer[error] // what every write fails with
	sync  atomic.Pointer[error]
	away  atomic.Pointer[chan struct{}] // writes wait until it is closed
	reads atomic.Int64
}

func (f *faulty) Read(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory) (
	iod.Mark, error) {
	f.reads.Add(1)
	return f.Remote.Read(ctx, t, object, m)
}

func (f *faulty) Write(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory,
	d stripe.Durability) (iod.Mark, error) {
	if err := f.trouble(ctx); err != nil {
		return iod.Mark{}, err
	}
	return f.Remote.Write(ctx, t, object, m, d)
}

func (f *faulty) WriteKept(ctx context.Context, t iod.Target, off int64, room iod.Room, n int) (
	iod.Mark, error) {
	if err := f.trouble(ctx); err != nil {
		return iod.Mark{}, err
	}
	return f.Remote.WriteKept(ctx, t, off, room, n)
}

// trouble is what a write meets.
func (f *faulty) trouble(ctx context.Context) error {
	if err := f.write.Load(); err != nil {
		return *err
	}
	if away := f.away.Load(); away != nil {
		select {
		case <-*away:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *faulty) Sync(ctx context.Context, t iod.Target) (iod.Mark, error) {
	if err := f.sync.Load(); err != nil {
		return iod.Mark{}, *err
	}
	return f.Remote.Sync(ctx, t)
}

// spaces counts how often the I/O servers are asked what a file takes, and can keep the answers.
type spaces struct {
	*objects.Objects
	asked atomic.Int64
	stuck atomic.Bool
}

func (s *spaces) Allocated(ctx context.Context, f meta.FileRef) (int64, error) {
	s.asked.Add(1)
	if s.stuck.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.Objects.Allocated(ctx, f)
}

// client makes a client of the cluster.
func (c *cluster) client() *client.FS {
	c.t.Helper()
	var fs *client.FS
	var err error
	if c.sock == "" {
		fs, err = client.New(c.meta, c.data, client.Options{WaitMax: 5 * time.Second,
			WriteBehind: c.writeBehind})
	} else {
		fs, err = c.dial()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return fs
}

// dial makes a client with few buffers that servers may be let into, so that they run out.
func (c *cluster) dial() (*client.FS, error) {
	arenas := shm.NewArenas()
	near, err := shm.Open(shm.Options{Arenas: arenas})
	if err != nil {
		return nil, err
	}
	c.t.Cleanup(func() { must(c.t, near.Close()) })
	return client.Dial(context.Background(), "sluice://"+c.addr, client.Options{
		Providers: &peer.Providers{Domains: []fabric.Domain{near, c.domain}, Memory: arenas},
		Buffers:   4 << 20, WaitMax: 5 * time.Second, WriteBehind: c.writeBehind})
}

// mount mounts a client of the cluster, and unmounts it at the end of the test.
func (c *cluster) mount(opts Options) *Mounted {
	c.t.Helper()
	return c.mountOf(c.client(), opts)
}

// mountOf mounts a client.
func (c *cluster) mountOf(fs *client.FS, opts Options) *Mounted {
	c.t.Helper()
	if _, err := os.Stat("/dev/fuse"); errors.Is(err, os.ErrNotExist) {
		c.t.Skip("there is no /dev/fuse here")
	}
	dir, err := os.MkdirTemp("", "sluice-mount-")
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := Mount(context.Background(), fs, dir, opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := m.Unmount(); err != nil {
			c.t.Error(err)
		}
		if err := os.Remove(dir); err != nil {
			c.t.Error(err)
		}
	})
	return m
}

// newMount is a mount on a cluster of its own.
func newMount(t testing.TB) string {
	t.Helper()
	return newCluster(t, 4).mount(Options{}).Dir()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i%253)
	}
	return b
}
