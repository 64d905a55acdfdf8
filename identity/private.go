package identity

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// fileMax bounds the files that are read here, in bytes: a credential has two keys and a few
// certificates of some 500 bytes each.
const fileMax = 256 << 10

// readPrivate reads a regular file that only this user, or root, owns and can read. Opening it
// does not wait, whatever it is.
func readPrivate(op, file string) ([]byte, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, errs.Wrap(op, file, err)
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errs.Wrap(op, file, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errs.Newf(errs.Invalid, op, file, "it is no file")
	case !own(&st):
		return nil, errs.Newf(errs.Perm, op, file, "it belongs to uid %d: keys of others are not "+
			"trusted", st.Uid)
	case st.Mode&0o077 != 0:
		return nil, errs.Newf(errs.Perm, op, file, "others may read or change it (mode %#o). If nobody "+
			"has: chmod 600 %s", st.Mode&0o7777, file)
	case st.Size > fileMax:
		return nil, errs.Newf(errs.Invalid, op, file, "it has %d bytes, at most %d", st.Size, fileMax)
	}
	b, err := io.ReadAll(io.LimitReader(f, fileMax))
	return b, errs.Wrap(op, file, err)
}

// own tells whether a file is this user's, or root's: whoever else owns it could replace it.
func own(st *unix.Stat_t) bool {
	return st.Uid == uint32(os.Geteuid()) || st.Uid == 0
}

// checkFolder refuses a folder that others can enter or that somebody else owns.
func checkFolder(op, dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return errs.Wrap(op, dir, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errs.Newf(errs.NotDir, op, dir, "it is no folder")
	case !own(&st):
		return errs.Newf(errs.Perm, op, dir, "it belongs to uid %d: keys of others are not trusted",
			st.Uid)
	case st.Mode&0o077 != 0:
		return errs.Newf(errs.Perm, op, dir, "others may enter it (mode %#o). If nobody has: "+
			"chmod 700 %s", st.Mode&0o7777, dir)
	}
	return nil
}

// writePrivate replaces a file atomically and durably: the old or the new content is there, never a
// part, also after a power cut. What an earlier attempt left is replaced too.
func writePrivate(op, file string, text []byte) error {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+".*") // with mode 0600
	if err != nil {
		return errs.Wrap(op, file, err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errs.Wrap(op, file, errors.Join(err, os.Remove(f.Name())))
	}
	d, err := os.Open(dir)
	if err != nil {
		return errs.Wrap(op, file, err)
	}
	return errs.Wrap(op, file, errors.Join(d.Sync(), d.Close()))
}

// lockFile is held while one process changes what several read. It ends with the process.
func lockFile(op, file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, errs.Wrap(op, file, err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errs.Wrap(op, file, errors.Join(err, f.Close()))
	}
	return func() { _ = f.Close() }, nil // the lock goes with it
}

// ReadPrivate reads a small file that only this user, or root, can read and change, else errs.Perm.
func ReadPrivate(file string) ([]byte, error) { return readPrivate("identity.ReadPrivate", file) }

// WritePrivate replaces a file that only its owner can read, whole and durably. The folder is made,
// for the owner alone, if it is not there.
func WritePrivate(file string, text []byte) error {
	const op = "identity.WritePrivate"
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return errs.Wrap(op, file, err)
	}
	return writePrivate(op, file, text)
}
