package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Folder is a Store of one folder of this host. No name leads out of it, by dots or by symbolic
// links: the kernel resolves each below the folder (os.Root). A leading slash is the folder itself.
type Folder struct{ root *os.Root }

// OpenFolder opens one.
func OpenFolder(path string) (*Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, errs.Wrap("transfer", path, err)
	}
	return &Folder{root}, nil
}

// Close lets go of the folder. Open files stay open.
func (f *Folder) Close() error { return f.root.Close() }

// PartSuffix is what the name of a partial file ends in; it begins with a dot.
const PartSuffix = ".sluice-part"

// local is a name of a peer as one below the folder.
func local(name string) (string, error) {
	clean := filepath.FromSlash(strings.TrimLeft(name, "/"))
	if len(name) > nameMax || strings.ContainsRune(name, 0) || !filepath.IsLocal(clean) ||
		filepath.Clean(clean) == "." {
		return "", errs.Newf(errs.Invalid, "transfer", name, "no name of a file below the folder")
	}
	return filepath.Clean(clean), nil
}

// wrapped gives an error of os.Root, which has no number for an escape, a kind.
func wrapped(name string, err error) error {
	if err != nil && strings.Contains(err.Error(), "path escapes") {
		return errs.Newf(errs.Perm, "transfer", name, "it leads out of the folder")
	}
	return errs.Wrap("transfer", name, err)
}

type original struct {
	*os.File
	info fs.FileInfo
}

func (o original) Size() int64       { return o.info.Size() }
func (o original) Mode() os.FileMode { return o.info.Mode().Perm() }

// Open implements Store.
func (f *Folder) Open(_ context.Context, name string) (Original, error) {
	at, err := local(name)
	if err != nil {
		return nil, err
	}
	file, err := f.root.OpenFile(at, os.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo must not hang here
	if err != nil {
		return nil, wrapped(name, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(name, info)
	}
	if err != nil {
		return nil, errors.Join(errs.Wrap("transfer", name, err), file.Close())
	}
	return original{file, info}, nil
}

func notRegular(name string, info fs.FileInfo) error {
	if info.IsDir() {
		return errs.New(errs.IsDir, "transfer", name, nil)
	}
	return errs.Newf(errs.Invalid, "transfer", name, "it is no regular file")
}

// partial is a copy on its way.
type partial struct {
	*os.File
	folder   *Folder
	at, part string // of the copy and of the partial file
	how      Creation
	found    int64
	complete bool
}

// Create implements Store.
func (f *Folder) Create(_ context.Context, name string, how Creation) (Copy, error) {
	at, err := local(name)
	if err != nil {
		return nil, err
	}
	info, err := f.root.Lstat(at)
	switch {
	case err == nil && info.IsDir():
		return nil, notRegular(name, info)
	case err == nil && !how.Overwrite:
		return nil, errs.Newf(errs.Exists, "transfer", name, "it is there already")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, wrapped(name, err)
	}
	p := &partial{folder: f, at: at, how: how,
		part: filepath.Join(filepath.Dir(at), "."+filepath.Base(at)+PartSuffix)}
	if err := p.open(); err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		return nil, errors.Join(wrapped(name, err), p.Close())
	}
	return p, nil
}

// lockMax is how long a transfer that was cut off may take to let go of its file: whoever resumes
// it at once may be quicker than the news of its end.
const lockMax = 3 * time.Second

// lock keeps others from a file.
func (p *partial) lock(file *os.File) error {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Since(begun) > lockMax {
			return errs.Newf(errs.Busy, "transfer", p.at, "another transfer writes it")
		}
	}
}

// open opens the partial file, and keeps others from it.
func (p *partial) open() error {
	for range 3 { // its name may be given to a finished copy meanwhile
		file, err := p.folder.root.OpenFile(p.part, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return wrapped(p.part, err)
		}
		err = p.lock(file)
		var mine, named fs.FileInfo
		if err == nil {
			mine, err = file.Stat()
		}
		if err == nil && !mine.Mode().IsRegular() {
			err = notRegular(p.part, mine)
		}
		if err != nil {
			return errors.Join(wrapped(p.part, err), file.Close())
		}
		if named, err = p.folder.root.Lstat(p.part); err == nil && os.SameFile(mine, named) {
			p.File, p.found = file, min(mine.Size(), p.how.Size)
			return nil
		}
		_ = file.Close() // nothing was written to it
	}
	return errs.Newf(errs.Busy, "transfer", p.at, "another transfer writes it")
}

// prepare makes the partial file as long as the copy will be, and asks for the room: a disk that is
// too full says so now, where it can.
func (p *partial) prepare() error {
	if p.how.Restart {
		p.found = 0
		if err := p.Truncate(0); err != nil {
			return err
		}
	}
	if err := p.Truncate(min(p.found, p.how.Size)); err != nil {
		return err
	}
	err := unix.Fallocate(int(p.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, max(p.how.Size, 1))
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return nil // other file systems cannot; then writing tells
}

// Found implements Copy.
func (p *partial) Found() int64 { return p.found }

// Complete implements Copy.
func (p *partial) Complete(_ context.Context, check func(io.ReaderAt) error) error {
	err := p.Truncate(p.how.Size)
	if err == nil {
		err = p.Chmod(p.how.Mode | 0o400)
	}
	if err == nil {
		err = p.Sync()
	}
	if err == nil && check != nil {
		_ = unix.Fadvise(int(p.Fd()), 0, 0, unix.FADV_DONTNEED) // else the cache is read
		err = check(p.File)
	}
	if err != nil {
		return errs.Wrap("transfer", p.at, err)
	}
	if err := p.name(); err != nil {
		return wrapped(p.at, err)
	}
	p.complete = true
	dir, err := p.folder.root.Open(filepath.Dir(p.at))
	if err != nil {
		return wrapped(p.at, err)
	}
	return errors.Join(errs.Wrap("transfer", p.at, dir.Sync()), dir.Close())
}

// name gives the copy its name. Where it must not replace anything, a link does it: a rename would.
func (p *partial) name() error {
	root := p.folder.root
	if p.how.Overwrite {
		return root.Rename(p.part, p.at)
	}
	err := root.Link(p.part, p.at)
	switch {
	case errors.Is(err, fs.ErrExist):
		return errs.Newf(errs.Exists, "transfer", p.at, "somebody else has made it meanwhile; the copy "+
			"is %s", p.part)
	case err == nil:
		return root.Remove(p.part)
	}
	return root.Rename(p.part, p.at) // a file system without links
}

// Close implements Copy.
func (p *partial) Close() error {
	if !p.complete && p.found == 0 {
		if info, err := p.Stat(); err == nil && info.Size() == 0 {
			_ = p.folder.root.Remove(p.part) // nothing has come
		}
	}
	return errs.Wrap("transfer", p.at, p.File.Close())
}
