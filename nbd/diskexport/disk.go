package diskexport

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/unifier"
)

// disk is what all exports of one device have in common.
type disk struct {
	host  *Host
	key   string
	id    stripe.ObjectID // in the cache
	name  string
	parts []*part
	geometry
	grain  int64 // the block of direct I/O: the largest logical block of all members
	whole  int64 // up to here the disk consists of whole blocks; the rest goes by the page cache
	needs  needs // what it was opened for; the host's opening lock guards it
	users  int   // exports; guarded likewise
	ranges ranges

	// way is shared by all that changes the disk, so that the first cached export finds no change
	// under way that the cache does not know of.
	way     sync.RWMutex
	caching atomic.Bool // an export has put something into the cache

	relay  atomic.Pointer[relay.Engine]
	broken atomic.Pointer[error] // the first failed sync; see sync.go
	noSync atomic.Bool           // no RWF_DSYNC here
}

// part is a member, or the only one.
type part struct {
	disk     *disk
	path     string
	file     *os.File      // through the page cache
	dev      device.Device // direct; nil until a mode needs it
	size     int64
	block    bool // a block device
	inMemory bool // on a file system without a device
	noNowait atomic.Bool
	noStat   atomic.Bool         // the kernel does not tell what it caches
	known    atomic.Pointer[run] // a run of data; see space.go
	does     [2]atomic.Int32     // whether it punches and whether it zeroes in place
}

func openDisk(h *Host, number uint64, s Spec, n needs) (*disk, error) {
	d := &disk{host: h, id: stripe.ObjectID{File: number, Gen: 1}, name: s.name(), needs: n}
	d.ranges.init()
	for _, path := range s.Paths {
		p, err := openPart(path, n)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		p.disk = d
		d.parts = append(d.parts, p)
	}
	var err error
	if d.geometry, err = geometryOf(&s, d.parts); err == nil && n.direct {
		err = d.openDirect()
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// openPart opens, locks and measures one member.
func openPart(path string, n needs) (*part, error) {
	const op = "diskexport.Open"
	info, err := os.Stat(path)
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	p := &part{path: path, block: info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0}
	if !p.block && !info.Mode().IsRegular() {
		return nil, errs.Newf(errs.Invalid, op, path, "neither a file nor a block device")
	}
	flags := os.O_RDONLY
	if n.write {
		flags = os.O_RDWR
	}
	if p.block && (n.write || n.exclusive) {
		flags |= os.O_EXCL // refused by the kernel while it is mounted, and a second time
	}
	if p.file, err = os.OpenFile(path, flags, 0); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return nil, errs.Newf(errs.Busy, op, path,
				"the device is in use: unmount it or stop who uses it")
		}
		return nil, errs.Wrap(op, path, err)
	}
	if err := lockFile(p.file, n); err != nil {
		_ = p.file.Close() // the reason is what the caller needs to know
		return nil, errs.Wrap(op, path, err)
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(p.file.Fd()), &fs) == nil && !p.block {
		p.inMemory = fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
	}
	if p.size, err = p.file.Seek(0, io.SeekEnd); err != nil {
		_ = p.file.Close() // as above
		return nil, errs.Wrap(op, path, err)
	}
	return p, nil
}

// widen gives a disk that is open what one more export needs.
func (d *disk) widen(n needs) error {
	if n.write && !d.needs.write {
		return errs.Newf(errs.Busy, "diskexport.Open", d.name,
			"another export has it open for reading only")
	}
	if n.exclusive && !d.needs.exclusive {
		all := d.needs.or(n)
		for _, p := range d.parts {
			if p.block && !d.needs.write {
				return errs.Newf(errs.Busy, "diskexport.Open", d.name,
					"another export has it open without keeping others out")
			}
			if err := lockFile(p.file, all); err != nil {
				return err
			}
		}
	}
	if n.direct && !d.needs.direct {
		if err := d.openDirect(); err != nil {
			return err
		}
	}
	d.needs = d.needs.or(n)
	return nil
}

// openDirect opens every member a second time, for direct I/O.
func (d *disk) openDirect() error {
	grain := int64(0)
	for i, p := range d.parts {
		dev, err := device.OpenFile(device.FileOptions{Path: p.path, ReadOnly: !d.needs.write,
			Unlocked: true, Memory: d.host.ready.bytes()})
		if err != nil {
			return err
		}
		p.dev = dev
		if d.host.opt.Wrap != nil {
			p.dev = d.host.opt.Wrap(i, dev)
		}
		grain = max(grain, logicalBlock(p))
	}
	d.grain = grain
	d.whole = d.size / grain * grain
	return nil
}

// logicalBlock is the smallest unit of direct I/O: what the kernel says, or the page that is always
// right.
func logicalBlock(p *part) int64 {
	fd := int(p.file.Fd())
	if p.block {
		if n, err := unix.IoctlGetInt(fd, unix.BLKSSZGET); err == nil {
			return clampBlock(int64(n))
		}
		return blockBytes
	}
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0 ||
		st.Dio_mem_align > memAlign {
		return blockBytes
	}
	return clampBlock(int64(st.Dio_offset_align))
}

// clampBlock takes a power of two from 512 to 4096, or the page where the kernel says something
// else.
func clampBlock(n int64) int64 {
	if n < memAlign {
		return memAlign
	}
	if n > blockBytes || n&(n-1) != 0 {
		return blockBytes
	}
	return n
}

// cacheOn tells the disk that an export is about to use the cache.
func (d *disk) cacheOn() {
	if d.caching.Load() {
		return
	}
	d.way.Lock() // no change is under way that the cache was not told of
	d.caching.Store(true)
	d.way.Unlock()
}

// change lets fn change the range past the cache.
func (d *disk) change(ctx context.Context, off, length int64, fn func() error) error {
	d.way.RLock()
	defer d.way.RUnlock()
	if !d.caching.Load() {
		return fn()
	}
	return d.cache().Change(ctx, d.id, off, length, fn)
}

// settled returns when the disk itself has all that was written to the range.
func (d *disk) settled(ctx context.Context, off, length int64) error {
	if !d.caching.Load() {
		return nil
	}
	return d.cache().Settle(ctx, d.id, off, length)
}

func (d *disk) cache() *unifier.Cache { return d.host.cached() }

// engine is the relay of the disk, made with the first large read.
func (d *disk) engine() (*relay.Engine, error) {
	if e := d.relay.Load(); e != nil {
		return e, nil
	}
	e, err := relay.New(relay.Options{Disk: blocks{d}, Place: blocks{d}, Room: room{d.host},
		Workers: min(16*len(d.parts), 64)})
	if err != nil {
		return nil, err
	}
	if !d.relay.CompareAndSwap(nil, e) {
		e.Close()
	}
	return d.relay.Load(), nil
}

// settle writes back what is pending and drops what is cached, before the disk is closed.
func (d *disk) settle() error {
	if !d.caching.Load() {
		return nil
	}
	return d.cache().Change(context.Background(), d.id, 0, stripe.MaxObjectBytes, nil)
}

// close unlocks and closes. It does not sync: only Flush promises durability.
func (d *disk) close() error {
	var failed []error
	if e := d.relay.Load(); e != nil {
		e.Close()
	}
	for _, p := range d.parts {
		if p.dev != nil {
			failed = append(failed, p.dev.Close())
		}
		failed = append(failed, p.file.Close())
	}
	return errs.Wrap("diskexport.Close", d.name, errors.Join(failed...))
}
