package store

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// pools is the table of pools, as the last commit has left it: whoever makes a file needs it.
// Inodes name pools by their numbers, which are never used twice, so that there is nothing to be
// changed in them when a pool goes: a number that is not here means no pool.
type pools struct {
	mu   sync.RWMutex
	byID map[uint64]*meta.Pool // what is in them is not changed
}

func (x *pools) set(byID map[uint64]*meta.Pool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID = byID
}

// get finds a pool; nil: there is none.
func (x *pools) get(id uint64) *meta.Pool {
	if id == 0 {
		return nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byID[id]
}

// named finds a pool by its name; nil: there is none.
func (x *pools) named(name string) *meta.Pool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, p := range x.byID {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// all lists them in the order of their names.
func (x *pools) all() []meta.Pool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	list := make([]meta.Pool, 0, len(x.byID))
	for _, p := range x.byID {
		list = append(list, meta.Pool{Name: p.Name, ID: p.ID, Servers: slices.Clone(p.Servers)})
	}
	slices.SortFunc(list, func(a, b meta.Pool) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

// pool is what 'W' keeps: |ver |id u64 |count u32 |count x server u32 |. Servers are in order.
type pool struct {
	ID      uint64
	Servers []uint32
}

func (n *pool) encode() []byte {
	e := wire.Enc{}
	e.U8(recordVersion)
	e.U64(n.ID)
	e.U32(uint32(len(n.Servers)))
	for _, id := range n.Servers {
		e.U32(id)
	}
	return e.B
}

func (n *pool) decode(d *wire.Dec) {
	n.ID = d.U64()
	n.Servers = nil
	for range d.Count(meta.PoolServersMax, 4) {
		n.Servers = append(n.Servers, d.U32())
	}
	if d.Err() == nil && (n.ID == 0 || !sortedSet(n.Servers)) {
		d.Fail("a pool without a number, or whose servers are not in order")
	}
}

func sortedSet(ids []uint32) bool {
	for i := 1; i < len(ids); i++ {
		if ids[i-1] >= ids[i] {
			return false
		}
	}
	return true
}

// poolNamed reads a pool; nil: there is none.
func (t *txn) poolNamed(name string) (*pool, error) {
	key := poolKey(name)
	value, err := t.read(key)
	if value == nil || err != nil {
		return nil, err
	}
	p := &pool{}
	return p, parse(key, value, p)
}

// CreatePool implements meta.Pools.
func (s *Store) CreatePool(ctx context.Context, c meta.Caller, name string, servers []uint32) (
	meta.Pool, error) {

	var id meta.Ino
	out, err := s.changePool(ctx, &c, name, servers, func(t *txn, p *pool) (*pool, error) {
		if p != nil {
			return nil, errs.Newf(errs.Exists, "meta.pool", "", "there is a pool of that name")
		}
		if err := t.roomForPool(); err != nil {
			return nil, err
		}
		if err := s.number(ctx, &id); err != nil {
			return nil, err
		}
		return &pool{ID: uint64(id), Servers: slices.Clone(servers)}, nil
	})
	return out, errs.Wrap("meta.CreatePool", name, err)
}

// roomForPool refuses one pool too many. Two that are made at once may both be the last: none of
// the bounds that hang on it is so narrow.
func (t *txn) roomForPool() error {
	n := 0
	err := t.scan([]byte{kindPool}, func(_, _ []byte) bool {
		n++
		return true
	})
	if err == nil && n >= meta.PoolsMax {
		err = errs.Newf(errs.NoSpace, "meta.pool", "", "there are %d pools already", n)
	}
	return err
}

// ChangePool implements meta.Pools.
func (s *Store) ChangePool(ctx context.Context, c meta.Caller, name string,
	add, remove []uint32) (meta.Pool, error) {

	out, err := s.changePool(ctx, &c, name, add, func(_ *txn, p *pool) (*pool, error) {
		if p == nil {
			return nil, noPool(name)
		}
		p.Servers = slices.DeleteFunc(append(p.Servers, add...), func(id uint32) bool {
			return slices.Contains(remove, id)
		})
		return p, nil
	})
	return out, errs.Wrap("meta.ChangePool", name, err)
}

func noPool(name string) error {
	return errs.Newf(errs.NotFound, "meta.pool", name, "there is no such pool")
}

// changePool writes a pool as change makes it of what it was.
func (s *Store) changePool(ctx context.Context, c *meta.Caller, name string, add []uint32,
	change func(t *txn, p *pool) (*pool, error)) (meta.Pool, error) {

	err := s.withPools(ctx, c, name, func(t *txn, p *pool) error {
		if err := s.servers.known(add); err != nil {
			return err
		}
		p, err := change(t, p)
		if err != nil {
			return err
		}
		slices.Sort(p.Servers)
		p.Servers = slices.Compact(p.Servers)
		if len(p.Servers) > meta.PoolServersMax {
			return errs.Newf(errs.Invalid, "meta.pool", "", "%d servers, at most %d", len(p.Servers),
				meta.PoolServersMax)
		}
		t.put(poolKey(name), p.encode())
		return nil
	})
	if err != nil {
		return meta.Pool{}, err
	}
	if p := s.pools.named(name); p != nil {
		return meta.Pool{Name: p.Name, ID: p.ID, Servers: slices.Clone(p.Servers)}, nil
	}
	return meta.Pool{Name: name}, nil // somebody has removed it meanwhile
}

// withPools does something with a pool; p is nil where there is none of that name. One change is
// made at a time, and then the table is read anew, whatever the change has come to: it may have
// been done before, or be done without an answer.
func (s *Store) withPools(ctx context.Context, c *meta.Caller, name string,
	do func(t *txn, p *pool) error) error {

	if err := checkPool(c, name); err != nil {
		return err
	}
	if err := takeTurn(ctx, s.pooling); err != nil {
		return err
	}
	defer func() { <-s.pooling }()
	_, err := s.update(ctx, c, func(t *txn) error {
		if err := t.mayLimit(&c.Cred); err != nil {
			return err
		}
		p, err := t.poolNamed(name)
		if err == nil {
			err = do(t, p)
		}
		return err
	})
	return unlessNil(err, s.look(s.loadPools))
}

func checkPool(c *meta.Caller, name string) error {
	if err := checkCaller(c); err != nil {
		return err
	}
	return layout.CheckPool(name)
}

// RemovePool implements meta.Pools.
func (s *Store) RemovePool(ctx context.Context, c meta.Caller, name string) error {
	err := s.withPools(ctx, &c, name, func(t *txn, p *pool) error {
		if p == nil {
			return noPool(name)
		}
		t.kv.MakesRoom = true
		t.remove(poolKey(name))
		return nil
	})
	return errs.Wrap("meta.RemovePool", name, err)
}

// ListPools implements meta.Pools.
func (s *Store) ListPools(context.Context, meta.Caller) ([]meta.Pool, error) {
	return s.pools.all(), nil
}

// loadPools reads the pools. One that cannot be read is left out: what is in it, and what names it,
// can be used without.
func (s *Store) loadPools(t *txn) error {
	byID := map[uint64]*meta.Pool{}
	err := t.scan([]byte{kindPool}, func(key, value []byte) bool {
		var p pool
		if err := parse(key, value, &p); err != nil {
			s.opt.Log.Error("a pool cannot be read: see sluice fsck", "err", err)
			return true
		}
		byID[p.ID] = &meta.Pool{Name: string(key[1:]), ID: p.ID, Servers: p.Servers}
		return true
	})
	if err == nil {
		s.pools.set(byID)
	}
	return err
}

// known refuses servers that have never joined.
func (x *servers) known(ids []uint32) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		if x.byID[id] == nil {
			return errs.Newf(errs.Invalid, "meta.pool", "", "there is no I/O server %d", id)
		}
	}
	return nil
}
