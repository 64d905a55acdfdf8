package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// lockFile keeps a second process out. The kernel drops the lock with the process. While the
// store is open the file names the holder; a clean Close empties it. So a file that is not
// empty under a lock that is free means that a process died.
type lockFile struct {
	f        *os.File
	wasClean bool
}

func takeLock(dir string) (*lockFile, error) {
	const op = "filestore.Open"
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	holder := make([]byte, 256)
	n, _ := f.ReadAt(holder, 0) // empty, short or unreadable: the message says less
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errs.Newf(errs.Busy, op, dir,
				"the store is in use (%s): stop that process or choose another folder",
				strings.TrimSpace(string(holder[:n])))
		}
		return nil, errs.Wrap(op, path, err)
	}
	l := &lockFile{f: f, wasClean: n == 0}
	text := fmt.Sprintf("held by process %d since %s\n", os.Getpid(),
		time.Now().Format(time.RFC3339))
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err != nil {
		l.abandon()
		return nil, errs.Wrap(op, path, err)
	}
	return l, nil
}

// release says that all is stable and lets go.
func (l *lockFile) release() error {
	err := l.f.Truncate(0)
	if e := l.f.Close(); err == nil {
		err = e
	}
	return errs.Wrap("filestore.Close", l.f.Name(), err)
}

// abandon lets go as death does.
func (l *lockFile) abandon() { l.f.Close() }
