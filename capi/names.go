package capi

import (
	"os"
	"sync"
	"syscall"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// withPath runs fn with the path at an address.
func (l *Lib) withPath(h Handle, path uintptr, fn func(c *conn, path string) error) error {
	c, err := l.conn(h)
	if err != nil {
		return err
	}
	defer c.leave()
	name, err := l.path(path)
	if err != nil {
		return err
	}
	return fn(c, name)
}

// withPaths is withPath for two.
func (l *Lib) withPaths(h Handle, one, other uintptr,
	fn func(c *conn, one, other string) error) error {
	return l.withPath(h, one, func(c *conn, first string) error {
		second, err := l.path(other)
		if err != nil {
			return err
		}
		return fn(c, first, second)
	})
}

// Stat is sluice_stat, and with link set sluice_lstat.
func (l *Lib) Stat(h Handle, path, st uintptr, link bool) error {
	return l.withPath(h, path, func(c *conn, path string) (err error) {
		var a meta.Attr
		if link {
			a, err = c.fs.Lstat(c.life, path)
		} else {
			a, err = c.fs.Stat(c.life, path)
		}
		if err != nil {
			return err
		}
		return writeStat(l.space, st, &a)
	})
}

// Statfs is sluice_statfs.
func (l *Lib) Statfs(h Handle, path, to uintptr) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		st, err := c.fs.StatfsPath(c.life, path)
		if err != nil {
			return err
		}
		return writeStatfs(l.space, to, &st)
	})
}

// GetLayout is sluice_get_layout.
func (l *Lib) GetLayout(h Handle, path, at uintptr) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		p, err := c.fs.Layout(c.life, path)
		if err != nil {
			return err
		}
		if w := p.Layout.Width(); w > 0 {
			p.Policy.Unit, p.Policy.Width = p.Layout.Unit, w
		}
		return writeLayout(l.space, at, p.Policy)
	})
}

// SetLayout is sluice_set_layout.
func (l *Lib) SetLayout(h Handle, path, at uintptr) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		p, err := readLayout(l.space, at)
		if err != nil {
			return err
		}
		if at == 0 {
			p = layout.Policy{}
		}
		return c.fs.SetLayout(c.life, path, p)
	})
}

const (
	renameNoReplace = 1
	renameExchange  = 2
)

// Rename is sluice_rename.
func (l *Lib) Rename(h Handle, from, to uintptr, flags int) error {
	return l.withPaths(h, from, to, func(c *conn, from, to string) error {
		switch flags {
		case 0:
			return c.fs.Rename(c.life, from, to)
		case renameNoReplace:
			return c.fs.RenameNoReplace(c.life, from, to)
		case renameExchange:
			return c.fs.Exchange(c.life, from, to)
		}
		return fail(syscall.EINVAL, "flags %d of sluice_rename", flags)
	})
}

// Truncate is sluice_truncate.
func (l *Lib) Truncate(h Handle, path uintptr, size int64) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		return c.fs.Truncate(c.life, path, size)
	})
}

// Unlink is sluice_unlink.
func (l *Lib) Unlink(h Handle, path uintptr) error { return l.remove(h, path, false) }

// Rmdir is sluice_rmdir.
func (l *Lib) Rmdir(h Handle, path uintptr) error { return l.remove(h, path, true) }

// remove takes away a name, which must stand for what the caller thinks.
func (l *Lib) remove(h Handle, path uintptr, dir bool) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		a, err := c.fs.Lstat(c.life, path)
		switch {
		case err != nil:
			return err
		case dir && a.Type != meta.Directory:
			return errs.New(errs.NotDir, "sluice_rmdir", path, nil)
		case !dir && a.Type == meta.Directory:
			return errs.New(errs.IsDir, "sluice_unlink", path, nil)
		}
		return c.fs.Remove(c.life, path)
	})
}

// RemoveAll is sluice_remove_all.
func (l *Lib) RemoveAll(h Handle, path uintptr) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		return c.fs.RemoveAll(c.life, path)
	})
}

// Mkdir is sluice_mkdir, and with all set sluice_mkdir_all.
func (l *Lib) Mkdir(h Handle, path uintptr, mode uint32, all bool) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		if all {
			return c.fs.MkdirAll(c.life, path, fileMode(mode))
		}
		return c.fs.Mkdir(c.life, path, fileMode(mode))
	})
}

// fileMode is a mode of chmod(2) in the words of package os.
func fileMode(mode uint32) os.FileMode {
	return client.FileMode(&meta.Attr{Type: meta.Regular, Mode: mode & 0o7777})
}

// Link is sluice_link.
func (l *Lib) Link(h Handle, path, name uintptr) error {
	return l.withPaths(h, path, name, func(c *conn, path, name string) error {
		return c.fs.Link(c.life, path, name)
	})
}

// Symlink is sluice_symlink.
func (l *Lib) Symlink(h Handle, target, path uintptr) error {
	return l.withPaths(h, target, path, func(c *conn, target, path string) error {
		return c.fs.Symlink(c.life, target, path)
	})
}

// Readlink is sluice_readlink.
func (l *Lib) Readlink(h Handle, path, to uintptr, n uint64) (length int64, err error) {
	err = l.withPath(h, path, func(c *conn, path string) error {
		target, err := c.fs.Readlink(c.life, path)
		if err != nil {
			return err
		}
		if uint64(len(target)) >= n {
			return fail(syscall.ERANGE, "the target has %d bytes, and a zero behind them", len(target))
		}
		b, err := out(l.space, "the target of a link", to, len(target)+1)
		if err == nil {
			putText(b, target)
			length = int64(len(target))
		}
		return err
	})
	return length, err
}

// Chmod is sluice_chmod.
func (l *Lib) Chmod(h Handle, path uintptr, mode uint32) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		return c.fs.Chmod(c.life, path, fileMode(mode))
	})
}

// Chown is sluice_chown.
func (l *Lib) Chown(h Handle, path uintptr, uid, gid int64) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		for _, id := range []int64{uid, gid} {
			if id < -1 || id > 1<<32-2 {
				return fail(syscall.EINVAL, "%d is no user or group", id)
			}
		}
		return c.fs.Chown(c.life, path, int(uid), int(gid))
	})
}

// Utimes is sluice_utimes.
func (l *Lib) Utimes(h Handle, path, atime, mtime uintptr) error {
	return l.withPath(h, path, func(c *conn, path string) error {
		a, err := readTime(l.space, atime)
		if err != nil {
			return err
		}
		m, err := readTime(l.space, mtime)
		if err != nil {
			return err
		}
		return c.fs.Chtimes(c.life, path, a, m)
	})
}

// dir is a directory that is being listed.
type dir struct {
	conn *conn
	ino  meta.Ino

	mu     sync.Mutex // held while a page is asked for: who reads next needs it
	page   []meta.Entry
	cookie uint64
	end    bool
}

func (d *dir) owner() *conn { return d.conn }

// Opendir is sluice_opendir.
func (l *Lib) Opendir(h Handle, path uintptr) (dh Handle, err error) {
	err = l.withPath(h, path, func(c *conn, path string) error {
		a, err := c.fs.Stat(c.life, path)
		if err == nil && a.Type != meta.Directory {
			err = errs.New(errs.NotDir, "sluice_opendir", path, nil)
		}
		d := &dir{conn: c, ino: a.Ino}
		if err == nil {
			err = d.read()
		}
		if err == nil {
			dh, err = l.objects.add(kindDir, d)
		}
		return err
	})
	return dh, err
}

// read asks for the next page.
func (d *dir) read() error {
	fs := d.conn.fs
	page, err := fs.ReadDirPage(d.conn.life, fs.Cred(), d.ino, d.cookie, meta.DirPageMax, true)
	if err != nil {
		return err
	}
	if d.page, d.end = page, len(page) == 0; !d.end {
		d.cookie = page[len(page)-1].Cookie
	}
	return nil
}

// Readdir is sluice_readdir.
func (l *Lib) Readdir(h Handle, to uintptr) (int64, error) {
	d, err := get[*dir](&l.objects, kindDir, h)
	if err == nil && !d.conn.enter() {
		err = badHandle(kindDir, h)
	}
	if err != nil {
		return 0, err
	}
	defer d.conn.leave()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.page) == 0 && !d.end {
		if err := d.read(); err != nil {
			return 0, err
		}
	}
	if len(d.page) == 0 {
		return 0, nil
	}
	if err := writeDirent(l.space, to, &d.page[0]); err != nil {
		return 0, err
	}
	d.page = d.page[1:]
	return 1, nil
}

// Closedir is sluice_closedir.
func (l *Lib) Closedir(h Handle) error {
	_, err := take[*dir](&l.objects, kindDir, h)
	return err
}
