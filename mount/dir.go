package mount

import (
	"context"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/mount/state"
	"golang.org/x/sys/unix"
)

// Offsets in a directory: "." ends at 1, ".." at 2, and the entry with cookie c at c+dots.
const dots = 2

// pageEntries is how many entries are asked for at once and kept for the kernel's next requests,
// which take some 25 each.
const pageEntries = 512

// pageFew is how many are asked for while this mount changes the directory: most of a larger page
// would be read again.
const pageFew = 32

// directory is an open directory with the entries that were read ahead.
type directory struct {
	ino meta.Ino

	// mu is held while a page is fetched: the kernel reads a directory one request at a time.
	mu      sync.Mutex
	page    []meta.Entry
	from    uint64 // cookie behind which page begins
	read    time.Time
	at      uint64 // of bridge.touched, before it was read
	recalls uint64 // of bridge.recalls, likewise
	plus    bool   // the page has attributes
}

// OpenDir opens a directory. The kernel has checked the right to read it.
func (b *bridge) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if number, ok := b.kept.before(in.Unique); ok {
		out.Fh = number
		return fuse.OK
	}
	d := &directory{ino: b.ino(in.NodeId)}
	out.Fh = b.dirs.add(d)
	if err := b.keep(state.Handle{Number: out.Fh, Ino: uint64(d.ino), Flags: in.Flags,
		Bits: state.Directory}, in.Unique); err != nil {
		b.dirs.remove(out.Fh)
		return b.status("opendir", err)
	}
	return fuse.OK
}

// ReleaseDir forgets a directory.
func (b *bridge) ReleaseDir(in *fuse.ReleaseIn) {
	if _, ok := b.dirs.remove(in.Fh); ok {
		b.kept.remove(in.Fh)
	}
}

// ReadDir lists names.
func (b *bridge) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn,
	out *fuse.DirEntryList) fuse.Status {
	return b.list(cancel, in, out, false)
}

// ReadDirPlus lists names with attributes, which saves a lookup each.
func (b *bridge) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn,
	out *fuse.DirEntryList) fuse.Status {
	return b.list(cancel, in, out, true)
}

func (b *bridge) list(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList,
	plus bool) fuse.Status {
	d, ok := b.dirs.get(in.Fh)
	if !ok {
		return fuse.EBADF
	}
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	off := in.Offset
	for ; off < dots; off++ {
		if !b.addDot(ctx, out, d, off, plus) {
			return fuse.OK
		}
	}
	// A page at a time: the kernel gets what is in out before anything is waited for.
	rest, err := d.rest(ctx, b, off-dots, plus)
	if errs.KindOf(err) == errs.NotFound {
		return fuse.ENOENT // as other file systems say of a directory that was removed
	}
	if err != nil {
		return b.nodeStatus("readdir", in.Pid, err)
	}
	b.accessed(d.ino)
	for i := range rest {
		if !b.addEntry(out, d, &rest[i], plus) {
			break
		}
	}
	return fuse.OK
}

// rest returns entries behind a cookie: what is left of the page, or a new one. A page that is
// older than attributes are believed is read again, and one of a directory that this mount has
// changed since.
func (d *directory) rest(ctx context.Context, b *bridge, cookie uint64, plus bool) (
	[]meta.Entry, error) {
	n := pageEntries
	if b.touched.since(d.at, d.ino) {
		d.page, n = nil, pageFew
	}
	if d.plus == plus && time.Since(d.read) <= max(b.opts.AttrTimeout, time.Millisecond) {
		for i := range d.page {
			before := d.from
			if i > 0 {
				before = d.page[i-1].Cookie
			}
			if before == cookie {
				return d.page[i:], nil
			}
		}
	}
	at, recalls := b.touched.now(), b.recalls.now()
	page, err := b.fs.ScanPage(ctx, b.as(ctx), d.ino, cookie, n, plus)
	if err != nil {
		return nil, err
	}
	d.page, d.from, d.read, d.plus = page, cookie, time.Now(), plus
	d.at, d.recalls = at, recalls
	return page, nil
}

// addDot adds "." or "..". The kernel knows what they are; programs see the numbers.
func (b *bridge) addDot(ctx context.Context, out *fuse.DirEntryList, d *directory, off uint64,
	plus bool) bool {
	e := fuse.DirEntry{Name: "..."[:off+1], Mode: unix.S_IFDIR, Ino: uint64(d.ino), Off: off + 1}
	if off == 1 {
		e.Ino = uint64(b.parent(ctx, d.ino))
	}
	if plus {
		return out.AddDirLookupEntry(e) != nil
	}
	return out.AddDirEntry(e)
}

// parent is the directory that a directory is in. The root of the mount is in itself, and so is one
// that is gone. Where this is not known, neither is the listing: who reads that asks for the
// attributes first, so that this costs nothing.
func (b *bridge) parent(ctx context.Context, dir meta.Ino) meta.Ino {
	if dir == b.fs.Root() {
		return dir
	}
	a, known := b.fs.KnownRights(dir)
	if !known {
		var err error
		if a, err = b.attrOf(ctx, dir); err != nil {
			return dir
		}
	}
	if a.Parent == 0 {
		return dir
	}
	return a.Parent
}

// addEntry adds an entry of the page. One that is not sure gets no attributes: the kernel looks the
// name up if it needs them.
func (b *bridge) addEntry(out *fuse.DirEntryList, d *directory, e *meta.Entry, plus bool) bool {
	de := fuse.DirEntry{Name: e.Name, Mode: typeBits(e.Type), Ino: uint64(e.Ino), Off: e.Cookie + dots}
	if !plus {
		return out.AddDirEntry(de)
	}
	entry := out.AddDirLookupEntry(de)
	if entry == nil {
		return false
	}
	if e.Attr != nil && !b.touched.since(d.at, e.Ino) {
		a := *e.Attr
		b.overlay(&a)
		b.entry(entry, d.ino, e.Name, &a, moment{d.recalls, d.at})
	}
	return true
}
