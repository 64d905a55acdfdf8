package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// dirs knows which directories are there for certain: those that this process has made or
// met, with their entries stable. What existed when the store was opened is stable already.
type dirs struct {
	mu    sync.Mutex
	known [64 * 64]bool
	top   [64]bool
}

// ensure makes the directory and its parent stable. It happens once for each directory, so
// that the syncs below are held under the lock and the second comer waits for them.
func (d *dirs) ensure(s *Store, dir uint16) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[dir] {
		return nil
	}
	path := s.dirPath(dir)
	if !d.top[dir>>6] {
		if err := makeDir(s, filepath.Dir(path)); err != nil {
			return err
		}
		d.top[dir>>6] = true
	}
	if err := makeDir(s, path); err != nil {
		return err
	}
	d.known[dir] = true
	return nil
}

func makeDir(s *Store, path string) error {
	err := s.step("mkdir", path)
	if err == nil {
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = s.step("fsync", filepath.Dir(path))
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return s.changed("mkdir", path, err)
}
