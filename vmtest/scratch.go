package vmtest

import (
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// scratchPrefix begins the names of temporary folders, and of nothing else: see sweep.
const scratchPrefix = "sluice-vmtest-"

// scratchAge is how old a folder is before anybody else may take it for left over: its owner locks
// it right after having made it.
const scratchAge = time.Minute

// scratch is a temporary folder. It is locked for as long as its owner lives, so that folders of
// processes that were killed can be told from those in use.
type scratch struct {
	path string
	lock *os.File // the folder itself
}

func newScratch(name string) (*scratch, error) {
	path, err := os.MkdirTemp("", scratchPrefix+name+"-")
	if err != nil {
		return nil, errs.Wrap("vmtest.Start", name, err)
	}
	lock, err := lockScratch(path)
	if err != nil {
		_ = os.Remove(path) // the first error tells more
		return nil, errs.Wrap("vmtest.Start", name, err)
	}
	return &scratch{path, lock}, nil
}

// lockScratch fails at once if somebody has the lock.
func lockScratch(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// remove frees the folder. Nothing depends on its success: sweep takes what stays.
func (s *scratch) remove() {
	_ = os.RemoveAll(s.path)
	s.lock.Close()
}

// sweep removes the folders of processes that were killed.
func sweep(dir string, age time.Duration) {
	all, err := filepath.Glob(filepath.Join(dir, scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range all {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < age {
			continue
		}
		if lock, err := lockScratch(path); err == nil {
			(&scratch{path, lock}).remove()
		}
	}
}
