package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
	"github.com/sluice-storage/sluice/meta/lock"
)

// Store implements meta.Service.
type Store struct {
	kv       kv.Store
	opt      Options
	cluster  uint64
	life     uint32 // how often the service was started on this store
	numbers  *numbers
	inFlight inFlight
	sessions sessions
	leases   *lease.Table
	servers  servers
	hosts    hosts
	members  *membership // the map of both
	pools    pools
	spaces   spaces
	watched  watched
	backlogs backlogs
	locks    *lock.Table
	started  time.Time // when the leases of the last process's sessions began anew
	trees    *trees
	below    below
	upkeep   *upkeep
	losses   atomic.Uint64 // how often a server has lost its memory; see lost.go
	serial   chan struct{} // room for one: held by a rename that moves a directory elsewhere
	pooling  chan struct{} // room for one: held while a pool is changed

	keys    *capability.Keyring
	signers *capability.Signers
	owners  owners
	banned  banned

	stop    context.CancelFunc
	done    sync.WaitGroup
	removed chan struct{} // one token: there is something in the deletion queue
	queue   queue
	swept   chan struct{} // one token: there are sessions to be ended

	uncounted chan struct{} // one token: there is a tree to be counted

	gone   atomic.Int64 // inodes that the deletion queue has finished with
	pauses atomic.Int64 // times that the service did not run and let leases begin anew

	pulse  pulse            // when the service has looked at its sessions last
	steady func() time.Time // the clock of leases and capabilities: see capability.Steady

	collected atomic.Int64 // objects that no inode named and that were removed
	unnamed   atomic.Int64 // those that are left alone, at the server that was looked at last
}

var _ meta.Service = (*Store)(nil)

// New opens the service on a store, which it formats when it is empty, and starts its background
// work. The kv.Store stays the caller's and must be closed after Stop.
func New(ctx context.Context, store kv.Store, opt Options) (*Store, error) {
	opt = opt.withDefaults()
	if err := opt.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		kv:       store,
		opt:      opt,
		numbers:  newNumbers(store),
		inFlight: inFlight{ids: map[kv.ReqID]chan struct{}{}},
		sessions: sessions{byID: map[uint64]*alive{}, byClient: map[string][]uint64{},
			inodes: map[meta.Ino]*opens{}, nameless: map[meta.Ino]*opens{},
			calm: make(chan struct{})},
		servers:  servers{byID: map[uint32]*joined{}},
		hosts:    hosts{byName: map[string]*heardHost{}},
		members:  newMembership(),
		backlogs: backlogs{byID: map[uint32]*backlog{}},
		locks:    newLocks(&opt),
		trees:    newTrees(),
		upkeep:   newUpkeep(),
		serial:   make(chan struct{}, 1),
		pooling:  make(chan struct{}, 1),
		removed:  make(chan struct{}, 1),
		queue:    queue{from: math.MaxUint64},
		swept:    make(chan struct{}, 1),

		uncounted: make(chan struct{}, 1),

		steady: capability.Steady(opt.Clock),

		keys: opt.Key.Keyring(),
		owners: owners{hosts: map[uint32]string{}, known: map[uint32]uint32{},
			refuse: logonce.Logger{Log: opt.Log}},
		banned: banned{peers: map[meta.Peer]bool{}, refuse: logonce.Logger{Log: opt.Log}},
	}
	s.signers = capability.NewSigners(s.keys)
	began := opt.Pulse() // before any lease
	s.pulse.beat(began)
	if err := s.format(ctx); err != nil {
		return nil, errs.Wrap("store.New", "", err)
	}
	if err := s.beginLife(ctx); err != nil {
		return nil, errs.Wrap("store.New", "", err)
	}
	s.leases = lease.New(lease.Options{Time: opt.LeaseTime, Calm: opt.Calm, Life: s.life,
		SessionMax: opt.SessionLeases})
	if err := s.recover(); err != nil {
		return nil, errs.Wrap("store.New", "", err)
	}
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.done.Go(func() { s.endGrace(run) })
	s.done.Go(func() { s.removeLoop(run) })
	s.done.Go(func() { s.sessionLoop(run, began) })
	s.done.Go(func() { s.truncateLoop(run) })
	s.done.Go(func() { s.countLoop(run) })
	s.done.Go(func() { s.treeLoop(run) })
	s.done.Go(func() { s.upkeepLoop(run) })
	s.done.Go(func() { s.registryLoop(run) })
	s.done.Go(func() { s.judgeLoop(run) })
	if at, ok := opt.Objects.(meta.Collector); ok {
		s.done.Go(func() { s.collectLoop(run, at) })
	}
	return s, nil
}

// Stop ends the background work and waits for it. Operations that run are not waited for and may
// fail when the kv.Store is closed.
func (s *Store) Stop() {
	s.stop()
	s.done.Wait()
}

func (s *Store) now() meta.Time { return meta.TimeOf(s.opt.Clock()) }

// format makes an empty store ours, or checks that it is ours and not newer than this build.
func (s *Store) format(ctx context.Context) error {
	for attempt := range attemptsMax {
		err := s.tryFormat(ctx)
		if k := errs.KindOf(err); k != errs.Conflict && k != errs.MaybeDone {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	return errs.Newf(errs.Again, "meta.format", "", "the store cannot be formatted")
}

func (s *Store) tryFormat(ctx context.Context) error {
	t := txn{snap: s.kv.Snapshot(), now: s.now(), quiet: true}
	defer t.snap.Close()
	value, err := t.read([]byte(keyFormat))
	if err != nil {
		return err
	}
	if value != nil {
		return s.checkFormat(value)
	}
	if some, err := t.first(nil); err != nil || some != nil {
		return unlessNil(err, errs.Newf(errs.Invalid, "meta.format", "",
			"the key-value store is not empty and not a metadata store"))
	}
	var id [8]byte
	rand.Read(id[:])
	s.cluster = binary.BigEndian.Uint64(id[:])
	t.put([]byte(keyFormat), append(binary.BigEndian.AppendUint32(nil, Format), id[:]...))
	t.put([]byte(keyNumbers), binary.BigEndian.AppendUint64(nil, uint64(meta.RootIno)+1))
	t.put([]byte(keyRename), mark())
	t.putInode(meta.RootIno, &inode{
		Type: meta.Directory, Mode: s.opt.RootMode, UID: s.opt.RootUID, GID: s.opt.RootGID,
		Nlink: 1, Gen: 1, Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now, Parent: meta.RootIno,
	})
	t.touch(meta.RootIno)
	t.add([]byte(keyFiles), 1)
	t.kv.Sync = true
	_, err = s.kv.Commit(ctx, &t.kv)
	return err
}

func (s *Store) checkFormat(value []byte) error {
	if len(value) != 12 {
		return errs.Newf(errs.Corrupt, "meta.format", "", "%s has %d bytes", keyFormat, len(value))
	}
	f := binary.BigEndian.Uint32(value)
	if f > Format {
		return errs.Newf(errs.Version, "meta.format", "",
			"store has format %d, this build knows %d: use a newer build", f, Format)
	} else if f < Format {
		return errs.Newf(errs.Version, "meta.format", "",
			"store has format %d, this build needs %d: use the build that made it, or copy the "+
				"files to a new cluster with it", f, Format)
	}
	s.cluster = binary.BigEndian.Uint64(value[4:])
	return nil
}

// beginLife counts this start of the service. It is on disk before anybody hears of it, so that no
// two lives have one number.
func (s *Store) beginLife(ctx context.Context) error {
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		value, err := t.read([]byte(keyLives))
		if err != nil {
			return err
		}
		s.life = 1
		if len(value) == 4 {
			s.life += binary.BigEndian.Uint32(value)
		}
		t.put([]byte(keyLives), binary.BigEndian.AppendUint32(nil, s.life))
		t.kv.Sync, t.kv.MakesRoom = true, true
		return nil
	})
	return err
}

func unlessNil(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// Status is what an administrator sees of the service.
type Status struct {
	ClusterID uint64
	Sessions  int   // living ones
	Ending    int   // sessions that are gone and whose handles are not all closed yet
	Handles   int   // open, of all sessions
	Locks     int   // that are held
	LockWaits int   // requests that wait for locks
	Files     int64 // inodes
	Removed   int64 // inodes that the deletion queue has finished with since the start
	Pauses    int64 // times that the service did not run and let leases begin anew
	Queued    int   // inodes and objects that wait to be removed, counted up to 10000
	Trees     int   // directories without a name that are being emptied, counted up to 10000
	Pruned    int64 // entries that were removed with trees since the start
	Collected int64 // objects that no file named, removed since the start
	Leases    lease.Counts
	Unnamed   int64  // such objects that are left alone: files of theirs may have been forgotten
	Refused   uint64 // requests of I/O servers that claimed what is not theirs
	Strangers uint64 // requests of members that were removed, or with another's session
}

// Status counts.
func (s *Store) Status() (Status, error) {
	st := Status{ClusterID: s.cluster, Removed: s.gone.Load(), Pauses: s.pauses.Load(),
		Collected: s.collected.Load(), Unnamed: s.unnamed.Load(), Pruned: s.trees.removed(),
		Leases: s.leases.Counts(), Refused: s.owners.count.Load(),
		Strangers: s.banned.count.Load()}
	st.Sessions, st.Ending, st.Handles = s.sessions.count()
	st.Locks, st.LockWaits = s.locks.Counts()
	err := s.look(func(t *txn) error {
		files, err := t.peek([]byte(keyFiles))
		st.Files = counter(files)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			kind byte
			n    *int
		}{{kindRemoval, &st.Queued}, {kindBacklog, &st.Queued}, {kindTree, &st.Trees}} {
			if err == nil {
				err = t.scan([]byte{c.kind}, func(_, _ []byte) bool {
					*c.n++
					return *c.n < 10000
				})
			}
		}
		return err
	})
	return st, errs.Wrap("meta.Status", "", err)
}
