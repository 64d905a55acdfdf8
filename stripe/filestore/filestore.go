// Package filestore is the thin stripe engine: one sparse file an object in a folder of a
// local file system, through the page cache. What is acknowledged as durable has been synced
// together with all that is needed to find it again; what is volatile survives the death of
// the process.
//
// It checks no data against bit rot and orders no writes among objects; the store with a log and
// checksums takes its place later.
//
// The folder:
//
//	store.json               whose store this is and in which format (identity.go)
//	lock                     held by the process that has the store open (lock.go)
//	fences                   minimal generations (fence.go)
//	objects/3f/0a/<id>       one file an object: a header block, then the bytes (header.go)
//
// Lock order: life, fenceMu, object.mu, then one of table.mu, group.mu, dirs.mu, fences.mu. The
// first three are held across system calls: they order requests against restarts of the store's
// state (close, fence, truncate), and waiting for the disk is what those requests are for.
//
// Read filestore.go first, then object.go (life of an object) and sync.go (what durable means).
package filestore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"golang.org/x/sys/unix"
)

// Options of a store.
type Options struct {
	// Dir is the folder. It is made if it does not exist. An empty folder becomes a store; one
	// that holds something else is refused.
	Dir string

	// ServerID is whose store it is: written when the store is made, compared when it is opened.
	// 0 compares nothing.
	ServerID uint64

	// OpenFiles is how many objects are kept in memory with their files open while no request
	// uses them. Default 1024.
	OpenFiles int

	// hook runs before every system call that changes something; its error takes the place of
	// the call. Tests inject faults and deaths here.
	hook func(call, path string) error
}

func (o Options) withDefaults() Options {
	if o.OpenFiles == 0 {
		o.OpenFiles = 1024
	}
	return o
}

func (o Options) validate() error {
	if o.Dir == "" {
		return errs.Newf(errs.Invalid, "filestore.Open", "", "Options.Dir is empty")
	}
	if o.OpenFiles < 1 {
		return errs.Newf(errs.Invalid, "filestore.Open", o.Dir, "OpenFiles is %d", o.OpenFiles)
	}
	return nil
}

// Store is the engine.
type Store struct {
	opt      Options
	lock     *lockFile
	verifier uint64
	table    table
	dirs     dirs
	fences   *fences
	broken   atomic.Pointer[errs.Error] // the first failed write or sync, for ever

	fenceMu sync.Mutex // one SetMinGeneration at a time

	life   sync.RWMutex // shared by every request, exclusive for Close
	closed bool
}

var _ stripe.Engine = (*Store)(nil)

// Open opens the store in the folder, or makes one there. Errors: errs.Busy (another process
// has it), errs.Version (a newer format), errs.NotEmpty (the folder holds something else),
// errs.Corrupt, errs.Invalid (another server's store).
func Open(o Options) (*Store, error) {
	const op = "filestore.Open"
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, errs.Wrap(op, o.Dir, err)
	}
	if err := refuseForeign(o.Dir); err != nil {
		return nil, err
	}
	lock, err := takeLock(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{opt: o, lock: lock}
	if err := s.load(); err != nil {
		lock.abandon()
		return nil, errs.Wrap(op, o.Dir, err)
	}
	return s, nil
}

// load reads the identity and the fences under the lock.
func (s *Store) load() error {
	if !s.lock.wasClean {
		// A process died here, perhaps after it had acknowledged volatile writes under the
		// verifier that stays valid. From here on everything that exists is stable, so that
		// only what this process changes needs to be remembered for Sync.
		if err := syncFileSystem(s.opt.Dir); err != nil {
			return err
		}
	}
	ident, err := loadIdentity(s.opt)
	if err != nil {
		return err
	}
	s.fences, err = loadFences(s.opt.Dir, ident.StoreID, s.step)
	if err != nil {
		return err
	}
	s.verifier, err = verifierOf(ident.StoreID)
	if err != nil {
		s.fences.close()
		return err
	}
	s.table.init(s.opt.OpenFiles)
	return nil
}

// verifierOf binds the store to this run of the kernel: page cache, and with it every volatile
// write, lives exactly as long.
func verifierOf(storeID string) (uint64, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256([]byte(storeID + "\n" + strings.TrimSpace(string(boot))))
	return binary.BigEndian.Uint64(sum[:]), nil
}

// Verifier implements stripe.Keeper.
func (s *Store) Verifier() uint64 { return s.verifier }

// begin admits a request; end must follow unless it fails.
func (s *Store) begin(op string) error {
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return errs.New(errs.Closed, op, s.opt.Dir, nil)
	}
	return nil
}

func (s *Store) end() { s.life.RUnlock() }

// step is called before every system call that changes something.
func (s *Store) step(call, path string) error {
	if s.opt.hook == nil {
		return nil
	}
	return s.opt.hook(call, path)
}

// fail makes the store refuse all further changes: after a failed write or sync the kernel
// may have dropped what it held, and nobody knows the state that more writes would build
// upon.
func (s *Store) fail(call, path string, cause error) error {
	e := &errs.Error{Op: "filestore." + call, Object: path, Kind: errs.IO, Err: cause}
	s.broken.CompareAndSwap(nil, e)
	return e
}

// writable returns why the store refuses changes, nil if it does not.
func (s *Store) writable(op string) error {
	first := s.broken.Load()
	if first == nil {
		return nil
	}
	return errs.Newf(errs.IO, op, s.opt.Dir,
		"store refuses writes since an earlier failure, check the disk and restart: %w", first)
}

// Close implements stripe.Store. Closing twice is allowed.
func (s *Store) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.syncAll(context.Background())
	s.table.closeAll()
	if e := s.fences.close(); err == nil {
		err = e
	}
	if err != nil {
		s.lock.abandon() // the next process must not believe that all is stable
		return errs.Wrap("filestore.Close", s.opt.Dir, err)
	}
	return s.lock.release()
}

// Space implements stripe.Spacer with what the file system tells.
func (s *Store) Space() (stripe.Space, error) {
	const op = "filestore.Space"
	if err := s.begin(op); err != nil {
		return stripe.Space{}, err
	}
	defer s.end()
	var fs unix.Statfs_t
	if err := unix.Statfs(s.opt.Dir, &fs); err != nil {
		return stripe.Space{}, errs.Wrap(op, s.opt.Dir, err)
	}
	return stripe.Space{
		Total: int64(fs.Blocks) * fs.Bsize, Free: int64(fs.Bavail) * fs.Bsize,
	}, nil
}

func (s *Store) objectsDir() string { return filepath.Join(s.opt.Dir, objectsName) }
