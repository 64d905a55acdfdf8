package memfuse

import (
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// chunkBytes is the piece that files grow by. It is the size of the largest request, so that an
// aligned request is one piece.
const chunkBytes = 1 << 20

// file is chunks of memory. Reads hand out a chunk's memory without a copy; one that races with a
// truncation may see the bytes that come after it.
type file struct {
	mu     sync.RWMutex
	chunks [][]byte
	spare  [][]byte // cut off by a truncation: the ceiling must not depend on page faults
	size   int64
}

func (f *file) length() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.size
}

// growLocked makes the file at least size bytes long.
func (f *file) growLocked(size int64) {
	for int64(len(f.chunks))*chunkBytes < size {
		f.chunks = append(f.chunks, f.chunkLocked())
	}
	f.size = max(f.size, size)
}

// chunkLocked returns memory that is zero.
func (f *file) chunkLocked() []byte {
	n := len(f.spare)
	if n == 0 {
		return make([]byte, chunkBytes)
	}
	c := f.spare[n-1]
	f.spare = f.spare[:n-1]
	clear(c)
	return c
}

func (f *file) truncate(size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size >= f.size {
		f.growLocked(size)
		return
	}
	keep := (size + chunkBytes - 1) / chunkBytes
	f.spare = append(f.spare, f.chunks[keep:]...)
	f.chunks = f.chunks[:keep]
	if in := size % chunkBytes; in != 0 {
		clear(f.chunks[len(f.chunks)-1][in:])
	}
	f.size = size
}

// slices returns the memory of [off, off+n), cut at the end of the file.
func (f *file) slices(off, n int64) [][]byte {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out [][]byte
	for end := min(off+n, f.size); off < end; {
		c := f.chunks[off/chunkBytes]
		in := off % chunkBytes
		k := min(chunkBytes-in, end-off)
		out = append(out, c[in:in+k])
		off += k
	}
	return out
}

// Open opens a file.
func (m *memory) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f := m.find(in.NodeId)
	if f == nil {
		return fuse.ENOENT
	}
	if in.Flags&syscall.O_TRUNC != 0 {
		f.truncate(0)
	}
	out.Fh = in.NodeId
	return fuse.OK
}

// Read hands out the file's memory.
func (m *memory) Read(_ <-chan struct{}, in *fuse.ReadIn, _ []byte) (fuse.ReadResult, fuse.Status) {
	f := m.find(in.NodeId)
	if f == nil {
		return nil, fuse.ENOENT
	}
	pieces := f.slices(int64(in.Offset), int64(in.Size))
	switch len(pieces) {
	case 0:
		return fuse.ReadResultData(nil), fuse.OK
	case 1:
		return fuse.ReadResultData(pieces[0]), fuse.OK
	}
	return fuse.ReadResultVector(pieces), fuse.OK
}

// Write copies into the file's memory.
func (m *memory) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	f := m.find(in.NodeId)
	if f == nil {
		return 0, fuse.ENOENT
	}
	off, n := int64(in.Offset), int64(len(data))
	if off+n > f.length() {
		f.mu.Lock()
		f.growLocked(off + n)
		f.mu.Unlock()
	}
	done := 0
	for _, p := range f.slices(off, n) {
		done += copy(p, data[done:])
	}
	return uint32(done), fuse.OK
}

// Flush has nothing to do.
func (m *memory) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// Fsync has nothing to do.
func (m *memory) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status { return fuse.OK }
