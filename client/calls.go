package client

import (
	"context"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

// The operations on names and attributes by inode, for front ends that know inodes: as those of
// meta.Service, on behalf of the given user. What is known under a lease is answered without asking
// anybody, with the permission checks of the service; what this client changes itself it knows
// afterwards.

// Lookup finds a name in a directory. Size and times are those of GetAttr.
func (fs *FS) Lookup(ctx context.Context, cred meta.Cred, dir meta.Ino, name string) (
	meta.Attr, error) {
	return fs.lookup(ctx, cred, dir, name, true)
}

// lookup is Lookup; without exact only type, mode and owner count.
func (fs *FS) lookup(ctx context.Context, cred meta.Cred, dir meta.Ino, name string, exact bool) (
	meta.Attr, error) {
	a, err, known := fs.cache.Lookup(&cred, dir, name, exact)
	if known {
		if err == nil {
			fs.overlayKnown(&a)
		}
		return a, err // as it is: whoever makes files looks for each of them first
	}
	t := fs.cache.Begin()
	found, err := fs.svc.Find(ctx, fs.Caller(cred), dir, name)
	if err != nil {
		return meta.Attr{}, errs.Wrap("client.Lookup", name, err)
	}
	switch {
	case fs.cache.PutFound(t, dir, name, &found):
		fs.listNames(ctx, dir)
	case found.Present:
		fs.lookAhead(ctx, dir, name, &found)
	}
	if !found.Present {
		return meta.Attr{}, errs.New(errs.NotFound, "client.Lookup", name, nil)
	}
	if n := fs.peek(found.Attr.Ino); n != nil {
		if found.Attr.Lease != meta.LeaseNone { // then no truncation is under way
			n.accept(fs, t, &found.Attr, meta.SmallData{Bytes: found.Data}, byLook)
		}
	}
	fs.Overlay(&found.Attr)
	return found.Attr, nil
}

// listNames reads the names of a directory into the cache, so that it knows which are not there:
// whoever makes files looks for each of them first. If that fails the next one is asked for.
func (fs *FS) listNames(ctx context.Context, dir meta.Ino) {
	w := meta.Scan{Max: meta.DirPageMax}
	for n := 0; n <= cache.ListMax; n += w.Max {
		page, err := fs.scan(ctx, fs.trusted(), dir, &w)
		if err != nil || page.End {
			return
		}
		w.Cookie = page.Entries[len(page.Entries)-1].Cookie
	}
}

// MakeIno makes an inode of any type, and does not open it.
func (fs *FS) MakeIno(ctx context.Context, cred meta.Cred, dir meta.Ino, name string,
	f meta.NewFile) (meta.Attr, error) {
	if a, done, err := fs.makeHere(ctx, &cred, dir, name, &f); done {
		return a, errs.Wrap("client.Make", name, err)
	}
	f.Sole = f.Type == meta.Directory && fs.defers()
	change := fs.cache.Change().Name(dir, name)
	c, t := fs.identified(ctx, cred, UseMake), fs.cache.Begin()
	a, err := fs.svc.Make(ctx, c, dir, name, f)
	if fs.madeRoom(ctx, err) {
		a, err = fs.svc.Make(ctx, c, dir, name, f)
	}
	o := outcome(err, &a)
	if err == nil {
		o.Names, o.Born = []cache.Named{made(dir, name, &a)}, true
		if a.Atime == a.Btime && a.Mtime == a.Btime && a.Ctime == a.Btime {
			o.At = a.Ctime
		}
	}
	change.End(settled(ctx, o))
	if err == nil {
		fs.holds(t, c.Session, &a)
	}
	return a, errs.Wrap("client.Make", name, err)
}

// LinkIno gives a second name to what is not a directory.
func (fs *FS) LinkIno(ctx context.Context, cred meta.Cred, ino, dir meta.Ino, name string) (
	meta.Attr, error) {
	change := fs.cache.Change().Name(dir, name).Inode(ino)
	a, err := fs.svc.Link(ctx, fs.identified(ctx, cred, UseLink), ino, dir, name)
	o := outcome(err, &a)
	if err == nil {
		o.Names = []cache.Named{{Dir: dir, Name: name, Ino: ino, Type: a.Type}}
	}
	change.End(settled(ctx, o))
	fs.cache.Reveal(ino)
	if err == nil {
		fs.Overlay(&a)
	}
	return a, errs.Wrap("client.Link", name, err)
}

// RemoveIno takes a name away; isDir chooses rmdir(2) over unlink(2).
func (fs *FS) RemoveIno(ctx context.Context, cred meta.Cred, dir meta.Ino, name string,
	isDir bool) error {
	if done, err := fs.removeHere(ctx, &cred, dir, name, isDir); done {
		return errs.Wrap("client.Remove", name, err)
	}
	was, _, err := fs.announceVictim(ctx, cred, dir, name)
	if err != nil {
		return errs.Wrap("client.Remove", name, err)
	}
	change := fs.cache.Change().Name(dir, name).Inode(was)
	at, err := fs.svc.Remove(ctx, fs.identified(ctx, cred, UseRemove), dir, name, isDir)
	o := outcome(err, nil)
	if err == nil {
		o.At = at
		o.Names = []cache.Named{{Dir: dir, Name: name}}
	}
	change.End(settled(ctx, o))
	return errs.Wrap("client.Remove", name, err)
}

// RemoveTreeIno takes a name away with all that is below it: see meta.Trees.
func (fs *FS) RemoveTreeIno(ctx context.Context, cred meta.Cred, dir meta.Ino, name string) error {
	was, _, err := fs.announceVictim(ctx, cred, dir, name)
	if err != nil {
		return errs.Wrap("client.RemoveTree", name, err)
	}
	change := fs.cache.Change().Name(dir, name).Inode(was)
	err = fs.svc.RemoveTree(ctx, fs.Caller(cred), dir, name)
	o := outcome(err, nil)
	if err == nil {
		o.Names = []cache.Named{{Dir: dir, Name: name}}
	}
	change.End(settled(ctx, o))
	return errs.Wrap("client.RemoveTree", name, err)
}

// RenameIno follows renameat2(2).
func (fs *FS) RenameIno(ctx context.Context, cred meta.Cred, dir meta.Ino, name string,
	newDir meta.Ino, newName string, flags meta.RenameFlags) error {
	moved, typ, known := fs.nameOf(ctx, cred, dir, name)
	if err := fs.tellNames(ctx, moved); err != nil {
		return errs.Wrap("client.Rename", name, err)
	}
	replaced, free, err := fs.announceVictim(ctx, cred, newDir, newName)
	if err != nil {
		return errs.Wrap("client.Rename", name, err)
	}
	change := fs.cache.Change().Name(dir, name).Name(newDir, newName).Inode(moved).Inode(replaced)
	c := fs.identified(ctx, cred, UseRename)
	at, err := fs.svc.Rename(ctx, c, dir, name, newDir, newName, flags)
	o := outcome(err, nil)
	leaves := flags&(meta.RenameExchange|meta.RenameWhiteout) != 0
	if err == nil && !leaves && known && free && moved != replaced {
		// Of two names of one inode both stay. Where that is not known nothing is.
		o.Names = []cache.Named{{Dir: dir, Name: name},
			{Dir: newDir, Name: newName, Ino: moved, Type: typ}}
		if o.At = at; dir == newDir {
			o.Moved = moved
		}
	}
	change.End(settled(ctx, o))
	if dir != newDir {
		fs.cache.Reveal(moved)
		fs.cache.Reveal(replaced)
		fs.forgetParents(typ, moved, replaced, flags)
	}
	return errs.Wrap("client.Rename", name, err)
}

// forgetParents forgets directories that have another parent now, which counts with the rights.
func (fs *FS) forgetParents(typ meta.Type, moved, replaced meta.Ino, flags meta.RenameFlags) {
	if typ == meta.Directory {
		fs.cache.Recall(moved)
	}
	if flags&meta.RenameExchange != 0 {
		fs.cache.Recall(replaced)
	}
}

// announceVictim makes handles known to the service that a file has whose name is about to be
// taken, so that it stays for them. It tells what the name stands for, if that is known.
func (fs *FS) announceVictim(ctx context.Context, cred meta.Cred, dir meta.Ino, name string) (
	ino meta.Ino, known bool, err error) {
	ino, _, known = fs.nameOf(ctx, cred, dir, name)
	if n := fs.peek(ino); n != nil {
		err = fs.announceAll(ctx, n)
	}
	if err == nil {
		err = fs.tellNames(ctx, ino)
	}
	return ino, known, err
}

// nameOf tells what a name stands for that is about to change. Where the client does not know it
// asks: its own changes leave its leases alone, so that it must forget by itself what it knows of
// the inode by another name. known: it was known under a lease.
func (fs *FS) nameOf(ctx context.Context, cred meta.Cred, dir meta.Ino, name string) (
	ino meta.Ino, typ meta.Type, known bool) {
	ino, typ, known = fs.cache.Ino(dir, name)
	if known || fs.opts.Cache < 0 {
		return ino, typ, known
	}
	a, err := fs.lookup(ctx, cred, dir, name, false)
	if err != nil {
		return 0, 0, false // the change itself says what is wrong
	}
	return a.Ino, a.Type, false
}

// NameOf tells the inode that a name stands for, 0 for none, as far as it can: for front ends that
// must know whose name they are about to change. Under a lease the change itself asks no more then.
func (fs *FS) NameOf(ctx context.Context, cred meta.Cred, dir meta.Ino, name string) (
	ino meta.Ino, known bool) {
	ino, _, known = fs.nameOf(ctx, cred, dir, name)
	return ino, known || ino != 0
}

// made is the entry of an inode that was just made: its place in the directory is its number.
func made(dir meta.Ino, name string, a *meta.Attr) cache.Named {
	return cache.Named{Dir: dir, Name: name, Ino: a.Ino, Type: a.Type, Cookie: uint64(a.Ino)}
}

// ReadDirPage returns up to max entries of a directory behind a cookie, as the service's ReadDir.
func (fs *FS) ReadDirPage(ctx context.Context, cred meta.Cred, dir meta.Ino, cookie uint64, max int,
	withAttr bool) ([]meta.Entry, error) {
	for {
		page, err := fs.ScanPage(ctx, cred, dir, cookie, max, withAttr)
		if err != nil || !withAttr || len(page) == 0 {
			return page, err
		}
		cookie = page[len(page)-1].Cookie
		if page, err = fs.attrsOf(ctx, cred, dir, page); err != nil || len(page) > 0 {
			return page, err
		}
	}
}

// ScanPage is ReadDirPage that waits for no other client and no I/O server: entries for which it
// would have to come without attributes.
func (fs *FS) ScanPage(ctx context.Context, cred meta.Cred, dir meta.Ino, cookie uint64, max int,
	withAttr bool) ([]meta.Entry, error) {
	page, known := fs.cache.Page(&cred, dir, cookie, max, withAttr)
	if !known {
		w := meta.Scan{Cookie: cookie, Max: max, Attrs: withAttr}
		if cookie == 0 && withAttr {
			w = fs.cache.Listing(dir, max)
			defer fs.cache.FetchedAhead(dir)
		}
		s, err := fs.scan(ctx, fs.Caller(cred), dir, &w)
		if err != nil {
			return nil, errs.Wrap("client.ReadDir", "", err)
		}
		page = s.Entries
	}
	for i := range page {
		if a := page[i].Attr; a != nil {
			fs.overlayKnown(a)
		}
	}
	return page, nil
}

// attrsOf asks for attributes that a page lacks, and leaves out what has lost its name meanwhile.
func (fs *FS) attrsOf(ctx context.Context, cred meta.Cred, dir meta.Ino, page []meta.Entry) (
	[]meta.Entry, error) {
	left := page[:0]
	for _, e := range page {
		if e.Attr == nil {
			a, err := fs.Lookup(ctx, cred, dir, e.Name)
			switch {
			case errs.KindOf(err) == errs.NotFound:
				continue
			case err != nil:
				return nil, errs.Wrap("client.ReadDir", e.Name, err)
			}
			e.Ino, e.Type, e.Attr = a.Ino, a.Type, &a
		}
		left = append(left, e)
	}
	return left, nil
}

// ReadLink returns the target of a symbolic link.
func (fs *FS) ReadLink(ctx context.Context, cred meta.Cred, ino meta.Ino) (string, error) {
	if target, ok := fs.cache.Target(ino); ok {
		return target, nil
	}
	t := fs.cache.Begin()
	target, err := fs.svc.ReadLink(ctx, fs.Caller(cred), ino)
	if err != nil {
		return "", errs.Wrap("client.ReadLink", "", err)
	}
	fs.cache.PutTarget(t, ino, target)
	return target, nil
}

// GetXattr reads an extended attribute. That a file has none at all is known with its attributes,
// and so are its access control lists, which kernels ask for with each permission check.
func (fs *FS) GetXattr(ctx context.Context, cred meta.Cred, ino meta.Ino, name string) (
	[]byte, error) {
	if name == acl.Access || name == acl.Default {
		if l, known := fs.knownList(ino, name); known {
			if l == "" {
				return nil, errs.New(errs.NoData, "client.GetXattr", name, nil)
			}
			return []byte(l), nil
		}
	}
	if fs.plain(ino, name) {
		return nil, errs.New(errs.NoData, "client.GetXattr", name, nil)
	}
	fs.tellOfWrites(ctx, ino, name)
	v, err := fs.svc.GetXattr(ctx, fs.Caller(cred), ino, name)
	return v, errs.Wrap("client.GetXattr", name, err)
}

// plain tells whether an attribute is one that kernels and tools ask for all the time, of an inode
// that is known to have none. Others are left to the service, which knows who may ask for which.
func (fs *FS) plain(ino meta.Ino, name string) bool {
	if len(name) <= len(securityPrefix) || name[:len(securityPrefix)] != securityPrefix {
		return false
	}
	a, ok := fs.cache.Attr(ino) // exactly: the client itself may have set one since
	return ok && !a.Xattrs
}

const securityPrefix = "security."

// knownList is an access control list that is known with the attributes; links have none, of which
// the service tells.
func (fs *FS) knownList(ino meta.Ino, name string) (l acl.List, known bool) {
	a, ok := fs.cache.Rights(ino)
	if !ok || a.Type == meta.Symlink {
		return "", false
	}
	if name == acl.Default {
		return a.Default, true
	}
	return a.ACL, true
}

// ListXattr lists the names of extended attributes.
func (fs *FS) ListXattr(ctx context.Context, cred meta.Cred, ino meta.Ino) ([]string, error) {
	names, err := fs.svc.ListXattr(ctx, fs.Caller(cred), ino)
	return names, errs.Wrap("client.ListXattr", "", err)
}

// SetXattr stores an extended attribute; create and replace demand absence and presence.
func (fs *FS) SetXattr(ctx context.Context, cred meta.Cred, ino meta.Ino, name string,
	value []byte, create, replace bool) error {
	fs.tellOfWrites(ctx, ino, name)
	c := fs.identified(ctx, cred, UseSetXattr)
	set := func(ctx context.Context) error {
		return fs.svc.SetXattr(ctx, c, ino, name, value, create, replace)
	}
	if layout.IsAttr(name) {
		err := fs.stripeAnew(ctx, ino, name != layout.AttrAll, &c, set)
		return errs.Wrap("client.SetXattr", name, err)
	}
	change := fs.cache.Change().Inode(ino)
	err := set(ctx)
	change.End(settled(ctx, outcome(err, nil)))
	fs.forgetRights(ino, name)
	return errs.Wrap("client.SetXattr", name, err)
}

// RemoveXattr removes an extended attribute.
func (fs *FS) RemoveXattr(ctx context.Context, cred meta.Cred, ino meta.Ino, name string) error {
	c := fs.identified(ctx, cred, UseRemoveXattr)
	remove := func(ctx context.Context) error { return fs.svc.RemoveXattr(ctx, c, ino, name) }
	if layout.IsAttr(name) {
		err := fs.stripeAnew(ctx, ino, name != layout.AttrAll, &c, remove)
		return errs.Wrap("client.RemoveXattr", name, err)
	}
	change := fs.cache.Change().Inode(ino)
	err := remove(ctx)
	change.End(settled(ctx, outcome(err, nil)))
	fs.forgetRights(ino, name)
	return errs.Wrap("client.RemoveXattr", name, err)
}

// tellOfWrites lets closings come to an end before capabilities of a program are looked at or set:
// the service takes them away when it is told that somebody has written.
func (fs *FS) tellOfWrites(ctx context.Context, ino meta.Ino, name string) {
	if name != capabilities {
		return
	}
	if n := fs.peek(ino); n != nil && fs.endings.has(n, fs.sess.Load().id) {
		fs.flushEndings(ctx)
	}
}

// capabilities is the attribute by which a program runs with rights that its user lacks.
const capabilities = "security.capability"

// forgetRights forgets an inode whose access control list this client has changed, or tried to:
// what permission checks need of it is not known any more.
func (fs *FS) forgetRights(ino meta.Ino, name string) {
	if name == acl.Access || name == acl.Default {
		fs.cache.Recall(ino)
	}
}

// SyncNames returns when every operation that returned before is on stable storage. If one could
// not be told later it says so, once.
func (fs *FS) SyncNames(ctx context.Context) error {
	err := fs.svc.Sync(ctx)
	if lost := fs.lostNames(); err == nil {
		return lost
	}
	return errs.Wrap("client.SyncNames", "", err)
}
