// Package diskexport serves files, disks and sets of them (members, striped) as block devices, each
// in one or several modes at once:
//
//	page           through the kernel's page cache, coherent with other processes of this host
//	direct         past all caches: disk, registered memory, socket, no copy in our code; large
//	               reads leave in pieces, from all members at once, in whatever order they come
//	cached         through a cache of our own (package unifier) over direct I/O
//	cached-writes  writes as cached, reads as direct
//
// All exports of one disk share one object, so that each sees at once what another one has written,
// whatever their modes; flush and FUA cover all of them. Other processes are kept out where a mode
// needs it.
//
// It does not make or resize files, and a set is neither redundant nor can it grow.
//
// Coherence, in short. Whoever changes the disk past our cache does so inside unifier's Change,
// which writes back what is pending, drops what is cached, and lets nothing in meanwhile. Whoever
// reads past it has pending writes written back first. The kernel keeps page cache and direct I/O
// in step as long as nobody writes a page through both at the same time: ranges.go sees to that,
// and to blocks that are read, changed and written again.
//
// Locks: Host.opening* (opening and closing), disk.way* (shared by changes), the cache's range
// locks*, ranges.mu, then Host.mu; all others are leaves.
//
// Read host.go first, then export.go (what each mode does), disk.go, blocks.go (direct I/O), set.go
// (members), stream.go (reads in pieces).
package diskexport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/unifier"
)

// Mode is the way that data takes.
type Mode uint8

// The modes; see the package comment. The zero value is the default.
const (
	Page Mode = iota
	Direct
	Cached
	CachedWrites
	modesEnd
)

// Modes are the names of the modes, in their order.
func Modes() []string { return []string{"page", "direct", "cached", "cached-writes"} }

// String is the mode's name.
func (m Mode) String() string {
	if m >= modesEnd {
		return "unknown"
	}
	return Modes()[m]
}

// ParseMode finds a mode by its name.
func ParseMode(name string) (Mode, error) {
	for i, s := range Modes() {
		if s == name {
			return Mode(i), nil
		}
	}
	return 0, errs.Newf(errs.Invalid, "diskexport.Mode", name, "choose of %s",
		strings.Join(Modes(), ", "))
}

// caches tells whether the mode puts something into our cache.
func (m Mode) caches() bool { return m == Cached || m == CachedWrites }

// direct tells whether the mode uses direct I/O.
func (m Mode) direct() bool { return m != Page }

// Spec says what to serve, and how.
type Spec struct {
	// Paths names a regular file or a block device, or the members of a set, in their order.
	Paths []string

	// Unit is the stripe unit in bytes of a set without superblocks, whose members hold nothing but
	// data: nothing can tell then whether they are the right ones. A multiple of 4 KiB. 0: the
	// members have superblocks.
	Unit int64

	// Init makes a set with that stripe unit of members that are blank; a set that is there already
	// is opened. 0: it must be there.
	Init int64

	// Mode is the way that data takes. Default Page.
	Mode Mode

	// ReadOnly opens for reading only.
	ReadOnly bool

	// Streams says how the pieces of a large direct read follow each other. Default relay.Multiple.
	Streams relay.Streams
}

func (s *Spec) validate() error {
	const op = "diskexport.Open"
	name := strings.Join(s.Paths, ":")
	for _, p := range s.Paths {
		if p == "" {
			return errs.Newf(errs.Invalid, op, name, "an empty path")
		}
	}
	switch {
	case len(s.Paths) == 0 || len(s.Paths) > membersMax:
		return errs.Newf(errs.Invalid, op, name, "%d paths; 1 to %d", len(s.Paths), membersMax)
	case s.Mode >= modesEnd:
		return errs.Newf(errs.Invalid, op, name, "mode %d", s.Mode)
	case len(s.Paths) == 1 && (s.Unit != 0 || s.Init != 0):
		return errs.Newf(errs.Invalid, op, name, "a stripe unit needs several members")
	case s.Unit != 0 && s.Init != 0:
		return errs.Newf(errs.Invalid, op, name,
			"a set is made with superblocks or has a given unit, not both")
	case s.Init != 0 && s.ReadOnly:
		return errs.Newf(errs.Invalid, op, name, "a set cannot be made read-only")
	case s.Unit != 0 && !unitFits(s.Unit) || s.Init != 0 && !unitFits(s.Init):
		return errs.Newf(errs.Invalid, op, name,
			"the stripe unit is a multiple of 4 KiB, at most 64 MiB")
	}
	return nil
}

// Options of a host.
type Options struct {
	// Cache is the memory of all cached and direct exports together, see unifier.Config. Its sizes
	// have defaults; a quarter of it, at most, holds writes that are not on disk.
	Cache unifier.Config

	// Wrap puts something between an export and a member's direct I/O: a throttle, a fault. Default
	// nil: nothing.
	Wrap func(member int, d device.Device) device.Device
}

// Host is what the exports of a process share: the disks they have open, and the memory. Make one
// with New. Safe for concurrent use.
type Host struct {
	opt Options

	opening sync.Mutex // one at a time opens or closes a disk
	disks   map[string]*disk
	planned map[string]needs
	next    uint64

	mu    sync.RWMutex // guards what follows; held for memory only
	byID  map[uint64]*disk
	cache *unifier.Cache
	ready readyMemory

	waiters  atomic.Int64  // reads that wait for memory
	progress atomic.Uint64 // reads that have got some
	seen     atomic.Uint64 // progress when somebody asked last
}

// needs is what the exports of a disk ask of its descriptors.
type needs struct{ write, exclusive, direct, cache bool }

func (n needs) or(m needs) needs {
	return needs{n.write || m.write, n.exclusive || m.exclusive, n.direct || m.direct,
		n.cache || m.cache}
}

func (s *Spec) needs() needs {
	return needs{write: !s.ReadOnly, exclusive: s.Mode.caches() || s.Mode == Direct && !s.ReadOnly,
		direct: s.Mode.direct(), cache: s.Mode.caches()}
}

// New makes a host. It takes no memory before an export needs some.
func New(o Options) *Host {
	return &Host{opt: o, disks: map[string]*disk{}, planned: map[string]needs{},
		byID: map[uint64]*disk{}}
}

// Plan tells which exports there will be, in place of what was told before: a disk is then opened
// for all of them, in whatever order clients come.
func (h *Host) Plan(specs ...Spec) {
	planned := map[string]needs{}
	for i := range specs {
		if key, err := keyOf(&specs[i]); err == nil { // else Open says why
			planned[key] = planned[key].or(specs[i].needs())
		}
	}
	h.opening.Lock()
	defer h.opening.Unlock()
	h.planned = planned
}

// Open opens an export, and with it the disk unless another export has it open. Errors: errs.Busy
// where somebody else has the disk, or an export that was not planned has it open for less than
// this one needs; errs.NotFound; errs.Invalid; errs.Corrupt for what is not a set.
func (h *Host) Open(_ context.Context, s Spec) (*Export, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	key, err := keyOf(&s)
	if err != nil {
		return nil, err
	}
	h.opening.Lock()
	defer h.opening.Unlock()
	need := s.needs().or(h.planned[key])
	if need.cache || need.direct {
		if err := h.makeCache(); err != nil {
			return nil, err
		}
	}
	d := h.disks[key]
	if d == nil {
		h.next++
		if d, err = openDisk(h, h.next, s, need); err != nil {
			return nil, err
		}
		d.key = key
		h.disks[key] = d
		h.mu.Lock()
		h.byID[d.id.File] = d
		h.mu.Unlock()
	} else if err := d.widen(s.needs()); err != nil {
		return nil, err
	}
	d.users++
	return &Export{d: d, mode: s.Mode, readOnly: s.ReadOnly, how: relay.How{Streams: s.Streams}}, nil
}

// release ends one export's use of a disk.
func (h *Host) release(d *disk) error {
	h.opening.Lock()
	defer h.opening.Unlock()
	if d.users--; d.users > 0 {
		return nil
	}
	delete(h.disks, d.key)
	err := d.settle()
	h.mu.Lock()
	delete(h.byID, d.id.File)
	h.mu.Unlock()
	return errors.Join(err, d.close())
}

// Close gives the memory back. All exports are closed before.
func (h *Host) Close() error {
	h.mu.Lock()
	c := h.cache
	h.cache = nil
	h.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Close()
}

// makeCache makes the cache with the first export that needs it. The opening lock is held.
func (h *Host) makeCache() error {
	if h.cached() != nil {
		return nil
	}
	cfg := h.opt.Cache
	cfg.Registrar = &h.ready
	if cfg.MemoryBytes == 0 {
		cfg.MemoryBytes = 256 << 20
	}
	if cfg.DirtyBytes == 0 {
		cfg.DirtyBytes = cfg.MemoryBytes / 8
	}
	cfg.OnLoss = h.lost
	c, err := unifier.New(cfg, backing{h})
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.cache = c
	h.mu.Unlock()
	return nil
}

func (h *Host) cached() *unifier.Cache {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.cache
}

// disk finds an open disk by its number.
func (h *Host) disk(id stripe.ObjectID) (*disk, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if d := h.byID[id.File]; d != nil {
		return d, nil
	}
	return nil, errs.Newf(errs.Closed, "diskexport", id.String(), "no such disk")
}

// lost is told that writes which were acknowledged and not yet flushed could not be written: the
// next flush says so. The cache drops those of all disks.
func (h *Host) lost(_ unifier.Key, err error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, d := range h.byID {
		if d.caching.Load() {
			_ = d.breakDown(err) // it is kept, that is all
		}
	}
}

// readyMemory collects what the cache has mapped, so that rings can register it.
type readyMemory struct {
	mu     sync.Mutex
	arenas []*mem.Arena
}

// Attach implements unifier.Registrar.
func (r *readyMemory) Attach(a *mem.Arena) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arenas = append(r.arenas, a)
	return nil
}

// Detach implements unifier.Registrar.
func (r *readyMemory) Detach(a *mem.Arena) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.arenas {
		if r.arenas[i] == a {
			r.arenas = append(r.arenas[:i], r.arenas[i+1:]...)
			return
		}
	}
}

func (r *readyMemory) bytes() (all [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.arenas {
		all = append(all, a.Bytes())
	}
	return all
}

// keyOf names a disk by what it is, not by the path that leads to it.
func keyOf(s *Spec) (string, error) {
	var b strings.Builder
	for _, p := range s.Paths {
		var st unix.Stat_t
		if err := retry(func() error { return unix.Stat(p, &st) }); err != nil {
			return "", errs.Wrap("diskexport.Open", p, &os.PathError{Op: "open", Path: p, Err: err})
		}
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			fmt.Fprintf(&b, "b%d:", st.Rdev)
		} else {
			fmt.Fprintf(&b, "%d.%d:", st.Dev, st.Ino)
		}
	}
	fmt.Fprintf(&b, "%d", s.Unit)
	return b.String(), nil
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
