package meta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

const (
	smallBytes = 4 << 10 // of the files that are written and read
	stockFiles = 256     // files that are there before: for stat, read and readdir
)

// op is one kind of operation.
type op struct {
	name, about string
	size        int  // bytes of data
	asked       bool // something is promised of it
	many        bool // also measured in many directories
	synced      bool // also measured with each one on disk
	uses        use

	bare      func(i uint64) []txn // nil: there is no ceiling
	byService step
	byClient  step
}

// step does one operation: a method of drive.
type step func(d *drive, ctx context.Context, at spot) error

// use is what an operation does to the files that are made for it.
type use int

const (
	makesNew use = iota // it makes files of its own
	looks               // it looks at stockFiles files
	turns               // each goroutine has a file that has two names in turn
	takes               // each one takes a file away
)

// ops are what is measured.
func ops() []op {
	return []op{
		{name: "make", about: "files are made, not opened", asked: true, many: true, synced: true,
			bare: makeTxns, byService: (*drive).make},
		{name: "create", about: "files are created, opened and closed", many: true, synced: true,
			bare: createTxns, byService: (*drive).create, byClient: (*drive).clientCreate},
		{name: "write", about: "files are created, written with 4 KiB and closed", size: smallBytes,
			asked: true, many: true, synced: true, bare: writeTxns, byClient: (*drive).clientWrite},
		{name: "read", about: "files of 4 KiB are opened, read and closed", size: smallBytes,
			uses: looks, byClient: (*drive).clientRead},
		{name: "stat", about: "attributes of 256 files, again and again", asked: true, many: true,
			uses: looks, byService: (*drive).stat, byClient: (*drive).clientStat},
		{name: "absent", about: "names that are not there, again and again", uses: looks,
			byService: (*drive).absent, byClient: (*drive).clientAbsent},
		{name: "readdir", about: "a directory of 256 files is listed", uses: looks,
			byService: (*drive).list, byClient: (*drive).clientList},
		{name: "rename", about: "files are renamed within a directory", uses: turns, many: true,
			bare: renameTxns, byService: (*drive).rename, byClient: (*drive).clientRename},
		{name: "unlink", about: "files are removed", uses: takes, many: true, bare: unlinkTxns,
			byService: (*drive).unlink, byClient: (*drive).clientUnlink},
	}
}

// spot is where one operation works: a directory, and a number that no other operation there has.
type spot struct {
	dir    meta.Ino
	path   string // of the directory
	worker int
	n      uint64
	sync   bool
}

func (s *spot) name() string { return fmt.Sprintf("f%012d", s.n) }
func (s *spot) full() string { return s.path + "/" + s.name() }

// stock is a file that is there.
func (s *spot) stock() string { return fmt.Sprintf("f%012d", s.n%stockFiles) }

// turned are the two names of a goroutine's file, the one that it has first.
func (s *spot) turned() (from, to string) {
	from, to = fmt.Sprintf("a%d", s.worker), fmt.Sprintf("b%d", s.worker)
	if s.n%2 == 1 {
		from, to = to, from
	}
	return from, to
}

func regular() meta.NewFile { return meta.NewFile{Type: meta.Regular, Mode: 0o644} }

// settled waits for the disk, if that is asked for.
func (d *drive) settled(ctx context.Context, at *spot, err error) error {
	if err == nil && at.sync {
		err = d.names.Sync(ctx)
	}
	return err
}

func (d *drive) make(ctx context.Context, at spot) error {
	_, err := d.names.Make(ctx, d.caller(), at.dir, at.name(), regular())
	return d.settled(ctx, &at, err)
}

func (d *drive) create(ctx context.Context, at spot) error {
	c := d.caller()
	h, err := d.names.Create(ctx, c, at.dir, at.name(), regular(), meta.OpenWrite|meta.OpenExclusive)
	if err == nil {
		err = closeClean(ctx, d.names, c, h.ID)
	}
	return d.settled(ctx, &at, err)
}

// closeClean closes a handle by which nothing was written.
func closeClean(ctx context.Context, names meta.Files, c meta.Caller, id uint64) error {
	return names.Close(ctx, c, meta.Closing{Handle: id})
}

func (d *drive) stat(ctx context.Context, at spot) error {
	_, err := d.names.GetAttr(ctx, d.caller(), d.inos[at.path][at.n%stockFiles])
	return err
}

func (d *drive) absent(ctx context.Context, at spot) error {
	_, err := d.names.Lookup(ctx, d.caller(), at.dir, "x"+at.stock())
	return isAbsent(err)
}

// isAbsent is nil if something was not found.
func isAbsent(err error) error {
	switch {
	case errs.KindOf(err) == errs.NotFound:
		return nil
	case err == nil:
		return errs.Newf(errs.Exists, "bench meta", "", "a name is there that nobody has made")
	}
	return err
}

func (d *drive) list(ctx context.Context, at spot) error {
	n := 0
	for cookie := uint64(0); ; {
		page, err := d.names.ReadDir(ctx, d.caller(), at.dir, cookie, meta.DirPageMax, true)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return listed(n)
		}
		n, cookie = n+len(page), page[len(page)-1].Cookie
	}
}

func listed(n int) error {
	if n != stockFiles {
		return errs.Newf(errs.IO, "bench meta", "", "%d of %d files are listed", n, stockFiles)
	}
	return nil
}

func (d *drive) rename(ctx context.Context, at spot) error {
	from, to := at.turned()
	_, err := d.names.Rename(ctx, d.caller(), at.dir, from, at.dir, to, 0)
	return err
}

func (d *drive) unlink(ctx context.Context, at spot) error {
	_, err := d.names.Remove(ctx, d.caller(), at.dir, at.name(), false)
	return err
}

func (d *drive) clientCreate(ctx context.Context, at spot) error {
	f, err := d.fs.OpenFile(ctx, at.full(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		err = f.Close(ctx)
	}
	return d.settled(ctx, &at, err)
}

func (d *drive) clientWrite(ctx context.Context, at spot) error {
	f, err := d.fs.OpenFile(ctx, at.full(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(ctx, d.data, 0)
	if err == nil && at.sync {
		err = f.Sync(ctx)
	}
	return errors.Join(err, f.Close(ctx))
}

func (d *drive) clientRead(ctx context.Context, at spot) error {
	f, err := d.fs.OpenFile(ctx, at.path+"/"+at.stock(), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	n, err := f.ReadAt(ctx, d.bufs[at.worker], 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && n != smallBytes {
		err = errs.Newf(errs.IO, "bench meta", "", "%d bytes were read of %d", n, smallBytes)
	}
	return errors.Join(err, f.Close(ctx))
}

func (d *drive) clientStat(ctx context.Context, at spot) error {
	_, err := d.fs.Stat(ctx, at.path+"/"+at.stock())
	return err
}

func (d *drive) clientAbsent(ctx context.Context, at spot) error {
	_, err := d.fs.Stat(ctx, at.path+"/x"+at.stock())
	return isAbsent(err)
}

func (d *drive) clientList(ctx context.Context, at spot) error {
	n := 0
	err := d.fs.ReadDir(ctx, at.path, func(meta.Entry) error { n++; return nil })
	if err != nil {
		return err
	}
	return listed(n)
}

func (d *drive) clientRename(ctx context.Context, at spot) error {
	from, to := at.turned()
	return d.fs.Rename(ctx, at.path+"/"+from, at.path+"/"+to)
}

func (d *drive) clientUnlink(ctx context.Context, at spot) error {
	return d.fs.Remove(ctx, at.full())
}
