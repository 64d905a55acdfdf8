package memfuse

import (
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	// chunkBytes is the piece that files grow by. It is the size of the largest request, so that an
	// aligned request is one piece.
	chunkBytes = 1 << 20

	// smallest is what the first piece of a file begins with; it is doubled until it is a chunk, so
	// that many small files take little memory.
	smallest = 4 << 10

	// poolChunks is how many chunks of removed and truncated files are kept: 2 GiB.
	poolChunks = 2 << 10
)

// pool keeps chunks that no file has: the ceiling must not depend on page faults.
type pool struct {
	mu    sync.Mutex
	spare [][]byte
}

// get returns a chunk that is zero.
func (p *pool) get() []byte {
	p.mu.Lock()
	n := len(p.spare)
	if n == 0 {
		p.mu.Unlock()
		return make([]byte, chunkBytes)
	}
	c := p.spare[n-1]
	p.spare = p.spare[:n-1]
	p.mu.Unlock()
	clear(c)
	return c
}

func (p *pool) put(chunks [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range chunks {
		if len(c) == chunkBytes && len(p.spare) < poolChunks {
			p.spare = append(p.spare, c)
		}
	}
}

// file is chunks of memory. Reads hand out a chunk's memory without a copy; one that races with a
// truncation may see other bytes.
type file struct {
	pool *pool

	mu      sync.RWMutex
	chunks  [][]byte // only the first, if it is the only one, is shorter than chunkBytes
	size    int64
	written time.Time
}

func (f *file) state() (size uint64, written time.Time) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return uint64(f.size), f.written
}

// forgetTime is for a time of change that a program sets.
func (f *file) forgetTime() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = time.Time{}
}

// growLocked makes the file at least size bytes long.
func (f *file) growLocked(size int64) {
	if size <= chunkBytes/2 && len(f.chunks) <= 1 {
		f.growFirstLocked(size)
	} else {
		for int64(len(f.chunks))*chunkBytes < size {
			f.chunks = append(f.chunks, f.pool.get())
		}
		f.fillFirstLocked()
	}
	f.size = max(f.size, size)
}

func (f *file) growFirstLocked(size int64) {
	if size == 0 || len(f.chunks) == 1 && int64(len(f.chunks[0])) >= size {
		return
	}
	n := int64(smallest)
	for n < size {
		n *= 2
	}
	first := make([]byte, n)
	if len(f.chunks) == 1 {
		copy(first, f.chunks[0])
		f.chunks = f.chunks[:0]
	}
	f.chunks = append(f.chunks, first)
}

// fillFirstLocked makes a whole chunk of a first one that is shorter.
func (f *file) fillFirstLocked() {
	if len(f.chunks) > 0 && len(f.chunks[0]) < chunkBytes {
		whole := f.pool.get()
		copy(whole, f.chunks[0])
		f.chunks[0] = whole
	}
}

func (f *file) truncate(size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = time.Now()
	if size >= f.size {
		f.growLocked(size)
		return
	}
	keep := (size + chunkBytes - 1) / chunkBytes
	if keep < int64(len(f.chunks)) {
		f.pool.put(f.chunks[keep:])
		f.chunks = f.chunks[:keep]
	}
	if in := size % chunkBytes; in != 0 {
		clear(f.chunks[len(f.chunks)-1][in:])
	}
	f.size = size
}

// free gives the memory back.
func (f *file) free() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pool.put(f.chunks)
	f.chunks, f.size = nil, 0
}

// slicesLocked returns the memory of [off, off+n), cut at the end of the file.
func (f *file) slicesLocked(off, n int64) [][]byte {
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
	f.mu.RLock()
	pieces := f.slicesLocked(int64(in.Offset), int64(in.Size))
	f.mu.RUnlock()
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
	f.mu.Lock()
	f.growLocked(off + n)
	f.written = time.Now()
	f.mu.Unlock()
	f.mu.RLock()
	defer f.mu.RUnlock()
	done := 0
	for _, p := range f.slicesLocked(off, n) {
		done += copy(p, data[done:])
	}
	return uint32(done), fuse.OK
}

// Flush has nothing to do.
func (m *memory) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// Fsync has nothing to do.
func (m *memory) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status { return fuse.OK }
