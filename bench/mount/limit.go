package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Limit is a bound that the kernel keeps a process to, by a control group of its own: one that
// needs more is ended.
type Limit struct {
	dir, peak string
}

// SetLimit puts a process under it. The control group is below root's, of version 2 or 1.
func SetLimit(pid int, bytes int64) (*Limit, error) {
	for _, v := range []struct{ dir, max, peak string }{
		{"/sys/fs/cgroup", "memory.max", "memory.peak"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"},
	} {
		dir, err := os.MkdirTemp(v.dir, "sluice-bench-")
		if err != nil {
			continue
		}
		l := &Limit{dir: dir, peak: v.peak}
		if err = l.set(v.max, bytes); err == nil {
			err = l.set("cgroup.procs", int64(pid))
		}
		if err == nil {
			return l, nil
		}
		_ = os.Remove(l.dir)
	}
	return nil, errs.Newf(errs.Unsupported, "bench mount", "",
		"there are no control groups for memory that this user may make")
}

// set writes into a file that the kernel has made: in a folder that is none of its groups there are
// no such files.
func (l *Limit) set(name string, n int64) error {
	f, err := os.OpenFile(filepath.Join(l.dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(n, 10))
	return errors.Join(err, f.Close())
}

// Peak is the most that was charged to the process, pages of files that it maps included; 0 where
// the kernel does not tell.
func (l *Limit) Peak() int64 {
	text, err := os.ReadFile(filepath.Join(l.dir, l.peak))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Close removes the group, whose process has ended. The kernel may take a moment. l may be nil.
func (l *Limit) Close() error {
	if l == nil {
		return nil
	}
	err := os.Remove(l.dir)
	for range 50 {
		if err == nil || os.IsNotExist(err) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
		err = os.Remove(l.dir)
	}
	return err
}
