package devicetest

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/stripe/device"
)

// FileSystem is the space that thin devices share.
type FileSystem struct {
	mu    sync.Mutex
	total int64
	used  int64
}

// NewFileSystem has that many bytes.
func NewFileSystem(total int64) *FileSystem { return &FileSystem{total: total} }

// Use takes bytes away, or gives them back, as somebody else does.
func (f *FileSystem) Use(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used += bytes
}

// Free is what nobody has.
func (f *FileSystem) Free() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total - f.used
}

// Thin is a device in memory that takes the space of its blocks from a file system: when they are
// reserved or, as a careless user would have it, when they are written.
type Thin struct {
	*device.Memory
	fs   *FileSystem
	have map[int64]bool // blocks with space; guarded by fs.mu
}

// NewThin makes a device of that many bytes without any space.
func NewThin(name string, size int64, fs *FileSystem) *Thin {
	return &Thin{Memory: device.NewMemory(name, size), fs: fs, have: map[int64]bool{}}
}

// Room implements device.Sparse.
func (d *Thin) Room() (total, free int64, ok bool) { return d.fs.total, d.fs.Free(), true }

// Reserve implements device.Device. Like some file systems it keeps what it got when there is not
// enough.
func (d *Thin) Reserve(off, length int64) error {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	for b := off / device.BlockBytes; b*device.BlockBytes < off+length; b++ {
		if d.have[b] {
			continue
		}
		if d.fs.used+device.BlockBytes > d.fs.total {
			return unix.ENOSPC
		}
		d.have[b] = true
		d.fs.used += device.BlockBytes
	}
	return nil
}

// Punch implements device.Sparse.
func (d *Thin) Punch(off, length int64) error {
	d.fs.mu.Lock()
	for b := off / device.BlockBytes; b*device.BlockBytes < off+length; b++ {
		if d.have[b] {
			delete(d.have, b)
			d.fs.used -= device.BlockBytes
		}
	}
	d.fs.mu.Unlock()
	op := device.Op{Kind: device.Write, Off: off, Bufs: [][]byte{make([]byte, length)}}
	return device.One(d.Memory, &op)
}

// Do implements device.Device.
func (d *Thin) Do(ops []*device.Op) {
	var pass []*device.Op
	for _, op := range ops {
		n := int64(0)
		for _, b := range op.Bufs {
			n += int64(len(b))
		}
		if op.Kind == device.Write && d.Reserve(op.Off, n) != nil {
			op.N, op.Err = 0, unix.ENOSPC
			continue
		}
		pass = append(pass, op)
	}
	d.Memory.Do(pass)
}
