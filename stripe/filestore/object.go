package filestore

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"golang.org/x/sys/unix"
)

// state is what is known of an object.
type state uint8

const (
	unknown state = iota // the file system has not been asked yet
	absent
	present
)

// object is one object in memory. Requests hold mu shared while they read or write the file;
// what changes the header, or whether the object exists at all, holds it exclusively, so that
// a truncate or a fence never races a write that was admitted before.
type object struct {
	id   stripe.ObjectID
	path string

	refs  int           // guarded by table.mu
	place *list.Element // guarded by table.mu; in table.idle while refs is 0

	dirty atomic.Bool // something was changed since the last sync began
	group group

	mu      sync.RWMutex
	state   state
	fd      int
	hdr     header
	newborn bool // the directory entry may not be stable; cleared by the one sync that runs
	husk    bool // absent, but a file without a header is there, perhaps with bytes in it
}

// mode says what a request needs of its object.
type mode uint8

const (
	toRead   mode = iota // absent objects stay absent
	toChange             // the same, and the store must be writable
	toCreate             // the object comes to life, and the store must be writable
)

// enter admits a request and returns its object with mu held shared. leave must follow.
func (s *Store) enter(op string, id stripe.ObjectID, m mode) (*object, error) {
	o, err := s.admit(op, id, m)
	if err != nil {
		return nil, err
	}
	for {
		o.mu.RLock()
		if o.state == present || o.state == absent && m != toCreate {
			// Only now is the fence exact: SetMinGeneration waits for mu.
			if err := s.fences.check(op, id); err != nil {
				o.mu.RUnlock()
				s.expel(o)
				return nil, err
			}
			return o, nil
		}
		o.mu.RUnlock()
		o.mu.Lock()
		err := s.prepareLocked(op, o, m)
		o.mu.Unlock()
		if err != nil {
			s.expel(o)
			return nil, err
		}
	}
}

func (s *Store) leave(o *object) {
	o.mu.RUnlock()
	s.expel(o)
}

// admit is the part of enter before the object's lock; expel undoes it.
func (s *Store) admit(op string, id stripe.ObjectID, m mode) (*object, error) {
	if err := s.begin(op); err != nil {
		return nil, err
	}
	err := s.fences.check(op, id)
	if err == nil && m != toRead {
		err = s.writable(op)
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s.acquire(id), nil
}

func (s *Store) expel(o *object) {
	s.table.release(o)
	s.end()
}

func (s *Store) acquire(id stripe.ObjectID) *object {
	o, victim := s.table.acquire(id, func() string { return s.pathOf(id) })
	if victim != nil {
		s.retire(victim)
	}
	return o
}

// retire makes an unused object stable and lets it go, unless somebody has come for it
// meanwhile. If the sync fails the store has stopped, and remembers that better than the
// object could.
func (s *Store) retire(o *object) {
	o.mu.RLock()
	_ = s.flush(context.Background(), o)
	o.mu.RUnlock()
	if s.table.drop(o) {
		o.closeFile()
	}
}

// prepareLocked finds out whether the object exists, and makes it if the mode asks for it.
func (s *Store) prepareLocked(op string, o *object, m mode) error {
	if o.state == unknown {
		if err := s.loadLocked(o); err != nil {
			return errs.Wrap(op, "object "+o.id.String(), err)
		}
	}
	if o.state == absent && m == toCreate {
		if err := s.fences.check(op, o.id); err != nil {
			return err
		}
		return s.createLocked(o, header{id: o.id})
	}
	return nil
}

// loadLocked opens the file, if there is one, and completes a truncate that was cut short.
func (s *Store) loadLocked(o *object) error {
	fd, err := openFile(o.path, unix.O_RDWR)
	if errors.Is(err, unix.ENOENT) {
		o.state = absent
		return nil
	}
	if err != nil {
		return err
	}
	hdr, ok, err := readHeader(fd, o.id)
	if err != nil || !ok {
		unix.Close(fd)
		if err == nil {
			o.state, o.husk = absent, true
		}
		return err
	}
	o.fd, o.hdr, o.state = fd, hdr, present
	if !hdr.pending {
		return nil
	}
	if err := s.finishTruncateLocked(o); err != nil && o.hdr.pending {
		o.closeFile()
		o.state = unknown
		return err
	}
	return nil
}

func openFile(path string, flags int) (fd int, err error) {
	err = again(func() error {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		return err
	})
	return fd, err
}

func readHeader(fd int, id stripe.ObjectID) (header, bool, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return header{}, false, err
	}
	block := make([]byte, min(st.Size, headerBytes))
	if err := preadFull(fd, [][]byte{block}, 0); err != nil {
		return header{}, false, err
	}
	return decodeHeader(block, id)
}

// createLocked makes the file with its header. If it fails half-way, or the process dies, what is
// left has no header and does not exist.
func (s *Store) createLocked(o *object, hdr header) error {
	if err := s.dirs.ensure(s, dirOf(o.id)); err != nil {
		return err
	}
	err := s.step("create", o.path)
	fd := -1
	if err == nil {
		fd, err = openFile(o.path, unix.O_RDWR|unix.O_CREAT)
	}
	if err != nil {
		return s.changed("create", o.path, err)
	}
	o.fd = fd
	if o.husk {
		err = s.emptyHuskLocked(o)
	}
	if err == nil {
		err = s.writeHeaderLocked(o, hdr)
	}
	if err != nil {
		o.closeFile()
		o.husk = true
		return err
	}
	o.state, o.newborn, o.husk = present, true, false
	return nil
}

// emptyHuskLocked drops the bytes of a file that was never completed, and makes that stable before
// the file gets a header: otherwise a power cut could keep the header and bring the bytes back.
func (s *Store) emptyHuskLocked(o *object) error {
	err := s.step("ftruncate", o.path)
	if err == nil {
		err = again(func() error { return unix.Ftruncate(o.fd, 0) })
	}
	if err == nil {
		err = s.step("fdatasync", o.path)
	}
	if err == nil {
		err = again(func() error { return unix.Fdatasync(o.fd) })
	}
	if err != nil {
		return s.fail("create", o.path, err)
	}
	return nil
}

// writeHeaderLocked replaces the header; it is stable with the next sync.
func (s *Store) writeHeaderLocked(o *object, hdr header) error {
	err := s.step("header", o.path)
	if err == nil {
		err = pwriteFull(o.fd, [][]byte{hdr.encode()}, 0)
	}
	o.dirty.Store(true)
	if err != nil {
		return s.changed("header", o.path, err)
	}
	o.hdr = hdr
	return nil
}

// dirOf spreads the objects over 64 x 64 directories: a few thousand files each for millions of
// objects.
func dirOf(id stripe.ObjectID) uint16 {
	h := id.File*0x9e3779b97f4a7c15 ^ uint64(id.Stripe)*0xc2b2ae3d27d4eb4f ^
		uint64(id.Gen)*0x165667b19e3779f9
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return uint16(h >> 52) // 12 bits
}

func (s *Store) dirPath(dir uint16) string {
	return filepath.Join(s.objectsDir(), fmt.Sprintf("%02x", dir>>6), fmt.Sprintf("%02x", dir&63))
}

// nameOf is the object's file name: file, generation and stripe in hexadecimal.
func nameOf(id stripe.ObjectID) string {
	return fmt.Sprintf("%016x.%08x.%08x", id.File, id.Gen, id.Stripe)
}

func parseName(name string) (id stripe.ObjectID, ok bool) {
	if len(name) != 34 {
		return id, false
	}
	n, err := fmt.Sscanf(name, "%016x.%08x.%08x", &id.File, &id.Gen, &id.Stripe)
	return id, err == nil && n == 3 && nameOf(id) == name
}

func (s *Store) pathOf(id stripe.ObjectID) string {
	return filepath.Join(s.dirPath(dirOf(id)), nameOf(id))
}
