package client

import (
	"context"
	"os"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// CreateTemp makes a file without a name, as O_TMPFILE of open(2) does, and opens it for reading
// and writing. It counts where the directory's files count, and is gone when it is closed, or with
// this process, unless File.Link has given it a name before. So a file can be written and synced
// before anybody sees it, and nothing is left behind if that does not come to an end.
func (fs *FS) CreateTemp(ctx context.Context, dir string, perm os.FileMode) (*File, error) {
	c := fs.self()
	p, err := fs.find(ctx, c, dir, true)
	if err == nil && p.attr.Ino == 0 {
		err = errs.New(errs.NotFound, "", "", nil)
	}
	var f *File
	if err == nil {
		f, err = fs.CreateTempIno(ctx, c.Cred, p.attr.Ino,
			meta.NewFile{Mode: uint32(perm.Perm())}, meta.OpenRead|meta.OpenWrite)
	}
	return f, errs.Wrap("client.CreateTemp", dir, err)
}

// CreateTempIno is CreateTemp by inode. With meta.OpenExclusive it never gets a name.
func (fs *FS) CreateTempIno(ctx context.Context, cred meta.Cred, dir meta.Ino, f meta.NewFile,
	flags meta.OpenFlags) (*File, error) {
	f.Type = meta.Regular
	flags |= meta.OpenNameless
	create := func(ctx context.Context, c meta.Caller) (meta.Handle, error) {
		change := fs.cache.Change()
		h, err := fs.svc.Create(ctx, c, dir, "", f, flags)
		change.End(cache.Outcome{})
		return h, err
	}
	o := opening{fs: fs, cred: cred, flags: flags, get: create, makes: true}
	return o.open(ctx)
}

// Link gives the file a name: its first one, if CreateTemp has made it. A name that is there is
// errs.Exists.
func (f *File) Link(ctx context.Context, path string) error {
	c := f.fs.self()
	p, err := f.fs.find(ctx, c, path, false)
	switch {
	case err != nil:
	case p.attr.Ino != 0 || p.name == ".":
		err = errs.New(errs.Exists, "", "", nil)
	default:
		_, err = f.fs.LinkIno(ctx, c.Cred, f.node.ino, p.dir, p.name)
	}
	return errs.Wrap("client.Link", path, err)
}
