// Package logstore is the stripe engine for disks: objects on one or several members, each a file
// with direct I/O or a block device, with a log, an index and a checksum for every 4 KiB.
//
// Two paths, one log. Less than 64 KiB is logged as whole blocks of 4 KiB and written in place
// later; from 64 KiB on, whole clusters of 64 KiB are written to free places and a record of the
// log switches the map to them. What is durable has survived when the call returns; what is
// volatile survives the death of the process, and a power cut after the next Sync. Requests that
// come at the same time share a sync.
//
// A read verifies every block. A block that does not verify is an error for whoever reads it, never
// zeroes. A failed write or sync stops the member.
//
// Several members share objects in turn, by units that are chosen when the store is made (RAID 0).
// Each has its own log; a write that touches several is one record or more on each.
//
// It does not cache what it reads, and knows neither files nor the network. Memory is bounded:
// Options says by what.
//
// Lock order: member.life (shared by requests), object.order* (may wait for the disk),
// member.checkpointing*, member.growing*, member.mu, then pool.mu and the sessions' lock.
//
// Read logstore.go first, then layout.go, entry.go and record.go (what is on the disk), write.go,
// log.go, checkpoint.go and room.go (life of a write), read.go, and open.go and replay.go (a
// restart).
package logstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/wire"
)

// MembersMax is how many members a store may have.
const MembersMax = 64

// unitFirst is how much of an object lay together on a member in format 1.
const unitFirst = 1 << 20

// Options of a store.
type Options struct {
	// Devices are the members, in their order. The store closes them.
	Devices []device.Device

	// ServerID is whose store it is: written by Create, compared by Open. 0 compares nothing.
	ServerID uint64

	// LogBytes is the size of each member's log, for Create. From 512 KiB on; default 128 MiB. A
	// restart reads and applies up to that much; a larger log makes larger groups of writes in
	// place.
	LogBytes int64

	// UnitBytes is how much of an object lies together on one member of several, for Create: a
	// multiple of 64 KiB, up to 64 MiB. Default 256 KiB: four disks serve a request of 1 MiB
	// together, and none is asked for less than it moves well.
	UnitBytes int64

	// PendingBytes bounds, for each member, the memory of what is logged and not yet in place.
	// Default 64 MiB.
	PendingBytes int64

	// IndexBytes bounds, for each member, the memory of pages of the index. Pages that have changed
	// stay until a checkpoint has written them; when they alone reach the bound there is one, so
	// that the memory is never more than about twice that. Default 256 MiB, enough for 128 GiB of data
	// at a time; all pages of a TiB are 2 GiB. Maps of objects come on top, see Stats.MapBytes: about
	// 6 bytes for 64 KiB of data, 100 MiB for a TiB, and 250 bytes an object. (With several members
	// and units below 1 MiB up to four times as much of data that is one object's.)
	IndexBytes int64

	// ReserveBytes is how much each member leaves of the file system that it takes its space from, for
	// others, above all for metadata, without which nobody could remove anything. Default: a 20th of
	// the file system, from 64 MiB to 8 GiB but never more than an eighth. Negative: none.
	ReserveBytes int64

	// Unsummed makes a store without checksums of data, so that a bench can tell what they cost. A
	// store with them is not opened with it, nor the other way round.
	Unsummed bool

	// LateCheckpoints makes none before the log or the memory of pending blocks is full, so that a
	// bench can tell how long a restart takes at most.
	LateCheckpoints bool

	// Salvage opens a store although its log is damaged in the middle, its index has lost entries, or
	// the list of sessions does not verify, where Open refuses or reads fail. What was lost is
	// forgotten: older bytes, or zeroes, are read in its place. It is for people who have no copy.
	Salvage bool

	// Logger is told what people should know. Default slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.LogBytes == 0 {
		o.LogBytes = 128 << 20
	}
	if o.UnitBytes == 0 {
		o.UnitBytes = 256 << 10
	}
	if o.PendingBytes == 0 {
		o.PendingBytes = 64 << 20
	}
	if o.IndexBytes == 0 {
		o.IndexBytes = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func (o Options) validate(op string) error {
	switch {
	case len(o.Devices) == 0 || len(o.Devices) > MembersMax:
		return errs.Newf(errs.Invalid, op, "", "%d members; 1 to %d", len(o.Devices), MembersMax)
	case o.LogBytes < logBytesMin || o.LogBytes >= 1<<40:
		return errs.Newf(errs.Invalid, op, "", "LogBytes is %d; at least %d", o.LogBytes, logBytesMin)
	case o.UnitBytes < clusterBytes || o.UnitBytes > unitMax || o.UnitBytes%clusterBytes != 0:
		return errs.Newf(errs.Invalid, op, "", "UnitBytes is %d; a multiple of %d up to %d",
			o.UnitBytes, clusterBytes, unitMax)
	case o.PendingBytes < blockBytes || o.IndexBytes < blockBytes:
		return errs.Newf(errs.Invalid, op, "", "PendingBytes %d or IndexBytes %d is too small",
			o.PendingBytes, o.IndexBytes)
	}
	return nil
}

// Store is the engine.
type Store struct {
	opt      Options
	members  []*member
	unit     int64 // bytes of an object that lie together on a member
	id       [16]byte
	verifier uint64
	life     atomic.Uint64
	count    requestCounters
	fans     sync.Pool

	mu     sync.Mutex
	closed bool
}

type requestCounters struct {
	reads, writes, readBytes, writeBytes atomic.Uint64
}

var _ stripe.Engine = (*Store)(nil)

// Create makes an empty store on the devices; whatever they held is lost. It returns the id that
// the store gave itself.
func Create(o Options) (id [16]byte, err error) {
	const op = "logstore.Create"
	o = o.withDefaults()
	if err := o.validate(op); err != nil {
		return id, err
	}
	if _, err := rand.Read(id[:]); err != nil {
		return id, err
	}
	for i, dev := range o.Devices {
		s := super{storeID: id, index: uint32(i), members: uint32(len(o.Devices)),
			serverID: o.ServerID, logBytes: o.LogBytes, unit: uint32(o.UnitBytes),
			unsummed: o.Unsummed}
		if err := createMember(dev, s); err != nil {
			return id, errs.Wrap(op, dev.Name(), err)
		}
	}
	return id, nil
}

// Open opens the store on the devices. Errors: errs.Corrupt (not a store, or damaged beyond use),
// errs.Version (another format), errs.Invalid (another server's, or members that do not belong
// together).
func Open(o Options) (*Store, error) {
	const op = "logstore.Open"
	o = o.withDefaults()
	if err := o.validate(op); err != nil {
		return nil, err
	}
	s := &Store{opt: o}
	if err := s.checkMembers(op); err != nil {
		return nil, err
	}
	s.life.Add(1 << stripe.LifeBits)
	// Members are independent of each other: they replay their logs at the same time.
	s.members = make([]*member, len(o.Devices))
	failed := make([]error, len(o.Devices))
	var wg sync.WaitGroup
	for i, dev := range o.Devices {
		wg.Go(func() {
			s.members[i], failed[i] = openMember(dev, s.member())
		})
	}
	wg.Wait()
	err := errors.Join(failed...)
	if err == nil {
		err = s.agree()
	}
	if err == nil {
		s.verifier, err = verifierOf(s.id)
	}
	if err != nil {
		for _, m := range s.members {
			if m != nil {
				m.abandon()
			}
		}
		return nil, errs.Wrap(op, "", err)
	}
	return s, nil
}

// member is what its members are told that change with the store.
func (s *Store) member() memberOptions {
	o := s.opt.member()
	o.life = &s.life
	return o
}

func (o Options) member() memberOptions {
	return memberOptions{pendingBlocks: int(o.PendingBytes / blockBytes),
		indexPages: int(o.IndexBytes / blockBytes), log: o.Logger, unsummed: o.Unsummed,
		late: o.LateCheckpoints, salvage: o.Salvage, reserve: o.ReserveBytes}
}

// checkMembers refuses devices that are not the members of one store, all of them and in order.
func (s *Store) checkMembers(op string) error {
	for i, dev := range s.opt.Devices {
		sup, err := readSuper(dev)
		if err != nil {
			return err
		}
		if i == 0 {
			s.id, s.unit = sup.storeID, int64(sup.unit)
		}
		s.life.Store(max(s.life.Load(), sup.openings<<stripe.LifeBits))
		switch {
		case sup.storeID != s.id:
			return errs.Newf(errs.Invalid, op, dev.Name(), "a member of store %x, the first one is "+
				"of %x: name the members of one store", sup.storeID, s.id)
		case int(sup.members) != len(s.opt.Devices) || int(sup.index) != i:
			return errs.Newf(errs.Invalid, op, dev.Name(), "member %d of %d, named as %d of %d: name "+
				"all members in their order", sup.index+1, sup.members, i+1, len(s.opt.Devices))
		case int64(sup.unit) != s.unit:
			return errs.Newf(errs.Corrupt, op, dev.Name(), "its units are of %d bytes, those of the "+
				"first member of %d: restore the store from a copy", sup.unit, s.unit)
		case sup.unsummed != s.opt.Unsummed:
			return errs.Newf(errs.Invalid, op, dev.Name(), "a store without checksums is %v, asked for "+
				"is %v: such stores are for benches only", sup.unsummed, s.opt.Unsummed)
		case s.opt.ServerID != 0 && sup.serverID != 0 && sup.serverID != s.opt.ServerID:
			return errs.Newf(errs.Invalid, op, dev.Name(), "the store belongs to server %d, not to "+
				"%d: choose another one", sup.serverID, s.opt.ServerID)
		}
	}
	return nil
}

// agree finishes truncates and fences that a crash has left on some members only.
func (s *Store) agree() error {
	if len(s.members) == 1 {
		return nil
	}
	ctx := context.Background()
	fences := map[uint64]bar{}
	for _, m := range s.members {
		for file, f := range m.fences {
			fences[file] = fences[file].raised(f.bar)
		}
	}
	type cut struct {
		seq  uint64
		size int64
	}
	cuts := map[stripe.ObjectID]cut{}
	for _, m := range s.members {
		for id, o := range m.objects {
			if o.truncSeq > cuts[id].seq {
				cuts[id] = cut{o.truncSeq, o.size}
			}
		}
	}
	for _, m := range s.members {
		for id, c := range cuts {
			if o := m.objects[id]; o != nil && o.truncSeq >= c.seq {
				continue
			}
			// A fenced object cannot be truncated, and nobody can read it either.
			err := m.truncate(ctx, id, c.size, wire.Stamp{TruncSeq: c.seq})
			if err != nil && errs.KindOf(err) != errs.Fenced {
				return err
			}
		}
		for file, to := range fences {
			if !m.fences[file].covers(to) {
				if err := m.setFence(ctx, "logstore.Open", file, to); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// verifierOf binds the store to this run of the kernel: what was written without a sync lives as
// long, whatever happens to the process.
func verifierOf(id [16]byte) (uint64, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256([]byte(fmt.Sprintf("%x\n%s", id, strings.TrimSpace(string(boot)))))
	return binary.BigEndian.Uint64(sum[:]), nil
}

// Verifier implements stripe.Keeper.
func (s *Store) Verifier() uint64 { return s.verifier }

// Life implements stripe.Keeper. All members know how often the store was opened as soon as they
// are: the first checkpoint of each says so.
func (s *Store) Life() uint64 { return s.life.Load() }

// NewLife implements stripe.Keeper.
func (s *Store) NewLife() { s.life.Add(1) }

// ID is the name that the store gave itself when it was made.
func (s *Store) ID() [16]byte { return s.id }

// Abandon lets go of the store as a crash of the process does: what is in the log stays there, and
// the next opener replays it. It is for benches and tests.
func (s *Store) Abandon() {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return
	}
	for _, m := range s.members {
		m.abandon()
		m.dev.Close()
	}
}

// Close implements stripe.Store. Closing twice is allowed.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	var all []error
	for _, m := range s.members {
		all = append(all, m.close(), m.dev.Close())
	}
	return errors.Join(all...)
}
