package mount

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// nameOf is the name of a file that jobs make.
func (j *Job) nameOf(i int64) string { return filepath.Join(j.Path, fmt.Sprintf("f%07d", i)) }

// each does something to all files of the job, Times over.
func (j *Job) each(do func(name string) error) (d Done, err error) {
	for range max(j.Times, 1) {
		for i := j.From; i < j.From+j.Files; i++ {
			name := j.nameOf(i)
			if err := do(name); err != nil {
				return d, errs.Wrap(j.Kind, name, err)
			}
			d.Ops++
		}
	}
	d.Bytes = d.Ops * j.Block
	return d, nil
}

// make1 is what most programs do: create, write, close.
func make1(name string, data []byte) error {
	fd, err := openFile(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		n, err := again(func() (int, error) { return unix.Write(fd, data) })
		if err != nil {
			return closeWith(fd, err)
		}
		data = data[n:]
	}
	return unix.Close(fd)
}

func stat1(name string) error {
	var st unix.Stat_t
	return unix.Lstat(name, &st)
}

func open1(name string) error {
	fd, err := openFile(name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// list counts the names of a folder, in bounded memory.
func (j *Job) list() (d Done, err error) {
	fd, err := openFile(j.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return d, err
	}
	buf := make([]byte, 1<<20)
	var names []string
	for {
		n, err := again(func() (int, error) { return unix.ReadDirent(fd, buf) })
		if err != nil || n == 0 {
			return d, errs.Wrap("list", j.Path, closeWith(fd, err))
		}
		_, count, _ := unix.ParseDirent(buf[:n], -1, names[:0])
		d.Ops += int64(count)
	}
}
