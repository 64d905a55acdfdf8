package client

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/objects"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
)

// cluster is a metadata service and I/O servers in this process: the real store of both, without a
// network between them.
type cluster struct {
	t    testing.TB
	key  capability.Key
	meta *store.Store
	kv   *memkv.Store

	mu       sync.Mutex
	now      func() time.Time
	stores   map[uint32]*memstore.Store
	unsynced map[held]bool // volatile writes that were not synced; true: they are lost
	calls    map[call]int
	hook     func(c call) error // asked before every request
}

// held is an object at a server.
type held struct {
	server uint32
	object stripe.ObjectID
}

// call is one request at one server.
type call struct {
	server uint32
	op     iod.Op
}

// newCluster starts servers 1 to n.
func newCluster(t testing.TB, n int, opt store.Options) *cluster {
	t.Helper()
	c := &cluster{t: t, now: time.Now, stores: map[uint32]*memstore.Store{},
		unsynced: map[held]bool{}, calls: map[call]int{}}
	c.key[0] = 7
	c.kv = memkv.New(memkv.Options{})
	opt.Key = c.key
	opt.Objects = objects.New(c, c.key, nil)
	opt.RootMode = 0o777
	opt.HeartbeatMax = time.Hour // the double's servers do not repeat their Join
	opt.MeasureMax = time.Minute // and a machine that stands still for a while is not their fault
	m, err := store.New(context.Background(), c.kv, opt)
	if err != nil {
		t.Fatal(err)
	}
	c.meta = m
	t.Cleanup(func() {
		m.Stop()
		_ = c.kv.Close()
	})
	for id := uint32(1); id <= uint32(n); id++ {
		c.addServer(id)
	}
	return c
}

func (c *cluster) addServer(id uint32) {
	c.t.Helper()
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.stores[id] = s
	c.mu.Unlock()
	srv := meta.Server{ID: id, Addr: "double", StoreID: uint64(id), Total: 1 << 30, Free: 1 << 29}
	mac := meta.SignJoin(c.key.ServerKey(id), &srv)
	if err := c.meta.Join(context.Background(), srv, mac); err != nil {
		c.t.Fatal(err)
	}
}

// longLease is the time of leases where who waits for one to run out must stand out from who only
// waits for a busy machine: half of it is the limit.
const longLease = 40 * time.Second

func withLongLeases(opt store.Options) store.Options {
	opt.Lease, opt.LeaseTime = 2*longLease, longLease
	return opt
}

// client makes an FS on the cluster.
func (c *cluster) client(opts Options) *FS {
	c.t.Helper()
	if opts.Cred == nil {
		opts.Cred = &meta.Cred{UID: 1000, GID: 1000}
	}
	fs, err := New(c.service(), c, opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = fs.Close() })
	return fs
}

// service is what clients talk to.
func (c *cluster) service() meta.Service {
	return c.meta
}

// counted runs fn and returns how many requests of an op each server got.
func (c *cluster) counted(op iod.Op, fn func()) map[uint32]int {
	c.mu.Lock()
	clear(c.calls)
	c.mu.Unlock()
	fn()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[uint32]int{}
	for k, n := range c.calls {
		if k.op == op {
			out[k.server] += n
		}
	}
	return out
}

func (c *cluster) setHook(fn func(call) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = fn
}

// lose has a server lose its unsynced writes for good: what is kept of them is refused.
func (c *cluster) lose(server uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.unsynced {
		if k.server == server {
			c.unsynced[k] = true
		}
	}
}

// wrote notes a volatile change.
func (c *cluster) wrote(t *iod.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := held{t.Server, t.Object}
	if _, known := c.unsynced[k]; !known { // a loss is not forgotten
		c.unsynced[k] = false
	}
}

// tellLoss fails the first sync after a loss, as iod/remote does.
func (c *cluster) tellLoss(t *iod.Target) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := held{t.Server, t.Object}
	lost := c.unsynced[k]
	delete(c.unsynced, k)
	if !lost {
		return nil
	}
	return errs.Newf(errs.IO, "double", serverName(t.Server), "lost unsynced writes")
}

// enter does what an I/O server does before it touches its store.
func (c *cluster) enter(op iod.Op, t *iod.Target, need capability.Rights) (*memstore.Store, error) {
	c.mu.Lock()
	s, hook, now := c.stores[t.Server], c.hook, c.now
	c.calls[call{t.Server, op}]++
	c.mu.Unlock()
	if hook != nil {
		if err := hook(call{t.Server, op}); err != nil {
			return nil, err
		}
	}
	if s == nil {
		return nil, errs.New(errs.Disconnected, "double", "", nil)
	}
	cp, err := c.key.ServerKey(t.Server).Verify(t.Cap[:])
	if err != nil {
		return nil, err
	}
	if cp.Rights&capability.Manage != 0 {
		need = capability.Manage
	}
	return s, cp.Check(capability.Need{File: t.Object.File, Gen: t.Object.Gen, Rights: need,
		Session: t.Stamp.Session, Server: t.Server, Layout: t.Layout, Epoch: t.Stamp.Epoch}, now())
}

func (c *cluster) mark(s *memstore.Store) iod.Mark {
	return iod.Mark{Verifier: s.Verifier()}
}

// move walks object and memory side by side, as the server's transfer would.
func move(object seg.Access, m *msg.Memory, fn func(off int64, buf []byte) error) error {
	var err error
	seg.Zip(object, m.Access, func(obj, mem seg.Piece) bool {
		for mem.Len > 0 && err == nil {
			buf := window(m.Windows, mem)
			err = fn(obj.Off, buf)
			n := int64(len(buf))
			obj.Off, mem.Off, mem.Len = obj.Off+n, mem.Off+n, mem.Len-n
		}
		return err == nil
	})
	return err
}

// window finds the memory of a piece, up to the end of its window.
func window(w []fabric.Sge, p seg.Piece) []byte {
	for i := range w {
		n := int64(len(w[i].Buf))
		if p.Off < n {
			return w[i].Buf[p.Off:min(n, p.Off+p.Len)]
		}
		p.Off -= n
	}
	panic("piece outside the windows")
}

// wireLimits fails a request that would not fit a message.
func wireLimits(object seg.Access, m *msg.Memory) error {
	if object.Len() != m.Access.Len() || object.Len() > iod.TransferMax {
		return errs.Newf(errs.Invalid, "double", "", "lengths %d, %d", object.Len(), m.Access.Len())
	}
	n := object.WireBytes() + m.Access.WireBytes() + 24*len(m.Windows)
	if n > 12000 {
		return errs.Newf(errs.TooBig, "double", "", "description of %d bytes", n)
	}
	return nil
}

func (c *cluster) Read(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory) (
	iod.Mark, error) {
	s, err := c.enter(iod.OpRead, &t, capability.Read)
	if err == nil {
		err = wireLimits(object, m)
	}
	if err != nil {
		return iod.Mark{}, err
	}
	err = move(object, m, func(off int64, buf []byte) error {
		return s.ReadAt(ctx, t.Object, [][]byte{buf}, off)
	})
	return c.mark(s), err
}

func (c *cluster) Write(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory,
	d stripe.Durability) (iod.Mark, error) {
	s, err := c.enter(iod.OpWrite, &t, capability.Write)
	if err == nil {
		err = wireLimits(object, m)
	}
	if err != nil {
		return iod.Mark{}, err
	}
	err = move(object, m, func(off int64, buf []byte) error {
		return s.WriteAt(ctx, t.Object, [][]byte{buf}, off, t.Stamp, d)
	})
	if d == stripe.Volatile {
		c.wrote(&t)
	}
	return c.mark(s), err
}

func (c *cluster) Sync(ctx context.Context, t iod.Target) (iod.Mark, error) {
	s, err := c.enter(iod.OpSync, &t, capability.Write)
	if err != nil {
		return iod.Mark{}, err
	}
	if err = s.Sync(ctx, t.Object); err == nil {
		err = c.tellLoss(&t)
	}
	return c.mark(s), err
}

func (c *cluster) Punch(ctx context.Context, t iod.Target, off, length int64,
	d stripe.Durability) (iod.Mark, error) {
	s, err := c.enter(iod.OpPunch, &t, capability.Write)
	if err != nil {
		return iod.Mark{}, err
	}
	err = s.Punch(ctx, t.Object, off, length, t.Stamp, d)
	c.wrote(&t)
	return c.mark(s), err
}

func (c *cluster) ReserveSpace(ctx context.Context, t iod.Target, off, length int64, extend bool) (
	int64, []seg.Piece, error) {
	s, err := c.enter(iod.OpReserve, &t, capability.Write)
	if err != nil {
		return 0, nil, err
	}
	return s.Reserve(ctx, t.Object, stripe.Reservation{Off: off, Len: length, Extend: extend,
		PiecesMax: 3}, t.Stamp) // few at a time, so that going on is tested
}

func (c *cluster) ReleaseSpace(ctx context.Context, t iod.Target, off, length int64) error {
	s, err := c.enter(iod.OpReserve, &t, capability.Write)
	if err != nil {
		return err
	}
	return s.Release(ctx, t.Object, off, length, t.Stamp)
}

func (c *cluster) Blank(ctx context.Context, t iod.Target, off, length int64) (iod.Mark, error) {
	s, err := c.enter(iod.OpPunch, &t, capability.Write)
	if err != nil {
		return iod.Mark{}, err
	}
	err = s.Blank(ctx, t.Object, off, length, t.Stamp, stripe.Durable)
	return c.mark(s), err
}

func (c *cluster) Map(ctx context.Context, t iod.Target, off, length int64) (
	[]stripe.Extent, error) {
	s, err := c.enter(iod.OpMap, &t, capability.Read)
	if err != nil {
		return nil, err
	}
	return s.Map(ctx, t.Object, off, length, 3) // few at a time, so that paging is tested
}

func (c *cluster) Stat(ctx context.Context, t iod.Target) (stripe.Info, error) {
	s, err := c.enter(iod.OpStat, &t, capability.Read)
	if err != nil {
		return stripe.Info{}, err
	}
	return s.Stat(ctx, t.Object)
}

func (c *cluster) Truncate(ctx context.Context, t iod.Target, size int64) error {
	s, err := c.enter(iod.OpTruncate, &t, capability.Manage)
	if err != nil {
		return err
	}
	return s.Truncate(ctx, t.Object, size, t.Stamp)
}

func (c *cluster) Remove(ctx context.Context, t iod.Target) error {
	s, err := c.enter(iod.OpRemove, &t, capability.Manage)
	if err != nil {
		return err
	}
	return s.Remove(ctx, t.Object)
}

// List is for the collector, which no test here waits for.
func (c *cluster) List(context.Context, iod.Target) ([]stripe.ObjectID, error) { return nil, nil }

func (c *cluster) Fence(ctx context.Context, t iod.Target) error {
	s, err := c.enter(iod.OpFence, &t, capability.Manage)
	if err != nil {
		return err
	}
	if t.Stamp.Epoch > 0 {
		return s.SetMinEpoch(ctx, t.Object.File, t.Stamp.Epoch)
	}
	return s.SetMinGeneration(ctx, t.Object.File, t.Object.Gen)
}
